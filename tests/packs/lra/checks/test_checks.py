"""The 23 checks: for each defect of a substring test, a pair of pages on which it and a parser disagree."""

from __future__ import annotations

import pytest

from tests.packs.lra.papers import BODY, CFF, HEAD, WASM, artifact, failed, html, judge
from toolgate.errors import ToolError
from toolgate.packs.lra.checks import rules
from toolgate.packs.lra.checks.report import to_text
from toolgate.packs.lra.checks.validate import status_of, validate
from toolgate.packs.lra.paper import licences

EVIDENCE = '<a href="#demo-1" data-lra-evidence="demo-1">evidence</a>'
GPL = licences.text_of("GPL-3.0-or-later", year="", holder="")


def drop(text: str, part: str) -> str:
    assert part in text
    return text.replace(part, "")


def swap(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.req("000-D-CHECKS", "000-D-TIERS")
def test_the_small_good_paper_is_gold() -> None:
    report = judge()
    assert (report.tier, report.passed, report.total) == ("GOLD", 23, 23)
    assert [one.rule for one in report.findings if one.rule in rules.CHECKS] == list(rules.CHECKS)


PASS = [
    # rule, what a substring test would call missing, and a parser finds
    ("B1", html(tag='<html class="x" lang="en">')),
    ("B1", html(tag="<HTML\n  LANG=pt-BR>")),
    ("B2", html(swap(HEAD, '<meta charset="utf-8">', "<META CHARSET='UTF-8'>"))),
    (
        "B2",
        html(
            swap(HEAD, '<meta charset="utf-8">', '<meta http-equiv="Content-Type" content="text/html; charset=utf-8">')
        ),
    ),
    ("B3", html(swap(HEAD, 'name="viewport"', "NAME = viewport"))),
    ("B5", html(swap(HEAD, "<title>", "<TITLE lang=en>"))),
    ("B6", html(body=swap(BODY, '<section id="abstract">', "<section class=x id = 'abstract'>"))),
    ("B7", html(body=swap(BODY, 'id="claims"', "id=claims"))),
    ("B8", html(body=swap(BODY, 'id="references"', "id=references"))),
    ("B9", html(body=swap(BODY, 'id="citation"', "ID='citation'"))),
    ("B16", html(HEAD + "<style>p { color: red }</style>")),
    ("S1", html(body=swap(BODY, 'class="demo"', "class='demo wide'"))),
    ("S2", html(body=swap(BODY, "<noscript>", "<NOSCRIPT class=x>"))),
    ("G2", html(body=swap(BODY, ' data-lra-evidence="demo-1"', ""))),
    ("G4", html(body=swap(BODY, 'aria-live="polite"', "role='status'"))),
    ("G4", html(body=swap(BODY, '<p aria-live="polite"></p>', "<output></output>"))),
]


@pytest.mark.parametrize(("rule", "page"), PASS, ids=[f"{rule}-{number}" for number, (rule, _) in enumerate(PASS)])
def test_what_another_spelling_of_the_same_document_says_still_passes(rule: str, page: str) -> None:
    changes = {"paper_css": None} if rule == "B16" else {}
    assert rule not in failed(judge(page, **changes))


FAIL = [
    # rule, what satisfies a substring test without being there
    ("B1", html(tag="<html><!-- <html lang=en> -->")),
    ("B1", html(tag='<html lang="">')),
    ("B1", html(tag='<html lang="not a tag">')),
    ("B2", html(drop(HEAD, '<meta charset="utf-8">') + "<script charset=utf-8 src=paper.js></script>")),
    ("B2", html(swap(HEAD, "utf-8", "latin-1"))),
    ("B2", html(f"<!-- {'x' * 1100} -->" + HEAD)),
    ("B3", html(swap(HEAD, '<meta name="viewport" content="width=device-width">', "<style>@viewport{}</style>"))),
    ("B4", html(swap(HEAD, 'name="description"', 'property="og:description"'))),
    ("B4", html(swap(HEAD, 'content="A small paper"', 'content=" "'))),
    ("B5", html(drop(HEAD, "<title>Small</title>"), BODY + "<svg><title>Drawing</title></svg>")),
    ("B5", html(swap(HEAD, "<title>Small</title>", "<title> </title>"))),
    ("B5", html(swap(HEAD, "<title>Small</title>", "<!-- <title>Small</title> -->"))),
    ("B6", html(body=swap(BODY, '<section id="abstract">', '<!-- <section id="abstract"> --><section>'))),
    ("B6", html(body=swap(BODY, '<section id="abstract">', '<div id="abstract"></div><section>'))),
    ("B6", html(body=swap(BODY, '<section id="abstract">', '<template><section id="abstract"></section></template><section>'))),
    ("B6", html(body=swap(BODY, '<section id="abstract">', '<pre>&lt;section id="abstract"></pre><section>'))),
    ("B6", html(body=swap(BODY, '<section id="abstract">', '<textarea><section id="abstract"></textarea><section>'))),
    ("B6", html(body=swap(BODY, 'id="abstract"', 'id="Abstract"'))),
    ("B7", html(body=swap(swap(BODY, "<ol>", "<ul>"), "</ol>", "</ul>"))),
    ("B7", html(body=swap(BODY, 'id="claims"', "") + "<script>var x = 'id=\"claims\"'</script>")),
    ("B8", html(body=swap(BODY, 'id="references"', "") + '<p title="id=&quot;references&quot;">')),
    ("B9", html(body=swap(BODY, 'id="citation"', 'data-id="citation"'))),
    ("B10", html(body=swap(BODY, 'data-lra-claim="1"', "") + "<style>[data-lra-claim]{}</style>")),
    ("B10", html(body=swap(BODY, 'data-lra-claim="1"', 'data-lra-claim=""'))),
    ("B10", html(body=swap(BODY, 'data-lra-claim="1"', "") + '<p data-lra-claim="1">outside</p>')),
    ("B14", html(drop(HEAD, '<meta name="lra:version" content="1.0">') + "<!-- lra:version -->")),
    ("B14", html(swap(HEAD, 'content="1.0"', 'content="9.9"'))),
    ("S1", html(body=swap(BODY, '<section id="demo-1" class="demo">', '<section id="demo-1"><div class="demo"></div>'))),
    ("S1", html(body=drop(BODY, "<button>Run</button>"))),
    ("S2", html(HEAD + "<noscript><style>p{}</style></noscript>", drop(BODY, "<noscript>The demo adds one and one.</noscript>"))),
    ("S2", html(body=swap(BODY, "<noscript>The demo adds one and one.</noscript>", "<!-- <noscript>x</noscript> -->"))),
    ("S2", html(body=swap(BODY, "The demo adds one and one.", " "))),
    ("G2", html(body=swap(BODY, "demo-1", "demo-2").replace('<section id="demo-2"', '<section id="demo-9"'))),
    ("G2", html(body=drop(BODY, EVIDENCE) + EVIDENCE)),
    ("G2", html(body=swap(BODY, EVIDENCE, "<!-- data-lra-evidence -->"))),
    ("G4", html(body=swap(BODY, 'aria-live="polite"', 'aria-live="off"'))),
    ("G4", html(body=swap(BODY, 'aria-live="polite"', "") + "<script>// aria-live</script>")),
]  # fmt: skip


FOLLOWS = {"B7": {"B10", "G2"}, "B10": {"G2"}}
"""Without claims there is none to link."""


@pytest.mark.parametrize(("rule", "page"), FAIL, ids=[f"{rule}-{number}" for number, (rule, _) in enumerate(FAIL)])
@pytest.mark.req("000-D-CHECKS")
def test_text_that_only_looks_like_the_thing_does_not_pass(rule: str, page: str) -> None:
    report = judge(page)
    assert failed(report) - FOLLOWS.get(rule, set()) == {rule}
    (finding,) = [one for one in report.findings if one.rule == rule]
    assert finding.why
    assert finding.fix
    assert finding.file == "index.html"


FILE_FAULTS = [
    ("B11", {"LICENSE": None}, {"B11", "B12", "B15"}),
    ("B11", {"LICENSE": b""}, {"B11", "B12", "B15"}),
    ("B12", {"LICENSE": b"GNU General Public License, see the web"}, {"B12", "B15"}),
    ("B12", {"LICENSE": GPL.replace("copyleft", "copyright", 1).encode()}, {"B12", "B15"}),
    ("B12", {"LICENSE": (GPL + "but not for evil " * 300).encode()}, {"B12", "B15"}),
    ("B13", {"CITATION": None}, {"B13", "B15"}),
    ("B13", {"CITATION": b""}, {"B13", "B15"}),
    ("B13", {"CITATION": b"license: [GPL-3.0-or-later"}, {"B13", "B15"}),
    ("B13", {"CITATION": b"[" * 100_000}, {"B13", "B15"}),
    ("B13", {"CITATION": b"license: GPL-3.0-or-later\nlicense: MIT\n"}, {"B13", "B15"}),
    ("B13", {"CITATION": b"\xff\xfe"}, {"B13", "B15"}),
    ("B15", {"CITATION": CFF.replace("license: GPL-3.0-or-later", "license: MIT # not GPL-3.0-or-later").encode()}, {"B15"}),
    ("B15", {"CITATION": CFF.replace("GPL-3.0-or-later", "GPL-3.0").encode()}, {"B15"}),
    ("B15", {"CITATION": CFF.replace("license: GPL-3.0-or-later", "keywords: [GPL-3.0-or-later]").encode()}, {"B15"}),
    ("B16", {"paper_css": None}, {"B16"}),
    ("B16", {"paper_css": b""}, {"B16"}),
    ("S3", {"paper_js": None}, {"S3"}),
    ("S3", {"paper_js": b""}, {"S3"}),
    ("G1", {"wasm": None}, {"G1"}),
    ("G1", {"wasm": b"\0asm"}, {"G1"}),
    ("G1", {"wasm": b"\0asm\1\0\0\0"}, {"G1"}),
    ("G1", {"wasm": WASM[:-3]}, {"G1"}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "changes", "expected"), FILE_FAULTS, ids=range(len(FILE_FAULTS)))
def test_files_are_judged_by_what_is_in_them(rule: str, changes: dict[str, bytes | None], expected: set[str]) -> None:
    assert failed(judge(**changes)) == expected


def test_other_licences_pass_when_text_and_citation_agree() -> None:
    for spdx in licences.LICENCES:
        text = licences.text_of(spdx, year="2026", holder="Jane Doe")
        report = judge(LICENSE=text.encode(), CITATION=CFF.replace("GPL-3.0-or-later", spdx).encode())
        assert report.tier == "GOLD", spdx
    assert failed(judge(CITATION=CFF.replace("GPL-3.0-or-later", "GPL-3.0-only").encode())) == set()


@pytest.mark.req("000-D-TIERS")
@pytest.mark.parametrize(("missing", "tier"), [("B4", "NONE"), ("S1", "BRONZE"), ("G4", "SILVER")])
def test_a_tier_needs_every_check_of_its_own_and_of_those_below(missing: str, tier: str) -> None:
    pages = {
        "B4": html(swap(HEAD, 'name="description"', "name=x")),
        "S1": html(body=swap(BODY, 'class="demo"', "")),
        "G4": html(body=swap(BODY, ' aria-live="polite"', "")),
    }
    report = judge(pages[missing])
    assert (report.tier, report.passed) == (tier, 22)


@pytest.mark.req("000-D-REPORT")
def test_the_report_has_the_documents_form() -> None:
    text = to_text(judge(wasm=None), details=False)
    assert text.splitlines() == [
        "LRA Validate — small/index.html",
        "",
        "Bronze (16 checks)",
        *[f"  ✓ {rule.label}" for rule in rules.of_tier("bronze")],
        "",
        "Silver (3 checks)",
        "  ✓ demo section",
        "  ✓ noscript fallback",
        "  ✓ paper.js exists",
        "",
        "Gold (4 checks)",
        "  ✗ WASM module present",
        "  ✓ evidence link",
        "  ✓ no external resources",
        "  ✓ aria-live region",
        "",
        "Tier: SILVER (22/23 pass)",
    ]
    assert text.endswith("\n")
    assert "  ✓ html lang attribute\n  ✓ meta charset\n  ✓ meta viewport\n" in text


def test_the_report_with_details_names_place_fault_and_fix_and_nothing_breaks_out_of_its_line() -> None:
    page = html(body=BODY + '<img alt="" src="https://x.test/\u202e\n\x1b[31m.png">')
    text = to_text(judge(page), details=True)
    assert "G3 index.html:21:34: img src loads from another server" in text
    assert "fix: Copy the resource into the artifact" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_finding_points_at_the_line_and_column_and_has_a_stable_fingerprint() -> None:
    body = BODY + '\n<img alt="" src="https://x.test/a.png">'
    (first,) = [one for one in judge(html(body=body)).findings if one.rule == "G3"]
    assert (first.file, first.line, first.column, status_of(first)) == ("index.html", 22, 1, "fail")
    (moved,) = [one for one in judge(html(body="\n\n\n" + body)).findings if one.rule == "G3"]
    assert moved.line == 25
    assert moved.fingerprint == first.fingerprint


def test_a_page_that_is_not_utf8_is_an_io_error_with_its_place() -> None:
    spoiled = artifact()
    spoiled = type(spoiled)(spoiled.page, b"<p>\n\xe9", spoiled.files, spoiled.sizes, "p/index.html")
    with pytest.raises(ToolError) as caught:
        validate(spoiled)
    assert (caught.value.code, caught.value.text) == (
        "IO_ERROR",
        "I/O error: p/index.html is not UTF-8 text (line 2, column 1)",
    )


def test_strict_takes_the_tier_away_for_an_advisory() -> None:
    page = html(body=BODY + '<img src="data:,x">')
    assert validate(artifact(page)).tier == "GOLD"
    assert validate(artifact(page), strict=True).tier == "NONE"
