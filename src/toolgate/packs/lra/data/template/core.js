// The page itself: theme, copying, offline reading, and answers to programs that ask (LRA-1.0, section 11).
(() => {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const store = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* private window: the choice lasts for this visit */ } },
  };

  const theme = $("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  function showTheme() {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
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

  const cite = (form) => document.querySelector(`[data-lra-cite="${form}"]`)?.textContent;
  if (navigator.clipboard) {
    $("copy").hidden = false;
    $("copy").addEventListener("click", async () => {
      await navigator.clipboard.writeText(cite("bibtex"));
      $("copied").textContent = "Copied.";
    });
  }

  // What the page says of itself is read from the page: there is no second copy to fall behind.
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
    if (!tool) throw new Fault(-32000, "This paper has no tool.");
    const input = params?.input;
    if (typeof input !== "string" || input.length > MAX_INPUT) throw new Fault(-32602, `input is text of at most ${MAX_INPUT} characters.`);
    try {
      await tool.ready;
      return { ok: tool.run(input) };
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

  // Pages of this origin may ask, and those the author names in <meta name="lra:allow-origin">; the answer goes to the
  // asking origin alone. Sixty questions a minute for each.
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
