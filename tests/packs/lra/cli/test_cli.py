"""`lra` as a person runs it: a real process where the process matters, the same function where it does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.homes import PATIENCE_S
from toolgate.packs.lra import cli
from toolgate.packs.lra.build.scaffold import ScaffoldOptions, scaffold
from toolgate.packs.lra.checks import rules

LRA = [sys.executable, "-c", "from toolgate.packs.lra.cli import run; run()"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def lra(here: Path, capsys: pytest.CaptureFixture[str]):
    def lra(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return lra


def test_init_prints_files_tier_and_next_steps_and_the_result_validates(lra, here: Path) -> None:
    code, out, _ = lra(
        "init", "my-paper", "--title", "A title", "--author", "Jane Doe", "--tier", "gold", "--license", "MIT"
    )
    assert code == 0
    assert out.startswith("Created LRA project: my-paper/\n  index.html")
    assert out.endswith("Tier: GOLD\n\nNext:\n  cd my-paper\n  lra serve\n  lra validate\n")
    code, out, _ = lra("validate", "my-paper", "--min-tier", "gold", "--strict")
    assert code == 0
    assert out.endswith("Tier: GOLD (23/23 pass)\n")
    assert lra("check", "my-paper/index.html")[1].replace("/index.html", "") == out.replace("/index.html", "")


def test_init_refuses_an_existing_directory_and_a_dry_run_makes_nothing(lra, here: Path) -> None:
    assert lra("init", "p", "--dry-run", "--json") == (
        0,
        json.dumps(
            {
                "project": "p",
                "tier": "SILVER",
                "files": list(scaffold(ScaffoldOptions("p", "2026-01-01")).files),
                "dry_run": True,
            },
            separators=(",", ":"),
        )
        + "\n",
        "",
    )
    assert list(here.iterdir()) == []
    (here / "p").mkdir()
    for arguments in (("init", "p"), ("init", "p", "--dry-run")):
        assert lra(*arguments) == (1, "", "error: Directory already exists\n")
    assert list((here / "p").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["init", "../x"], 1, "a project name of 1 to 255"),
        (["init", "x", "--license", "GPL"], 1, "license is one of GPL-3.0-or-later"),
        (["init", "x", "--tier", "platinum"], 2, "bronze, silver or gold"),
        (["init", "x", "--author", "A B", "--orcid", "1234"], 1, "ORCID iD"),
        (["init", "x", "--orcid", "0000-0002-1825-0097"], 2, "belongs to an --author"),
        (["validate", "nowhere"], 1, "Cannot read nowhere: file not found"),
        (["validate", "nowhere/index.html"], 1, "Cannot read nowhere/index.html: file not found"),
        (["validate", "--format", "pdf"], 2, "--format is one of"),
        (["validate", "--explain", "B99"], 2, "there is no rule B99"),
        (["validate", "/nowhere/index.html"], 1, "Cannot read /nowhere/index.html: file not found"),
        (["badge", "/nowhere"], 1, "Cannot read /nowhere: file not found"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_bad_command_lines_say_what_is_wrong(lra, arguments: list[str], code: int, words: str) -> None:
    status, out, err = lra(*arguments)
    assert (status, out) == (code, "")
    assert words in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err


def test_tier_none_exits_zero_unless_a_tier_is_asked_for(lra, here: Path) -> None:
    (here / "index.html").write_text("<p>")
    assert lra("validate")[0] == 0
    assert lra("validate", "--min-tier", "bronze")[0] == 1


def test_every_format_says_the_same(lra, here: Path) -> None:
    lra("init", "p")
    page = here / "p" / "index.html"
    page.write_text(page.read_text().replace("</main>", '<img alt="" src="https://x.test/a.png"></main>'))
    value = json.loads(lra("validate", "p", "--format", "json")[1])
    assert (value["tier"], value["passed"], value["total"]) == ("SILVER", 21, 23)
    assert [one["rule"] for one in value["findings"] if one["rule"] in rules.CHECKS] == list(rules.CHECKS)
    (external,) = [one for one in value["findings"] if one["rule"] == "G3"]
    assert external["status"] == "fail"
    sarif = json.loads(lra("validate", "p", "-f", "sarif")[1])
    assert {one["ruleId"] for one in sarif["runs"][0]["results"]} >= {"G1", "G3"}
    assert '"p/index.html"' in json.dumps(sarif)
    assert ET.fromstring(lra("validate", "p", "-f", "junit")[1]).tag in ("testsuite", "testsuites")
    place = f"file=p/index.html,line={external['line']},col={external['column']}"
    assert place in lra("validate", "p", "-f", "github")[1]
    assert "x.test" in lra("validate", "p", "-f", "markdown")[1]
    assert f"G3 index.html:{external['line']}:{external['column']}: img src" in lra("validate", "p")[1]
    assert lra("validate", "p", "-f", "json", "-o", "report.json") == (0, "", "")
    assert json.loads((here / "report.json").read_text()) == value


def test_badge_and_hash(lra, here: Path) -> None:
    lra("init", "p", "--tier", "gold")
    assert json.loads(lra("badge", "p", "--json")[1])["url"] == "https://img.shields.io/badge/LRA--1.0-gold-ffd700"
    (here / "abc.html").write_bytes(b"abc")
    digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert lra("hash", "abc.html") == (0, digest + "\n", "")
    assert ET.fromstring(lra("badge", "abc.html")[1]).get("aria-label") == "LRA-1.0: none"


def test_rules_are_listed_and_explained(lra) -> None:
    assert lra("validate", "--list-rules")[1].count("\n") == len(rules.RULES)
    out = lra("validate", "--explain", "b12")[1]
    assert rules.CHECKS["B12"].why in out


def test_fix_mends_what_needs_no_decision_and_shows_the_difference(lra, here: Path) -> None:
    lra("init", "p", "--author", "Jane Doe", "--license", "MIT")
    page, sw = here / "p" / "index.html", here / "p" / "sw.js"
    good = {path.name: path.read_bytes() for path in (here / "p").iterdir()}
    text = page.read_text()
    for old, new in (
        ('<meta charset="utf-8">\n', ""),
        ('<meta name="viewport" content="width=device-width, initial-scale=1">\n', ""),
        ('<meta name="lra:version" content="1.0">\n', ""),
        ('<section id="abstract"', "<section"),
        ('id="claim-2" ', ""),
    ):
        assert old in text
        text = text.replace(old, new)
    page.write_text(text)
    sw.write_text(sw.read_text().replace(', "paper.js"', ', "gone.js"'))
    (here / "p" / "LICENSE").unlink()
    broken = {path.name: path.read_bytes() for path in (here / "p").iterdir()}
    code, out, diff = lra("validate", "p", "--fix", "--dry-run")
    assert "Tier: NONE" in out
    assert '+<meta charset="utf-8">' in diff
    assert {path.name: path.read_bytes() for path in (here / "p").iterdir()} == broken
    code, out, diff = lra("validate", "p", "--fix", "--strict", "--min-tier", "silver")
    assert (code, out.splitlines()[-1]) == (0, "Tier: SILVER (22/23 pass)")
    assert (here / "p" / "LICENSE").read_bytes() == good["LICENSE"]
    assert sw.read_bytes() == good["sw.js"]
    assert "Nothing here can be mended" in lra("validate", "p", "--fix")[2]


def test_fix_never_invents(lra, here: Path) -> None:
    """No licence choice, no claim, no description: those stay the author's."""
    lra("init", "p")
    page, citation = here / "p" / "index.html", here / "p" / "CITATION.cff"
    text = page.read_text()
    page.write_text(text.replace('name="description"', 'name="x"').replace("data-lra-claim", "data-x"))
    citation.write_text(citation.read_text().replace("license: GPL-3.0-or-later\n", ""))
    before = (page.read_bytes(), citation.read_bytes())
    lra("validate", "p", "--fix")
    assert (page.read_bytes(), citation.read_bytes()) == before
    citation.write_text(citation.read_text() + "license: GPL-3.0+\n")
    lra("validate", "p", "--fix")
    assert citation.read_text().endswith("license: GPL-3.0-or-later\n")


def test_watch_judges_again_when_a_file_changes(here: Path) -> None:
    (here / "index.html").write_text("<p>")
    with subprocess.Popen(
        [*LRA, "validate", "--watch"], stdout=subprocess.PIPE, text=True, cwd=here, env=os.environ | {"PYTHONUTF8": "1"}
    ) as process:
        assert process.stdout is not None
        tiers = (line.strip() for line in process.stdout if line.startswith("Tier: "))
        try:
            assert next(tiers) == "Tier: NONE (1/23 pass)"
            (here / "index.html").write_text("<!doctype html><html lang=en><p>")
            assert next(tiers) == "Tier: NONE (2/23 pass)"
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) in (0, 130)


def test_a_script_that_reads_the_exit_code_and_utf8_work_in_a_plain_locale(here: Path) -> None:
    done = subprocess.run(
        [*LRA, "init", "p"],
        capture_output=True,
        cwd=here,
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0
    assert "—" in done.stdout.decode()
