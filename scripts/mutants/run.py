"""Mutation testing of `src/toolgate/gate` with cosmic-ray: change one thing at a time, and see whether a test notices.

    make mutants                                     everything
    make mutants ARGS="--module floor --take 40"     forty mutants of one module, spread evenly
    make mutants ARGS="--again"                      only what survived the last run or was not reached by it

It works in a copy (build/mutants), never in the tree itself. A mutant that makes a test fail, or wait too long twice, is killed;
one that survives is printed with its change. `asked.py` says which tests are asked, and why that takes a second and not a minute;
`choose.py`, which mutants are left out. `scripts/mutations.py` is the other half: it removes guards by hand, by name.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.mutants.choose import left_out

ROOT: Final = Path(__file__).parents[2]
PLACE: Final = ROOT / "build" / "mutants"
TREE: Final = PLACE / "tree"
SOCKET: Final = PLACE / "asked.sock"
COSMIC_RAY: Final = "cosmic-ray==8.7.0"
COVERAGE: Final = "coverage==7.11.0"
GATE: Final = "src/toolgate/gate"
TESTS: Final = (
    "tests/gate",
    "tests/offers",
    "tests/faces",
    "tests/model",
    "tests/policy",
    "tests/kit/test_foreignschema.py",
)
"""Those that call the gate in this process. Tests that start a server of its own see a mutant as well, but take seconds each."""
TIMEOUT_S: Final = 120.0
"""For the tests of one mutant; one that loops for ever is noticed by this."""
EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")
"""Survivors that no test can tell from the original, each with the reason."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--module", action="append", help="a module of the gate, such as authority/rules; repeat for more"
    )
    parser.add_argument("--take", type=int, default=0, help="so many mutants of each, spread evenly; 0 takes all")
    parser.add_argument("--again", action="store_true", help="only the mutants that the last run did not kill")
    given = parser.parse_args()
    cosmic_ray = _installed()
    _copy_tree()
    modules = given.module or sorted(_name(path) for path in (TREE / GATE).rglob("*.py") if path.stem != "__init__")
    totals = {"killed": 0, "survived": 0, "equivalent": 0}
    with _asked():
        for module in modules:
            for outcome, count in _report(module, _run(cosmic_ray, module, given)).items():
                totals[outcome] += count
    judged = totals["killed"] + totals["survived"]
    score = 100 * totals["killed"] / judged if judged else 0.0
    sys.stdout.write(
        f"score: {totals['killed']} of {judged} killed, {score:.1f} %; {totals['equivalent']} change nothing\n"
    )
    return 0


def _name(path: Path) -> str:
    return str(path.relative_to(TREE / GATE).with_suffix(""))


def _installed() -> Path:
    """cosmic-ray and coverage have places of their own: they are no dependencies of ours."""
    place = PLACE / "venv"
    if not (place / "bin" / "cosmic-ray").exists():
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "--quiet", COSMIC_RAY], check=True)
    if not (PLACE / "coverage").exists():
        into = ["--quiet", "--target", str(PLACE / "coverage")]
        subprocess.run([sys.executable, "-m", "pip", "install", *into, COVERAGE], check=True)
    return place / "bin"


def _copy_tree() -> None:
    """What git knows, as it stands."""
    shutil.rmtree(TREE, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.splitlines()):
        if (ROOT / name).exists():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name, follow_symlinks=False)


@contextlib.contextmanager
def _asked() -> Iterator[None]:
    """The process that runs the tests of each mutant; first it runs all of them once, to see which lines each one reaches."""
    SOCKET.unlink(missing_ok=True)
    command = [sys.executable, "-m", "scripts.mutants.asked", str(SOCKET), GATE, *TESTS]
    # The copy comes first on the path: the environment knows the tree itself, which is not changed.
    path = f"{TREE / 'src'}:{TREE}:{PLACE / 'coverage'}"
    process = subprocess.Popen(["env", f"PYTHONPATH={path}", *command], cwd=TREE)
    try:
        while not SOCKET.exists():
            if process.poll() is not None:
                raise SystemExit("the tests fail without any mutant")
            time.sleep(0.1)
        yield
        if process.poll() is not None:
            raise SystemExit("the process that runs the tests has ended; what it was not asked about counts as killed")
    finally:
        process.terminate()
        process.wait()


def _run(cosmic_ray: Path, module: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    session = PLACE / f"{module.replace('/', '.')}.sqlite"
    config = session.with_suffix(".toml")
    command = f"{sys.executable} -I -S {Path(__file__).with_name('ask.py')} {SOCKET}"
    config.write_text(
        f'[cosmic-ray]\nmodule-path = "{GATE}/{module}.py"\ntimeout = {TIMEOUT_S}\nexcluded-modules = []\n'
        f'test-command = {json.dumps(command)}\n[cosmic-ray.distributor]\nname = "local"\n'
    )
    source, begun = (TREE / GATE / f"{module}.py").read_text(), session.with_suffix(".begun")
    if given.again and begun.exists() and begun.read_text() == source:
        _forget(session, _unexplained(module, _told(cosmic_ray, session)))
    else:
        session.unlink(missing_ok=True)
        subprocess.run([cosmic_ray / "cosmic-ray", "init", config, session], cwd=TREE, check=True)
        listed = json.loads(_with_db(cosmic_ray, _LIST, session))
        _with_db(cosmic_ray, _KEEP, session, told=json.dumps(_kept(source, listed, given.take)))
        begun.write_text(source)
    before = {mutant["job"] for mutant in _told(cosmic_ray, session)}
    _expect_no_alarm(module, command)
    subprocess.run([cosmic_ray / "cosmic-ray", "exec", config, session], cwd=TREE, check=True)
    # A test waits for a busy machine, too.
    waited = [mutant for mutant in _told(cosmic_ray, session) if mutant["waited"] and mutant["job"] not in before]
    _forget(session, waited)
    subprocess.run([cosmic_ray / "cosmic-ray", "exec", config, session], cwd=TREE, check=True)
    return _told(cosmic_ray, session)


def _forget(session: Path, mutants: Iterable[dict[str, Any]]) -> None:
    """Side effects: they have not been run."""
    with contextlib.closing(sqlite3.connect(session)) as db, db:
        db.executemany("DELETE FROM work_results WHERE job_id = ?", [(mutant["job"],) for mutant in mutants])


def _expect_no_alarm(module: str, command: str) -> None:
    """Changes that change nothing, one in a function and one at import, must survive, or a kill says nothing."""
    path = TREE / GATE / f"{module}.py"
    source = path.read_text()
    first = next(
        (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)), None
    )
    lines = source.splitlines(keepends=True)
    same = [[*lines, "_THE_SAME = 1\n"]]
    if first is not None:
        simple = [each for each in first.body if not hasattr(each, "body")][-1]
        at = simple.lineno - 1
        indent = " " * simple.col_offset
        same.append([*lines[:at], f"{indent}1; {lines[at].lstrip()}", *lines[at + 1 :]])
    try:
        for changed in same:
            path.write_text("".join(changed))
            if subprocess.run(command.split(), check=False).returncode:
                raise SystemExit(f"the tests of {module} fail without any mutant")
    finally:
        path.write_text(source)


def _kept(source: str, listed: list[dict[str, Any]], take: int) -> list[str]:
    out = left_out(source, listed)
    kept = [item["job"] for item in listed if item["job"] not in out]
    if take and len(kept) > take:
        kept = [kept[number * len(kept) // take] for number in range(take)]
    return kept


def _unexplained(module: str, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Survivors that have no reason."""
    reasons = EQUIVALENT.read_text() if EQUIVALENT.exists() else ""
    return [mutant for mutant in found if not mutant["killed"] and f"{_change(module, mutant)}\n" not in reasons]


def _report(module: str, found: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Side effects: prints each survivor that has no reason."""
    unexplained = _unexplained(module, found)
    for mutant in unexplained:
        sys.stdout.write(f"survived: {module}.py:{mutant['line']} {mutant['operator']}\n{_change(module, mutant)}\n\n")
    killed, waited = (sum(mutant[kind] for mutant in found) for kind in ("killed", "waited"))
    equivalent = len(found) - killed - len(unexplained)
    sys.stdout.write(
        f"{module}: {killed} of {killed + len(unexplained)} killed ({waited} by waiting), {equivalent} change nothing\n"
    )
    sys.stdout.flush()
    return {"killed": killed, "survived": len(unexplained), "equivalent": equivalent}


def _change(module: str, mutant: dict[str, Any]) -> str:
    """As `equivalent.txt` has it: the module, the line before and the line after."""
    lines = [line for line in mutant["diff"].splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join([f"{module}.py", *(f"{line[0]} {line[1:].strip()}" for line in lines if line[1:].strip())])


def _told(cosmic_ray: Path, session: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_with_db(cosmic_ray, _TELL, session))
    return found


def _with_db(cosmic_ray: Path, code: str, session: Path, *, told: str | None = None) -> str:
    command = [cosmic_ray / "python", "-c", _OPEN + code, session]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, input=told).stdout


_OPEN: Final = """
import json, sys
from cosmic_ray.work_db import WorkDB, use_db
def told(item):
    first = item.mutations[0]
    return {"job": item.job_id, "line": first.start_pos[0], "column": first.start_pos[1],
            "operator": first.operator_name}
def said(result):
    return (result.output or "").partition(" ")[0]
"""
_LIST: Final = """
with use_db(sys.argv[1], WorkDB.Mode.open) as db:
    print(json.dumps(sorted((told(item) for item in db.work_items), key=lambda each: (each["line"], each["column"]))))
"""
_KEEP: Final = """
kept = set(json.load(sys.stdin))
with use_db(sys.argv[1], WorkDB.Mode.open) as db:
    items = [item for item in db.work_items if item.job_id in kept]
    db.clear()
    db.add_work_items(items)
"""
_TELL: Final = """
with use_db(sys.argv[1], WorkDB.Mode.open) as db:
    print(json.dumps([
        {**told(item), "killed": said(result) in ("failed", "waited", "timeout"), "waited": said(result) in ("waited", "timeout"),
         "diff": result.diff or ""} for item, result in db.completed_work_items
    ]))
"""


if __name__ == "__main__":
    sys.exit(main())
