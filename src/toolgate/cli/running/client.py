"""Asks the servers of a home, each by its own control socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import StartRefused
from toolgate.model import strictjson
from toolgate.servers.processes.control import FOLDER, SUFFIX, socket_name

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.settings import Settings

ANSWER_S: Final = 60.0
"""For one server: to reload is to read every schema again."""
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024


def ask_all(settings: Settings, question: str) -> list[dict[str, Any]]:
    """The answer of each server of this home; `error` says why there is none. Raises: StartRefused: no server runs."""
    folder = settings.paths.state / FOLDER
    answers = [answer for path in sorted(_sockets(folder)) if (answer := _ask(path, question)) is not None]
    if not answers:
        raise StartRefused(
            f"No server of {settings.home} can be reached: there is no control socket in {folder}.\n"
            "Start one: toolgate serve. Or name another home with --home."
        )
    return answers


def _sockets(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from folder.glob(f"*{SUFFIX}")


def _ask(path: Path, question: str) -> dict[str, Any] | None:
    """None: nobody is there. Side effects: the socket of a server that was killed is removed."""
    pid = int(path.name.partition("-")[0])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(ANSWER_S)
        try:
            with socket_name(path) as name:
                peer.connect(name)
            peer.sendall(strictjson.dumps({"do": question}) + b"\n")
            found = strictjson.loads(_read(peer), max_bytes=MAX_ANSWER_BYTES, max_values=None)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return None
        except FileNotFoundError:
            return None
        except (OSError, strictjson.JsonFault) as fault:
            return {"pid": pid, "error": f"process {pid} does not answer ({fault})"}
    return {"pid": pid, **found}


def _read(peer: socket.socket) -> bytes:
    whole = b""
    while len(whole) <= MAX_ANSWER_BYTES and (more := peer.recv(65_536)):
        whole += more
    return whole
