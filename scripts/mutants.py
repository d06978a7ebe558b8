"""Mutation testing of `src/toolgate/gate` with cosmic-ray: change one thing at a time, and see whether the gate's tests notice.

    make mutants                                     everything: hours
    make mutants ARGS="--module floor --take 40"     forty mutants of one module, spread evenly: minutes

It works in a copy (build/mutants), never in the tree itself. A mutant that makes the tests fail, or wait too long, is killed; one
that survives is printed with its change. `scripts/mutations.py` is the other half: it removes guards by hand, by name.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PLACE: Final = ROOT / "build" / "mutants"
TREE: Final = PLACE / "tree"
COSMIC_RAY: Final = "cosmic-ray==8.7.0"
GATE: Final = "src/toolgate/gate"
TESTS: Final = {
    "admit": "tests/gate/test_admit.py tests/gate/test_road.py",
    "explain": "tests/gate/test_validate.py tests/gate/test_wording.py",
    "floor": "tests/gate/test_floor.py",
    "keys": "tests/gate/test_keys.py",
    "redact": "tests/gate/test_redact.py",
    "shared": "tests/gate/shared/test_shared.py",
    "validate": "tests/gate/test_validate.py",
    "wording": "tests/gate/test_wording.py",
}
"""By module: the tests that are asked first. Of every other module, all of the gate's."""
TIMEOUT_S: Final = 300.0
"""For the tests of one mutant; one that loops for ever is noticed by this."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--module", action="append", help="a module of the gate, such as floor; repeat for more")
    parser.add_argument("--take", type=int, default=0, help="so many mutants of each, spread evenly; 0 takes all")
    asked = parser.parse_args()
    modules = asked.module or sorted(path.stem for path in (ROOT / GATE).glob("*.py") if path.stem != "__init__")
    cosmic_ray = _installed()
    _copy_tree()
    killed = total = 0
    for module in modules:
        found = _run(cosmic_ray, module, asked.take)
        survivors = [mutant for mutant in found if not mutant["killed"]]
        killed, total = killed + len(found) - len(survivors), total + len(found)
        for mutant in survivors:
            sys.stdout.write(f"survived: {module}.py:{mutant['line']} {mutant['operator']}\n{mutant['diff']}\n")
        sys.stdout.write(f"{module}: {len(found) - len(survivors)} of {len(found)} killed\n")
        sys.stdout.flush()
    score = 100 * killed / total if total else 0.0
    sys.stdout.write(f"score: {killed} of {total} killed, {score:.1f} %\n")
    return 0


def _installed() -> Path:
    """cosmic-ray has an environment of its own: it is no dependency of ours."""
    place = PLACE / "venv"
    if not (place / "bin" / "cosmic-ray").exists():
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "--quiet", COSMIC_RAY], check=True)
    return place / "bin"


def _copy_tree() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    ignored = shutil.ignore_patterns(
        ".git", ".venv*", "build", "dist", ".cache", "__pycache__", ".mypy_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, TREE, ignore=ignored, symlinks=True)


def _run(cosmic_ray: Path, module: str, take: int) -> list[dict[str, Any]]:
    session = PLACE / f"{module}.sqlite"
    session.unlink(missing_ok=True)
    config = PLACE / f"{module}.toml"
    tests = TESTS.get(module, "tests/gate")
    # The copy comes first on the path: the environment knows the tree itself, which is not changed.
    command = f"env PYTHONPATH={TREE / 'src'} {sys.executable} -m pytest -q -x -n 0 -p no:cacheprovider -m 'not guard' {tests}"
    config.write_text(
        f'[cosmic-ray]\nmodule-path = "{GATE}/{module}.py"\ntimeout = {TIMEOUT_S}\nexcluded-modules = []\n'
        f'test-command = {json.dumps(command)}\n[cosmic-ray.distributor]\nname = "local"\n'
    )
    for step in ("init", "baseline"):
        arguments = [config, session] if step == "init" else [config]
        subprocess.run([cosmic_ray / "cosmic-ray", step, *arguments], cwd=TREE, check=True)
    if take:
        subprocess.run([cosmic_ray / "python", "-c", _TAKE, session, str(take)], check=True)
    subprocess.run([cosmic_ray / "cosmic-ray", "exec", config, session], cwd=TREE, check=True)
    told = subprocess.run([cosmic_ray / "python", "-c", _TELL, session], check=True, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(told.stdout)
    return found


_TAKE: Final = """
import sys
from cosmic_ray.work_db import WorkDB, use_db
with use_db(sys.argv[1], WorkDB.Mode.open) as db:
    items = sorted(db.work_items, key=lambda item: (item.mutations[0].start_pos, item.mutations[0].operator_name))
    step = max(1.0, len(items) / int(sys.argv[2]))
    kept = [items[int(number * step)] for number in range(min(len(items), int(sys.argv[2])))]
    db.clear()
    db.add_work_items(kept)
"""
_TELL: Final = """
import json, sys
from cosmic_ray.work_db import WorkDB, use_db
with use_db(sys.argv[1], WorkDB.Mode.open) as db:
    print(json.dumps([
        {"killed": result.is_killed, "line": item.mutations[0].start_pos[0],
         "operator": item.mutations[0].operator_name, "diff": result.diff or ""}
        for item, result in db.completed_work_items
    ]))
"""


if __name__ == "__main__":
    sys.exit(main())
