"""The dispatch face, `POST /mrt_dispatch`: `{tool, args}` in, six keys of a finished command out (ADR-0003)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import Ending, Refusal
from toolgate.faces.face import Asked, checked_key, key_hint
from toolgate.faces.reply import Reply, finished_reply
from toolgate.model.call import Call, Transport, Wire

if TYPE_CHECKING:
    from toolgate.faces import Parts
    from toolgate.faces.face import Visible
    from toolgate.faces.reply import SchemaExplainer
    from toolgate.model.envelope import Answer

ROUTE: Final = "/mrt_dispatch"
REQUEST_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["tool"],
    "properties": {
        "tool": {"type": "string", "minLength": 1, "maxLength": 128},
        "args": {"type": "object"},
    },
}
_UNREAD: Final = Asked()


def make(parts: Parts) -> list[MrtFace]:
    return [MrtFace(parts.compiled(REQUEST_SCHEMA), text_bytes=parts.text_bytes)]


class MrtFace:
    route = ROUTE
    wires: Mapping[Transport, Wire] = {"http": Wire(face="mrt", transport="http", route=ROUTE)}

    def __init__(self, request: SchemaExplainer, *, text_bytes: int) -> None:
        self._request = request
        self._text_bytes = text_bytes

    def hints(self, headers: Mapping[bytes, bytes], repeated: frozenset[bytes]) -> str | None:
        return key_hint(headers, repeated)

    def speaks(self, message: Any) -> bool:
        return not self._request.faults(message)

    def unread(self, message: Any) -> Asked:  # noqa: ARG002 (messages have no id)
        return _UNREAD

    def read(self, message: Any, transport: Transport, hints: str | None) -> Asked:
        faults = self._request.faults(message)
        if faults:
            return Asked(refusal=Refusal(Ending.MALFORMED, faults[0].text, reason=faults[0].reason))
        if hints is None:
            return Asked(call=Call(self.wires[transport], message["tool"], message.get("args", {}), wants_text=True))
        try:
            key = checked_key(hints)
        except Refusal as refusal:
            return Asked(refusal=refusal)
        arguments = message.get("args", {})
        return Asked(call=Call(self.wires[transport], message["tool"], arguments, wants_text=True, idempotency_key=key))

    def look(self, hints: Any) -> None:
        """There is nothing to get."""

    def answer(self, asked: Asked, visible: Visible, found: Sequence[Any] = ()) -> Reply:
        raise NotImplementedError  # every message is a call or refused

    def render(self, asked: Asked, answer: Answer) -> Reply:  # noqa: ARG002 (as above)
        return finished_reply(answer, self._text_bytes)
