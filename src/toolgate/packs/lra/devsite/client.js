// Live reload and the findings overlay of the dev site. No framework, nothing left behind in the page's own DOM but one
// element with a closed shadow root; works under the strictest policy a paper may set (script-src 'self').
// Sent together with devsite_inplace.js, in one function.
{
  const tag = document.currentScript;
  let version = new URL(tag.src).searchParams.get("v");
  let digest = tag.dataset.shown; // of the source that is shown
  let shown = null; // that source, parsed
  const KEY = `lra-scroll:${location.pathname}`;
  let source = null;
  // Folded unless the paper has no tier at all, a script failed, or somebody opened it: what stands between a paper and a tier that its
  // author may not want is no reason to cover the text.
  let choice = sessionStorage.getItem("lra-overlay");
  let hidden = choice !== "shown";

  const kept = sessionStorage.getItem(KEY);
  if (kept !== null) {
    sessionStorage.removeItem(KEY);
    const [x, y] = kept.split(",").map(Number);
    history.scrollRestoration = "manual";
    const restore = () => { scrollTo(x, y); history.scrollRestoration = "auto"; };
    if (document.readyState === "complete") restore(); else addEventListener("load", restore, { once: true });
  }

  // The page without the tag is the page of its author, text on both sides in one node again.
  const [before, after] = [tag.previousSibling, tag.nextSibling];
  tag.remove();
  if (before?.nodeType === Node.TEXT_NODE && after?.nodeType === Node.TEXT_NODE) {
    before.appendData(after.data);
    after.remove();
  }

  // Under Trusted Types a parser takes no plain text; where not even this policy may be made, every change is a reload.
  let policy = { createHTML: (html) => html };
  try { policy = globalThis.trustedTypes?.createPolicy("lra-dev-site", policy) ?? policy; } catch { /* refused */ }
  function parsed(html) {
    try { return new DOMParser().parseFromString(policy.createHTML(html), "text/html"); } catch { return null; }
  }

  function showSource(html, itsDigest) {
    if (itsDigest === digest) return true; // saved as it was
    const next = parsed(html);
    if (!shown || !next || !inPlace(shown, next, document.body)) return false;
    [shown, digest] = [next, itsDigest];
    return true;
  }

  function reload() {
    sessionStorage.setItem(KEY, `${scrollX},${scrollY}`);
    location.reload();
  }

  // A changed style sheet is loaded beside the old one and replaces it when it has arrived: no flash, nothing reset.
  function swap(files) {
    const links = [...document.querySelectorAll('link[rel~="stylesheet"][href]')];
    let all = true;
    for (const file of files) {
      const path = `/${file.split("/").map(encodeURIComponent).join("/")}`;
      const link = links.find((one) => new URL(one.href).pathname === path);
      if (!link) { all = false; continue; }
      const fresh = link.cloneNode();
      const url = new URL(link.href);
      url.searchParams.set("__lra", version);
      fresh.href = url.href;
      fresh.addEventListener("load", () => link.remove(), { once: true });
      fresh.addEventListener("error", () => fresh.remove(), { once: true });
      link.after(fresh);
    }
    return all;
  }

  const host = document.createElement("lra-findings");
  const root = host.attachShadow({ mode: "closed" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
    :host { all: initial; position: fixed; inset: auto 12px 12px auto; z-index: 2147483647; }
    .box { font: 13px/1.45 system-ui, sans-serif; color: #eee; background: #1c1c1ee6; border-radius: 8px; max-width: 420px;
           box-shadow: 0 2px 12px #0006; overflow: hidden; }
    button { all: unset; display: block; box-sizing: border-box; width: 100%; padding: 6px 12px; cursor: pointer; font-weight: 600; }
    button:focus-visible { outline: 2px solid #8ab4f8; outline-offset: -2px; }
    ol { margin: 0; padding: 0 12px 8px; list-style: none; max-height: 40vh; overflow: auto; }
    li { padding: 4px 0; border-top: 1px solid #fff2; }
    code { color: #ffd479; } small { color: #bbb; display: block; }
    @media print { :host { display: none; } }`);
  root.adoptedStyleSheets = [sheet];

  function text(tag, content) {
    const element = document.createElement(tag);
    element.textContent = content;
    return element;
  }

  // Faults of the page's own scripts, and what its policy stopped, stand in the overlay above the findings.
  const faults = [];
  let last = { tier: "…", passed: 0, total: 0, failing: [] };
  function fault(message, file, line) {
    if (faults.length >= 10 || (file ?? "").includes("/__lra/")) return;
    faults.push({ rule: "script", message: String(message).slice(0, 300), file: (file ?? "").replace(location.origin, ""), line: line || 0, fix: "" });
    if (choice !== "hidden") hidden = false;
    show(last);
  }
  addEventListener("error", (event) => { if (event instanceof ErrorEvent) fault(event.message, event.filename, event.lineno); else if (event.target?.src || event.target?.href) fault(`could not be loaded: ${event.target.src || event.target.href}`); }, true);
  addEventListener("unhandledrejection", (event) => fault(event.reason?.message ?? event.reason));
  addEventListener("securitypolicyviolation", (event) => fault(`the page's policy stopped ${event.violatedDirective} ${event.blockedURI}`, event.sourceFile, event.lineNumber));

  function show(report) {
    last = report;
    if (choice === null && report.tier === "NONE") hidden = false;
    const rows = [...faults, ...report.failing];
    const box = document.createElement("div");
    box.className = "box";
    const head = text("button", `${report.tier} · ${report.passed}/${report.total}${faults.length ? ` · ${faults.length} script error${faults.length > 1 ? "s" : ""}` : ""}`);
    head.setAttribute("aria-expanded", String(!hidden));
    const list = document.createElement("ol");
    list.hidden = hidden || rows.length === 0;
    for (const one of rows) {
      const item = document.createElement("li");
      const place = one.line ? `${one.file}:${one.line}` : one.file || "";
      item.append(text("code", one.rule), ` ${one.message} `, text("small", [place, one.fix].filter(Boolean).join(" — ")));
      list.append(item);
    }
    head.addEventListener("click", () => fold(!hidden, head, list));
    box.append(head, list);
    root.replaceChildren(box);
    host.dataset.tier = report.tier;
    host.dataset.faults = faults.map((one) => one.message).join("\n");
    host.dataset.failing = report.failing.map((one) => one.rule).join(" ");
    if (!host.isConnected) document.documentElement.append(host);
  }

  function fold(to, head, list) {
    hidden = to;
    choice = hidden ? "hidden" : "shown";
    sessionStorage.setItem("lra-overlay", choice);
    head.setAttribute("aria-expanded", String(!hidden));
    list.hidden = hidden;
  }

  addEventListener("keydown", (event) => {
    const [head, list] = [root.querySelector("button"), root.querySelector("ol")];
    if (event.key === "Escape" && head && !list.hidden) fold(true, head, list);
  });

  function open() {
    if (source) return;
    const query = new URLSearchParams({ page: location.pathname, shown: shown ? "" : digest });
    source = new EventSource(`/__lra/events?${query}`);
    source.addEventListener("hello", (event) => {
      const news = JSON.parse(event.data);
      // Whatever changed while nobody listened shows as another version.
      if (news.version !== version) reload();
      else if (!shown && "html" in news) shown = parsed(news.html);
    });
    source.addEventListener("change", (event) => {
      const news = JSON.parse(event.data);
      if (news.version === version) return; // the page was loaded after it
      version = news.version;
      const isShown = !news.reload && (!("html" in news) || showSource(news.html, news.digest)) && swap(news.css);
      if (!isShown) reload();
    });
    source.addEventListener("report", (event) => show(JSON.parse(event.data)));
  }

  // A browser keeps six connections to one host: tabs in the background give theirs back.
  function close() { if (source) { source.close(); source = null; } }
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  if (!document.hidden) open();
}
