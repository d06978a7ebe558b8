"""`toolgate serve` and `toolgate stdio`: start a server from the settings."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolgate.cli import output
from toolgate.cli.options import Flags, Json, require_workspace, with_settings_flags
from toolgate.config import read_secret
from toolgate.errors import Happening, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.app import App
    from toolgate.cli.dev import DevKeys
    from toolgate.settings import Settings

Dev = Annotated[
    bool, typer.Option("--dev", help="Make and use a development home, ./.toolgate, with a key for each role.")
]


@with_settings_flags
def serve(flags: Flags, dev: Dev = False, json: Json = False) -> None:
    """Serve over HTTP: MCP at /mcp, dispatch at /mrt_dispatch, JSON-RPC at /rpc. SIGTERM drains and ends with 0.

    With --json the first line of standard output is one JSON object with the URLs, printed when the server is ready.
    """
    keys = _dev_keys(flags) if dev else None
    settings = flags.load(keys.home if keys else None)
    with _uncollected():
        from toolgate.servers.listening import serve_http

        app = _built(settings)

    def ready(url: str) -> None:
        if json:
            output.answer_json({"ready": True, **addresses(url)})
        elif keys:
            keys.announce(url)
        else:
            output.say(f"Toolgate is ready at {url}", style="bold green")
            for name, address in addresses(url).items():
                output.say(f"  {name:<9} {address}")
        sys.stdout.flush()

    raise typer.Exit(serve_http(app, settings, ready))


@with_settings_flags
def stdio(flags: Flags, dev: Dev = False) -> None:
    """Serve one client over standard input and output, with the rights of the key in TOOLGATE_API_KEY.

    A client starts this command; `toolgate mcp-config CLIENT --stdio` prints what the client needs to know.
    """
    from toolgate.gate.keys import KeyRing

    settings = flags.load(_dev_keys(flags).home if dev else None)
    key = read_secret("TOOLGATE_API_KEY", os.environ)
    if key is None:
        raise Refusal(
            Happening.MISSING_KEY,
            "TOOLGATE_API_KEY is not set.\nMake a key (toolgate keys create --role builder) and set it where the client starts.",
        )
    credential = os.fsencode(key)
    KeyRing(settings.paths.keys).authenticate(credential)
    with _uncollected():
        from toolgate.servers.lifecycle import serve_stdio

        app = _built(settings)
    raise typer.Exit(serve_stdio(app, settings, credential))


def addresses(url: str) -> dict[str, str]:
    return {"url": url, "mcp": f"{url}/mcp", "dispatch": f"{url}/mrt_dispatch", "rpc": f"{url}/rpc"}


@contextmanager
def _uncollected() -> Iterator[None]:
    """What a start makes is no garbage: to look for some takes a tenth of the start, and later of every full collection."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _built(settings: Settings) -> App:
    from toolgate.app import build

    require_workspace(settings)
    app = build(settings)
    for warning in app.warnings:
        output.note(f"note: {warning}")
    return app


def _dev_keys(flags: Flags) -> DevKeys:
    from toolgate.cli.dev import prepare

    return prepare(flags.home or Path(".toolgate"))
