"""The goals for how the code is built are held: `make measures` prints the numbers, beside other libraries'."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts.measures import GOALS, SOURCE, Module, broad_excepts, in_cycles, inner_imports, measure, modules


@pytest.fixture(scope="module")
def ours() -> dict[str, float]:
    return measure(SOURCE)


@pytest.mark.parametrize("name", GOALS)
def test_a_goal_is_held(name: str, ours: dict[str, float]) -> None:
    assert ours[name] <= GOALS[name]


def module(name: str, text: str) -> Module:
    return Module(name, Path(f"{name.replace('.', '/')}.py"), text.count("\n"), ast.parse(text))


def test_a_cycle_is_found_and_imports_for_the_type_checker_make_none() -> None:
    one = module("p.one", "import p.two\n")
    assert set(in_cycles([one, module("p.two", "from p.one import x\n")])) == {"p.one", "p.two"}
    checking = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.one import x\n"
    assert in_cycles([one, module("p.two", checking)]) == []
    assert in_cycles([one, module("p.two", "def f():\n    import p.one\n")]) == []


def test_broad_excepts_and_imports_inside_functions_are_counted() -> None:
    text = "def f():\n    import p.two, os\n    try:\n        pass\n    except (OSError, Exception):\n        pass\n"
    assert list(inner_imports(module("p.one", text))) == ["p.one:2"]
    both = broad_excepts(module("p.one", text + "try:\n    pass\nexcept:\n    pass\n"))
    assert sorted(both) == ["p.one:5", "p.one:9"]
    assert list(broad_excepts(module("p.one", "try:\n    pass\nexcept ValueError:\n    pass\n"))) == []


def test_every_module_is_measured() -> None:
    assert len(modules(SOURCE)) == sum(1 for path in SOURCE.rglob("*.py") if "template" not in path.parts)


def test_no_loop_calls_what_it_holds_one() -> None:
    """The name says what a loop goes over: `for file in files`."""
    found = [
        f"{module.name}:{node.target.lineno}"
        for module in modules(SOURCE)
        for node in module.nodes
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
        for name in ast.walk(node.target)
        if isinstance(name, ast.Name) and name.id == "one"
    ]
    assert found == []
