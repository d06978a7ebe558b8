"""Pages in a browser: what tells it that a page of an allowed origin may call us and read the answer (the Fetch standard's CORS).

Origins that the settings do not name never get here: they are refused whatever they ask. Cookies play no part, so no answer
allows credentials; a page sends its key in a header like everybody else.
"""

from __future__ import annotations

from typing import Final

from toolgate.faces.reply import Headers, Reply

MAX_AGE_S: Final = 600
"""How long a browser may remember a preflight: ten minutes, so that a change of the settings is soon seen."""
_SENT: Final = (
    "accept, authorization, content-type, idempotency-key, mcp-method, mcp-name, mcp-protocol-version, traceparent, "
    "tracestate, x-mcp-api-key, x-request-id"
)
"""Headers that a page may send."""
_READ: Final = "retry-after, www-authenticate, x-request-id"
"""Headers of an answer that a page may read, beside those that every page may."""


def headers_for(origin: bytes | None) -> Headers:
    """Headers of every answer to a page in a browser; none for other clients."""
    if origin is None:
        return ()
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _READ.encode()),
        (b"vary", b"Origin"),
    )


def preflight(origin: bytes) -> Reply:
    """Before a page may send its key, its browser asks without one. So this answers before anybody is authenticated."""
    allowed = (
        (b"access-control-allow-methods", b"POST"),
        (b"access-control-allow-headers", _SENT.encode()),
        (b"access-control-max-age", str(MAX_AGE_S).encode()),
    )
    return Reply(200, b"", (*headers_for(origin), *allowed))
