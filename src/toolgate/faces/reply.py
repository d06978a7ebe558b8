"""What a face hands to a server: a status, a body, and the headers that belong to the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolgate.errors import VERDICTS, Happening

if TYPE_CHECKING:
    from toolgate.model.envelope import Answer

JSON = (b"content-type", b"application/json")
_CHALLENGE = (b"www-authenticate", b'Bearer realm="toolgate"')
_ALLOW_POST = (b"allow", b"POST")
RETRY_AFTER_S = 1
"""A slot is usually free again within a second; a rate refusal carries its own time."""

Headers = tuple[tuple[bytes, bytes], ...]


class Reply(Struct, frozen=True):
    status: int
    body: bytes = b""
    headers: Headers = ()


def details_of(answer: Answer) -> Mapping[str, Any] | None:
    """What the caller is told beside the verdict. A refused key that shows a mistake (`${NAME}`, expired) gets a hint."""
    if answer.happening is Happening.INVALID_KEY and answer.text != VERDICTS[answer.happening].mrt_message:
        return {"hint": answer.text}
    return answer.details


def verdict_headers(answer: Answer, status: int) -> Headers:
    """Headers that HTTP demands beside some statuses (RFC 9110: 401, 405, 429)."""
    if status == 401:
        return (_CHALLENGE,)
    if status == 405:
        return (_ALLOW_POST,)
    if answer.happening in (Happening.TOO_MANY, Happening.TOO_FAST):
        return ((b"retry-after", str(answer.retry_after_s or RETRY_AFTER_S).encode()),)
    return ()
