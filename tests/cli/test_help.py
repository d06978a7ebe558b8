"""What a command loads to explain itself: its name, its flags and what draws help; nothing of what it would do."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer

from tests.cli.support import clean_environment
from tests.homes import PATIENCE_S
from toolgate.cli.commands import every_command
from toolgate.cli.groups import LazyGroup
from toolgate.later import named

BUDGETS: Mapping[str, int] = {
    "": 19,
    "version": 14,
    "call": 24,
    "serve": 23,
    "stdio": 23,
    "init": 23,
    "keys create": 23,
    "config print": 23,
    "doctor": 23,
    "mcp-config": 24,
    "tools list": 24,
    "contract check": 24,
    "policy lint": 24,
    "audit tail": 23,
    "explain": 23,
    "analyze": 22,
    "l0": 22,
    "adr check": 22,
    "consensus": 20,
    "lra serve": 24,
    "lra sign": 48,
}
"""Modules that the help of a command may load beside `DRAWN_BY`: ours, and what ours need."""
DRAWN_BY = "import typer, typer.rich_utils, typer.completion"
"""What draws help loads some 300 modules, and how many is not ours to say."""
PROGRAM = f"""
import json, os, sys
{DRAWN_BY}
before = set(sys.modules)
for command in json.loads(sys.argv[1]):
    if os.fork() == 0:
        from toolgate.cli.main import main
        print("asked", command, flush=True)
        main([*command.split(), "--help"])
        print("loaded", *(set(sys.modules) - before), flush=True)
        os._exit(0)
    os.wait()
"""
"""Each command in a process of its own that has loaded no more than what draws help: to load that takes longer than the rest."""


@pytest.fixture(scope="module")
def loaded_for_help(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Command -> the modules that its help has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(list(BUDGETS))],
        cwd=tmp_path_factory.mktemp("help"),
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=True,
    )
    answers = [answer.partition("\n") for answer in done.stdout.split("asked ")[1:]]
    assert all("Usage: toolgate" in help_ for _, _, help_ in answers)
    return {command: set(help_.splitlines()[-1].split()[1:]) for command, _, help_ in answers}


@pytest.mark.parametrize("command", BUDGETS)
def test_help_loads_no_more_modules_than_its_budget(command: str, loaded_for_help: dict[str, set[str]]) -> None:
    loaded = loaded_for_help[command]
    assert "toolgate.cli.main" in loaded
    assert len(loaded) <= BUDGETS[command], sorted(loaded)


def declared() -> Iterator[Any]:
    """Every command whose work is done by a function of another module."""
    for command in every_command().values():
        target = named(command.target)
        found = functions(target) if isinstance(target, typer.Typer) else [target]
        yield from (function for function in found if hasattr(function, "done_by"))


def functions(app: typer.Typer) -> Iterator[Any]:
    group = app.info.cls
    if isinstance(group, type) and issubclass(group, LazyGroup):
        for target in dict.fromkeys(command.target for command in group.listed):
            yield from functions(named(target))
    for command in app.registered_commands:
        yield command.callback
    for each in app.registered_groups:
        if each.typer_instance is not None:
            yield from functions(each.typer_instance)


@pytest.mark.parametrize("function", list(declared()), ids=lambda function: function.done_by)
def test_what_does_a_command_takes_what_the_command_declares(function: Any) -> None:
    work, command = named(function.done_by), inspect.unwrap(function)
    taken = get_type_hints(work, localns={"Path": Path, **command.__globals__})
    assert taken == get_type_hints(command)
    assert list(inspect.signature(work).parameters) == list(inspect.signature(command).parameters)


def test_commands_are_declared_apart_from_their_work() -> None:
    assert len(list(declared())) > len(BUDGETS)
