"""While one writes: `lra serve` of a source and `lra build --watch` follow every change; the guide's examples build."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from tests.homes import PATIENCE_S
from tests.packs.lra.build.sources import BIB, SVG, WASM, built, judged, paper
from tests.support import need
from toolgate.packs.lra.cli.making.building import served

ROOT = Path(__file__).parents[4]


def run(*arguments: str) -> subprocess.Popen[str]:
    code = "import sys; from toolgate.packs.lra.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-u", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ,
    )


def line_with(stream: IO[str], words: str) -> str:
    """The next line that says this; the process is ended by a timer when none comes."""
    for line in stream:
        if words in line:
            return line
    pytest.fail(f"the command ended without saying {words!r}")


@pytest.mark.guard
@pytest.mark.parametrize("command", [("build", "--watch"), ("serve", "--port", "0")])
def test_a_change_of_the_source_builds_the_paper_again(command: tuple[str, ...], tmp_path: Path) -> None:
    need("pandoc")
    source = tmp_path / "paper.md"
    source.write_text(paper("First words.\n"))
    with run(command[0], str(source), *command[1:]) as process:
        assert process.stdout is not None
        overdue = threading.Timer(PATIENCE_S, process.kill)
        overdue.start()
        line_with(process.stdout, "Built:" if command[0] == "build" else "http")
        source.write_text(paper("\nSee [@nobody].\n"))
        line_with(process.stdout, "there is no reference nobody")
        source.write_text(paper("Second words.\n"))
        line_with(process.stdout, "Built:")
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
        overdue.cancel()
    assert "Second words." in (tmp_path / "paper" / "index.html").read_text()


def test_serve_knows_the_source_of_a_built_paper(tmp_path: Path) -> None:
    need("pandoc")
    source = tmp_path / "paper.md"
    source.write_text(paper("Words.\n"))
    assert served(source) == (tmp_path / "paper", source)
    assert served(tmp_path / "paper") == (tmp_path / "paper", source.resolve())
    other = tmp_path / "other"
    other.mkdir()
    assert served(other) == (other, None)


def test_the_guides_examples_build_up_to_gold() -> None:
    need("pandoc")
    guide = (ROOT / "docs" / "guides" / "papers.md").read_text()
    whole, living = re.findall(r"````markdown\n(.*?)````", guide, re.DOTALL)
    files = {
        "results.json": b'{"metres": 4.9}',
        "times.csv": b"t,s\n1,4.9\n2,19.6\n",
        "references.bib": BIB.encode(),
        "figures/fall.svg": SVG,
        "wasm/lattice.wasm": WASM,
    }
    assert judged(built(f"{whole}\n{living}", files).files).tier == "GOLD"
