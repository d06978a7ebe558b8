// lra-page: theme, reading aids, offline reading, answers to programs that ask (LRA-1.0, section 11), as released. Verifiers know
// these bytes: your own code stands above, or in a file of its own.
// A word in the page's language; a string or nothing, because an element with that id is no dictionary.
const lraSay = (text) => { const word = typeof lraWords === "object" && lraWords[text]; return typeof word === "string" ? word : text; };
(() => {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const say = lraSay;
  const store = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* private window: the choice lasts for this visit */ } },
  };

  const theme = $("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  function showTheme() {
    theme.textContent = say(isDark() ? "Light" : "Dark");
    theme.setAttribute("aria-label", say(isDark() ? "Use light colours" : "Use dark colours"));
  }
  const chosen = store.get("lra-theme");
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  theme.classList.remove("waiting");
  showTheme();
  dark.addEventListener("change", showTheme);
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    store.set("lra-theme", root.dataset.theme);
    showTheme();
  });

  const entries = new Map([...document.querySelectorAll('.contents a[href^="#"]')].map((link) => [$(decodeURIComponent(link.hash.slice(1))), link]));
  let current = null;
  function markCurrent() {
    const tops = [...entries.keys()].filter(Boolean).map((section) => [section, section.getBoundingClientRect().top]);
    const passed = tops.filter(([, top]) => top <= innerHeight * 0.3);
    const at = innerHeight + scrollY >= root.scrollHeight - 4 ? tops.at(-1) : passed.at(-1);
    const link = at ? entries.get(at[0]) : null;
    if (link === current) return;
    current?.removeAttribute("aria-current");
    link?.setAttribute("aria-current", "true");
    current = link;
  }
  addEventListener("scroll", () => requestAnimationFrame(markCurrent), { passive: true });
  markCurrent();

  // What is too wide can be scrolled by keyboard; what fits is no stop on the way.
  const wide = new ResizeObserver((found) => {
    for (const { target } of found) {
      const isWide = target.scrollWidth > target.clientWidth + 1;
      target.classList.toggle("more", isWide);
      if (!isWide) { target.removeAttribute("tabindex"); continue; }
      target.tabIndex = 0;
      if (!target.hasAttribute("role")) target.setAttribute("role", "group");
      if (!target.ariaLabel && !target.hasAttribute("aria-labelledby")) target.ariaLabel = say(target.querySelector("math") ? "Formula" : "Code");
    }
  });
  for (const one of document.querySelectorAll(".scroll")) wide.observe(one);

  // What a link leads to, beside the line that has it: in the margin where there is one, else below.
  const SHOWN = ".references li, .csl-entry, .equation, figure, .theorem, .sidenote";
  const card = document.createElement("div");
  card.className = "preview";
  card.inert = true;
  let opening = 0;
  function preview(link) {
    const target = $(decodeURIComponent(link.hash.slice(1)))?.closest(SHOWN);
    if (!target || target.contains(link) || (target.matches(".sidenote") && getComputedStyle(target).position === "absolute")) return;
    const copy = target.cloneNode(true);
    for (const one of [copy, ...copy.querySelectorAll("[id], [tabindex]")]) { one.removeAttribute("id"); one.removeAttribute("tabindex"); }
    const held = document.createElement(copy.nodeName === "LI" ? "ol" : "div");
    held.append(copy);
    card.replaceChildren(held);
    document.querySelector(".page").append(card);
    const [page, main, line] = [card.parentNode, document.querySelector("main"), link].map((one) => one.getBoundingClientRect());
    const isBeside = page.right - main.right > 180;
    const left = isBeside ? main.right - page.left + 48 : Math.min(line.left - page.left, page.width - card.offsetWidth);
    card.style.left = `${Math.max(0, left)}px`;
    card.style.top = `${(isBeside ? line.top - 8 : line.bottom + 6) - page.top}px`;
  }
  const unpreview = () => { clearTimeout(opening); card.remove(); };
  for (const link of document.querySelectorAll('main a[href^="#"]:not(.badge):not(.note-back)')) {
    link.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") { clearTimeout(opening); opening = setTimeout(preview, 120, link); } });
    link.addEventListener("pointerleave", unpreview);
    link.addEventListener("focus", () => { if (link.matches(":focus-visible")) preview(link); });
    link.addEventListener("blur", unpreview);
    link.addEventListener("click", unpreview);
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") unpreview(); });

  const cite = (form) => document.querySelector(`[data-lra-cite="${form}"]`)?.textContent;
  if (navigator.clipboard) {
    $("copy").hidden = false;
    $("copy").addEventListener("click", async () => {
      await navigator.clipboard.writeText(cite("bibtex"));
      $("copied").textContent = say("Copied.");
    });
  }

  // Read from the page itself: no second copy can fall behind.
  const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";
  const FORMATS = ["bibtex", "apa", "ris"];
  const MAX_INPUT = 65536; // characters
  const capability = meta("lra:capability") || undefined;
  const claims = [...document.querySelectorAll("#claims [data-lra-claim]")].map((item) => {
    const link = item.querySelector("[data-lra-evidence]");
    return { id: item.id, text: (item.querySelector("p") ?? item).textContent.trim(), evidence_href: link?.getAttribute("href") ?? null };
  });
  const snapshot = {
    ping: { status: "ok", version: meta("lra:version"), capability },
    meta: {
      title: document.title,
      authors: [...document.querySelectorAll('meta[name="citation_author"]')].map((one) => one.content),
      date: document.querySelector("time")?.dateTime ?? "",
      license: meta("lra:license"),
      version: meta("lra:version"),
      abstract: meta("lra:abstract"),
      keywords: meta("lra:keywords").split(",").map((word) => word.trim()).filter(Boolean),
      claims_count: claims.length,
    },
    claims,
    cite: Object.fromEntries(FORMATS.map((form) => [form, cite(form)])),
  };

  class Fault extends Error {
    constructor(code, message) { super(message); this.code = code; }
  }
  async function runTool(params) {
    const own = window.lraTools?.run, evidence = typeof lraEvidence === "undefined" ? null : lraEvidence;
    const runs = document.querySelector("[data-lra-demo]")?.dataset.lraDemo ?? evidence?.claims[0]?.run;
    if (!own && !(evidence && runs)) throw new Fault(-32000, "This paper has no tool.");
    const input = params?.input;
    if (typeof input !== "string" || input.length > MAX_INPUT) throw new Fault(-32602, `input is text of at most ${MAX_INPUT} characters.`);
    try {
      if (own) return { ok: await own(input) };
      const values = input.split(/\s+/).filter(Boolean);
      if (!values.every((one) => one.length <= 40 && Number.isFinite(Number(one)))) throw new TypeError("The input is numbers, separated by blanks.");
      return { ok: { function: runs, results: (await evidence.run(runs, values)).map(String) } };
    } catch (fault) {
      return { err: fault.message };
    }
  }
  const methods = new Map([
    ["lra.ping", () => snapshot.ping],
    ["lra.meta", () => snapshot.meta],
    ["lra.claims", () => snapshot.claims],
    ["lra.cite", (params) => {
      const form = params?.format ?? "bibtex";
      if (!FORMATS.includes(form)) throw new Fault(-32602, `format is one of ${FORMATS.join(", ")}.`);
      return { citation: snapshot.cite[form] };
    }],
    ["lra.run_tool", runTool],
  ]);
  async function answer(request) {
    const { id, method, params } = request;
    const reply = (body) => ({ jsonrpc: "2.0", id, ...body });
    try {
      if (!methods.has(method)) throw new Fault(-32601, "Unknown method.");
      return reply({ result: await methods.get(method)(params) });
    } catch (fault) {
      return reply({ error: { code: fault.code ?? -32603, message: fault.code ? fault.message : "Internal error." } });
    }
  }
  const isRequest = (data) =>
    data !== null && typeof data === "object" && data.jsonrpc === "2.0" && typeof data.method === "string" &&
    (Number.isSafeInteger(data.id) || (typeof data.id === "string" && data.id.length <= 128));

  // Pages of this origin, and of those named in <meta name="lra:allow-origin">, may ask sixty times a minute; only who asks is answered.
  const allowed = new Set([location.origin, ...meta("lra:allow-origin").split(/\s+/).filter(Boolean)]);
  allowed.delete("null");
  const asked = new Map();
  function withinRate(origin) {
    const now = performance.now();
    const recent = (asked.get(origin) ?? []).filter((time) => now - time < 60000);
    const free = recent.length < 60;
    asked.set(origin, free ? [...recent, now] : recent);
    return free;
  }
  addEventListener("message", async (event) => {
    if (!allowed.has(event.origin) || !event.source || event.source === window || !isRequest(event.data)) return;
    const reply = withinRate(event.origin)
      ? await answer(event.data)
      : { jsonrpc: "2.0", id: event.data.id, error: { code: -32000, message: "Too many requests; wait a minute." } };
    event.source.postMessage(reply, event.origin);
  });

  if ("serviceWorker" in navigator && location.protocol.startsWith("http")) {
    navigator.serviceWorker.addEventListener("message", async (event) => {
      if (event.data?.lra === "run") event.ports[0]?.postMessage(await answer(event.data.request));
    });
    navigator.serviceWorker.register("sw.js").then(() => navigator.serviceWorker.ready).then((registration) => {
      registration.active.postMessage({ lra: "snapshot", value: JSON.parse(JSON.stringify(snapshot)) });
    }).catch(() => { /* reading online needs no worker */ });
  }
})();
