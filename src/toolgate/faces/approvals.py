"""`POST /approvals/list|show|approve|refuse`: what waits for a person, for services that ask and answer in a person's name.

Not a call: no policy gives it to a role, and no client is offered it as a tool. Errors have the shape of the dispatch face.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import Ending, Refusal
from toolgate.faces.face import Asked, Besides
from toolgate.faces.reply import JSON, Reply, error_reply
from toolgate.model import strictjson
from toolgate.model.call import Transport, Wire

if TYPE_CHECKING:
    from toolgate.faces import Parts
    from toolgate.faces.face import Visible
    from toolgate.faces.reply import SchemaExplainer
    from toolgate.model.envelope import Answer

_ID: Final = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
_ANSWER: Final = {"id": _ID, "reason": {"type": "string", "maxLength": 200}}


def _schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "list": _schema(all={"type": "boolean"}),
    "show": _schema("id", id=_ID),
    "approve": _schema("id", **_ANSWER),
    "refuse": _schema("id", **_ANSWER),
}
_UNREAD: Final = Asked()


def make(parts: Parts) -> list[ApprovalsFace]:
    return [ApprovalsFace(verb, parts.compiled(schema)) for verb, schema in SCHEMAS.items()]


class ApprovalsFace:
    """One of the addresses."""

    def __init__(self, verb: str, request: SchemaExplainer) -> None:
        self.route = f"/approvals/{verb}"
        self.wires: Mapping[Transport, Wire] = {"http": Wire(face="approvals", transport="http", route=self.route)}
        self._verb = verb
        self._request = request

    def hints(self, headers: Mapping[bytes, bytes], repeated: frozenset[bytes]) -> None:
        """Nothing of the head matters."""

    def speaks(self, message: Any) -> bool:  # noqa: ARG002 (it shares no stream)
        return False

    def unread(self, message: Any) -> Asked:  # noqa: ARG002 (messages have no id)
        return _UNREAD

    def read(self, message: Any, transport: Transport, hints: Any) -> Asked:  # noqa: ARG002 (the shape of Face)
        faults = self._request.faults(message)
        if faults:
            return Asked(refusal=Refusal(Ending.MALFORMED, faults[0].text, reason=faults[0].reason))
        return Asked(besides=Besides(wish="approvals", desk=(self._verb, message)))

    def look(self, hints: Any) -> None:
        """There is nothing to get."""

    def answer(self, asked: Asked, visible: Visible, found: Sequence[Any] = ()) -> Reply:  # noqa: ARG002 (as above)
        return Reply(200, strictjson.dumps(found[0]), (JSON,))

    def render(self, asked: Asked, answer: Answer) -> Reply:  # noqa: ARG002 (as above)
        return error_reply(answer)
