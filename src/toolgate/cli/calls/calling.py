"""What `toolgate call` does: the command-line face. It needs a key and takes the road, in this process or over HTTP.

Both ways end in the dispatch face's body, so what is printed, and the exit code, do not depend on the way.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import typer

from toolgate.cli import output
from toolgate.cli.calls.face import CallMessage
from toolgate.cli.calls.waiting import CallAnswer, PersonWait
from toolgate.cli.options import Flags, require_workspace
from toolgate.config import read_secret
from toolgate.errors import VERDICTS, Ending, ExitCode, Refusal
from toolgate.model import strictjson
from toolgate.model.call import IDEMPOTENCY_HEADER, IDEMPOTENCY_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.app import App
    from toolgate.settings import Settings

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""An answer carries its data twice, as text and as JSON, and `limits.output_bytes` goes up to 16 MiB."""
TIMEOUT_S: Final = 630.0
"""Longer than the longest deadline a tool may have (600 s): the server's own answer comes first."""
EXIT_CODES: Final = {(verdict.mrt_status, verdict.mrt_code): verdict.exit_code for verdict in VERDICTS.values()}
"""What a status and an error code over HTTP mean for the exit code: the same table, read from the other side."""


def call(
    flags: Flags,
    *,
    tool: str,
    pairs: list[str] | None,
    args: str | None,
    url: str | None,
    key: str | None,
    idempotency_key: str | None,
    no_wait: bool,
    json: bool,
) -> None:
    if not all(_is_text(word) for word in [tool, *(pairs or [])]):
        raise _wrong("the command line is not UTF-8 text.", "Check the terminal's encoding.")
    arguments = _arguments(args, pairs or [])
    given = key if key is not None else read_secret("TOOLGATE_API_KEY", os.environ)
    credential = os.fsencode(given) if given else None
    where = url or os.environ.get("TOOLGATE_URL")
    if idempotency_key is not None and not IDEMPOTENCY_KEY.fullmatch(idempotency_key):
        raise typer.BadParameter("give 1 to 255 visible ASCII characters", param_hint="--idempotency-key")
    message = CallMessage(tool, arguments, idempotency_key)
    wait = PersonWait(is_wanted=not no_wait, shows=not json)
    told = (
        _over_http(where, credential, message, wait) if where else _in_process(flags.load(), credential, message, wait)
    )
    if json:
        output.answer_json(told.body)
    else:
        _show(told, tool, has_key=credential is not None)
    raise typer.Exit(told.exit_code)


def _show(told: CallAnswer, tool: str, *, has_key: bool) -> None:
    if "error_code" not in told.body:
        text = told.body["stdout"]
        output.write(text if text.endswith("\n") else text + "\n")
        if envelope := told.body.get("envelope"):
            output.badges(envelope["tier"], envelope["environment"])
        if told.body["stdout_truncated"]:
            output.note(f"cut at {told.body['output_limit_bytes']} bytes; --json has the whole answer")
        return
    details = told.body["details"] or {}
    text = told.text or told.body["message"]
    hints = [f"{name}: {value}" for name, value in details.items() if isinstance(value, str) and value != text]
    output.fault(
        "\n".join([f"{told.body['error_code']}: {text}", *hints, *_way_out(told.exit_code, tool, has_key=has_key)])
    )


def _way_out(exit_code: int, tool: str, *, has_key: bool) -> Iterator[str]:
    """What to do about it, where the command line knows better than the server."""
    if exit_code == ExitCode.UNKNOWN_TOOL:
        yield "`toolgate tools list` shows what a key may call."
    elif exit_code == ExitCode.BAD_ARGUMENTS:
        yield f"`toolgate tools show {tool}` has its arguments and an example."
    elif exit_code == ExitCode.DENIED and not has_key:
        yield "Set TOOLGATE_API_KEY, or TOOLGATE_API_KEY_FILE to a file that holds it; toolgate keys create makes a key."


def _arguments(whole: str | None, pairs: list[str]) -> dict[str, Any]:
    """Raises: Refusal BAD_ARGUMENTS: before any key is looked at, because nothing was asked yet."""
    try:
        text = sys.stdin.buffer.read(strictjson.MAX_BYTES + 1) if whole == "-" else os.fsencode(whole or "{}")
        arguments = strictjson.loads(text)
        if not isinstance(arguments, dict):
            raise _wrong("--args is not a JSON object.", 'Write --args \'{"name": "value"}\'.')
        for pair in pairs:
            name, value = _pair(pair)
            if name in arguments:
                raise _wrong(f"the argument {name} is given twice.", "Keep one.")
            arguments[name] = value
    except strictjson.JsonFault as fault:
        raise _wrong(f"an argument is refused: {fault}.", "Check its JSON.") from None
    return arguments


def _pair(pair: str) -> tuple[str, Any]:
    name, equals, text = pair.partition("=")
    if not equals or not name.rstrip(":"):
        raise _wrong(
            "an argument has no name or no value.", "Write NAME=TEXT, or NAME:=JSON for numbers, lists and the like."
        )
    if name.endswith(":"):
        return name[:-1], strictjson.loads(os.fsencode(text))
    return name, text


def _is_text(word: str) -> bool:
    """Bytes that are not UTF-8 arrive as lone surrogates, which no JSON can carry."""
    return word.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in word)


def _wrong(fault: str, fix: str) -> Refusal:
    return Refusal(Ending.BAD_ARGUMENTS, f"{fault}\n{fix}")


def _in_process(settings: Settings, credential: bytes | None, message: CallMessage, wait: PersonWait) -> CallAnswer:
    import asyncio

    return asyncio.run(_carry_until_decided(settings, credential, message, wait))


async def _carry_until_decided(
    settings: Settings, credential: bytes | None, message: CallMessage, wait: PersonWait
) -> CallAnswer:
    import asyncio

    from toolgate.app import build

    require_workspace(settings)
    app = build(settings)
    try:
        told = await _carry(app, credential, message)
        while wait.goes_on(told):
            try:
                for seconds in wait.ticks(told):
                    await asyncio.sleep(seconds)
            except asyncio.CancelledError:  # so an interrupt arrives here; nothing of the call is under way
                return told
            told = await _carry(app, credential, message)
        return told
    finally:
        await app.close()


async def _carry(app: App, credential: bytes | None, message: CallMessage) -> CallAnswer:
    from toolgate.cli.calls.face import CliFace
    from toolgate.gate.arrival import Arrival

    face = CliFace(app.settings.limits.text_bytes)
    reply = await app.road.carry(Arrival(face, "stdio", credential, message=message))
    body = strictjson.loads(reply.body, max_bytes=MAX_BODY_BYTES, max_values=None)
    return CallAnswer(body, face.exit_code, face.text, dict(reply.headers).get(b"retry-after", b""))


def _over_http(url: str, credential: bytes | None, message: CallMessage, wait: PersonWait) -> CallAnswer:
    from time import sleep

    told = _sent(url, credential, message)
    while wait.goes_on(told):
        try:
            for seconds in wait.ticks(told):
                sleep(seconds)
        except KeyboardInterrupt:
            return told
        told = _sent(url, credential, message)
    return told


def _sent(url: str, credential: bytes | None, message: CallMessage) -> CallAnswer:
    """One POST to the dispatch face. Redirects are not followed: the key is meant for this address only."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from urllib.parse import urlsplit

    if credential is not None and any(byte < 0x20 or byte == 0x7F for byte in credential):
        raise Refusal(Ending.INVALID_KEY, "The API key holds a control character.\nCopy it again, on one line.")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise typer.BadParameter("give http://HOST:PORT or https://HOST", param_hint="--url")
    connection = (HTTPSConnection if parts.scheme == "https" else HTTPConnection)(parts.netloc, timeout=TIMEOUT_S)
    headers = {b"Content-Type": b"application/json"} | (
        {b"X-MCP-API-Key": credential} if credential is not None else {}
    )
    if message.key is not None:
        headers[IDEMPOTENCY_HEADER.encode()] = message.key.encode()
    try:
        body = strictjson.dumps({"tool": message.tool, "args": message.arguments})
        connection.request("POST", f"{parts.path.rstrip('/')}/mrt_dispatch", body, headers)  # type: ignore[arg-type]  # bytes work
        reply = connection.getresponse()
        told = strictjson.loads(reply.read(MAX_BODY_BYTES + 1), max_bytes=MAX_BODY_BYTES, max_values=None)
        return CallAnswer(told, _exit_code(reply.status, told), None, reply.getheader("Retry-After", "").encode())
    except (OSError, HTTPException) as fault:
        reason = fault.strerror if isinstance(fault, OSError) and fault.strerror else type(fault).__name__
        raise Refusal(
            Ending.UNAVAILABLE, f"There is no answer from {parts.netloc}: {reason}.\nIs the server running there?"
        ) from None
    except (ValueError, LookupError, TypeError):
        raise Refusal(
            Ending.UNAVAILABLE, f"{parts.hostname} does not answer like a Toolgate server.\nCheck --url."
        ) from None
    finally:
        connection.close()


def _exit_code(status: int, told: Any) -> int:
    """Raises: LookupError, TypeError: the body is not one of the dispatch face."""
    if "error_code" in told:
        shape: dict[str, Any] = {"error_code": str, "message": str, "details": dict | None}
        code = EXIT_CODES[(status, told["error_code"])]
    else:
        shape = {"stdout": str, "exitCode": int, "stdout_truncated": bool, "output_limit_bytes": int}
        code = told["exitCode"]
    if not all(isinstance(told[name], kind) for name, kind in shape.items()):
        raise TypeError
    return int(code)
