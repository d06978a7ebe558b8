"""`toolgate l0`: the invariants on a person's own files."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
import typer

from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.packs.governance.cli.common import (
    as_json,
    directory,
    existing,
    exit_of,
    gate_exit,
    show_coloured,
    unjudged,
    usage,
    verdict_of,
    write_answer,
)
from toolgate.packs.governance.cli.local import person
from toolgate.packs.governance.cli.options import Default, Format, Threshold
from toolgate.packs.governance.repository.model import file_type, governed
from toolgate.packs.governance.tools.validate_l0_invariants import VALIDATE_L0, as_text, run

if TYPE_CHECKING:
    from toolgate.packs.governance.cli.local import RepositoryCommand

MAX_INPUT_BYTES: Final = 1024 * 1024


def l0(
    *,
    input: Path | None,  # noqa: A002 (the option's name)
    workflow: list[Path] | None,
    schema_file: Path | None,
    expected_hash: str | None,
    default_permissions: Default | None,
    form: Format,
    fail_on: Threshold,
    require_binding: bool,
    root: Path | None,
    home: Path | None,
    json: bool,
) -> None:
    args: dict[str, Any] = _json_arguments(input, dict(VALIDATE_L0.input_schema)) if input else {}
    with person(home, directory(root), keep="nonceValidation" in args) as who:  # a nonce is spent where it is kept
        if schema_file:
            args |= {"schemaFile": who.named(existing([schema_file]))[0]}
        if expected_hash:
            args |= {"expectedSchemaHash": expected_hash}
        if workflow or not args:
            args |= {"workflowFiles": who.named(existing(workflow or ())) or _all_workflows(who)}
        if default_permissions:
            args |= {"defaultPermissions": default_permissions.value}
        try:
            result = asyncio.run(run(who.context(), args))
        except ToolError as fault:
            raise usage(fault) from None
        environment = who.environment()
    decision = result.decision or "block"
    if json or form is Format.json:
        write_answer(as_json(result.data), None)
    else:
        show_coloured(as_text(result.data) + verdict_of(decision, environment, ""))
    errors = unjudged(governed(who.files)[1]) if workflow is None else []
    raise typer.Exit(gate_exit(errors, exit_of(decision, environment, fail_on, binding=require_binding)))


def _all_workflows(who: RepositoryCommand) -> list[str]:
    paths, unseen = governed(who.files)
    found = sorted(path for path in paths if file_type(path) == "workflow")
    if not found:
        why = "".join(f"\n{error}" for error in unjudged(unseen))
        raise typer.BadParameter(f"there is no workflow in {who.root}; name what to check (--help){why}")
    return found


def _json_arguments(path: Path, schema: dict[str, Any]) -> dict[str, Any]:
    try:
        data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1) if str(path) == "-" else path.read_bytes()
        value = strictjson.loads(data)
    except strictjson.JsonFault as fault:
        raise typer.BadParameter(f"--input: {fault}") from None
    if not jsonschema_rs.is_valid(schema, value):
        raise typer.BadParameter("--input does not match the tool's arguments (toolgate tools list --json shows them)")
    return dict(value)
