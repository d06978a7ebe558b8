"""Which codes a tool can say, read from the source: every ToolError and Result that its handler can reach.

Names are followed through imports, also through those that wait until they are needed. A method is followed by its name: into
every class that the handler can have got hold of, and into the powers that the tool's effect hands it. So the answer errs on
the side of too much; what is known to be too much is listed by the test.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import toolgate
from toolgate.later import named
from toolgate.model import powers
from toolgate.model.tool import CODE_FORM, Tool

SOURCE = Path(toolgate.__file__).parent
FILES = ("toolgate.powers.files", (powers.ReadFiles,))
WRITER = ("toolgate.powers.files", (powers.WriteFiles,))
POWERS: dict[str, tuple[tuple[str, tuple[type, ...]], ...]] = {
    "read": (FILES,),
    "write": (
        FILES,
        WRITER,
        ("toolgate.powers.jobs", (powers.Jobs,)),
        ("toolgate.packs.lra.devsite.site", (powers.Jobs,)),
    ),
    "crypto": (FILES, WRITER, ("toolgate.powers.keys", (powers.SigningKeys,))),
    "network": (FILES, WRITER, ("toolgate.powers.net", (powers.Egress, powers.Visit))),
}
"""By effect: where a power is built, and the shapes through which a handler reaches it (`toolgate.app`)."""

REFERENCE = re.compile(r"toolgate(\.\w+)+:\w+")
HIDDEN_CALLS = {"toolgate.powers.jobs.JobKeeper.start": ("toolgate.packs.lra.devsite.site.DevSites.__call__",)}
"""Calls through a table that is made in `toolgate.app`."""


@dataclass
class Body:
    """One function: the codes in it, and what it may call."""

    codes: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    """Whole names: module and function, or module, class and method."""
    methods: set[str] = field(default_factory=set)
    """Names of methods called on something whose type is not known here."""
    classes: set[type] = field(default_factory=set)
    """Classes that it mentions, also by a value that is one of theirs, and its own."""
    hidden: set[str] = field(default_factory=set)
    of_a_pack: bool = False


def sayable(tool: Tool) -> set[str]:
    """Every code that the handler's source can say."""
    reached = {f"{tool.run.__module__}.{tool.run.__qualname__}"}
    while True:
        found = reached | _reached_from([bodies()[name] for name in reached], tool)
        if found == reached:
            return {code for name in reached for code in bodies()[name].codes}
        reached = found


def _reached_from(from_here: list[Body], tool: Tool) -> set[str]:
    """What these functions may call: by name, or as a method of a class that one of them mentions or belongs to."""
    found = {name for body in from_here for name in body.names | body.hidden}
    classes = {base for body in from_here for one in body.classes for base in one.__mro__}
    methods = {method for body in from_here for method in body.methods if not method.startswith("__")}
    found |= {f"{one.__module__}.{one.__qualname__}.{method}" for one in classes for method in methods}
    handed = {method for body in from_here if body.of_a_pack for method in body.methods} & methods
    for module, shapes in POWERS[tool.effect]:
        reachable = {method for method in handed if any(hasattr(shape, method) for shape in shapes)}
        found |= {name for name in bodies() if name.startswith(f"{module}.") and name.rpartition(".")[2] in reachable}
    return {name for name in found if name in bodies()}


@cache
def bodies() -> dict[str, Body]:
    found: dict[str, Body] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(("toolgate", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        reachable = module.startswith(("toolgate.packs.", "toolgate.powers.", "toolgate.packs.lra.devsite.site"))
        # Commands and services are entered by people and by the server, never by a tool.
        if reachable and not module.rpartition(".")[2].startswith(("cli", "service")):
            found |= dict(_of_module(module, ast.parse(path.read_text())))
    return found


def _of_module(module: str, tree: ast.Module) -> Iterator[tuple[str, Body]]:
    values = vars(import_module(module))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{module}.{node.name}", _body(f"{module}.{node.name}", node, values)
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    name = f"{module}.{node.name}.{part.name}"
                    body = _body(name, part, values)
                    body.classes.add(values[node.name])
                    yield name, body


def _body(name: str, node: ast.AST, values: dict[str, Any]) -> Body:
    body = Body(hidden=set(HIDDEN_CALLS.get(name, ())), of_a_pack=name.startswith("toolgate.packs."))
    values = values | dict(_imported_inside(node))
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            body.codes |= _codes_of(part, values)
        if isinstance(part, ast.Name) and part.id in values:
            value = _loaded(values[part.id])
            body.names |= _whole_names(value)
            body.classes |= _classes(value)
        elif isinstance(part, ast.Attribute):
            owner = values.get(part.value.id) if isinstance(part.value, ast.Name) else None
            target = getattr(owner, part.attr, None) if inspect.ismodule(owner) or inspect.isclass(owner) else None
            if target is not None:
                body.names |= _whole_names(target)
                body.classes |= _classes(target)
            else:
                body.methods.add(part.attr)
    return body


def _loaded(value: Any) -> Any:
    """What is named now and imported when it is used (`toolgate.later.named`)."""
    return named(value) if isinstance(value, str) and REFERENCE.fullmatch(value) else value


def _imported_inside(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """What a function imports when it runs."""
    for part in ast.walk(node):
        if isinstance(part, ast.ImportFrom) and part.module is not None and part.module.startswith("toolgate."):
            module = import_module(part.module)
            for alias in part.names:
                found = getattr(module, alias.name, None) or import_module(f"{part.module}.{alias.name}")
                yield alias.asname or alias.name, found


def _whole_names(value: Any) -> set[str]:
    if inspect.isfunction(value):
        return {f"{value.__module__}.{value.__qualname__}"}
    if inspect.isclass(value):
        return {f"{value.__module__}.{value.__name__}.__init__"}
    if isinstance(value, dict):  # a table of handlers
        return {name for each in value.values() if inspect.isfunction(each) for name in _whole_names(each)}
    return set()


def _classes(value: Any) -> set[type]:
    one = value if inspect.isclass(value) else type(value)
    return {one} if str(one.__module__).startswith("toolgate.") else set()


def _codes_of(call: ast.Call, values: dict[str, Any]) -> set[str]:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name in ("ToolError", "MessageFault"):
        given: ast.expr | None = call.args[0]
    elif name == "Result":
        given = next((word.value for word in call.keywords if word.arg == "code"), None)
    else:
        return set()
    if given is None:
        return set()
    texts = {part.value for part in ast.walk(given) if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    texts |= {
        values[part.id]
        for part in ast.walk(given)
        if isinstance(part, ast.Name) and isinstance(values.get(part.id), str)
    }
    return {text for text in texts if CODE_FORM.fullmatch(text)} or {f"?{call.lineno}"}
