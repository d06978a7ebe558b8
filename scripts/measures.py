"""How the code is built, in numbers, beside libraries that are good to read: `make measures`.

    python scripts/measures.py             ours, beside starlette, httpx and sigstore
    python scripts/measures.py --ours      ours alone, with every place that is over a goal

Lengths are lines from `def` to the last one. A broad except takes Exception, BaseException or everything. Imports inside
functions count where they load a module of the same package. A cycle is one of modules that import each other when they are
loaded. Peers are installed into .cache/measures; nothing of them is run.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import quantiles
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "toolgate"
CACHE: Final = ROOT / ".cache" / "measures"
PEERS: Final = {"starlette": "starlette==1.3.0", "httpx": "httpx==0.28.1", "sigstore": "sigstore==4.2.0"}

GOALS: Final[Mapping[str, float]] = {
    "function p90": 18,
    "function max": 52,
    "broad excepts per 1000 lines": 0.7,
    "imports inside functions": 60,
    "modules in cycles": 0,
    "files per folder, max": 16,
}
"""Not more than this; tests/project/test_measures.py holds them."""


@dataclass(frozen=True)
class Module:
    name: str
    """Dotted, with the package's own."""
    path: Path
    lines: int
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Function:
    place: str
    lines: int


@cache
def modules(source: Path) -> list[Module]:
    found = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        if "template" not in parts and "templates" not in parts:  # files that a user is given, not code that runs here
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text("utf-8")
            found.append(Module(name, path, text.count("\n"), ast.parse(text)))
    return found


def functions(module: Module) -> Iterator[Function]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(f"{module.name}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)


def broad_excepts(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler):
            names = (
                {each.id for each in ast.walk(node.type) if isinstance(each, ast.Name)} if node.type else {"Exception"}
            )
            if names & {"Exception", "BaseException"}:
                yield f"{module.name}:{node.lineno}"


def inner_imports(module: Module) -> Iterator[str]:
    """Imports of the own package that wait for a call."""
    own = module.name.partition(".")[0]
    left: list[tuple[ast.AST, bool]] = [(module.tree, False)]
    while left:
        node, waits = left.pop()
        waits = waits or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if waits and any(name.partition(".")[0] == own for name in imported(node, module)):
            yield f"{module.name}:{node.lineno}"  # type: ignore[attr-defined] # an import has one
        left.extend((child, waits) for child in ast.iter_child_nodes(node))


def imported(node: ast.AST, module: Module) -> list[str]:
    """The dotted names that a statement imports; of `from x import y` both x and x.y, whichever is a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = module.package.split(".")[: len(module.package.split(".")) - node.level + 1]
            base = ".".join([*above, *([base] if base else [])])
        return [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return []


def at_load(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when a module is loaded, without what only a type checker sees."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from at_load(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                yield from at_load(getattr(node, part, []))
        else:
            yield node


def in_cycles(found: list[Module]) -> list[str]:
    """Modules that import each other, in the order of the first cycle; one cycle is enough to fail."""
    names = {module.name for module in found}
    graph = {
        module.name: {
            name for node in at_load(module.tree.body) for name in _loads(node, module, names) if name != module.name
        }
        for module in found
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as fault:
        return list(fault.args[1])
    return []


def _loads(node: ast.stmt, module: Module, names: set[str]) -> set[str]:
    """`from x import y` loads x.y if that is a module, else x. A package that imports its own parts is not a cycle with them."""
    if isinstance(node, ast.ImportFrom):
        base, *full = imported(node, module)
        wanted = {name if name in names else base for name in full}
    else:
        wanted = set(imported(node, module))
    return {name for name in wanted & names if not module.name.startswith(f"{name}.")}


def per_folder(found: list[Module]) -> Counter[str]:
    return Counter(str(module.path.parent) for module in found)


def percentile(values: list[int], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def measure(source: Path) -> dict[str, float]:
    found = modules(source)
    lengths = [function.lines for module in found for function in functions(module)]
    sizes = [module.lines for module in found]
    lines = sum(sizes)
    return {
        "modules": len(found),
        "lines": lines,
        "function p50": percentile(lengths, 50),
        "function p90": percentile(lengths, 90),
        "function p99": percentile(lengths, 99),
        "function max": max(lengths),
        "broad excepts per 1000 lines": round(1000 * sum(1 for one in found for _ in broad_excepts(one)) / lines, 2),
        "imports inside functions": sum(1 for one in found for _ in inner_imports(one)),
        "modules in cycles": len(set(in_cycles(found))),
        "files per folder, max": max(per_folder(found).values()),
        "module lines p50": percentile(sizes, 50),
        "module lines p90": percentile(sizes, 90),
        "module lines max": max(sizes),
    }


def over_goals(source: Path) -> Iterator[str]:
    """Where our own code is over a goal, or what the goal counts."""
    found = modules(source)
    longest = sorted((each for one in found for each in functions(one)), key=lambda each: -each.lines)
    yield from (f"{each.lines:4} lines  {each.place}" for each in longest if each.lines > GOALS["function max"])
    yield from (f"broad except  {place}" for one in found for place in broad_excepts(one))
    inner = Counter(place.rpartition(":")[0] for one in found for place in inner_imports(one))
    yield from (f"{count:4} imports inside functions  {name}" for name, count in inner.most_common())
    yield from (
        f"{count:4} files  {name}"
        for name, count in per_folder(found).items()
        if count > GOALS["files per folder, max"]
    )


def peer(name: str) -> Path:
    """Where the peer's source is, installed if it is not yet. Side effects: .cache/measures."""
    place = CACHE / PEERS[name]
    if not (place / name).is_dir():
        python = CACHE / "venv" / "bin" / "python"
        if not python.exists():
            venv.create(CACHE / "venv", with_pip=True)
        command = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--target",
            place,
        ]
        subprocess.run([*map(str, command), PEERS[name]], check=True)
    return place / name


def table(columns: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield f"{'':30}" + "".join(f"{name:>12}" for name in columns) + f"{'goal':>8}"
    for row in next(iter(columns.values())):
        cells = "".join(f"{column[row]:>12g}" for column in columns.values())
        goal = f"{GOALS[row]:>8g}" if row in GOALS else ""
        yield f"{row:30}{cells}{goal}"


def main(arguments: list[str]) -> int:
    columns = {"toolgate": measure(SOURCE)}
    if "--ours" not in arguments:
        columns |= {name: measure(peer(name)) for name in PEERS}
    print("\n".join(table(columns)))
    if "--ours" in arguments:
        print("\n".join(over_goals(SOURCE)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
