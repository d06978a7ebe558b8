// Keyboard: rows by j and k, search by /, pages by g and a letter, help by ?.
const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
let goes = false;

function chosen() {
  return document.querySelector('[data-row][aria-selected="true"]');
}

function choose(step) {
  const all = rows();
  if (all.length === 0) return;
  const at = all.indexOf(chosen());
  const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
  for (const row of all) row.removeAttribute("aria-selected");
  next.setAttribute("aria-selected", "true");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
}

const acts = {
  j: () => choose(1),
  k: () => choose(-1),
  "/": () => document.querySelector("[data-search]")?.focus(),
  "?": () => document.querySelector("#help")?.showModal(),
  l: () => document.querySelector("#live")?.click(),
  u: () => document.querySelector("[data-back]")?.click(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest("input, select, textarea, dialog[open]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (goes) {
    goes = false;
    const link = [...document.querySelectorAll("[data-go]")].find((each) => each.dataset.go === event.key);
    if (link) link.click();
    return;
  }
  if (event.key === "g") {
    goes = true;
    setTimeout(() => { goes = false; }, 1500);
    return;
  }
  const act = acts[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});
