// The tool behind this paper's evidence. Replace `tool` with your own: `run` takes text and returns a value or throws.
const tool = (() => {
  const MAX = 10000; // larger squares would leave 32 bits in the WASM edition
{{engine}}
  function radiusOf(text) {
    const value = Number(text);
    if (!Number.isInteger(value) || value < 1 || value > MAX) throw new RangeError(`The radius is a whole number from 1 to ${MAX}.`);
    return value;
  }

  function run(text) {
    const r = radiusOf(text);
    const points = count(r);
    const area = Math.PI * r * r;
    return { r, points, area, difference: points - area, bound: 2 * Math.SQRT2 * Math.PI * r };
  }

  return { capability: "lattice-count", ready, run };
})();

(() => {
  const form = document.getElementById("demo-form");
  if (!form) return;
  const radius = document.getElementById("radius");
  const result = document.getElementById("result");
  const picture = document.getElementById("picture");
  form.hidden = false;
  const number = (value, digits = 0) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replaceAll(",", "\u202f").replace("-", "−");

  function say(strong, rest) {
    const lead = document.createElement("strong");
    lead.textContent = strong;
    result.replaceChildren(lead, " ", rest);
    result.setAttribute("aria-busy", "false");
  }

  const show = (visible) => picture.toggleAttribute("hidden", !visible);
  function draw(r) {
    show(r <= 40);
    if (r > 40) return;
    let dots = "";
    for (let y = -r; y <= r; y++) for (let x = -r; x <= r; x++) if (x * x + y * y <= r * r) dots += `M${x} ${y}h0`;
    picture.setAttribute("viewBox", `${-r - 1} ${-r - 1} ${2 * r + 2} ${2 * r + 2}`);
    picture.querySelector("circle").setAttribute("r", r);
    picture.querySelector("path").setAttribute("d", dots);
  }

  async function attempt(work) {
    result.setAttribute("aria-busy", "true");
    try {
      await tool.ready;
      work();
    } catch (fault) {
      say("No result.", fault.message);
    }
  }

  function countOne() {
    const { r, points, area, difference, bound } = tool.run(radius.value);
    const side = difference < 0 ? "fewer" : "more";
    say(`N(${number(r)}) = ${number(points)}.`, `That is ${number(Math.abs(difference), 2)} ${side} than the area ${number(area, 2)}; Gauss’s bound allows ${number(bound, 2)}.`);
    draw(r);
    mark(String(r));
  }

  function sweep() {
    const last = tool.run(radius.value).r;
    let worst = 0, at = 0;
    for (let r = 1; r <= last; r++) {
      const { difference, bound } = tool.run(r);
      const share = Math.abs(difference) / bound;
      if (share > worst) [worst, at] = [share, r];
    }
    say(`${number(100 * worst, 1)} %`, `is the largest share of Gauss’s bound that any radius up to ${number(last)} uses, at r = ${number(at)}.`);
    show(false);
    if (worst < 0.25) mark(`sweep ${last}`);
  }

  // A claim whose badge names this input has been checked by the reader's own browser.
  function mark(input) {
    for (const badge of document.querySelectorAll(".badge[data-lra-input]")) {
      if (badge.dataset.lraInput === input) {
        badge.dataset.state = "ok";
        badge.textContent = "evidence: checked";
        badge.removeAttribute("aria-label");
      }
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(countOne);
  });
  document.getElementById("sweep").addEventListener("click", () => attempt(sweep));
  for (const badge of document.querySelectorAll(".badge[data-lra-input]")) {
    badge.addEventListener("click", () => {
      const [word, value] = badge.dataset.lraInput.split(" ");
      radius.value = value ?? word;
      attempt(value ? sweep : countOne);
    });
  }
})();

