"""A fresh project: passes its tier at once, says the same everywhere, holds true numbers, and stays light."""

from __future__ import annotations

import re
from base64 import b64decode
from hashlib import sha256
from itertools import product
from math import pi, sqrt
from pathlib import PurePosixPath

import jsonschema_rs
import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.packs.lra.build import shell
from toolgate.packs.lra.build.scaffold import (
    TIERS,
    WASM_PATH,
    WAT_PATH,
    Scaffold,
    ScaffoldOptions,
    created_text,
    scaffold,
)
from toolgate.packs.lra.checks.validate import validate
from toolgate.packs.lra.deployed import evidence
from toolgate.packs.lra.paper import cff, expectations, licences, metadata, modules, page, scripts, service_worker, wasm
from toolgate.packs.lra.paper.artifact import Artifact
from toolgate.packs.lra.paper.naming import NAME_PATTERN, require_name

DATE = "2026-11-15"
JANE = metadata.author("Jane Q. Doe", "0000-0002-1825-0097")


def artifact(made: Scaffold) -> Artifact:
    sizes = {name: len(data) for name, data in made.files.items()}
    return Artifact("index.html", made.files["index.html"], made.files, sizes, f"{made.name}/index.html")


@pytest.mark.req("000-D-INIT-FILES")
@pytest.mark.parametrize(("tier", "licence"), list(product(TIERS, licences.LICENCES)))
def test_a_fresh_paper_passes_its_tier_without_a_single_advisory(tier: str, licence: str) -> None:
    made = scaffold(ScaffoldOptions("my-paper", DATE, authors=(JANE,), licence=licence, tier=tier))
    report = validate(artifact(made), strict=True)
    assert report.tier == tier.upper()
    assert report.passed == {"bronze": 20, "silver": 22, "gold": 23}[tier]
    assert report.advisories == []
    assert set(made.files) >= {"index.html", "paper.css", "paper.js", "sw.js", "CITATION.cff", "LICENSE"}


@pytest.mark.req("000-D-INIT-FILES")
def test_a_name_alone_gives_silver_in_the_documents_words() -> None:
    made = scaffold(ScaffoldOptions("my-paper", DATE))
    standard = ["index.html", "paper.css", "paper.js", "sw.js", "CITATION.cff", "LICENSE"]
    assert list(made.files) == standard
    text = created_text(made.name, list(made.files))
    assert text.startswith(
        "Created LRA project: my-paper/\n  index.html   — your paper (edit this!)\n  paper.css    — styling\n"
    )


def test_one_source_fills_every_place() -> None:
    title = 'Ünïcode <b>"quotes"</b> & {braces} </script> 100 % \\ $x$'
    people = (JANE, metadata.author("O’Brien-Łuk, Zoë"), metadata.author("CERN"))
    made = scaffold(ScaffoldOptions("my-paper", DATE, title, people, "MIT", "gold"))
    parsed = page.parse(made.files["index.html"].decode())
    assert parsed.title() == title
    assert parsed.by_tag["h1"][0].text == title
    assert parsed.meta_content("og:title") == title
    (block,) = [one for one in parsed.by_tag["script"] if one.attr("type") == "application/ld+json"]
    value = strictjson.loads(block.text.encode())
    assert value["name"] == title
    names = ["Jane Q. Doe", "Zoë O’Brien-Łuk", "CERN"]
    assert [one["name"] for one in value["author"]] == names
    assert value["author"][0]["@id"] == "https://orcid.org/0000-0002-1825-0097"
    citation = cff.read(made.files["CITATION.cff"].decode())
    assert isinstance(citation, cff.Citation)
    assert (citation.title, citation.authors, citation.licences) == (title, tuple(names), ("MIT",))
    assert list(citation.faults()) == []
    bibtex = parsed.document.select_one('[data-lra-cite="bibtex"]').text
    assert r"\{braces\}" in bibtex
    assert bibtex.count("{") - bibtex.count(r"\{") == bibtex.count("}") - bibtex.count(r"\}")
    assert "Jane Q. Doe" in made.files["LICENSE"].decode()
    assert validate(artifact(made), strict=True).tier == "GOLD"


@cases(25, 100)
@given(
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=60).filter(str.strip),
    st.text(st.characters(codec="utf-8", categories=("L", "P", "S", "Zs")), min_size=1, max_size=30).filter(str.strip),
)
def test_no_title_or_author_breaks_out_of_its_place(title: str, name: str) -> None:
    made = scaffold(ScaffoldOptions("p", DATE, title, (metadata.author(name),), tier="silver"))
    report = validate(artifact(made))
    assert report.tier == "SILVER"
    assert {one.rule for one in report.advisories} <= {"A201"}  # the title may itself read like a placeholder
    parsed = page.parse(made.files["index.html"].decode())
    assert len(parsed.by_tag["script"]) == 2
    assert parsed.by_tag["h1"][0].text == " ".join(title.split())


def test_the_same_wishes_give_the_same_bytes() -> None:
    assert (
        scaffold(ScaffoldOptions("a", DATE, tier="gold")).files
        == scaffold(ScaffoldOptions("a", DATE, tier="gold")).files
    )


BAD_NAMES = [
    *["", "../x", "a/b", "a\\b", "C:x", ".h", "-x", "..", ".", "a..b", "a.", "a ", " a", "100%", "x" * 256, "é" * 128],
    *[
        "a\0b",
        "a\n",
        "a\tb",
        "a\x7f",
        "a\u00a0b",
        "a\u2028b",
        "a\u202eb",
        "a\u200bb",
        "a\ufeff",
        "\u3000",
        "a\ud800",
        "a\ue000",
    ],
    *["a\U000e0041", "a\U0010fffe"],
]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.req("000-D-INIT-NAME")
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ToolError) as caught:
        scaffold(ScaffoldOptions(name, DATE))
    assert caught.value.code == "INVALID_PROJECT_NAME"
    assert "`my paper`" in caught.value.text, "d10: the answer says what is allowed"


GOOD_NAMES = [
    *[
        "paper_2026",
        "paper-2026",
        "P",
        "_x",
        "x" * 255,
        "é" * 127,
        "paper.v2",
        "my paper",
        "médecine",
        "论文",
        "v. 2",
        "a  b",
    ],
    *["what?", "a#b", "<b>&'\"", "{{title}}", "$HOME", "a;b", "🎉"],
]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_d10_name_that_the_file_system_takes_and_that_is_no_path_is_taken(name: str) -> None:
    made = scaffold(ScaffoldOptions(name, DATE))
    assert made.name == name
    assert validate(artifact(made)).tier == "SILVER"
    assert len(page.parse(made.files["index.html"].decode()).by_tag["script"]) == 2
    citation = cff.read(made.files["CITATION.cff"].decode())
    assert isinstance(citation, cff.Citation)
    assert (list(citation.faults()), citation.authors) == ([], (f"The {' '.join(name.split())} authors",))


def test_d10_name_in_decomposed_letters_is_the_same_name() -> None:
    assert scaffold(ScaffoldOptions("me\u0301decine", DATE)).name == "médecine"


@cases(300, 2000)
@given(st.text(min_size=1, max_size=12))
def test_d10_schema_refuses_nothing_that_the_scaffold_takes_and_no_taken_name_leaves_its_directory(name: str) -> None:
    taken = jsonschema_rs.Draft202012Validator({"type": "string", "pattern": NAME_PATTERN})
    try:
        made = require_name(name)
    except ToolError:
        return
    assert taken.is_valid(made)
    assert PurePosixPath(made).parts == (made,)
    assert not made.startswith((".", "-", " "))
    assert made.isprintable()


@pytest.mark.parametrize(("name", "orcid"), [("", ""), (" ", ""), ("A", "0000"), ("A", "0000-0002-1825-0098")])
def test_bad_authors_are_refused(name: str, orcid: str) -> None:
    with pytest.raises(ToolError) as caught:
        metadata.author(name, orcid)
    assert caught.value.code == "INVALID_METADATA"


def test_the_page_stays_within_its_budgets() -> None:
    for tier, limit in (("bronze", 60_000), ("silver", 60_000), ("gold", 120_000)):
        files = scaffold(ScaffoldOptions("my-paper", DATE, tier=tier)).files
        loaded = [name for name in files if name not in ("LICENSE", "CITATION.cff", WAT_PATH)]
        assert sum(len(files[name]) for name in loaded) <= limit
        released = [part for part in scripts.parts("paper.js", files["paper.js"]) if part.startswith(b"// lra-page:")]
        assert len(released[0]) <= 12_000
        assert all(len(part) <= 16_000 for part in released[1:])
        assert len(files["paper.css"]) <= 16_000


def test_the_worker_lists_the_pages_files_and_has_no_hand_written_version() -> None:
    made = scaffold(ScaffoldOptions("my-paper", DATE))
    code = made.files["sw.js"].decode()
    assert service_worker.assets(code) == ["./", *sorted(set(made.files) - {"sw.js"})]
    assert not re.search(r"[\"'`][^\"'`]*v[0-9]+[\"'`]", code)


def lattice(radius: int) -> int:
    """The definition, counted point by point: an oracle slower than both programs of the paper."""
    return sum(x * x + y * y <= radius * radius for x in range(-radius, radius + 1) for y in range(-radius, radius + 1))


@pytest.fixture(scope="module")
def count():
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    module = wasmtime.Module(engine, shell.data("wasm", "lattice.wasm"))
    function = wasmtime.Instance(store, module, []).exports(store)["count"]
    return lambda radius: function(store, radius)


def test_the_evidence_module_counts_as_the_definition_does(count) -> None:
    assert [count(radius) for radius in range(60)] == [lattice(radius) for radius in range(60)]
    assert (count(10_001), count(-1)) == (-1, -1)


def test_what_a_verifier_is_told_to_run_gives_what_it_is_told_to_expect() -> None:
    made = scaffold(ScaffoldOptions("my-paper", DATE, tier="gold"))
    parsed = page.parse(made.files["index.html"].decode())
    told = [expectations.of_claim(parsed, claim) for claim in parsed.claims()]
    assert [one.fault for one in told] == ["", "", ""]
    tried = [one.declared for one in told if one.declared is not None]
    assert [(one.module, one.function) for one in tried] == [(WASM_PATH, "count"), (WASM_PATH, "exceptions")]
    for one in tried:
        assert evidence.run(evidence.Trial(one, made.files[one.module])).matched


def test_papers_2_the_module_is_what_its_source_compiles_to_and_what_the_page_carries_for_a_disk() -> None:
    compiled = shell.data("wasm", "lattice.wasm")
    assert bytes(wasmtime.wat2wasm(shell.data("wasm", "lattice.wat").decode())) == compiled
    assert wasm.fault(compiled) is None
    parsed = page.parse(scaffold(ScaffoldOptions("my-paper", DATE, tier="gold")).files["index.html"].decode())
    ((name, element),) = modules.copies(parsed)
    assert (name, b64decode(element.text)) == (WASM_PATH, compiled)


def test_every_script_of_the_package_is_listed_as_released() -> None:
    files = scaffold(ScaffoldOptions("my-paper", DATE, tier="gold")).files
    shipped = [(name, part) for name in ("paper.js", "sw.js") for part in scripts.parts(name, files[name])]
    assert len(shipped) == 3
    for name, part in shipped:
        digest = sha256(part).hexdigest()
        assert digest in scripts.released(), f"add to data/template/released.txt: {digest}  {name}: {part[:60]!r}"


def test_a_silver_paper_s_own_functions_stand_above_the_released_parts() -> None:
    """Document 000 names six files, so the sample's program has no file of its own."""
    own, *released = scripts.parts("paper.js", scaffold(ScaffoldOptions("my-paper", DATE)).files["paper.js"])
    assert b'"paper.js": (() =>' in own
    assert [sha256(part).hexdigest() in scripts.released() for part in released] == [True, True]


def test_every_number_the_sample_states_is_true(count) -> None:
    html = scaffold(ScaffoldOptions("my-paper", DATE)).files["index.html"].decode()
    parsed = page.parse(html)
    rows = [[cell.text for cell in row.select("th, td")] for row in parsed.document.select("tbody tr")]
    assert len(rows) == 8
    for row in rows:
        radius, points, area, difference, bound = (float(re.sub(r"[\s+]", "", cell).replace("−", "-")) for cell in row)
        assert points == count(int(radius))
        assert area == round(pi * radius**2, 2)
        assert difference == round(points - pi * radius**2, 2)
        assert bound == round(2 * sqrt(2) * pi * radius, 2)
    shares = [abs(count(r) - pi * r * r) / (2 * sqrt(2) * pi * r) for r in range(1, 1001)]
    assert max(shares) < 0.25
    assert count(100) == 31_417
    drawn = re.findall(
        r"M(-?[0-9]+) (-?[0-9]+)H([0-9]*)\.1", parsed.by_id["fig-disc"][0].select_one("path.dots").attr("d")
    )
    assert sum(int(right or 0) - int(left) + 1 for left, _, right in drawn) == count(8) == 197


def test_claims_read_from_the_page_leave_the_badge_out() -> None:
    claims = page.parse(scaffold(ScaffoldOptions("my-paper", DATE)).files["index.html"].decode()).claims()
    assert [(one.number, one.id, one.evidence) for one in claims] == [
        ("1", "claim-1", ("demo-1",)),
        ("2", "claim-2", ("demo-1",)),
        ("3", "claim-3", ("reading",)),
    ]
    assert claims[0].text == "Exactly 31 417 points with whole coordinates lie within distance 100 of the origin."
