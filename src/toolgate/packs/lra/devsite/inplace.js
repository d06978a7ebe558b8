// Shows a page's new source in the page that is open, when that gives what a reload would show; otherwise says no.
//
// What changed is found between two *sources*, the one shown and the new one, and done at the same places of the live page,
// so that what scripts and readers made elsewhere stays. Nothing is touched until the whole change is known to be possible.
// The reasons to say no, in order:
//   1. something outside the body differs: head, policy, style, title, attributes of <html> and <body>, a template
//   2. the change lies in, adds or removes what is more than prose: scripts, controls, media, frames, custom elements
//   3. the page has scripts, and they may have read it or may make something of it: data-* attributes, formulas in text,
//      empty elements with an id, elements of a kind (name and class) that is new to the page or whose attributes they set
//   4. the live page is not as its source at the place of the change
//   5. scripts or readers made content elsewhere: then only plain text changes, and not in headings or captions, because
//      what was made may be a list of these or a number in front of them
const inPlace = (() => {
  const PROSE = new Set((
    "main section article aside header footer nav address div p span h1 h2 h3 h4 h5 h6 hgroup blockquote pre code kbd samp " +
    "var em strong b i u s small sub sup cite q abbr dfn mark time del ins bdi bdo ruby rb rt rp br wbr hr a ul ol li dl dt dd " +
    "table caption colgroup col thead tbody tfoot tr th td figure figcaption img picture source details summary"
  ).split(" "));
  const HEADS = "h1, h2, h3, h4, h5, h6, caption, figcaption, summary, dt, th";
  const SVG = "http://www.w3.org/2000/svg", MATHML = "http://www.w3.org/1998/Math/MathML";
  const ACTIVE_SVG = /^(script|style|foreignObject|animate.*|set|discard)$/i;
  // A handler, a style (which the paper's policy judges when a page is parsed, not when it is patched), a behaviour.
  const ACTIVE_ATTRIBUTE = /^(on.*|style|is|slot|autofocus|contenteditable|popover.*|srcdoc|nonce)$/i;
  const PLAIN_ATTRIBUTE = /^[a-z_][a-z0-9_-]*$/i;
  const FORMULA = /[$\\`]/;

  function must(holds, why) { if (!holds) throw new Error(why); }

  const kind = (node) => `${node.nodeName}#${node.id ?? ""}`;
  const classed = (element) => `${element.localName}.${element.getAttribute("class") ?? ""}`;
  const shell = (element) => element.cloneNode(false);
  const isPaired = ([one, other]) => one && other;

  function counted(nodes) {
    const counts = new Map();
    for (const node of nodes) counts.set(kind(node), (counts.get(kind(node)) ?? 0) + 1);
    return counts;
  }

  // Which child of one list is which of the other, in the order of the second: [a, b], [a, null] if it went, [null, b] if it
  // came. Equal beginnings and ends first; between them one by one if the kinds agree, else by kinds that occur once in each.
  function pairs(as, bs) {
    let start = 0, endA = as.length, endB = bs.length;
    while (start < endA && start < endB && as[start].isEqualNode(bs[start])) start++;
    while (endA > start && endB > start && as[endA - 1].isEqualNode(bs[endB - 1])) { endA--; endB--; }
    const [a, b] = [[...as].slice(start, endA), [...bs].slice(start, endB)];
    const head = [...as].slice(0, start).map((node, at) => [node, bs[at]]);
    const tail = [...as].slice(endA).map((node, at) => [node, bs[endB + at]]);
    return [...head, ...between(a, b), ...tail];
  }

  function between(a, b) {
    if (a.length === b.length && a.every((node, at) => kind(node) === kind(b[at]))) return a.map((node, at) => [node, b[at]]);
    const [inA, inB] = [counted(a), counted(b)];
    const places = new Map(a.map((node, at) => [kind(node), at]));
    const found = [];
    let next = 0;
    for (const node of b) {
      const at = inA.get(kind(node)) === 1 && inB.get(kind(node)) === 1 ? places.get(kind(node)) : -1;
      if (at < next) { found.push([null, node]); continue; }
      found.push(...a.slice(next, at).map((gone) => [gone, null]), [a[at], node]);
      next = at + 1;
    }
    return [...found, ...a.slice(next).map((gone) => [gone, null])];
  }

  // How the live page differs from its source: elements of the source that hold content somebody made, and the names of
  // elements whose attributes somebody set. (A parser that runs scripts reads <noscript> as text: that is no difference.)
  function survey(source, live, seen) {
    if (source.nodeName === "NOSCRIPT" || source.isEqualNode(live)) return false;
    if (source.nodeType !== Node.ELEMENT_NODE) return true;
    if (source.nodeName !== "DETAILS" && !shell(source).isEqualNode(shell(live))) seen.retouched.add(source.nodeName);
    let made = false;
    for (const [a, b] of pairs(source.childNodes, live.childNodes)) made = !a || !b || survey(a, b, seen) || made;
    if (made) seen.made.add(source);
    return made;
  }

  // Everything of a document but the body's content, and the templates, which no comparison of nodes looks into.
  function frame(page) {
    const outside = [...page.childNodes, ...page.documentElement.childNodes].filter((node) => node !== page.documentElement);
    const parts = outside.map((node) => (node === page.body ? shell(node) : node));
    const templates = [...page.querySelectorAll("template")].map((one) => one.innerHTML);
    return { parts: [shell(page.documentElement), ...parts], templates: JSON.stringify(templates) };
  }

  function isFramedAlike(one, other) {
    const [a, b] = [frame(one), frame(other)];
    return a.templates === b.templates && a.parts.length === b.parts.length && a.parts.every((part, at) => part.isEqualNode(b.parts[at]));
  }

  class Plan {
    constructor(shown, next, live) {
      this.steps = [];
      this.hasScripts = shown.scripts.length > 0 || next.scripts.length > 0;
      this.kinds = new Set([...shown.body.querySelectorAll("*")].map(classed));
      this.seen = { made: new Set(), retouched: new Set() };
      must(isFramedAlike(shown, next), "outside the body");
      must(live instanceof HTMLBodyElement && shown.body instanceof HTMLBodyElement, "no body");
      survey(shown.body, live, this.seen);
      this.children(shown.body, next.body, live);
    }

    change(from, to, live) {
      if (from.isEqualNode(to)) return;
      must(live, "not there");
      if (from.nodeType === Node.ELEMENT_NODE) this.element(from, to, live);
      else this.text(from, to, live);
    }

    text(from, to, live) {
      must(live.data === from.data, "changed meanwhile");
      must(!this.seen.made.size || !from.parentElement.closest(HEADS), "a heading that something may list");
      must(!this.isFormula(from) && !this.isFormula(to), "a formula");
      this.steps.push(() => { live.data = to.data; });
    }

    element(from, to, live) {
      this.plain(from);
      must(!this.seen.made.has(from) || this.isCertain(from), "may be another element");
      for (const name of new Set([...from.getAttributeNames(), ...to.getAttributeNames()])) this.attribute(name, from, to, live);
      this.children(from, to, live);
    }

    attribute(name, from, to, live) {
      const [was, will] = [from.getAttribute(name), to.getAttribute(name)];
      if (was === will) return;
      must(!this.seen.made.size && PLAIN_ATTRIBUTE.test(name) && !this.isActive(name), "an attribute");
      must(live.getAttribute(name) === was, "changed meanwhile");
      must(name !== "class" || this.isLeftAlone(to), "scripts may make something of it");
      this.steps.push(() => { if (will === null) live.removeAttribute(name); else live.setAttribute(name, will); });
    }

    children(from, to, live) {
      const now = new Map(pairs(from.childNodes, live.childNodes).filter(isPaired));
      let last = null;
      for (const [a, b] of pairs(from.childNodes, to.childNodes)) {
        if (a && b) { this.change(a, b, now.get(a)); last = now.get(a); }
        else if (a) this.removal(a, now.get(a));
        else last = this.insertion(b, live, last);
      }
    }

    removal(from, live) {
      must(!this.seen.made.size && live?.isEqualNode(from), "changed meanwhile");
      this.whole(from);
      this.steps.push(() => live.remove());
    }

    insertion(node, parent, last) {
      must(!this.seen.made.size, "scripts make content");
      this.whole(node);
      const fresh = document.importNode(node, true);
      this.steps.push(() => { if (last) last.after(fresh); else parent.prepend(fresh); });
      return fresh;
    }

    // A node that comes or goes with all that is in it.
    whole(node) {
      must(node.nodeType !== Node.TEXT_NODE || !this.isFormula(node), "a formula");
      if (node.nodeType !== Node.ELEMENT_NODE) return;
      must(!this.isFormula(node), "a formula");
      for (const element of [node, ...node.querySelectorAll("*")]) {
        this.plain(element);
        must(this.isLeftAlone(element), "scripts may make something of it");
        must(!element.getAttributeNames().some((name) => this.isActive(name)), "an active attribute");
      }
    }

    // No more than prose, and nothing by which scripts find it.
    plain(element) {
      const isKnown = element.namespaceURI === SVG ? !ACTIVE_SVG.test(element.nodeName)
        : element.namespaceURI === MATHML || PROSE.has(element.localName);
      must(isKnown, "more than prose");
      must(!this.hasScripts || !element.getAttributeNames().some((name) => name.startsWith("data-")), "a script's data");
    }

    // Scripts have left elements of this kind alone, as far as can be seen.
    isLeftAlone(element) {
      return !this.seen.retouched.has(element.nodeName) &&
        (!this.hasScripts || (this.kinds.has(classed(element)) && (!element.id || element.hasChildNodes())));
    }

    isActive(name) { return ACTIVE_ATTRIBUTE.test(name) || (this.hasScripts && name.startsWith("data-")); }
    isFormula(node) { return this.hasScripts && FORMULA.test(node.textContent); }

    // Something was made in it, so its content does not tell which it is: that it is the only one of its kind must.
    isCertain(element) { return counted(element.parentNode.childNodes).get(kind(element)) === 1; }
  }

  // True if `live` (a body) now is what `next` says; false if only a reload is sure to show it.
  return function inPlace(shown, next, live) {
    try {
      for (const step of new Plan(shown, next, live).steps) step();
      return true;
    } catch {
      return false; // a reason above, or a page so odd that its own names hide those of the DOM: a reload is right for both
    }
  };
})();
