"""The private socket of a running server: one question a connection, as a line of JSON; one answer; the end.

Who may use it is decided by the file system: mode 0600, in a directory of mode 0700, in the home's state directory. Each server
has a socket of its own there, named after its process, so that several may serve one home.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from toolgate.model import strictjson
from toolgate.servers.fault_report import report

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "control"
"""Below the state directory."""
SUFFIX: Final = ".sock"
MAX_QUESTION_BYTES: Final = 4096
ASKING_S: Final = 5.0
"""For a question to arrive."""
_LONGEST_NAME: Final = 100
"""Bytes of a socket's path that every system takes."""

Answers = Mapping[str, Callable[[], Awaitable[Mapping[str, Any]]]]


class ControlSocket:
    """`answers`: what can be asked, by its name."""

    def __init__(self, state: Path, answers: Answers) -> None:
        self.path = state / FOLDER / f"{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}"
        self._answers = answers
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Raises: OSError. Side effects: makes the directory and the socket."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_name(self.path) as name:
                listener.bind(name)
            self.path.chmod(0o600)
            listener.setblocking(False)  # noqa: FBT003 (the standard library's own signature)
            self._server = await asyncio.start_unix_server(self._answer, sock=listener, limit=MAX_QUESTION_BYTES)
        except OSError:
            listener.close()
            self.path.unlink(missing_ok=True)
            raise

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASKING_S):
                line = await reader.readline()
            writer.write(strictjson.dumps(await self._found(line)) + b"\n")
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            return  # who asked has gone, or asked nothing
        finally:
            writer.close()

    async def _found(self, line: bytes) -> Mapping[str, Any]:
        try:
            question = strictjson.loads(line)
        except strictjson.JsonFault:
            question = None
        asked = question.get("do") if isinstance(question, dict) else None
        answer = self._answers.get(asked) if isinstance(asked, str) else None
        if answer is None:
            return {"error": f"Nothing can be asked but: {', '.join(self._answers)}."}
        try:
            return await answer()
        except Exception as fault:  # noqa: BLE001 (the border: the operator gets a word, standard error the place)
            report(fault)
            return {"error": f"The server failed ({type(fault).__name__}); its standard error says where."}


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """A name for bind(2) and connect(2), which take a hundred bytes; a longer path is named by its directory's descriptor."""
    if len(os.fsencode(path)) <= _LONGEST_NAME:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
