"""Step 3: how many calls of one caller run at once, and how fast they may come. Refused at once, never queued."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolgate.errors import Happening, Refusal

if TYPE_CHECKING:
    from toolgate.model.call import Caller

SECONDS_A_MINUTE = 60.0


class Slots:
    """Concurrency in memory. A slot is given back when the handler has ended: never earlier, never not."""

    def __init__(self, *, per_caller: int, total: int) -> None:
        self._per_caller = per_caller
        self._total = total
        self._held: dict[str, int] = {}
        self._all = 0

    def take(self, caller: Caller) -> None:
        """Raises: Refusal TOO_MANY."""
        held = self._held.get(caller.key_id, 0)
        if held >= self._per_caller:
            raise Refusal(Happening.TOO_MANY, f"{self._per_caller} calls of this key are running; wait for one to end.")
        if self._all >= self._total:
            raise Refusal(Happening.TOO_MANY, f"{self._total} calls are running on this server; try again shortly.")
        self._held[caller.key_id] = held + 1
        self._all += 1

    def give_back(self, caller: Caller) -> None:
        self._all -= 1
        held = self._held[caller.key_id] - 1
        if held:
            self._held[caller.key_id] = held
        else:
            del self._held[caller.key_id]

    def held(self) -> int:
        return self._all


class Rate:
    """A burst of `per_minute` calls, then one every 60/`per_minute` seconds (GCRA). Zero: no limit."""

    def __init__(self, *, per_minute: int) -> None:
        self._interval = SECONDS_A_MINUTE / per_minute if per_minute else 0.0
        self._due: dict[str, float] = {}
        """Per key, the second at which its bucket is full again. A key whose second has passed is as good as unknown."""

    def take(self, caller: Caller, now: float) -> None:
        """`now` in monotonic seconds. Raises: Refusal TOO_FAST, with the seconds to wait."""
        if not self._interval:
            return
        due = max(self._due.get(caller.key_id, now), now) + self._interval
        wait = due - now - SECONDS_A_MINUTE
        if wait > 1e-9:  # rounding of a sum of intervals is not a fault of the caller
            raise Refusal(Happening.TOO_FAST, "Rate limit exceeded; wait and try again.", retry_after_s=int(wait) + 1)
        if len(self._due) > 4096:
            self._due = {key: second for key, second in self._due.items() if second > now}
        self._due[caller.key_id] = due
