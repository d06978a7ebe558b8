"""A face is one file: it can be taken out, or put in by one line, and nothing else notices."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import toolgate
from toolgate.faces import FACES

SOURCE = Path(toolgate.__file__).parent
ROUTES = {
    "mcp": ["/mcp"],
    "mrt": ["/mrt_dispatch"],
    "rpc": ["/rpc"],
    "approvals": [f"/approvals/{verb}" for verb in ("list", "show", "approve", "refuse")],
}

ASK = """
import importlib, json, pkgutil, sys
import toolgate
for found in pkgutil.walk_packages(toolgate.__path__, "toolgate."):
    if ".template" not in found.name and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
from toolgate.faces import Parts, make_faces
from toolgate.gate.validate import compile_schema
from toolgate.registry import SchemaRegistry
faces = make_faces(Parts(compile_schema, SchemaRegistry(()).load_envelope, str, 1000, "reader"))
print(json.dumps([face.route for face in faces]))
"""


def served_by(tree: Path) -> list[str]:
    """The routes of a copy of our package, all of whose modules were imported."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASK],
        env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE, tmp_path / "toolgate")  # with what is compiled: Python looks at the times of the sources
    return tmp_path


@pytest.mark.guard
@pytest.mark.parametrize("name", FACES)
def test_deleting_a_faces_file_removes_the_face_and_breaks_no_import(tree: Path, name: str) -> None:
    (tree / "toolgate" / "faces" / f"{name}.py").unlink()
    assert sorted(served_by(tree)) == sorted(route for face in ROUTES if face != name for route in ROUTES[face])


@pytest.mark.guard
def test_a_face_is_added_by_one_file_and_one_line(tree: Path) -> None:
    faces = tree / "toolgate" / "faces"
    mine = (faces / "mrt.py").read_text().replace('"/mrt_dispatch"', '"/mine"')
    (faces / "mine.py").write_text(mine)
    rooms = faces / "__init__.py"
    before = rooms.read_text()
    rooms.write_text(before.replace("FACES: Final = (", 'FACES: Final = ("mine", '))
    assert rooms.read_text() != before
    assert sorted(served_by(tree)) == sorted([*itertools.chain(*ROUTES.values()), "/mine"])
