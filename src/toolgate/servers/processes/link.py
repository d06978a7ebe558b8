"""Two processes of one server, joined by a socket: questions with an answer each, notes on the way to it, and word that wants
none.

A frame is its length in four bytes and a MessagePack map. Both ends are ours, of one version: what cannot be read ends the link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from toolgate.servers.fault_report import report

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(dict[str, Any])

Note = Callable[[Mapping[str, Any]], None]
Answer = Callable[[dict[str, Any], Note], Awaitable[Mapping[str, Any]]]
"""Of a question: what it says, and how to send notes before the answer."""


class LinkLost(Exception):
    """The other process has gone. What it had begun may have happened."""


class Link:
    """`answer`: what this end answers. `hear`: what is told to it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer: Answer,
        hear: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self._reader, self._writer, self._answer, self._hear = reader, writer, answer, hear
        self._next = 0
        self._waiting: dict[int, tuple[asyncio.Future[dict[str, Any]], Note]] = {}
        self._answering: dict[int, asyncio.Task[None]] = {}
        self.is_open = True

    async def ask(self, question: Mapping[str, Any], note: Note = lambda _: None) -> dict[str, Any]:
        """Raises: LinkLost. Whoever stops waiting cancels the question at the other end."""
        if not self.is_open:
            raise LinkLost
        self._next += 1
        number = self._next
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (answer, note)
        try:
            self._send({"ask": number, "about": question})
            return await answer
        except asyncio.CancelledError:
            self._send({"drop": number})
            raise
        finally:
            self._waiting.pop(number, None)

    def tell(self, word: Mapping[str, Any]) -> None:
        self._send({"tell": word})

    async def listen(self) -> None:
        """Until the other end has gone."""
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                if size > MAX_FRAME_BYTES:
                    break
                self._take(_DECODER.decode(await self._reader.readexactly(size)))
        except (OSError, EOFError, msgspec.DecodeError):
            pass
        finally:
            self._end()

    def close(self) -> None:
        self._end()

    def _send(self, frame: Mapping[str, Any]) -> None:
        if self.is_open:
            encoded = _ENCODER.encode(frame)
            self._writer.write(len(encoded).to_bytes(4, "big") + encoded)

    def _take(self, frame: dict[str, Any]) -> None:
        if "tell" in frame:
            self._hear(frame["tell"])
        elif "ask" in frame:
            number = frame["ask"]
            task = asyncio.get_running_loop().create_task(self._give(number, frame["about"]))
            self._answering[number] = task
            task.add_done_callback(lambda _: self._answering.pop(number, None))
        elif "drop" in frame:
            dropped = self._answering.get(frame["drop"])
            if dropped is not None:
                dropped.cancel()
        elif frame.get("answer") in self._waiting:
            waiting, note = self._waiting[frame["answer"]]
            if "note" in frame:
                note(frame["note"])
            elif not waiting.done():
                waiting.set_result(frame["about"])

    async def _give(self, number: int, question: dict[str, Any]) -> None:
        try:
            found = await self._answer(question, lambda note: self._send({"answer": number, "note": note}))
        except Exception as fault:  # noqa: BLE001 (the border: the other end waits for a word in any case)
            report(fault)
            found = {"failed": type(fault).__name__}
        self._send({"answer": number, "about": found})

    def _end(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        for waiting, _ in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(LinkLost())
        for task in list(self._answering.values()):
            task.cancel()
        with suppress(RuntimeError):  # the loop is closing
            self._writer.close()
