"""Nothing outside a pack knows a pack's name: what is known of it came through its door.

Looked for are the four names as names: in module paths, settings tables, stores, commands and tools, in code, texts and comments.
As ordinary words ("a governance envelope", "the library") they may be used.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import reference
from tests.homes import ROOT
from toolgate.settings import DEFAULT_PACKS

SOURCE = ROOT / "src" / "toolgate"
WORDS = "|".join(DEFAULT_PACKS)
NAMED = re.compile(
    rf"""
      \b_*lra(?![a-z])                              # no word of any language: every use of it is the name
    | (?:packs[./]|stores\.|mcp\.tool:|toolgate[ ]|PACKS_|STORES_|~/\.)(?:{WORDS})\b
    | \b(?:{WORDS})[_./](?=[a-z0-9])                # a tool, its id, a file
    | ["'`\[](?:{WORDS})["'`\]]                     # the name itself, quoted
    """,
    re.VERBOSE | re.IGNORECASE,
)
DEFAULTS = {"settings/__init__.py": "DEFAULT_PACKS"}
"""The default settings name the packs that are on from the start."""
FILES = sorted(
    [
        *(path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[:1] != ("packs",)),
        *(SOURCE / "packs").glob("*.py"),
        *(SOURCE / "cli" / "template").iterdir(),
        *(SOURCE / "specs").rglob("*.json"),
        *(ROOT / "scripts").glob("*.py"),
    ]
)
ABOUT_PACKS = {
    "mutations.py": "names the file of every guard that it removes, those in packs too",
}


def names_in(path: Path) -> Iterator[str]:
    text = path.read_text()
    if not re.search(WORDS, text, re.IGNORECASE):
        return  # most files: to read one token by token takes a hundred times as long
    if path.suffix != ".py":
        yield from (found[0] for found in NAMED.finditer(text))
        return
    tree = ast.parse(text)
    allowed = _lines_of(tree, DEFAULTS.get(f"{path.parent.name}/{path.name}", ""))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.start[0] in allowed:
            continue
        if token.type in (tokenize.STRING, tokenize.COMMENT) or token.type == getattr(tokenize, "FSTRING_MIDDLE", -1):
            yield from (f"line {token.start[0]}: {found[0]}" for found in NAMED.finditer(token.string))
        elif token.type == tokenize.NAME and re.fullmatch(rf"_*(?:{WORDS})(?:_\w+)?", token.string):
            yield f"line {token.start[0]}: {token.string}"


def _lines_of(tree: ast.Module, name: str) -> set[int]:
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id == name:
            return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_outside_a_pack_names_one(path: Path) -> None:
    if path.name not in ABOUT_PACKS:
        assert list(names_in(path)) == []


def test_no_import_rule_and_no_exemption_names_one() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert [found[0] for found in NAMED.finditer(repr(tools))] == []


def test_the_generated_pages_name_a_pack_only_in_what_its_door_gave_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "load_packs", lambda names: ())
    monkeypatch.setattr(reference, "built_in", lambda: ())
    monkeypatch.setattr(reference, "shipped", dict)
    for name, text in reference.pages().items():
        lines = [line for line in text.splitlines() if "the packs to load" not in line]  # the default of packs.enabled
        assert [line for line in lines if NAMED.search(line)] == [], name


@pytest.mark.parametrize(
    "text",
    [
        '"lra"',
        "toolgate.packs.consensus.tables",
        "src/toolgate/packs/library/tools.py",
        "[packs.governance]",
        "stores.consensus",
        "TOOLGATE_STORES_CONSENSUS",
        "`toolgate consensus keys`",
        "mcp.tool:library.search",
        "library_fetch",
        "'/__lra/events'",
        "~/.lra/identity.key",
        "LRA's own bound",
    ],
)
def test_a_name_is_found_wherever_it_stands(text: str) -> None:
    assert NAMED.search(text)


@pytest.mark.parametrize(
    "text", ["the governance envelope", "a library.", "what the library turns into a fault", "by consensus"]
)
def test_an_ordinary_word_is_none(text: str) -> None:
    assert not NAMED.search(text)
