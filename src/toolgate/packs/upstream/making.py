"""What everything that is made of a pin needs: the way to the upstream, the definition, and how its errors are told."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit.pins import Pin
from toolgate.model.mcpwire import INVALID_PARAMS, RefusedQuestion, RelayedCall
from toolgate.model.tool import Context, Foreign
from toolgate.packs.upstream.addresses import Rewriting

MARGIN_S: Final = 0.25
"""The upstream is given up this long before the road gives us up: then the answer can say that the call is in doubt."""
MAX_SUMMARY: Final = 2000
MAX_SAID: Final = 500
"""Characters of what an upstream says about a failed call."""
ERROR_CODES: Final = (
    "UPSTREAM_ERROR",
    "UPSTREAM_DOWN",
    "UPSTREAM_DRIFT",
    "UPSTREAM_FAULT",
    "IN_DOUBT",
    "CLIENT_CANNOT",
)
NOT_FOUND: Final = frozenset({INVALID_PARAMS, -32002})
"""What an upstream says of a prompt or a resource that it does not have, in the one era and in the other."""


class RelayedError(Protocol):
    @property
    def code(self) -> int: ...
    @property
    def message(self) -> str: ...
    @property
    def data(self) -> Any: ...


class RelayedQuestion(Protocol):
    @property
    def method(self) -> str: ...
    @property
    def params(self) -> dict[str, Any]: ...


class Relayed(Protocol):
    """What an upstream answered: a result with the bytes it came in, or an error of the protocol."""

    @property
    def result(self) -> Any: ...
    @property
    def raw(self) -> bytes: ...
    @property
    def error(self) -> RelayedError | None: ...
    @property
    def question(self) -> RelayedQuestion | None:
        """In place of both: the call goes on when it is answered (`Relay.go_on`)."""
        ...

    @property
    def handle(self) -> str:
        """Of the question."""
        ...


class Relay(Protocol):
    """The way to one upstream."""

    def request(self, call: RelayedCall, *, seconds: float) -> Coroutine[Any, Any, Relayed]:
        """Raises: UpstreamFailed, ToolError."""
        ...

    def go_on(
        self, call: RelayedCall, handle: str, result: Any, *, refused: RefusedQuestion | None = None, seconds: float
    ) -> Coroutine[Any, Any, Relayed]:
        """A call that asked something. `refused`: why there is no result. Raises: UpstreamFailed."""
        ...

    async def follow(self, place: str, uri: str, *, caller: str, seconds: float) -> str:
        """Raises: UpstreamFailed."""
        ...


class Making(Struct, frozen=True):
    pin: Pin
    relay: Relay
    rewriting: Rewriting
    deadline_s: float

    def definition(self, place: str) -> Mapping[str, Any]:
        return self.pin.places()[place].definition

    def foreign(self, place: str, **replaced: Any) -> Foreign:
        """What clients are shown, with addresses as they are here."""
        definition = {**self.definition(place), **replaced}
        if isinstance(definition.get("_meta"), Mapping):
            definition["_meta"] = self.rewriting.rewritten(definition["_meta"])
        return Foreign(self.pin.upstream, self.pin.digest, definition)

    def summary(self, place: str) -> str:
        definition = self.definition(place)
        for key in ("description", "title", "name"):
            text = definition.get(key)
            if isinstance(text, str) and text.strip():
                return text[:MAX_SUMMARY]
        return "(no description)"


def seconds_of(ctx: Context) -> float:
    """How long the upstream may take."""
    left = ctx.deadline - ctx.clock.monotonic()
    return max(left / 2, left - MARGIN_S)


def said_no(error: RelayedError, *, missing: bool = False) -> ToolError:
    """`missing`: it may be that there is no such thing."""
    said = printable(error.message) or "no reason"
    return ToolError(
        "UPSTREAM_ERROR",
        f"the upstream answered with error {error.code}: {said}",
        elsewhere=True,
        missing=missing and error.code in NOT_FOUND,
        data={"code": error.code},
    )


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:MAX_SAID]).strip()
