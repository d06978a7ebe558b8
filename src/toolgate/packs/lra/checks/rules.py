"""The catalogue: the 23 checks of LRA-1.0 in their order, and the advisories beyond them. Ids are permanent."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Tier = Literal["bronze", "silver", "gold", "advisory"]
TierName = Literal["NONE", "BRONZE", "SILVER", "GOLD"]
TIER_NAMES: Final[tuple[TierName, ...]] = ("NONE", "BRONZE", "SILVER", "GOLD")
"""What a paper can be; worst first."""


class PaperRule(Struct, frozen=True):
    id: str
    tier: Tier
    label: str
    why: str
    fix: str
    spec: str
    """Clause of LRA-1.0, or the standard behind an advisory."""
    fixable: bool = False
    """`lra validate --fix` can do it without inventing anything."""


def _rule(ident: str, label: str, spec: str, why: str, fix: str, *, fixable: bool = False) -> PaperRule:
    tiers: dict[str, Tier] = {"B": "bronze", "S": "silver", "G": "gold", "A": "advisory"}
    return PaperRule(ident, tiers[ident[0]], label, why, fix, spec, fixable)


# fmt: off
_CHECKS: Final = (
    _rule("B1", "html lang attribute", "3.3",
          "Screen readers choose a voice, and browsers hyphenate, by the language of the page.",
          'Write <html lang="en"> with the language of your text.'),
    _rule("B2", "meta charset", "3.3",
          "Without it a browser guesses the encoding, and names and formulas break.",
          'Put <meta charset="utf-8"> first in <head>.', fixable=True),
    _rule("B3", "meta viewport", "3.3",
          "Without it a phone shows the page at desktop width.",
          'Add <meta name="viewport" content="width=device-width, initial-scale=1"> to <head>.', fixable=True),
    _rule("B4", "meta description", "3.3",
          "Search engines and link previews show it.",
          'Add <meta name="description" content="one sentence about the result"> to <head>.'),
    _rule("B5", "title element", "3.3",
          "Tabs, bookmarks, search results and screen readers announce the page by its title.",
          "Put one <title> with the paper's title into <head>."),
    _rule("B6", "abstract section", "3.2",
          "Tools and readers find the abstract by its id.",
          'Wrap the abstract in <section id="abstract">.', fixable=True),
    _rule("B7", "claims section", "3.2",
          "Every claim must be addressable: tools read them from one list.",
          'Put the claims into <section id="claims"> as <ol><li>…</li></ol>.', fixable=True),
    _rule("B8", "references section", "3.2",
          "Tools and readers find the references by their id.",
          'Wrap the references in <section id="references">.', fixable=True),
    _rule("B9", "citation section", "3.2",
          "Readers look for the way to cite the paper in one place.",
          'Wrap the citation in <section id="citation">.', fixable=True),
    _rule("B10", "data-lra-claim attribute", "3.2.1",
          "Verifiers extract claims by this attribute; without it the paper claims nothing.",
          'Write each claim as <li id="claim-1" data-lra-claim="1"> in the claims section.'),
    _rule("B11", "LICENSE file exists", "3.1",
          "Without a licence file nobody may reuse the work.",
          "Put the full licence text into a file named LICENSE beside the page.", fixable=True),
    _rule("B12", "LICENSE is a recognised full licence text", "3.4",
          "A stub or an altered text grants nobody anything.",
          "Copy the complete, unchanged text of the licence into LICENSE."),
    _rule("B13", "CITATION.cff exists", "3.1",
          "Reference managers and archives read the citation from it.",
          "Add a CITATION.cff (YAML, cff-version 1.2.0) beside the page."),
    _rule("B14", "meta lra:version", "11.2",
          "It says by which version of the standard the page is to be read.",
          'Add <meta name="lra:version" content="1.0"> to <head>.', fixable=True),
    _rule("B15", "CITATION.cff license agrees with LICENSE", "3.4",
          "Two different licences in one artifact leave the reader with none.",
          "Set license: in CITATION.cff to the SPDX id of the text in LICENSE.", fixable=True),
    _rule("B16", "paper.css exists", "3.1",
          "The look of the page belongs to the artifact and must travel with it.",
          "Put the style sheet into paper.css beside the page, or into a <style> element."),
    _rule("S1", "demo section", "5 (Silver)",
          "A living paper lets its reader try something.",
          'Add <section class="demo"> with at least one input, button, select or textarea.'),
    _rule("S2", "noscript fallback", "4.2",
          "Readers without JavaScript must learn what the demo would show.",
          "Add <noscript> with a sentence or the demo's result to <body>."),
    _rule("S3", "paper.js exists", "5 (Silver)",
          "The demo's code belongs to the artifact.",
          "Put the demo's code into paper.js beside the page, or into an inline script."),
    _rule("G1", "WASM module present", "5 (Gold)",
          "Gold means that the evidence itself runs in the reader's browser.",
          "Add a compiled module such as wasm/evidence.wasm that exports a function."),
    _rule("G2", "evidence link", "5 (Gold)",
          "A claim without a way to its evidence is an assertion.",
          'Inside a claim write <a href="#demo-1" data-lra-evidence="demo-1"> with the id of what verifies it.'),
    _rule("G3", "no external resources", "6.1",
          "What comes from another server can change, track the reader, or be gone.",
          "Copy the resource into the artifact and load it by a relative address."),
    _rule("G4", "aria-live region", "4.3",
          "Readers who do not see the page must be told the demo's result.",
          'Put aria-live="polite" on the element that shows the result.'),
)

_ADVISORIES: Final = (
    _rule("A101", "claim id and number agree", "3.2.1",
          "Links and receipts address claim N as claim-N.",
          'Write id="claim-N" and data-lra-claim="N" with the same N on each claim.', fixable=True),
    _rule("A102", "claims are numbered 1, 2, 3, …", "3.2.1",
          "A gap or a repetition makes a citation of a claim ambiguous.",
          "Number the claims from 1 without gaps."),
    _rule("A103", "evidence links resolve", "3.2.1",
          "A claim whose evidence does not exist misleads its reader.",
          "Point data-lra-evidence and href at the same existing id."),
    _rule("A104", "internal links resolve", "HTML",
          "A link to an id that is not there leads nowhere.",
          "Correct the fragment or add the id."),
    _rule("A105", "ids are unique", "HTML",
          "A link to a repeated id reaches the first one only.",
          "Rename the later ones."),
    _rule("A201", "no placeholder text left", "3",
          "A forgotten placeholder is published as if it were meant.",
          "Replace it with your own text."),
    _rule("A202", "JSON-LD describes the article", "3.2.2",
          "Search engines and archives read title, authors and licence from it.",
          'Add <script type="application/ld+json"> with a schema.org ScholarlyArticle as valid JSON.'),
    _rule("A203", "JSON-LD, CITATION.cff and page agree", "3.2.2",
          "A paper with two titles, author lists or licences is cited wrongly.",
          "Make them the same in all places."),
    _rule("A204", "CITATION.cff follows the format", "CFF 1.2.0",
          "Archives reject a citation file that breaks the format.",
          "Correct the key or value."),
    _rule("A205", "recommended metadata", "3.2.2, 3.3, 11.2",
          "Previews and agents show what these tags say.",
          "Add the missing meta elements to <head>."),
    _rule("A206", "visible licence link", "3.4",
          "Readers must see the licence on the page.",
          'Link LICENSE, or the licence with rel="license", in the header or the footer.'),
    _rule("A301", "images have a text alternative", "WCAG 1.1.1",
          "Readers who do not see the image get nothing.",
          'Add alt="…", or alt="" for decoration; give an inline SVG role="img" and a <title>.'),
    _rule("A302", "controls have a name", "WCAG 4.1.2",
          "A control without a name cannot be used by voice or screen reader.",
          "Add a <label for>, aria-label or text."),
    _rule("A303", "headings are in order", "WCAG 1.3.1",
          "Readers who navigate by headings lose their way.",
          "Use one h1 and do not skip a level."),
    _rule("A304", "zoom is allowed", "WCAG 1.4.4",
          "Readers with weak sight enlarge the text.",
          "Remove user-scalable=no and maximum-scale from the viewport."),
    _rule("A401", "the page is light", "budget",
          "Heavy pages exclude readers with slow lines and old devices.",
          "Shrink or split the named files."),
    _rule("A402", "the service worker knows the files", "11",
          "Offline reading breaks when the worker lists files that are not there or misses one of the page's.",
          "Make the worker's list the page's own files.", fixable=True),
    _rule("A403", "content security policy", "6.1",
          "With it the browser itself refuses what the paper must not load.",
          "Add a Content-Security-Policy meta element with default-src 'none' or 'self'."),
    _rule("A404", "the page's own files exist", "6.2",
          "A missing file breaks the page for every reader.",
          "Add the file or remove the reference."),
    _rule("A405", "WASM modules are used and well-formed", "5 (Gold)",
          "A module that nothing loads, or that is none, is not evidence.",
          "Load it from paper.js, or remove it."),
    _rule("A406", "a module's copy is the module", "6.2",
          "The page opened from a disk would run other code than the one that is published and verified.",
          "Embed the file again, byte for byte, in base64: lra build does it."),
    _rule("A407", "a claim's text says what it expects", "3.2.1",
          "A badge that compares another number than the reader sees says nothing about the claim.",
          'Mark the number: <data class="expect" value="31417">31 417</data>, the same in text and value.'),
    _rule("A408", "the page's script is the released one", "5 (Gold)",
          "What paints the badges must be what verifiers know; a changed copy can paint what it likes.",
          "Restore what follows `// lra-page:` in paper.js and sw.js; your own code goes above it, or into a file of your own."),
    _rule("A409", "numbers and the data they name agree", "3",
          "Prose that drifts from its data is wrong.",
          "Build again from the data, or correct text and value."),
)
# fmt: on

CHECKS: Final[dict[str, PaperRule]] = {rule.id: rule for rule in _CHECKS}
ADVISORIES: Final[dict[str, PaperRule]] = {rule.id: rule for rule in _ADVISORIES}
RULES: Final[dict[str, PaperRule]] = CHECKS | ADVISORIES
TIERS: Final[tuple[Tier, ...]] = ("bronze", "silver", "gold")


def of_tier(tier: Tier) -> list[PaperRule]:
    return [rule for rule in RULES.values() if rule.tier == tier]
