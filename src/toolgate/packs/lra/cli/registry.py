"""`lra registry`: add, lint and search papers."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolgate.cli.output import answer_json
from toolgate.errors import ExitCode, ToolError
from toolgate.model import strictjson
from toolgate.packs.lra.cli.border import say
from toolgate.packs.lra.cli.shared import REGISTRY, Allow, CaFile, Json, RegistryFile, now, read, read_if_there
from toolgate.packs.lra.deployed import registry as books
from toolgate.packs.lra.deployed.registry import lint, parse
from toolgate.powers.files import open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


app = typer.Typer(add_completion=False)
registry_app = typer.Typer(no_args_is_help=True, help="The registry of papers: add, lint, search.")
app.add_typer(registry_app, name="registry")


@registry_app.command("add")
def registry_add(
    target: Annotated[str, typer.Argument(help="URL of a deployed paper.")],
    registry: RegistryFile = REGISTRY,
    version: Annotated[str, typer.Option("--version", help="The paper's version, X.Y.Z.")] = "1.0.0",
    allow: Allow = None,
    ca_file: CaFile = None,
    json: Json = False,
) -> None:
    """Verify a deployed paper and enter it, with its hash, into the registry. A known address is updated."""
    from toolgate.packs.lra.cli.fetching import verify_target  # the network, which lint and search do without

    seen = asyncio.run(verify_target(target, books.Registry(), allow or [], ca_file, run=False))
    if not seen.passed:
        failed = [step.text for step in seen.steps if step.status == "FAIL"]
        raise ToolError("NOT_VERIFIED", f"not added, because a check failed: {'; '.join(failed)}")
    entry = books.entry_of(seen.receipt, {**seen.examined.facts, "version": version}, now())
    with _locked(registry.parent), open_directory(registry.parent) as files:
        files.write_bytes(registry.name, books.with_entry(read_if_there(registry), entry, now()))
    if json:
        answer_json({"registry": str(registry), "added": entry})
    else:
        say(f"Added {entry['url']} ({entry['hash']}) to {registry}\n")


@registry_app.command("lint")
def registry_lint(
    registry: Annotated[Path, typer.Argument(help="The registry file.")] = REGISTRY, json: Json = False
) -> None:
    """Say everything that is wrong or doubtful in a registry. Exit 1 if there is anything."""
    found = lint(read(registry))
    if json:
        answer_json({"ok": not found, "problems": found})
    else:
        say("".join(line + "\n" for line in found) or "No problems found.\n")
    if found:
        raise typer.Exit(ExitCode.FAILED)


@registry_app.command("search")
def registry_search(
    words: Annotated[str, typer.Argument(help="Text in title, keywords, capability or authors.")],
    registry: RegistryFile = REGISTRY,
    json: Json = False,
) -> None:
    """Search the registry."""
    found = parse(read(registry)).search(words)
    if json:
        say(strictjson.dumps_pretty([dict(entry) for entry in found]).decode())
        return
    for entry in found:
        say(f"{entry['title']} ({', '.join(entry['authors'])})\n  {entry['url']}\n  {entry['hash']}\n")
    say("" if found else "Nothing found.\n")


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One writer at a time: the lock is on the directory itself, so nothing is left lying about."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
