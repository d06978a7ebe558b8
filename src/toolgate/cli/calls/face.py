"""The command line as a face: what a person typed is the call, and a finished command is the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolgate.errors import VERDICTS, Ending
from toolgate.faces.face import Asked
from toolgate.faces.reply import Reply, finished_reply
from toolgate.model.call import Call, Transport, Wire

if TYPE_CHECKING:
    from toolgate.faces.face import Visible
    from toolgate.model.envelope import Answer


class CallMessage(Struct, frozen=True):
    """What was typed."""

    tool: str
    arguments: dict[str, Any]
    key: str | None = None
    """An idempotency key."""


class CliFace:
    """For one call: it keeps what the body of an answer does not tell."""

    route = "call"
    wires: Mapping[Transport, Wire] = {"stdio": Wire(face="cli", transport="stdio", route="call")}

    def __init__(self, text_bytes: int) -> None:
        self._text_bytes = text_bytes
        self.exit_code = 0
        self.text: str | None = None
        """A sentence for people."""

    def hints(self, headers: Mapping[bytes, bytes], repeated: frozenset[bytes]) -> None:
        """There are no headers."""

    def speaks(self, message: Any) -> bool:  # noqa: ARG002 (it is alone on its wire)
        return True

    def unread(self, message: Any) -> Asked:
        """The call is known before the key is looked at."""
        return self.read(message, "stdio", None)

    def read(self, message: CallMessage, transport: Transport, hints: Any) -> Asked:  # noqa: ARG002 (the shape of Face)
        wire = self.wires[transport]
        return Asked(call=Call(wire, message.tool, message.arguments, wants_text=True, idempotency_key=message.key))

    def look(self, hints: Any) -> None:
        """There is nothing to get."""

    def answer(self, asked: Asked, visible: Visible, found: Sequence[Any] = ()) -> Reply:
        raise NotImplementedError  # every message is a call

    def render(self, asked: Asked, answer: Answer) -> Reply:  # noqa: ARG002 (as above)
        ok = answer.ending is Ending.OK
        self.exit_code = answer.exit_code if ok else VERDICTS[answer.ending].exit_code
        self.text = answer.text
        return finished_reply(answer, self._text_bytes)
