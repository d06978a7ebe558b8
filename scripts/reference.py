"""Write docs/reference/{settings,cli,exit-codes,errors,tools}.md from the code. Run it after changing a setting or a command.

A test fails when what is committed differs from what this writes.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from toolgate import errors
from toolgate.cli.config import toml_value
from toolgate.cli.main import COMMANDS, load
from toolgate.config import FILE_NAME, OTHER_VARIABLES
from toolgate.model.tool import Tool
from toolgate.packs.loader import built_in, load_packs
from toolgate.policy.manifest import Row, load_manifest
from toolgate.settings import SPECS, TABLES, Spec

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
_NOTE: Final = "<!-- Written by scripts/reference.py from the code; edit there. -->"


def pages() -> dict[str, str]:
    """File name -> text, for every page."""
    return {name: "\n".join([_NOTE, *lines]) + "\n" for name, lines in _lines().items()}


def _lines() -> dict[str, list[str]]:
    return {
        "settings.md": list(_settings()),
        "cli.md": list(_cli()),
        "exit-codes.md": list(_exit_codes()),
        "errors.md": list(_errors()),
        "tools.md": list(_tools()),
    }


def _errors() -> Iterator[str]:
    yield from (
        "# Errors: one call, one verdict",
        "",
        "What happened to a call, and how each face spells it. `isError` means: a result with `isError: true` and the envelope.",
        "On stdio the JSON-RPC error object is the same as over HTTP.",
        "",
        "| what happened | `/mrt_dispatch` | `/rpc` | MCP | `toolgate call` |",
        "|---|---|---|---|---|",
    )
    for happening, verdict in errors.VERDICTS.items():
        mcp = "`isError`" if verdict.mcp_code is None else f"{verdict.mcp_status}, code {verdict.mcp_code}"
        yield (
            f"| {happening.value.replace('_', ' ')} | {verdict.mrt_status} `{verdict.mrt_code}` | {verdict.rpc_status}, "
            f"code {verdict.rpc_code}, `{verdict.canonical}` | {mcp} | {verdict.exit_code} |"
        )
    yield from (
        "",
        "The handshake revisions of MCP answer 200 to an unknown tool, with the same code. `details.reason` on `/mrt_dispatch`",
        "and `error.data.reason` on `/rpc` hold a stable word: `missing_X`, `X_too_long`, `invalid_X`, `unknown_argument` for",
        "arguments; a tool's own code in lower case for what it says; `crashed`, `deadline_exceeded`, `cancelled` for a tool",
        "that failed.",
    )


def _tools() -> Iterator[str]:
    manifest = load_manifest(None)
    yield from (
        "# Tools",
        "",
        "Every tool of the packs that ship with Toolgate. Tier and roles are the packaged policy's.",
    )
    for pack in load_packs(built_in()):
        yield from ("", f"## {pack.name}")
        for tool in pack.tools:
            yield from _tool(tool, manifest.rows[tool.name])


def _tool(tool: Tool, row: Row) -> Iterator[str]:
    yield from ("", f"### `{tool.name}`", "", tool.summary, "")
    record = f", {row.adr}" if row.adr else ""
    yield f"`{tool.canonical_id}` · {row.tier}{record} · {', '.join(sorted(row.roles))} · {tool.effect} · {tool.deadline_s:g} s"
    properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
    if properties:
        required = set(tool.input_schema.get("required", ()))
        yield from ("", "| argument | what | |", "|---|---|---|")
        for name, about in properties.items():
            kind = about.get("type") or ("one of " + ", ".join(map(str, about["enum"])) if "enum" in about else "")
            text = str(about.get("description", "")).replace("|", "\\|").replace("\n", " ")
            yield f"| `{name}` | {text} | {kind}{', required' if name in required else ''} |"
    if tool.error_codes:
        yield from ("", "Codes: " + ", ".join(f"`{code}`" for code in sorted(tool.error_codes)) + ".")


def _settings() -> Iterator[str]:
    yield from (
        "# Settings",
        "",
        f"A value comes from the first of: flag, variable, `{FILE_NAME}` in the home directory, default. An unknown name refuses",
        "to start and names the nearest one. `toolgate config print --resolved` shows every value and where it comes from.",
        "Relative paths are relative to the home directory: `--home`, else `TOOLGATE_HOME`, else the current directory.",
        "Lists in flags and variables are separated by commas, or written as a TOML array.",
        "A setting marked *secret* can also be read from a file: `..._FILE` names it. Its value is never shown.",
    )
    for table, kind in {"": None, **TABLES}.items():
        rows = [spec for spec in SPECS if spec.key.rpartition(".")[0] == table]
        yield from ("", f"## [{table}]" if table else "## Without a table", "")
        if kind is not None:
            yield from (inspect.getdoc(kind) or "", "")
        yield from (
            "| setting | default | what it is for | unit, range | variable | flag |",
            "|---|---|---|---|---|---|",
        )
        yield from (_setting(spec) for spec in rows)
    yield from _pack_settings()
    yield from ("", "## Variables that are no settings", "", "| variable | what it is for |", "|---|---|")
    yield from (f"| `{name}` | {about} |" for name, about in OTHER_VARIABLES.items())


def _setting(spec: Spec) -> str:
    bounds = f"{spec.low} to {spec.high}" if spec.low is not None else ""
    unit = ", ".join(part for part in (spec.unit, bounds, "*secret*" if spec.secret else "") if part)
    name = spec.key.rpartition(".")[2]
    flags = ", ".join(f"`{flag}`" for flag in (spec.short, spec.flag) if flag)
    return f"| `{name}` | `{toml_value(spec.default)}` | {spec.why} | {unit} | `{spec.variable}` | {flags} |"


def _pack_settings() -> Iterator[str]:
    """Each pack's own table, out of the schema that checks it."""
    for pack in load_packs(built_in()):
        properties: Mapping[str, Any] = pack.settings_schema.get("properties", {})
        if not properties:
            continue
        yield from ("", f"## [packs.{pack.name}]", "", "| setting | default | what it is for |", "|---|---|---|")
        for name, about in properties.items():
            default = f"`{toml_value(about['default'])}`" if "default" in about else ""
            yield f"| `{name}` | {default} | {_cell(about.get('description', ''))} |"


def _cli() -> Iterator[str]:
    yield from (
        "# Commands",
        "",
        "Answers go to standard output, everything else to standard error. `--json` is for programs. `NO_COLOR` is honoured.",
        "Commands marked *settings flags* take `--home`, `--set KEY=VALUE` and a flag for [every setting](settings.md).",
        "What the exit codes mean: [exit codes](exit-codes.md). `toolgate --install-completion` installs shell completion.",
    )
    for name in COMMANDS:
        yield from _command(f"toolgate {name}", load(name))


def _command(path: str, command: Any) -> Iterator[str]:
    names = command.list_commands(None) if hasattr(command, "list_commands") else None
    yield from ("", f"{'##' if path.count(' ') == 1 else '###'} {path}", "")
    yield _help(command.help or "")
    yield from _parameters(command) if names is None else ()
    for name in names or ():
        yield from _command(f"{path} {name}", command.get_command(None, name))


def _help(text: str) -> str:
    """Paragraphs as paragraphs; a command's help is wrapped for the source file, not for the page."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", inspect.cleandoc(text)))


def _parameters(command: Any) -> Iterator[str]:
    own = [each for each in command.params if not _is_setting(each) and each.name != "help"]
    if len(own) < len([each for each in command.params if each.name != "help"]):
        own = [each for each in own if each.name not in ("home", "set_")]
        yield from ("", "Takes the *settings flags*.")
    if own:
        yield from ("", "| argument | |", "|---|---|")
    for each in own:
        required = " Required." if each.required else ""
        yield f"| {_spelling(each)} | {_cell(getattr(each, 'help', None) or '')}{required} |"


def _is_setting(parameter: Any) -> bool:
    return str(getattr(parameter, "rich_help_panel", None) or "").startswith("Settings")


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_cell(parameter.metavar or parameter.name.upper())}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _exit_codes() -> Iterator[str]:
    yield from ("# Exit codes", "", "| code | name | meaning |", "|---|---|---|")
    for name, meaning in _documented(errors.ExitCode):
        yield f"| {getattr(errors.ExitCode, name)} | `{name}` | {meaning} |"
    yield from (
        "",
        "Ctrl+C ends a command with 130. A server that is told to stop (SIGTERM, SIGINT) drains and ends with 0.",
        "",
        "## What `toolgate call` ends with",
        "",
        "A call that went through ends with the tool's own exit code: 0, or 1 where the finding is bad.",
        "",
        "| what happened | exit code | over HTTP |",
        "|---|---|---|",
    )
    for happening, verdict in errors.VERDICTS.items():
        yield f"| {happening.value.replace('_', ' ')} | {verdict.exit_code} | {verdict.mrt_status} `{verdict.mrt_code}` |"


def _documented(kind: type) -> Iterator[tuple[str, str]]:
    """Attributes and the texts below them, which only the source has."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for one, two in pairwise(statements):
        if isinstance(one, ast.Assign) and isinstance(two, ast.Expr) and isinstance(two.value, ast.Constant):
            yield ast.unparse(one.targets[0]), str(two.value.value)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
