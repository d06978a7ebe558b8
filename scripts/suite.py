"""Run a suite as a gate does: a few failed tests are run once more, with nothing beside them, and named if they then pass.

Some races are not ours: a published client's, a browser's, a loaded machine's. One of them among ten thousand tests must not
refuse a week's work, and it must not be hidden either. So a failure is repeated once, only where a gate asks for it, only if
few tests failed, and its name goes into build/flaky.txt: each line there is a bug, in a test or in what it tests.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
FLAKY = Path("build/flaky.txt")
TESTS_FAILED = 1
"""pytest's exit code; every other one but 0 (interrupted, a usage error, nothing collected) is final."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, required=True, help="more failed tests than this are not repeated")
    parser.add_argument("pytest", nargs="*", metavar="WORD", help="for pytest, after --")
    said = parser.parse_args(words)
    FAILED.unlink(missing_ok=True)  # what an earlier suite left there is not this one's
    code = _pytest(said.pytest)
    failed = _failed()
    if code != TESTS_FAILED or not 0 < len(failed) <= said.most:
        return code
    print(f"\nrepeating alone: {', '.join(failed)}", flush=True)
    if _pytest([*_without_workers(said.pytest), *failed]) != 0:
        return TESTS_FAILED
    _tell(failed)
    return 0


def _pytest(words: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *words], check=False).returncode


def _failed() -> list[str]:
    try:
        return sorted(json.loads(FAILED.read_text()))
    except FileNotFoundError:
        return []


def _without_workers(words: Sequence[str]) -> list[str]:
    """The same choice of tests, one after the other."""
    kept, rest = [], iter(words)
    for word in rest:
        if word in ("-n", "--dist"):
            next(rest)
        else:
            kept.append(word)
    return kept


def _tell(failed: Sequence[str]) -> None:
    FLAKY.parent.mkdir(exist_ok=True)
    with FLAKY.open("a") as lines:
        lines.writelines(f"{name}\n" for name in failed)
    for name in failed:
        print(f"FLAKY, passed only when repeated alone: {name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
