"""`lra build` by its short way: the same as by the long one, sooner."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.cli.support import clean_environment
from tests.homes import PATIENCE_S
from tests.packs.lra.build.sources import paper
from tests.support import need
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.cli.making import building
from toolgate.packs.lra.cli.making.short import plain, short

SHORT = "import sys; sys.argv[0] = 'lra'; from toolgate.cli.main import run_script as run\n"
LONG = "from toolgate.packs.lra.cli import run\n"
LOADED = "try: run()\nfinally: sys.stderr.write('\\n' + ' '.join(sys.modules))"
AT_ITS_END = "import gc\ntry: run()\nfinally: sys.stderr.write(f'\\n{gc.isenabled()} {gc.get_freeze_count() > 1000}')"
STARTED = """
from toolgate.packs.lra.cli.making import pandoc
start = pandoc.Pandoc.start
def told(self, *arguments, **options):
    sys.stderr.write("started with " + " ".join(sys.modules) + "\\n")
    return start(self, *arguments, **options)
pandoc.Pandoc.start = told
run()
"""
HEAVY = {"msgspec", "orjson", "typer", "toolgate.model.tool", "toolgate.settings"}

FOR_LATER = {"yaml", "xml.etree.ElementTree", "hashlib", "html.parser", "toolgate.powers.files"}


@pytest.fixture
def needs_pandoc() -> None:
    need("pandoc")


def run(code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def asked_by_the_long_way(words: list[str]) -> dict[str, Any] | None:
    """What typer makes of the words; None: it builds nothing."""
    found: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(building, "build", lambda **asked: found.append(asked))
        main(words)
    return found[0] if found else None


WORDS = ("paper.md", "a b.tex", "out", "ipynb", "-o", "--output", "--from", "--force", "--json", "--watch", "--help", "-", "--",
         "", "-oout", "--output=out", "--forc", "~", "é", "a=b")  # fmt: skip


@cases(60, search=2000)
@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_what_goes_the_short_way_means_the_same_on_the_long_one(words: list[str]) -> None:
    asked = plain(["build", *words])
    assert asked is None or asked == asked_by_the_long_way(["build", *words])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["p.md"], {"source": Path("p.md")}),
        (["p.md", "-o", "x", "--json"], {"source": Path("p.md"), "output": Path("x"), "json": True}),
        (["--from", "latex", "--force", "--output", "x", "p"],
         {"source": Path("p"), "output": Path("x"), "form": "latex", "force": True}),
    ],
)  # fmt: skip
def test_what_is_plainly_spelt_goes_the_short_way(words: list[str], expected: dict[str, Any]) -> None:
    asked = plain(["build", *words])
    assert asked is not None
    assert {name: value for name, value in asked.items() if name in expected} == expected
    assert asked == asked_by_the_long_way(["build", *words])


@pytest.mark.parametrize(
    "words",
    [["--watch"], ["-o"], ["-o", "--json"], ["a", "b"], ["--help"], ["--output=x"], ["--json", "--json"], ["*.md"]],
    ids=" ".join,
)
def test_everything_else_goes_the_long_way(words: list[str]) -> None:
    assert not short(["build", *words])


@pytest.mark.parametrize("words", [[], ["export"], ["validate", "p"], ["--version"]], ids=" ".join)
def test_no_other_command_has_a_short_way(words: list[str]) -> None:
    assert not short(words)


def test_a_paper_that_would_stand_beside_its_source_is_explained_by_the_long_way(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text(paper("Text.\n"))
    assert not short(["build", str(tmp_path / "paper.md"), "-o", str(tmp_path)])


@pytest.mark.usefixtures("needs_pandoc")
def test_both_ways_write_the_same_paper_and_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text(paper("Text.\n"))
    answers = [
        run(code, "build", "paper.md", "-o", "out", "--json", cwd=tmp_path)
        for code in (SHORT + "run()", LONG + "run()")
    ]
    assert answers[0].returncode == answers[1].returncode == 0, answers[0].stderr
    assert answers[0].stdout == answers[1].stdout
    assert json.loads(answers[0].stdout)["output"] == "out"
    assert (tmp_path / "out" / "index.html").is_file()


@pytest.mark.parametrize("words", [["build", "none.md"], ["build", "paper.md"], ["build", "paper.xyz"]], ids=" ".join)
@pytest.mark.usefixtures("needs_pandoc")
def test_both_ways_end_alike_when_something_is_wrong(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text(paper("See @fig-none.\n"))
    (tmp_path / "paper.xyz").write_text("Text.\n")
    short_one, long_one = (run(code, *words, cwd=tmp_path) for code in (SHORT + "run()", LONG + "run()"))
    assert short_one.returncode == long_one.returncode == 1
    assert short_one.stderr == long_one.stderr
    assert short_one.stderr.startswith("error: ")


@pytest.mark.usefixtures("needs_pandoc")
def test_the_short_way_loads_neither_typer_nor_what_servers_need(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text(paper("Text.\n"))
    done = run(SHORT + LOADED, "build", "paper.md", cwd=tmp_path)
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "toolgate.packs.lra.build.assemble" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.usefixtures("needs_pandoc")
def test_the_short_way_leaves_garbage_to_the_system(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text(paper("Text.\n"))
    done = run(SHORT + AT_ITS_END, "build", "paper.md", cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == "False True"


@pytest.mark.usefixtures("needs_pandoc")
def test_pandoc_reads_the_source_while_what_works_on_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_text(paper("Text.\n"))
    done = run(SHORT + STARTED, "build", "paper.md", cwd=tmp_path)
    first, *rest = [set(line.split()) for line in done.stderr.splitlines() if line.startswith("started with ")]
    assert len(rest) == 1, "Pandoc is started twice: to read and to write"
    assert "toolgate.packs.lra.build.assemble" not in first
    assert first & {"json", "html"} == set()
    assert "toolgate.packs.lra.build.assemble" in rest[0]
    assert (first | rest[0]) & FOR_LATER == set(), "this is imported while Pandoc writes"
