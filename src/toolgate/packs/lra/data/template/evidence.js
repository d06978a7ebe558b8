// lra-page: claims and demos, as released.
// A badge turns green only when this page's own run of what the claim names gave the number that the claim's text says; red when
// not. Both values are told either way.
const lraEvidence = (() => {
  const LANG = document.documentElement.lang.toLowerCase().split("-")[0];
  const COMMA = "af bg ca cs da de el es et eu fi fr gl hr hu id is it lt lv nb nl nn no pl pt ro ru sk sl sr sv tr uk vi".split(" ").includes(LANG);
  const [GROUP, POINT] = COMMA ? [".", ","] : [",", "."];
  const BLANKS = " \u00a0\u2009\u202f'’";
  const grouped = `[0-9]{1,3}(?:([${BLANKS}${GROUP}])[0-9]{3})(?:\\3[0-9]{3})*(?![0-9])`;
  const SPELT = new RegExp(`^([-−+]?)((?:${grouped}|[0-9]+)(?:[${POINT}][0-9]+)?|[${POINT}][0-9]+)(?:e([+-]?[0-9]{1,3})|\\s?[×·]\\s?10(?:\\^([+\\-−]?[0-9]{1,3})|([⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,3})))?$`, "i");
  const NUMBER = /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?$/i;

  const say = lraSay;

  // A decimal number as "sign digits exponent" without needless zeros, so that equal numbers are equal texts.
  function plain(text) {
    const [, sign, whole, part = "", power = "0"] = /^([+-]?)([0-9]*)\.?([0-9]*)(?:e([+-]?[0-9]+))?$/i.exec(text);
    const digits = (whole + part).replace(/^0+/, "");
    const kept = digits.replace(/0+$/, "");
    return kept ? `${sign === "-" ? "-" : ""}${kept}e${Number(power) - part.length + digits.length - kept.length}` : "0";
  }
  function spelt(text) {
    const found = SPELT.exec(text.trim().replace(/\s+/g, " "));
    if (!found) return null;
    const small = (found[6] ?? "").replace(/./g, (sign) => "-+0123456789"["⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(sign)]);
    const body = found[2].replace(new RegExp(`[${BLANKS}${GROUP}]`, "g"), "").replace(POINT, ".");
    const power = (found[4] ?? found[5] ?? (small || "0")).replace("−", "-");
    return plain(`${found[1].replace("−", "-")}${body}e${power}`);
  }
  const spoken = (node) => [...node.childNodes].map((one) => (one.nodeName === "SUP" ? `^${one.textContent.trim()}` : one.childNodes.length ? spoken(one) : one.textContent)).join("");
  function shown(value) {
    const [, sign, whole, rest] = /^(-?)([0-9]*)(.*)$/.exec(String(value));
    return (sign && "−") + whole.replace(/\B(?=(?:[0-9]{3})+$)/g, "\u202f") + rest.replace(".", POINT);
  }

  // The bytes of the file that verifiers hash; from a disk, where a page may fetch nothing, the copy that they compare with it.
  const modules = new Map();
  async function bytesOf(file) {
    if (location.protocol !== "file:") {
      const answer = await fetch("./" + file);
      if (!answer.ok) throw new Error(`${file} could not be loaded (HTTP ${answer.status}).`);
      return answer.arrayBuffer();
    }
    const copy = [...document.querySelectorAll("script[data-lra-module]")].find((one) => one.dataset.lraModule === file);
    if (!copy) throw new Error(`${file} cannot be loaded from a disk.`);
    return Uint8Array.from(atob(copy.textContent), (char) => char.charCodeAt(0));
  }
  async function functionOf(reference) {
    const [file, name] = reference.trim().split("#");
    if (!modules.has(file)) modules.set(file, file.endsWith(".wasm") ? bytesOf(file).then((bytes) => WebAssembly.instantiate(bytes)).then((made) => made.instance.exports) : Promise.resolve(window.lraTools?.[file] ?? {}));
    const found = (await modules.get(file))[name];
    if (typeof found !== "function") throw new Error(`${file} has no function ${name}.`);
    return found;
  }
  function call(work, values) {
    if (work.length !== values.length) throw new Error(`The function takes ${work.length} numbers, not ${values.length}.`);
    let result;
    try { result = work(...values.map(Number)); } catch (fault) {
      if (!(fault instanceof TypeError)) throw fault;
      result = work(...values.map((one) => (/^[+-]?[0-9]+$/.test(one) ? BigInt(one) : Number(one)))); // i64
    }
    return Array.isArray(result) ? result : [result];
  }
  const run = async (reference, values) => call(await functionOf(reference), values);
  function isEqual(got, want, tolerance) {
    if (typeof got === "bigint" && !Number(tolerance)) return plain(String(got)) === plain(want);
    return /^(?:number|bigint)$/.test(typeof got) && Math.abs(Number(got) - Number(want)) <= Number(tolerance);
  }

  const words = (text) => (text ?? "").split(/\s+/).filter(Boolean);
  function claimOf(item) {
    if (!item.dataset.lraRun) return null;
    const marks = [...item.querySelectorAll("data.expect")], { lraRun, lraInput, lraTolerance = "0" } = item.dataset;
    return { item, marks, badge: item.querySelector(".badge"), expected: marks.map((one) => one.value.trim()), values: words(lraInput), run: lraRun.trim(), tolerance: lraTolerance };
  }
  function fault({ item, marks, expected }) {
    if ([...item.querySelectorAll("[data-lra-evidence]")].some((one) => !document.getElementById(one.dataset.lraEvidence))) return say("its evidence is not on the page");
    if (!expected.length || !expected.every((one) => NUMBER.test(one))) return say("the claim marks no number that could be compared");
    const odd = marks.find((one) => spelt(spoken(one)) !== plain(one.value.trim()));
    return odd ? `${say("the text says")} ${spoken(odd).trim()}, ${say("the value beside it is")} ${shown(odd.value)}` : "";
  }
  function tell(claim, state, text) {
    for (const one of [claim.output, ...claim.echoes.filter((echo) => echo.isOn)]) { one.dataset.state = state; one.textContent = text; }
    if (!claim.badge) return;
    claim.badge.dataset.state = state;
    const word = { ok: "checked", bad: "differs" }[state];
    claim.badge.textContent = say("evidence") + (word ? `: ${say(word)}` : "");
    claim.badge.setAttribute("aria-label", `${claim.badge.textContent} (${say("claim")} ${claim.item.dataset.lraClaim})`);
  }
  function judge(claim, results) {
    const agrees = results.length === claim.expected.length && results.every((one, at) => isEqual(one, claim.expected[at], claim.tolerance));
    const wrong = fault(claim), isFine = agrees && !wrong, said = wrong || `${say("claimed")} ${claim.expected.map(shown).join(", ")}`;
    tell(claim, isFine ? "ok" : "bad", `${say(isFine ? "Confirmed" : "Not confirmed")}: ${said}, ${say("computed here")} ${results.map(shown).join(", ")}.`);
  }
  async function check(claim) {
    tell(claim, "none", say("Computing …"));
    try { judge(claim, await run(claim.run, claim.values)); } catch (problem) { tell(claim, "none", `${say("Not checked")}: ${problem.message}`); }
  }
  function make(tag, name, text = "") {
    const element = document.createElement(tag);
    element.className = name;
    element.textContent = text;
    return element;
  }
  const claims = [...document.querySelectorAll("#claims [data-lra-claim]")].map(claimOf).filter(Boolean);
  for (const claim of claims) {
    const button = make("button", "check", say("Check it here"));
    button.type = "button";
    button.setAttribute("aria-label", `${say("Check it here")}: ${say("claim")} ${claim.item.dataset.lraClaim}`);
    Object.assign(claim, { output: make("output", "verdict"), echoes: [] });
    button.addEventListener("click", () => check(claim));
    claim.item.append(button, claim.output);
  }

  return { claims, functionOf, call, run, judge, shown, make, plain, spelt };
})();

for (const section of document.querySelectorAll("section.demo[data-lra-demo]")) {
  const { claims, functionOf, call, judge, shown, make } = lraEvidence;
  const form = section.querySelector("form.controls"), says = section.querySelector("output[data-lra-says]");
  const controls = [...form.elements].filter((one) => one.name);
  const values = () => controls.map((one) => one.value);
  const named = (text) => text.replace(/\{(\w+)\}/g, (gap, name) => form.elements[name]?.value ?? gap);
  const own = claims.filter((claim) => claim.run === section.dataset.lraDemo.trim());
  const echoes = own.map((claim) => [claim, make("output", "verdict")]);
  for (const [claim, echo] of echoes) { claim.echoes.push(echo); says?.after(echo); }
  for (const one of controls) if (one.type === "range") one.after(make("span", "value"));

  function sentence(results) {
    const filled = says.dataset.lraSays.replace(/\{(\w+)\}/g, (gap, name) => {
      const at = /^result([0-9]*)$/.exec(name);
      return at ? shown(results[Number(at[1] || 1) - 1] ?? "") : shown(form.elements[name]?.value ?? gap);
    });
    if (says.textContent !== filled) says.textContent = filled;
  }
  async function plot(place) {
    const over = form.elements[place.dataset.lraOver], at = controls.indexOf(over), work = await functionOf(place.dataset.lraPlot);
    const [from, to] = [Number(over.min), Number(over.max)], step = Math.max(Number(over.step) || 1, (to - from) / 400);
    const value = (x) => Number(call(work, values().map((one, index) => (index === at ? String(x) : one)))[0]);
    const points = Array.from({ length: Math.floor((to - from) / step + 1e-9) + 1 }, (_, index) => [from + index * step, value(from + index * step)]);
    const now = Number(over.value), there = value(now), ys = [0, there, ...points.map(([, y]) => y)].filter(Number.isFinite);
    const [low, high] = [Math.min(...ys), Math.max(...ys)], width = Math.max(place.clientWidth, 240), right = width - 14;
    const x = (v) => (52 + ((right - 52) * (v - from)) / (to - from || 1)).toFixed(1), y = (v) => (178 - (160 * (v - low)) / (high - low || 1)).toFixed(1);
    const number = (v, digits) => shown(Number(v.toPrecision(digits))), isLate = now > (from + to) / 2;
    const label = (left, top, anchor, text, kind = "") => `<text class="tick${kind}" x="${left}" y="${top}" text-anchor="${anchor}">${text}</text>`;
    place.innerHTML = `<svg viewBox="0 0 ${width} 205" aria-hidden="true"><path class="axis" d="M52 14V178M52 ${y(0)}H${right}"/>
      <path class="mark" d="M${points.map(([a, b]) => `${x(a)} ${y(b)}`).join("L")}"/><path class="axis now" d="M${x(now)} 14V178"/><circle class="now" cx="${x(now)}" cy="${y(there)}" r="5"/>
      ${label(46, 22, "end", number(high, 3))}${label(46, 181, "end", number(low, 3))}${label(52, 200, "start", number(from, 3))}${label(right, 200, "end", number(to, 3))}
      ${label(Number(x(now)) + (isLate ? -9 : 9), 12, isLate ? "end" : "start", `${number(now, 6)}: ${number(there, 5)}`, " now")}</svg>`;
  }
  async function raster(place) {
    const range = (text) => named(text).split(/\s+/).map((one) => Number(one.replace("--", "")));
    const work = await functionOf(place.dataset.lraRaster), [x0, x1] = range(place.dataset.lraX), [y0, y1] = range(place.dataset.lraY);
    const [columns, rows] = [x1 - x0 + 1, y1 - y0 + 1];
    if (!(columns > 0 && rows > 0 && columns * rows <= 250000)) throw new Error("The picture has too many marks.");
    const canvas = place.querySelector("canvas") ?? place.appendChild(make("canvas", "")), given = values().map(Number);
    const size = 640, cell = size / Math.max(columns, rows), pen = canvas.getContext("2d"), style = getComputedStyle(place);
    canvas.width = Math.round(cell * columns);
    canvas.height = Math.round(cell * rows);
    for (const [isIn, colour, share] of [[false, style.color, 0.22], [true, style.outlineColor, 0.36]]) {
      pen.fillStyle = colour;
      pen.globalAlpha = isIn ? 1 : 0.3;
      pen.beginPath();
      for (let y = y0; y <= y1; y++) for (let x = x0; x <= x1; x++) {
        if (Number(work(...given, x, y)) > 0 !== isIn) continue;
        const [a, b] = [(x - x0 + 0.5) * cell, (y1 - y + 0.5) * cell];
        if (cell < 5) pen.rect(a - cell * share, b - cell * share, cell * 2 * share, cell * 2 * share);
        else { pen.moveTo(a + cell * share, b); pen.arc(a, b, cell * share, 0, 7); }
      }
      pen.fill();
    }
  }

  let wanted = 0;
  async function show() {
    const turn = ++wanted; // the last change of a frame counts
    await new Promise(requestAnimationFrame);
    if (turn !== wanted) return;
    for (const one of controls) { const value = one.nextElementSibling; if (value?.className === "value") value.textContent = shown(one.value); }
    try {
      const results = call(await functionOf(section.dataset.lraDemo), values());
      if (turn !== wanted) return;
      if (says) sentence(results);
      for (const [claim, echo] of echoes) {
        echo.isOn = claim.values.join(" ") === values().join(" ");
        if (echo.isOn) judge(claim, results); else echo.textContent = "";
      }
      for (const place of section.querySelectorAll("[data-lra-plot]")) await plot(place);
      for (const place of section.querySelectorAll("[data-lra-raster]")) await raster(place);
    } catch (problem) { if (says) says.textContent = `${lraSay("No result")}. ${problem.message}`; }
  }
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  new MutationObserver(show).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  // The way from a claim to its demo sets the demo to what the claim runs.
  for (const claim of own) claim.badge?.addEventListener("click", () => { controls.forEach((one, at) => { one.value = claim.values[at] ?? one.value; }); show(); });
  show();
}
