// Live reload and the findings overlay of the dev site. No framework, nothing left behind in the page's own DOM but one
// element with a closed shadow root; works under the strictest policy a paper may set (script-src 'self').
"use strict";
(() => {
  let version = new URL(document.currentScript.src).searchParams.get("v");
  const KEY = `lra-scroll:${location.pathname}`;
  let source = null;
  let hidden = sessionStorage.getItem("lra-overlay") === "hidden";

  const kept = sessionStorage.getItem(KEY);
  if (kept !== null) {
    sessionStorage.removeItem(KEY);
    const [x, y] = kept.split(",").map(Number);
    history.scrollRestoration = "manual";
    const restore = () => { scrollTo(x, y); history.scrollRestoration = "auto"; };
    if (document.readyState === "complete") restore(); else addEventListener("load", restore, { once: true });
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

  function show(report) {
    const box = document.createElement("div");
    box.className = "box";
    const head = text("button", `${report.tier} · ${report.passed}/${report.total}`);
    head.setAttribute("aria-expanded", String(!hidden));
    const list = document.createElement("ol");
    list.hidden = hidden || report.failing.length === 0;
    for (const one of report.failing) {
      const item = document.createElement("li");
      const place = one.line ? `${one.file}:${one.line}` : one.file || "";
      item.append(text("code", one.rule), ` ${one.message} `, text("small", [place, one.fix].filter(Boolean).join(" — ")));
      list.append(item);
    }
    head.addEventListener("click", () => fold(!hidden, head, list));
    box.append(head, list);
    root.replaceChildren(box);
    host.dataset.tier = report.tier;
    host.dataset.failing = report.failing.map((one) => one.rule).join(" ");
    if (!host.isConnected) document.documentElement.append(host);
  }

  function fold(to, head, list) {
    hidden = to;
    sessionStorage.setItem("lra-overlay", hidden ? "hidden" : "shown");
    head.setAttribute("aria-expanded", String(!hidden));
    list.hidden = hidden;
  }

  addEventListener("keydown", (event) => {
    const [head, list] = [root.querySelector("button"), root.querySelector("ol")];
    if (event.key === "Escape" && head && !list.hidden) fold(true, head, list);
  });

  function open() {
    if (source) return;
    source = new EventSource(`/__lra/events?page=${encodeURIComponent(location.pathname)}`);
    // Whatever changed while nobody listened shows as another version.
    source.addEventListener("hello", (event) => { if (JSON.parse(event.data).version !== version) reload(); });
    source.addEventListener("change", (event) => {
      const news = JSON.parse(event.data);
      version = news.version;
      if (!news.css || !swap(news.css)) reload();
    });
    source.addEventListener("report", (event) => show(JSON.parse(event.data)));
  }

  // A browser keeps six connections to one host: tabs in the background give theirs back.
  function close() { if (source) { source.close(); source = null; } }
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  if (!document.hidden) open();
})();
