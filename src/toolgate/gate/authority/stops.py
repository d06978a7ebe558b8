"""The stop button: calls that an operator has stopped, in one file that every process of a home obeys.

A process looks at the file when a call comes and its last look is older than `LOOK_S`, and whoever changes the file waits that
long: when the command returns, the stop is in force everywhere. While nothing is stopped, a call pays for one comparison of
two numbers. A file that cannot be read or trusted stops every call.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from time import sleep
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from toolgate.atomic_file import replace_file
from toolgate.errors import Ending, Refusal, StartRefused
from toolgate.model import strictjson
from toolgate.model.clock import Clock, SystemClock, from_rfc3339, rfc3339

if TYPE_CHECKING:
    from pathlib import Path

    from toolgate.gate.admit import Grant
    from toolgate.model.call import Caller

STOPS_FILE: Final = "stops.json"
"""Beside the key file: whoever may write there can make keys, and may stop calls too."""
LOOK_S: Final = 0.25
"""Seconds that one look holds. The promise is a second."""
MAX_FILE_BYTES: Final = 1024 * 1024
MAX_STOPS: Final = 1000
MAX_REASON: Final = 200
"""Characters: callers read it."""
_UNREADABLE: Final = "The server cannot read what is stopped, so every call is; its operator can: toolgate doctor."


class StopsFault(StartRefused):
    """The file of stops is exposed or damaged."""


class Stop(Struct, frozen=True, forbid_unknown_fields=True):
    """What is stopped: calls that fit everything it names. One that names nothing stops all."""

    id: str
    since: str
    until: str | None = None
    """RFC 3339. None: until somebody resumes."""
    tool: str | None = None
    """A glob over names of tools, as `toolgate tools list` shows them."""
    caller: str | None = None
    upstream: str | None = None
    reason: str = ""

    def fits(self, caller: Caller, grant: Grant) -> bool:
        tool = grant.tool
        if self.caller is not None and self.caller != caller.key_id:
            return False
        if self.upstream is not None and (tool.foreign is None or tool.foreign.upstream != self.upstream):
            return False
        return self.tool is None or fnmatchcase(grant.row, self.tool)

    def is_over(self, now: float) -> bool:
        return self.until is not None and now >= from_rfc3339(self.until)

    def selects(self, tool: str | None, caller: str | None, upstream: str | None) -> bool:
        """Is this what such a command would stop?"""
        return (self.tool, self.caller, self.upstream) == (tool, caller, upstream)

    def scope(self) -> str:
        """`tool git_* of caller 0123456789ab`, for people."""
        named = {"tool": self.tool, "upstream": self.upstream, "caller": self.caller}
        return " of ".join(f"{kind} {name}" for kind, name in named.items() if name is not None) or "all calls"

    def ending(self) -> str:
        return f"until {self.until}" if self.until else "until resumed"

    def as_json(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    stops: list[Stop]


class Stops:
    """What is stopped now, as the file says. `due` is all that a call looks at while nothing is."""

    __slots__ = ("_clock", "_fault", "_look_at", "_path", "_stamp", "_stops", "due")

    def __init__(self, path: Path | None, clock: Clock | None = None) -> None:
        """`path` None: nothing is ever stopped."""
        self._path = path
        self._clock: Clock = clock or SystemClock()
        self._stops: Sequence[Stop] = ()
        self._fault: str | None = None
        self._stamp: tuple[int, ...] | None = None
        self._look_at = float("-inf") if path is not None else float("inf")
        self.due = self._look_at
        """The monotonic second from which on `check` is to be asked: always, while something is stopped."""

    def check(self, caller: Caller, grant: Grant, now: float) -> None:
        """`now` in monotonic seconds. Raises: Refusal STOPPED."""
        stop = self._stopping(caller, grant, now)
        if self._fault is not None:
            raise Refusal(Ending.STOPPED, _UNREADABLE, reason="stops_unreadable")
        if stop is not None:
            raise self._refusal(stop)

    def has_stopped(self, caller: Caller, grant: Grant) -> bool:
        """For what is no call of its own: a look at what somebody is subscribed to."""
        stop = self._stopping(caller, grant, self._clock.monotonic())
        return stop is not None or self._fault is not None

    def in_force(self) -> list[Stop]:
        """Raises: StopsFault."""
        self._look(self._clock.monotonic())
        if self._fault is not None:
            raise StopsFault(self._fault)
        now = self._clock.wall()
        return [stop for stop in self._stops if not stop.is_over(now)]

    def told(self) -> list[dict[str, Any]]:
        """For /readyz, which anyone may ask: no reasons, no keys and no names of tools."""
        try:
            return [_public(stop) for stop in self.in_force()]
        except StopsFault:
            return [{"scope": ["all"], "reason": "stops_unreadable", "until": None}]

    def add(self, stop: Stop) -> None:
        """Raises: StopsFault, OSError. Side effects: replaces the file; when it returns, every process has seen it."""
        with self._writing() as stops:
            if len(stops) >= MAX_STOPS:
                raise StopsFault(f"{MAX_STOPS} stops are in force.\nEnd some of them: toolgate resume")
            stops.append(stop)

    def remove(self, ids: frozenset[str]) -> None:
        """Raises: StopsFault, OSError. Side effects: as `add`."""
        with self._writing() as stops:
            stops[:] = [stop for stop in stops if stop.id not in ids]

    def _stopping(self, caller: Caller, grant: Grant, now: float) -> Stop | None:
        if now >= self._look_at:
            self._look(now)
        if not self._stops:
            return None
        wall = self._clock.wall()
        return next((stop for stop in self._stops if stop.fits(caller, grant) and not stop.is_over(wall)), None)

    def _refusal(self, stop: Stop) -> Refusal:
        why = f" ({stop.reason})" if stop.reason else ""
        until = f" until {stop.until}" if stop.until else ""
        details: dict[str, Any] = {"reason": "stopped", "stop": stop.id}
        if stop.until is not None:
            details["retry_after_s"] = int(from_rfc3339(stop.until) - self._clock.wall()) + 1
        text = f"An operator has stopped this call{until}{why}."
        return Refusal(Ending.STOPPED, text, recorded={"stop": stop.id}, **details)

    def _look(self, now: float) -> None:
        self._look_at = now + LOOK_S
        if self._path is not None:
            try:
                stamp = _stamp_of(self._path)
                if stamp != self._stamp:
                    self._stops = _load(self._path) if stamp is not None else ()
                self._stamp, self._fault = stamp, None
            except (ValueError, OSError) as fault:
                self._stamp, self._stops = None, ()
                self._fault = (
                    f"The file of stops, {self._path}, {fault}.\nMend it, or remove it: nothing is stopped then."
                )
        stopped = self._fault is not None or len(self._stops) > 0
        self.due = float("-inf") if stopped else self._look_at

    @contextmanager
    def _writing(self) -> Iterator[list[Stop]]:
        """The stops in force, to be changed; written when the block ends well. Writers in other processes wait."""
        assert self._path is not None
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stops = self.in_force()
            yield stops
            rows = [stop.as_json() for stop in stops]
            replace_file(self._path, strictjson.dumps_pretty({"version": 1, "stops": rows}))
            os.fsync(lock)
        finally:
            os.close(lock)
        self.due = self._look_at = float("-inf")
        sleep(LOOK_S + 0.01)  # when the writer goes on, no process still holds what the file said before


NO_STOPS: Final = Stops(None)


def new_stop(
    *, tool: str | None, caller: str | None, upstream: str | None, reason: str, since: float, until: float | None
) -> Stop:
    """Raises: ValueError: the reason cannot be told to callers."""
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise ValueError(f"a reason is at most {MAX_REASON} printable characters")
    ends = None if until is None else rfc3339(until)
    return Stop(secrets.token_hex(4), rfc3339(since), ends, tool, caller, upstream, reason)


def _public(stop: Stop) -> dict[str, Any]:
    named = {"tool": stop.tool, "upstream": stop.upstream, "caller": stop.caller}
    scope = [kind for kind, name in named.items() if name is not None] or ["all"]
    return {"scope": scope, "since": stop.since, "until": stop.until}


def _stamp_of(path: Path) -> tuple[int, ...] | None:
    """Changes when the file is replaced, rewritten, or its mode or owner changes. None: there is none."""
    try:
        info = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return (info.st_ino, info.st_dev, info.st_mtime_ns, info.st_ctime_ns, info.st_size)


def _load(path: Path) -> Sequence[Stop]:
    """Raises: OSError. ValueError: what is wrong with it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if info.st_mode & 0o022 or info.st_uid not in (os.geteuid(), 0):
            raise ValueError("can be written by others")
        raw = file.read(MAX_FILE_BYTES + 1)
    try:
        document = strictjson.loads(raw, max_bytes=MAX_FILE_BYTES, max_values=None)
        found = msgspec.convert(document, _File)
        for stop in found.stops:
            from_rfc3339(stop.since)
            if stop.until is not None:
                from_rfc3339(stop.until)
    except (ValueError, strictjson.JsonFault):
        raise ValueError("is damaged") from None
    if found.version != 1:
        raise ValueError("is of another version")
    return found.stops
