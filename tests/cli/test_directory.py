"""F13: no code by directory. Whatever lies where a command is started, none of it runs: not in the command, not in a worker.

A client starts `toolgate stdio` in the project that its user opened, and people type commands in repositories they cloned.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, TOOLGATE, Home
from toolgate.cli.commands import every_command, load
from toolgate.cli.origin import leave_the_directory
from toolgate.config import load_settings
from toolgate.errors import SettingsError
from toolgate.gate.keys import KeyRing
from toolgate.model.call import ROLES

BY_THE_INTERPRETER = {"sitecustomize", "usercustomize", "toolgate"}
"""With the directory in PYTHONPATH, Python itself loads these before our first line; docs/limitations.md says so."""


def hostile(place: Path, names: set[str]) -> Path:
    """A stranger's repository: modules of every name, metadata of a pack, settings that run a program."""
    seen = place / "seen"
    seen.mkdir(parents=True)
    code = f"import posix\nposix.close(posix.open({str(seen)!r} + '/' + __name__, posix.O_CREAT | posix.O_WRONLY))\n"
    for name in names:
        (place / f"{name}.py").write_text(code)
        (place / "rel").mkdir(exist_ok=True)
        (place / "rel" / f"{name}.py").write_text(code)
    for package in ("toolgate", "multiprocessing") if "toolgate" in names else ("multiprocessing",):
        (place / package).mkdir()
        (place / package / "__init__.py").write_text(code)
    (place / ".github" / "workflows").mkdir(parents=True)
    (place / ".github" / "workflows" / "a.yml").write_text("on: push\njobs: {a: {runs-on: x, steps: [{run: y}]}}\n")
    (place / "hostile.pth").write_text(code.replace("\n", ";"))
    (place / "evil-1.0.dist-info").mkdir()
    (place / "evil-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    points = "[toolgate.packs]\n" + "".join(f"{name} = evil:PACK\n" for name in ("evil", "lra", "governance"))
    (place / "evil-1.0.dist-info" / "entry_points.txt").write_text(points)
    (place / "pyproject.toml").write_text(
        f'[project]\nname = "evil"\n[project.entry-points."toolgate.packs"]\n{points[17:]}'
    )
    settings = f'[ledger]\ncheckpoint_records = 1\nanchor_command = ["/bin/sh", "-c", "touch {seen}/anchor"]\n'
    for home in (place, place / ".toolgate"):
        (home / "workspace").mkdir(parents=True)
        (home / "toolgate.toml").write_text(settings)
    return seen


def every_name() -> set[str]:
    installed = {name for name in packages_distributions() if name.isidentifier()}
    return {*sys.stdlib_module_names, *installed, "sitecustomize", "usercustomize", "conftest", "evil", "toolgate"} - {
        "posix"
    }


def loaded_by_python() -> set[str]:
    """What a console script has loaded when ours begins."""
    done = subprocess.run(
        [sys.executable, "-c", "import re, sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()} | BY_THE_INTERPRETER


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    path = tmp_path_factory.mktemp("directory") / "home"
    _toolgate("init", str(path), cwd=path.parent)
    ring = KeyRing(load_settings(path, {}, {}).paths.keys)
    made = Home(path, {role: ring.create(role)[1] for role in ROLES})
    _toolgate("lra", "init", "p", cwd=made.workspace)
    return made


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(the stranger's directory, what of it ran)."""
    place = tmp_path_factory.mktemp("strange") / "clone"
    return place, hostile(place, every_name())


def _toolgate(
    *arguments: str, cwd: Path, program: str = TOOLGATE, given: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        cwd=cwd,
        env={"PATH": os.defpath, "HOME": str(cwd), "LANG": "C.UTF-8"} | environ,
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _validate(request: int) -> str:
    """A call whose work is done by a worker process."""
    params = {"name": "lra_validate", "arguments": {"path": "p"}}
    return json.dumps({"jsonrpc": "2.0", "id": request, "method": "tools/call", "params": params}) + "\n"


def _over_stdio(home: Home, place: Path, **environ: str) -> dict[str, Any]:
    process = subprocess.Popen(
        [TOOLGATE, "stdio", "--home", str(home.path)],
        cwd=place,
        env={"PATH": os.defpath, "HOME": str(place), "TOOLGATE_API_KEY": home.keys["builder"]} | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    overdue = threading.Timer(2 * PATIENCE_S, process.kill)
    overdue.start()
    process.stdin.write(_validate(1))
    process.stdin.flush()
    answer = process.stdout.readline()
    process.stdin.close()
    process.wait(PATIENCE_S)
    process.stdout.close()
    overdue.cancel()
    return dict(json.loads(answer))


def _ran(seen: Path) -> list[str]:
    return sorted(path.name for path in seen.iterdir())


def test_f13_a_worker_of_a_server_started_in_a_hostile_directory_runs_none_of_it(
    home: Home, directory: tuple[Path, Path]
) -> None:
    place, seen = directory
    answer = _over_stdio(home, place)
    assert answer["result"]["structuredContent"]["success"] is True, "the worker did its work"
    assert _ran(seen) == []


def test_f13_relative_entries_of_pythonpath_bring_nothing_that_python_did_not_load_itself(
    home: Home, tmp_path: Path
) -> None:
    seen = hostile(tmp_path / "clone", every_name() - loaded_by_python())
    answer = _over_stdio(home, tmp_path / "clone", PYTHONPATH=":.:rel:")
    assert answer["result"]["structuredContent"]["success"] is True
    done = _toolgate("validate", "p", cwd=tmp_path / "clone", program=_LRA, PYTHONPATH=":.:rel:")
    assert "Traceback" not in done.stderr
    assert _ran(seen) == []


def test_f13_what_a_relative_entry_added_leaves_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":./rel:{tmp_path}/kept")
    monkeypatch.setattr(sys, "path", ["", "rel", str(tmp_path), f"{tmp_path}/rel", f"{tmp_path}/kept", "/usr/lib"])
    leave_the_directory()
    assert sys.path == [f"{tmp_path}/kept", "/usr/lib"]


def test_an_absolute_entry_of_pythonpath_is_the_user_s_own_choice(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    code = "import toolgate.cli, mine, sys; print(mine.__file__); assert '' not in sys.path"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": f".:{tmp_path}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path / "mine.py")


@pytest.mark.parametrize(
    "arguments",
    [("serve", "--port", "0"), ("serve", "--dev", "--port", "0"), ("stdio",), ("tools", "list"), ("audit", "verify")],
    ids=" ".join,
)
def test_f13_settings_of_a_directory_that_nobody_chose_run_no_program(
    home: Home, directory: tuple[Path, Path], arguments: Sequence[str]
) -> None:
    place, seen = directory
    done = _toolgate(*arguments, cwd=place, TOOLGATE_API_KEY=home.keys["admin"])
    assert done.returncode == 1
    assert "ledger.anchor_command reaches beyond" in done.stderr
    assert "--home" in done.stderr
    assert _ran(seen) == []


REACHING = {
    "a program": '[ledger]\nanchor_command = ["true"]\n',
    "a file elsewhere": '[ledger]\nanchor_file = "/tmp/elsewhere"\n',
    "a place elsewhere": '[paths]\nworkspace = "../elsewhere"\n',
    "a database": '[stores]\nconsent = "postgresql://u@h/d"\n',
    "another's secret": '[packs.consensus]\npeers = [{key = "env:AWS_SECRET_ACCESS_KEY"}]\n',
}


@pytest.mark.parametrize("text", REACHING.values(), ids=REACHING.keys())
def test_f13_a_home_that_nobody_chose_reaches_nothing_beyond_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "toolgate.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="reaches beyond"):
        load_settings(None, {}, {})
    assert load_settings(tmp_path, {}, {}).file is not None, "named, it is trusted"
    assert load_settings(None, {}, {"TOOLGATE_HOME": str(tmp_path)}).file is not None


def test_f13_a_link_out_of_a_home_that_nobody_chose_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clone").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "clone" / "workspace").symlink_to(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "clone")
    with pytest.raises(SettingsError, match=r"paths\.workspace reaches beyond"):
        load_settings(None, {}, {})
    assert load_settings(None, {"paths.workspace": str(tmp_path / "mine")}, {}), "a flag is the user's own word"


def test_harmless_settings_of_the_current_directory_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toolgate.toml").write_text("[limits]\nrate_per_minute = 7\n[paths]\nworkspace = 'w'\n")
    monkeypatch.chdir(tmp_path)
    assert load_settings(None, {}, {}).limits.rate_per_minute == 7


_LRA = str(Path(TOOLGATE).with_name("lra"))
_NO_ID = "00000000-0000-0000-0000-000000000000"
INVOCATIONS: dict[str, Sequence[str]] = {
    "call": ("lra_validate", "path=p"),
    "tools list": (),
    "tools show": ("dummy_experimental",),
    "init": ("{new}",),
    "keys create": ("--role", "builder"),
    "keys list": (),
    "keys revoke": ("000000000000",),
    "keys rotate": ("000000000000",),
    "keys show": ("000000000000",),
    "stop-calls": (),
    "approvals list": (),
    "approvals show": ("0123456789abcdef",),
    "approvals approve": ("0123456789abcdef",),
    "approvals refuse": ("0123456789abcdef",),
    "resume": ("--tool", "x"),
    "config print": (),
    "doctor": (),
    "mcp-config": ("claude-code",),
    "contract build": (),
    "contract check": (),
    "contract diff": (),
    "contract health": ("checks.jsonl",),
    "policy lint": (),
    "policy show": (),
    "policy test": (),
    "policy explain": ("--tool", "dummy_experimental", "--role", "builder"),
    "policy replay": ("--policy", "{there}"),
    "policy docs": ("{there}", "--check"),
    "audit verify": (),
    "audit prove": (_NO_ID,),
    "audit check-proof": ("{new}", "--key", "x"),
    "audit rotate-key": (),
    "audit tail": (),
    "audit show": (_NO_ID,),
    "audit export": (),
    "audit diff": ("a", "b"),
    "explain": (_NO_ID,),
    "upstream add": ("x", "--", "no-such-program"),
    "upstream import": ("{new}",),
    "upstream try": ("nobody",),
    "upstream adopt": ("nobody", "--roles", "admin", "--yes"),
    "upstream diff": ("nobody",),
    "upstream approve": ("nobody", "--yes"),
    "upstream list": (),
    "upstream login": ("nobody", "--no-browser"),
    "upstream logout": ("nobody",),
    "upstream status": (),
    "upstream remove": ("nobody", "--yes"),
    "analyze": (),
    "baseline": (),
    "l0": (),
    "adr check": (),
    "adr lint": (),
    "fp mark": ("f" * 32, "--rule", "MD-001", "--reason", "r", "--reviewer", "a", "--ticket", "t"),
    "fp list": (),
    "fp rate": (),
    "fp export": (),
    "fp import": ("{new}",),
    "consent grant": ("acme", "fp_metrics", "--by", "ann"),
    "consent revoke": ("acme", "fp_metrics", "--by", "ann"),
    "consent list": ("acme",),
    "lra init": ("q",),
    "lra validate": ("q",),
    "lra check": ("q",),
    "lra build": (),
    "lra export": ("{new}", "--to", "docx"),
    "lra badge": ("q",),
    "lra hash": ("q",),
    "lra keygen": ("{new}",),
    "lra sign": ("{new}",),
    "lra verify": ("http://127.0.0.1:9/",),
    "lra verify-receipt": ("{new}",),
    "lra registry add": ("http://127.0.0.1:9/",),
    "lra registry lint": (),
    "lra registry search": ("x",),
    "lra receipt show": ("{new}",),
    "lra receipt diff": ("{new}", "{new}"),
    "lra receipt explode": ("{new}",),
    "consensus status": (),
    "consensus show": ("1",),
    "consensus verify": ("{new}",),
    "consensus seal": (),
    "consensus keys": (),
    "pack new": ("newpack",),
    "status": (),
    "reload": (),
    "version": (),
}
"""One harmless way to start each command that ends by itself. Those that serve have tests of their own, here or below."""
SERVING = {"serve", "stdio", "lra serve"}


def _leaves(command: Any, name: str) -> Iterator[str]:
    if not hasattr(command, "list_commands"):
        yield name
        return
    context = command.make_context(name, [], resilient_parsing=True)
    for each in command.list_commands(context):
        yield from _leaves(command.resolve_command(context, [each])[1], f"{name} {each}")


def test_every_command_has_an_invocation_for_a_hostile_directory() -> None:
    assert {
        leaf for name, one in every_command().items() for leaf in _leaves(load(one), name)
    } == INVOCATIONS.keys() | SERVING


@pytest.mark.guard
def test_f13_no_command_runs_anything_of_the_directory_it_is_started_in(
    home: Home, directory: tuple[Path, Path], tmp_path: Path
) -> None:
    place, seen = directory

    def start(leaf: str) -> tuple[str, subprocess.CompletedProcess[str]]:
        arguments = [one.format(there=tmp_path, new=tmp_path / leaf.replace(" ", "-")) for one in INVOCATIONS[leaf]]
        given = {"TOOLGATE_HOME": str(home.path), "TOOLGATE_API_KEY": home.keys["builder"]}
        return leaf, _toolgate(*leaf.split(), *arguments, cwd=place, **given)

    with ThreadPoolExecutor(2) as pool:
        for leaf, done in pool.map(start, INVOCATIONS):
            assert "Traceback" not in done.stderr, (leaf, done.stderr)
            assert "Toolgate itself failed" not in done.stderr, (leaf, done.stderr)
            assert not re.search("No such (option|command)|Missing (argument|option)", done.stderr), (leaf, done.stderr)
    assert _ran(seen) == []


@pytest.mark.guard
@pytest.mark.parametrize(
    "command", [("serve", "--port", "0", "--json"), ("lra", "serve", "--port", "0", ".")], ids=" ".join
)
def test_f13_no_server_runs_anything_of_the_directory_it_is_started_in(
    home: Home, directory: tuple[Path, Path], command: Sequence[str]
) -> None:
    place, seen = directory
    process = subprocess.Popen(
        [TOOLGATE, *command],
        cwd=place,
        env={"PATH": os.defpath, "HOME": str(place), "TOOLGATE_HOME": str(home.path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if command[0] == "serve":
        port = int(json.loads(line)["url"].rpartition(":")[2])
        assert speak.mrt(port, "lra_validate", {"path": "p"}, home.keys["builder"]).status == 200
    process.terminate()
    process.wait(PATIENCE_S)
    process.stdout.close()
    assert _ran(seen) == []
