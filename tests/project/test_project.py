"""What the project promises about itself as a whole: rooms, dependencies, no addresses, nothing private."""

from __future__ import annotations

import ast
import builtins
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.measures import imported, modules
from scripts.mutations import MUTATIONS, Mutation
from toolgate import errors
from toolgate.packs.loader import built_in

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "toolgate"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def texts() -> Iterator[tuple[Path, str]]:
    for path in committed():
        try:
            yield path, path.read_text()
        except UnicodeDecodeError:
            continue


REGISTRIES = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian", re.IGNORECASE)
PRIVATE = re.compile(r"/work/(main|shared)|\.\./shared|/root/\.(pyenv|cache)|/opt/(pypi|wheels)")


def test_no_committed_file_names_a_registry_host() -> None:
    mine = Path(__file__)
    assert [str(path) for path, text in texts() if path != mine and REGISTRIES.search(text)] == []


def test_no_committed_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    own = {Path(__file__), ROOT / ".ci" / "run"}  # the latter looks beside the checkout for published test vectors
    assert [str(path) for path, text in texts() if path not in own and PRIVATE.search(text)] == []


def test_every_locked_requirement_has_hashes_and_no_address() -> None:
    for name in ("run.txt", "dev.txt"):
        text = (ROOT / "requirements" / name).read_text()
        pins = re.findall(r"^[A-Za-z0-9._-]+(?:\[[a-z,]+\])?==", text, re.MULTILINE)
        assert len(pins) > 20
        assert text.count("--hash=sha256:") >= len(pins)
        assert "://" not in text


def test_every_runtime_dependency_is_explained() -> None:
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    named = [*PYPROJECT["project"]["dependencies"]]
    for extra in PYPROJECT["project"]["optional-dependencies"].values():
        named += extra
    for group in PYPROJECT["dependency-groups"].values():
        named += group
    packages = {re.match(r"[A-Za-z0-9-]+", one)[0].lower() for one in named}  # type: ignore[index]
    assert {package for package in packages if f"`{package}`" not in explained.lower()} == set()


FORBIDDEN_IN_PACKS = {
    "open": "files come through ctx.files",
    "io.open": "the same",
    "pathlib.Path": "the same; PurePosixPath names without touching",
    "os": "files, processes, the environment and entropy",
    "shutil": "files",
    "tempfile": "files",
    "glob": "files",
    "mmap": "files",
    "fileinput": "files",
    "socket": "the network comes through ctx.net",
    "ssl": "the same",
    "http": "the same",
    "urllib.request": "the same",
    "ftplib": "the same",
    "smtplib": "the same",
    "httptools": "the same",
    "httpx": "the same",
    "requests": "the same",
    "asyncio.open_connection": "the same",
    "asyncio.start_server": "the same",
    "asyncio.create_subprocess_exec": "no processes",
    "asyncio.create_subprocess_shell": "no processes",
    "asyncio.to_thread": "model.threads.in_thread: the default pool is one for all callers",
    "subprocess": "no processes",
    "multiprocessing": "ctx.compute",
    "concurrent.futures": "ctx.compute",
    "ctypes": "no",
    "random": "what is drawn is the keys' or the ids' matter",
    "secrets": "the same",
    "uuid": "the same",
    "time": "ctx.clock",
    "datetime.datetime.now": "ctx.clock",
    "datetime.datetime.utcnow": "ctx.clock",
    "datetime.datetime.today": "ctx.clock",
    "datetime.date.today": "ctx.clock",
    "eval": "no",
    "exec": "no",
    "__import__": "no",
    "importlib.import_module": "no",
}
"""What a pack may not name, itself or below it, and where it gets that from."""
ALLOWED_IN_PACKS = {
    ("lra/devsite/pages.py", "time"): "a part of the dev site, which is a server of its own",
}
AT_THE_RIM = re.compile(r"/packs/[a-z]+/(cli\.py$|cli/|devsite/site\.py$)")
"""A pack's commands for people run on a person's own files, outside the road; they may open them (docs/architecture.md). The dev
site is a server of its own, with its own socket."""


@pytest.mark.parametrize(
    "pack", sorted(path.name for path in (SOURCE / "packs").iterdir() if path.is_dir() and path.name != "__pycache__")
)
def test_a_pack_touches_nothing_but_its_powers(pack: str) -> None:
    found: set[tuple[str, str]] = set()
    for path in sorted((SOURCE / "packs" / pack).rglob("*.py")):
        if not AT_THE_RIM.search(path.as_posix()) and "template" not in path.parts:
            name = str(path.relative_to(SOURCE / "packs"))
            found |= {(name, what) for what in touched(ast.parse(path.read_text()))}
    assert found - ALLOWED_IN_PACKS.keys() == set()
    assert {one for one in ALLOWED_IN_PACKS if one[0].startswith(f"{pack}/")} <= found, "no longer needed"


def touched(tree: ast.Module) -> Iterator[str]:
    """Everything forbidden that a module names, by whatever name it imported it."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names if alias.asname}
            known |= {
                alias.name.partition(".")[0]: alias.name.partition(".")[0] for alias in node.names if not alias.asname
            }
            yield from (what for alias in node.names for what in forbidden(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield from (what for alias in node.names for what in forbidden(f"{node.module}.{alias.name}"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in known or (not rest and first in vars(builtins)):
                yield from forbidden(".".join(filter(None, [known.get(first, first), rest])))


def forbidden(name: str) -> Iterator[str]:
    yield from (what for what in FORBIDDEN_IN_PACKS if name == what or name.startswith(f"{what}."))


ROOMS = sorted(path.parent for path in (SOURCE / "packs").glob("*/__init__.py"))
FURNITURE = {
    "__init__.py",
    "door.py",
    "tools.py",
    "prompts.py",
    "resources.py",
    "panels.py",
    "settings.py",
    "tables.py",
    "cli.py",
}
"""Files that may stand in a pack itself; the domain is in folders named after what it does."""


@pytest.mark.parametrize("room", [room for room in ROOMS if room.name in built_in()], ids=lambda room: room.name)
def test_every_room_has_the_same_furniture(room: Path) -> None:
    assert {path.name for path in room.glob("*.py")} <= FURNITURE
    assert (room / "tools.py").exists() or (room / "tools").is_dir()
    assert public_names(room / "door.py") == {"PACK"}
    assert public_names(room / "__init__.py") <= {"COMMANDS"}


def public_names(path: Path) -> set[str]:
    made = {name for node in ast.parse(path.read_text()).body for name in assigned(node)}
    return {name for name in made if not name.startswith("_")}


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_pack_keeps_nothing_in_its_modules_that_would_outlive_a_server(room: Path) -> None:
    found = []
    for path in sorted(room.rglob("*.py")):
        tree = ast.parse(path.read_text())
        found += [f"{path.name}: {name}" for node in tree.body for name in assigned(node) if keeps_state(name, node)]
        found += [f"{path.name}: global" for node in ast.walk(tree) if isinstance(node, ast.Global)]
    assert found == []


def assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def keeps_state(name: str, node: Any) -> bool:
    """Constants are in capitals; what is not, and is not a logger, a command line or a name to import, is a variable."""
    made = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
    return name.lstrip("_")[:1].islower() and made not in {"typer.Typer", "logging.getLogger", "holding"}


def test_the_rule_about_state_can_fail() -> None:
    for line in ("_seen = {}", "_quotas: Final = Quotas()", "index: dict[str, int] = {}"):
        (node,) = ast.parse(line).body
        assert keeps_state(assigned(node)[0], node)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("open('x')", "open"),
        ("from io import open as read\nread('x')", "io.open"),
        ("from pathlib import Path\nPath('x').open()", "pathlib.Path"),
        ("import pathlib as p\np.Path('x').read_bytes()", "pathlib.Path"),
        ("import os.path", "os"),
        ("from os import urandom", "os"),
        ("import socket as s", "socket"),
        ("from http.client import HTTPConnection", "http"),
        ("import urllib.request", "urllib.request"),
        ("from random import choice", "random"),
        ("import time\ntime.time()", "time"),
        ("from time import monotonic as now", "time"),
        ("from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
        ("import datetime as dt\ndt.datetime.now(dt.UTC)", "datetime.datetime.now"),
        ("import asyncio\nasyncio.open_connection('h', 1)", "asyncio.open_connection"),
        ("eval('1')", "eval"),
    ],
)
def test_the_rule_for_packs_can_fail(code: str, what: str) -> None:
    assert what in set(touched(ast.parse(code)))


def test_the_rule_for_packs_lets_pass_what_touches_nothing() -> None:
    code = "from pathlib import PurePosixPath\nfrom urllib.parse import quote\nctx.clock.time()\nfiles.open('x')"
    assert list(touched(ast.parse(code))) == []


SLEEPS = {
    "tests/waiting.py": "the one way to look again, bounded",
    "tests/site_packages/unruly/__init__.py": "handlers that misbehave by sleeping; no test waits them out",
    "tests/powers/net/test_rules.py": "a site that drips until the deadline under test ends it",
    "tests/upstreams/stub.py": "a server that hangs, or starts slowly; no test waits it out",
    "tests/site_packages/wiretest.py": "a tool whose steps a client watches arrive",
    "tests/site_packages/counted.py": "a tool that takes a while, for calls that are to overlap",
    "tests/gate/shared/test_fail_closed.py": "a way to an engine that is slow",
    "tests/gate/shared/storm.py": "load and blows that pace themselves",
    "tests/rough/abuse.py": "load that paces itself",
    "tests/rough/caller.py": "the same",
    "tests/rough/hostile.py": "the same",
}
"""Where a test may sleep, and why. `sleep(0)` only gives way to other tasks."""
CLOCKS = {"monotonic", "perf_counter", "perf_counter_ns", "process_time", "time"}


def every_test(*, saying: str) -> Iterator[tuple[str, ast.Module]]:
    """Files of tests in which this pattern is found; the others need not be read as code."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if re.search(saying, text := path.read_text()):
            yield str(path.relative_to(ROOT)), ast.parse(text)


def test_no_test_sleeps() -> None:
    found = {name for name, tree in every_test(saying=r"\bsleep\(") for node in ast.walk(tree) if sleeps(node)}
    assert found == set(SLEEPS)


def sleeps(node: ast.AST) -> bool:
    named = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "sleep"
    return named and ast.unparse(node.args[0]) != "0"  # type: ignore[attr-defined]


def test_no_test_asserts_how_long_something_took() -> None:
    """`assert clock() < due` bounds a wait; a difference of two readings judges the machine."""
    assert [
        f"{name}:{node.lineno}"
        for name, tree in every_test(saying=rf"\b({'|'.join(CLOCKS)})\(")
        for node in ast.walk(tree)
        if judges_time(node)
    ] == []


def judges_time(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) and any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) and _reads_clock(part.left)
        for part in ast.walk(node)
    )


def _reads_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in CLOCKS


def test_no_property_test_draws_the_same_cases_in_a_search() -> None:
    """`tests.cases` chooses by the profile; a number or an order of a test's own would hold in `make search` too."""
    pinned = {
        (name, fixed.arg)
        for word in ("max_examples", "derandomize")
        for name, tree in every_test(saying=word)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for fixed in node.keywords
        if fixed.arg == word
    }
    assert pinned == {
        ("tests/cases.py", "max_examples"),
        ("tests/conftest.py", "max_examples"),
        ("tests/conftest.py", "derandomize"),
        ("tests/packs/consensus/domain/laws.py", "derandomize"),  # machines that are wrong on purpose
    }


def test_the_rules_for_tests_can_fail() -> None:
    assert sleeps(ast.parse("asyncio.sleep(0.1)", mode="eval").body)
    assert not sleeps(ast.parse("asyncio.sleep(0)", mode="eval").body)
    assert judges_time(ast.parse("assert time.monotonic() - began < 3").body[0])
    assert not judges_time(ast.parse("assert time.monotonic() < due").body[0])


ROW = re.compile(r"^\| `([a-z_]+)(?:/|\.py)` \| .* \| ([a-z_, ]+) \|$", re.MULTILINE)


def documented_rooms() -> dict[str, set[str]]:
    page = (ROOT / "docs" / "architecture.md").read_text().partition("## Rooms")[2]
    return {room: set() if below == "nothing" else set(below.split(", ")) for room, below in ROW.findall(page)}


def layers() -> dict[str, int]:
    """Room -> how high it stands, by the import rules; rooms of one layer do not import each other."""
    (rules,) = (one for one in PYPROJECT["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    assert rules["exhaustive"]
    return {room: height for height, layer in enumerate(reversed(rules["layers"])) for room in layer.split(" | ")}


def imports_of_rooms() -> dict[str, set[str]]:
    """What each room really imports, wherever in its files, but for commands that a pack has for people."""
    found: dict[str, set[str]] = {}
    every = modules(SOURCE)
    names = {module.name for module in every}
    for module in every:
        room = module.name.split(".")[1] if "." in module.name else ""
        if room and not AT_THE_RIM.search(module.path.as_posix()):
            below = found.setdefault(room, set())
            for node in runs(module.tree.body):
                for name in imported(node, module):
                    if name in names and "." in name:
                        below.add(name.split(".")[1])
            below.discard(room)
    return found


def runs(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Every statement, without what only a type checker sees."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from runs(node.orelse)
        else:
            yield node
            for part in ("body", "orelse", "finalbody", "handlers"):
                yield from runs(getattr(node, part, []))


def test_the_table_of_rooms_is_what_the_import_rules_allow_and_the_code_does() -> None:
    told, heights = documented_rooms(), layers()
    assert told.keys() == heights.keys()
    for room, below in told.items():
        assert all(heights[each] < heights[room] for each in below), room
    assert told == imports_of_rooms()


def test_every_module_that_the_architecture_page_names_is_there() -> None:
    named = re.findall(
        r"`((?:gate|ledger|servers|faces|model|powers)/[a-z_]*(?:\.py)?)`",
        (ROOT / "docs" / "architecture.md").read_text(),
    )
    assert len(named) > 12
    assert [name for name in named if not (SOURCE / name).exists()] == []


STALE_REFERENCE = re.compile(r"\b[Dd]ecisions? \d+|\b[Dd]ocuments? 00\d")


def test_every_record_that_the_source_names_is_in_the_repository() -> None:
    records = {path.name[:8] for path in (ROOT / "docs" / "adr").glob("ADR-*.md")}
    for path in SOURCE.rglob("*.py"):
        text, name = path.read_text(), str(path.relative_to(SOURCE))
        assert set(re.findall(r"ADR-\d{4}", re.sub(r"\"[^\"]*\"|'[^']*'", "", text))) <= records, name
        assert STALE_REFERENCE.findall(text) == [], name


def test_the_required_check_runs_the_whole_suite_on_every_python() -> None:
    required = json.loads((ROOT / ".github" / "branch-protection.json").read_text())["required_status_checks"][
        "contexts"
    ]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert "tests" in required
    assert (jobs["tests"]["needs"], jobs["tests"]["if"]) == ("test", "always()"), (
        "a job that is skipped counts as passed"
    )
    assert jobs["test"]["steps"][-1]["run"] == "make test PYTHON=${{ matrix.python }}", "without ARGS: all of it"
    claimed = [one.rpartition(" ")[2] for one in PYPROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert jobs["test"]["strategy"]["matrix"]["python"] == claimed


def test_numbers_of_a_verdict_stand_in_the_table_or_where_its_module_says() -> None:
    told = set(re.findall(r"(?:servers|faces)/[a-z_]+\.py", errors.__doc__ or ""))
    found = {
        path.relative_to(SOURCE).as_posix()
        for room in ("servers", "faces", "gate", "cli")
        for path in (SOURCE / room).glob("*.py")
        if any(is_verdict_number(node) for node in ast.walk(ast.parse(path.read_text())))
    }
    assert found == told


def is_verdict_number(node: ast.AST) -> bool:
    """A status of HTTP that says no, or an error code that JSON-RPC keeps for itself (negative: an operator and a number)."""
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        return False
    return node.value in set(HTTPStatus) - set(range(400)) or 32_000 <= node.value <= 32_768


def test_no_module_is_larger_than_a_reader_can_hold() -> None:
    sizes = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {name: size for name, size in sizes.items() if size > 600} == {}


def test_each_public_class_has_a_name_of_its_own() -> None:
    """Two classes of one name in two rooms are confused by whoever reads both."""
    places: dict[str, list[str]] = {}
    for module in modules(SOURCE):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_nothing_of_ours_uses_asyncio_s_shared_executor() -> None:
    """One small pool for all callers: whoever blocks it blocks everybody, and the end of the process."""
    found = [
        f"{module.name}:{node.lineno}"
        for module in modules(SOURCE)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr in ("to_thread", "run_in_executor", "set_default_executor")
    ]
    assert found == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_finds_its_line_and_its_test(mutation: Mutation) -> None:
    """`make mutations` takes many minutes; that a line was reworded under it shows here."""
    assert (ROOT / mutation.file).read_text().count(mutation.line) == 1
    file, _, name = mutation.test.partition("::")
    assert re.search(rf"def {name.partition('[')[0]}\b" if name else "def test_", (ROOT / file).read_text())
