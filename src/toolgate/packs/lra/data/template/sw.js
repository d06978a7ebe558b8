// lra-page: offline reading, answers to pages of this origin (LRA-1.0, section 11), as released but for ASSETS.
// The cache is named by a digest of what is in it.
const ASSETS = [{{assets}}];
const HERE = new URL(self.registration.scope).pathname;
const PREFIX = `lra:${HERE}:`;
const STATE = `lra-state:${HERE}`;
const HEADLESS = ["lra.ping", "lra.meta", "lra.claims", "lra.cite"];
const RELAY_MS = 10000;

const hex = (buffer) => [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// Fetch every file anew, keep them under their common digest, drop what was before.
async function refresh() {
  const answers = await Promise.all(ASSETS.map((name) => fetch("./" + name, { cache: "no-cache" })));
  if (!answers.every((answer) => answer.ok)) return;
  const digests = await Promise.all(answers.map(async (answer) => hex(await crypto.subtle.digest("SHA-256", await answer.clone().arrayBuffer()))));
  const name = PREFIX + hex(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(digests.join()))).slice(0, 16);
  if (await caches.has(name)) return;
  const cache = await caches.open(name);
  await Promise.all(ASSETS.map((asset, index) => cache.put("./" + asset, answers[index])));
  for (const other of await caches.keys()) if (other.startsWith(PREFIX) && other !== name) await caches.delete(other);
}

self.addEventListener("install", (event) => event.waitUntil(refresh().then(() => self.skipWaiting())));
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

// The network first, so that a reader never sees an old paper while a new one can be had.
self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(self.registration.scope)) return;
  event.respondWith(fetch(request).catch(async () => (await caches.match(request, { ignoreSearch: true })) ?? Response.error()));
  if (request.mode === "navigate") event.waitUntil(refresh().catch(() => {}));
});

async function snapshot() {
  const kept = await (await caches.open(STATE)).match("./state");
  return kept ? kept.json() : null;
}

function isRequest(data) {
  return data !== null && typeof data === "object" && data.jsonrpc === "2.0" && typeof data.method === "string" &&
    (Number.isSafeInteger(data.id) || (typeof data.id === "string" && data.id.length <= 128));
}

async function relay(request) {
  const tabs = await self.clients.matchAll({ type: "window" });
  const tab = tabs.find((one) => one.url.startsWith(self.registration.scope));
  if (!tab) return { error: { code: -32000, message: "No tab is open.", data: { headless: true, retry: true, methods_available: HEADLESS } } };
  return new Promise((resolve) => {
    const channel = new MessageChannel();
    const timer = setTimeout(() => resolve({ error: { code: -32000, message: "The tab did not answer." } }), RELAY_MS);
    channel.port1.onmessage = ({ data }) => {
      clearTimeout(timer);
      resolve(data.error ? { error: data.error } : { result: data.result });
    };
    tab.postMessage({ lra: "run", request }, [channel.port2]);
  });
}

async function answer(request) {
  if (request.method === "lra.run_tool") return relay(request);
  if (!HEADLESS.includes(request.method)) return { error: { code: -32601, message: "Unknown method." } };
  const known = await snapshot();
  if (!known) return { error: { code: -32000, message: "Open the paper once.", data: { headless: false, retry: true, methods_available: [] } } };
  if (request.method === "lra.ping") return { result: { ...known.ping, headless_methods: HEADLESS, tool_requires_tab: true } };
  if (request.method !== "lra.cite") return { result: request.method === "lra.meta" ? known.meta : known.claims };
  const form = request.params?.format ?? "bibtex";
  if (!Object.hasOwn(known.cite, form)) return { error: { code: -32602, message: "format is bibtex, apa or ris." } };
  return { result: { citation: known.cite[form] } };
}

const asked = new Map();
function withinRate(client) {
  const now = Date.now();
  const recent = (asked.get(client) ?? []).filter((time) => now - time < 60000);
  const free = recent.length < 60;
  asked.set(client, free ? [...recent, now] : recent);
  if (asked.size > 100) asked.delete(asked.keys().next().value);
  return free;
}

self.addEventListener("message", (event) => {
  const { data, source } = event;
  if (!source || !("url" in source) || new URL(source.url).origin !== self.location.origin) return;
  if (data?.lra === "snapshot" && source.url.startsWith(self.registration.scope)) {
    event.waitUntil(caches.open(STATE).then((cache) => cache.put("./state", new Response(JSON.stringify(data.value)))));
  } else if (isRequest(data)) {
    const limited = { error: { code: -32000, message: "Too many requests; wait a minute." } };
    const reply = withinRate(source.id) ? answer(data) : Promise.resolve(limited);
    event.waitUntil(reply.then((body) => source.postMessage({ jsonrpc: "2.0", id: data.id, ...body })));
  }
});
