"""The corpus: one directory is one small repository around one construct, with what should be found beside it.

corpus/NAME/.github/workflows/*.yml     our own writing, each after something seen in public repositories
corpus/NAME/expected.toml               where it is seen; "line rule/kind severity" for every finding of every file; in some
                                        a table [zizmor], "line audit" for every finding that zizmor should have
corpus/NAME/served.json                 in some: the contract of the server that runs
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from toolgate.model import strictjson
from toolgate.packs.governance.analysis.weigh import AnalysisRequest, weigh
from toolgate.packs.governance.repository.model import Repository, parse
from toolgate.packs.governance.rules.catalogue import judge

CORPUS = Path(__file__).parent / "corpus"
SERVED = "served.json"


class Expected(NamedTuple):
    file: str
    line: int
    rule: str
    """With its kind, where the rule has several: `MD-002/action`."""
    severity: str


class Construct(NamedTuple):
    name: str
    seen: str
    root: Path
    files: list[str]
    expected: frozenset[Expected]
    foreign: dict[str, list[str]] | None
    """File -> `line audit`, where it is known what zizmor should find."""


def constructs() -> Iterator[Construct]:
    for root in sorted(path for path in CORPUS.iterdir() if path.is_dir()):
        table = tomllib.loads((root / "expected.toml").read_text())
        expected = {
            Expected(file, int(line), rule, severity)
            for file, marks in table["files"].items()
            for line, rule, severity in (mark.split() for mark in marks)
        }
        names = sorted(table["files"])
        yield Construct(root.name, table["seen"], root, names, frozenset(expected), table.get("zizmor"))


def files_of(root: Path) -> list[str]:
    every = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(path for path in every if path not in ("expected.toml", SERVED))


def found_in(one: Construct) -> frozenset[Expected]:
    """What our rules find: everything but zizmor."""
    files = parse([(path, (one.root / path).read_bytes()) for path in one.files])
    served = one.root / SERVED
    live = strictjson.loads(served.read_bytes()) if served.is_file() else None
    repository = Repository({file.path: file for file in files}, live_contract=live)
    analysis = weigh(AnalysisRequest(), repository, judge(repository), now=0)
    return frozenset(
        Expected(
            finding.file or "",
            finding.line or 0,
            f"{finding.rule}/{kind}" if (kind := finding.extra.get("kind")) else finding.rule,
            finding.severity,
        )
        for finding in analysis.findings
        if finding.status == "fail"
    )
