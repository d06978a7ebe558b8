"""What an upstream logs where a message does not say which call it is about: on a pipe, or on a stream apart from the calls.

While one caller alone has used the connection, it can only be about calls of that caller, who may read it. From the second
caller on it may be about the other's: nobody is told it any more, and whoever reads along on a pipe is told that once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from toolgate.model.mcpwire import RelayedCall
    from toolgate.powers.mcp.messages import Notification

MESSAGE: Final = "notifications/message"
NOT_RELAYED: Final = (
    "What this upstream logs is not relayed: it is a program that several callers share, and on its pipe a message does not "
    "say whose call it is about. From an upstream at an address it would be relayed."
)


class UnnamedLogs:
    """Of one connection."""

    def __init__(self, *, names_calls: bool) -> None:
        """`names_calls`: what is logged in a call usually comes with the call, and is relayed by itself."""
        self._names_calls = names_calls
        self._caller: str | None = None
        self._is_shared = False
        self._reading: list[RelayedCall] = []
        """Calls under way whose callers read along, the newest last."""
        self._told: set[str] = set()

    def used_by(self, caller: str) -> None:
        if self._caller is None:
            self._caller = caller
        elif caller != self._caller and not self._is_shared:
            self._is_shared = True
            for call in self._reading:
                self._tell(call)

    def begin(self, call: RelayedCall) -> None:
        """A call is about to be sent whose caller reads along."""
        self.used_by(call.caller)
        self._reading.append(call)
        if self._is_shared:
            self._tell(call)

    def end(self, call: RelayedCall) -> None:
        self._reading.remove(call)

    def heard(self, note: Notification) -> None:
        if self._reading and not self._is_shared:
            log = self._reading[-1].log
            assert log is not None
            log(note.params.get("level"), note.params.get("data"))

    def _tell(self, call: RelayedCall) -> None:
        if call.log is not None and not self._names_calls and call.caller not in self._told:
            self._told.add(call.caller)
            call.log("warning", NOT_RELAYED)
