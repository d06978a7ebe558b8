// The list of calls, live: rows are made of a template, and everything in them is set as text.
const MOST_ROWS = 200;
const button = document.querySelector("#live");
const state = document.querySelector("#live-state");
const body = document.querySelector("#calls tbody");
const template = document.querySelector("#row");
const WARN = new Set(["warn", "too_many", "too_fast", "not_there", "tool_said_no", "bad_arguments"]);
let source = null;
let seen = 0;
let missed = 0;
let least = false;

function tone(verdict) {
  if (verdict === "ok") return "good";
  return WARN.has(verdict) ? "warn" : "bad";
}

function plain(text) {
  // Control, direction and invisible characters are spelt out, as on the rest of the page.
  return String(text).slice(0, 300).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (char) => `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`);
}

function took(ms) {
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms.toFixed(ms < 1 ? 2 : 1)} ms`;
}

function add(call) {
  const row = template.content.firstElementChild.cloneNode(true);
  const link = row.querySelector("a");
  const query = link.dataset.query;
  link.href = `${link.dataset.href}${encodeURIComponent(call.request)}${query ? `?${query}` : ""}`;
  const values = {
    time: call.ts.slice(11, 23), tool: call.tool.split(":").pop() || "–", verdict: call.verdict, caller: call.caller || "no key",
    decision: call.decision || "–", tier: call.tier || "–", clamps: call.clamps || "–", ms: took(call.ms),
  };
  for (const cell of row.querySelectorAll("[data-field]")) cell.textContent = plain(values[cell.dataset.field]);
  row.querySelector("time").dateTime = call.ts;
  row.querySelector(".badge").classList.add(tone(call.verdict));
  put(row);
  seen += 1;
  tell();
}

function put(row) {
  body.querySelector(".none")?.remove();
  body.prepend(row);
  while (body.rows.length > MOST_ROWS) body.lastElementChild.remove();
}

function tell() {
  const more = least ? `, at least ${missed} left out` : missed ? `, ${missed} left out` : "";
  state.textContent = `Live: ${seen} since you switched it on${more}.`;
}

function leaveOut(calls) {
  // More came at once than a person can read: a row says how many, and leads to them.
  const row = document.querySelector("#left-out").content.firstElementChild.cloneNode(true);
  const link = row.querySelector("a");
  const query = new URLSearchParams(link.dataset.query);
  query.set("since", calls.since);
  query.set("until", calls.until);
  link.href = `${link.dataset.href}?${query}`;
  link.textContent = `${calls.least ? "At least " : ""}${calls.count} more ${calls.count === 1 ? "call" : "calls"} at this time, not shown here`;
  put(row);
  missed += calls.count;
  least ||= calls.least;
  tell();
}

function stop(text) {
  source?.close();
  source = null;
  button.setAttribute("aria-pressed", "false");
  state.textContent = text;
}

function start() {
  seen = 0;
  missed = 0;
  least = false;
  source = new EventSource(button.dataset.source);
  source.addEventListener("message", (event) => add(JSON.parse(event.data)));
  source.addEventListener("left-out", (event) => leaveOut(JSON.parse(event.data)));
  source.addEventListener("open", () => { state.textContent = "Live."; });
  source.addEventListener("end", () => stop("The server ended the live list: sign in again, or open the page again."));
  source.addEventListener("error", () => {
    if (source?.readyState === EventSource.CLOSED) stop("The live list ended: sign in again, or open the page again.");
    else state.textContent = "Live list interrupted; trying again.";
  });
  button.setAttribute("aria-pressed", "true");
}

if (button) {
  button.hidden = false;
  button.addEventListener("click", () => (source ? stop("") : start()));
}
