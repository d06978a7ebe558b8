"""The operator's log: lines on standard error, as text or JSON, none of them a secret and never too many.

Lines come from the standard library's loggers below `toolgate`; `configure` decides what becomes of them. What is said of one
call stands in the audit log; here refusals are sums.
"""

from __future__ import annotations

import logging
import sys
from asyncio import get_running_loop
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import orjson

from toolgate import __version__
from toolgate.kit.reports.printable import printable
from toolgate.model.clock import rfc3339

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle

    from toolgate.app import App

ROOT: Final = "toolgate"
MOST_ALIKE: Final = 10
"""Lines of one kind within `WINDOW_S`; the next one that is written says how many were left out."""
MOST: Final = 300
"""Lines of all kinds within it."""
WINDOW_S: Final = 60.0
MOST_CHARACTERS: Final = 2000
"""Of one line's text."""
SUMMARY_S: Final = 60.0
"""Between two sums of refusals."""
_ABOUT: Final = "about"

_log: Final = logging.getLogger("toolgate.server")


def configure(form: str, level: str, scrub: Callable[[str], str]) -> None:
    """`form`: text or json. `scrub`: takes out of a text what looks like a key. Side effects: the process's loggers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(scrub, as_json=form == "json"))
    handler.addFilter(Damper())
    logger = logging.getLogger(ROOT)
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def about(**facts: Any) -> Mapping[str, Any]:
    """Facts beside a line's text, for `extra`: members of the JSON object."""
    return {_ABOUT: facts}


class Lines(logging.Formatter):
    def __init__(self, scrub: Callable[[str], str], *, as_json: bool) -> None:
        super().__init__()
        self._scrub, self._as_json = scrub, as_json

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the text holds."""
        text = self._scrub(record.getMessage())[:MOST_CHARACTERS]
        left_out: int = getattr(record, "left_out", 0)
        moment, level = rfc3339(record.created), record.levelname.lower()
        if self._as_json:
            facts = {name: self._plain(value) for name, value in getattr(record, _ABOUT, {}).items()}
            line = {"ts": moment, "level": level, "logger": record.name, "message": text, **facts}
            return orjson.dumps(line | ({"leftOut": left_out} if left_out else {})).decode()
        more = f" ({left_out} more like it were left out)" if left_out else ""
        return f"{moment} {level} {record.name}: {printable(text)}{more}"

    def _plain(self, value: Any) -> Any:
        return value if isinstance(value, (int, float, bool)) or value is None else self._scrub(str(value))


class Damper:
    """Lets through so many lines of a kind, and of all kinds, in a minute. A kind is a text before its values are put in."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._seen: dict[tuple[str, Any], int] = {}
        self._left_out: dict[tuple[str, Any], int] = {}
        self._all = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """From any thread: the handler's lock is held."""
        now = self._clock()
        if now - self._since >= WINDOW_S:
            self._since, self._all = now, 0
            self._seen.clear()
        kind = (record.name, record.msg)
        seen = self._seen[kind] = self._seen.get(kind, 0) + 1
        if seen > MOST_ALIKE or self._all >= MOST:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._all += 1
        record.left_out = self._left_out.pop(kind, 0)
        return True


@contextmanager
def told(app: App, where: str) -> Iterator[None]:
    """While a server is ready: says so, and when it stops; in between, refusals in sums. `where`: its address."""
    run, began = app.ledger.run, monotonic()
    facts = {"where": where, "run": run, "version": __version__}
    _log.info("ready: %s (toolgate %s, run %s)", where, __version__, run, extra=about(event="ready", **facts))
    sums = RefusalSums(app.telemetry.refusals) if app.telemetry and app.settings.log.sums_refusals else None
    if sums is not None:
        sums.start(get_running_loop())
    try:
        yield
    finally:
        if sums is not None:
            sums.stop()
        seconds = round(monotonic() - began, 3)
        _log.info("stopped after %s s", seconds, extra=about(event="stopped", seconds=seconds, **facts))


class RefusalSums:
    """Says once in a while how many calls were refused, and why. Says nothing while none are."""

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """`counts`: refusals so far, by verdict."""
        self._counts = counts
        self._told: dict[str, int] = {}
        self._next: TimerHandle | None = None

    def start(self, loop: AbstractEventLoop) -> None:
        """Side effects: a timer on the loop, until `stop`."""
        self._next = loop.call_later(SUMMARY_S, self._tell_and_go_on, loop)

    def stop(self) -> None:
        """Tells the rest."""
        if self._next is not None:
            self._next.cancel()
        self.tell()

    def tell(self) -> None:
        now = dict(self._counts())
        new = {verdict: count - self._told.get(verdict, 0) for verdict, count in sorted(now.items())}
        new = {verdict: count for verdict, count in new.items() if count}
        self._told = now
        if new:
            told = ", ".join(f"{verdict} {count}" for verdict, count in new.items())
            _log.info("calls refused: %s (%s)", sum(new.values()), told, extra=about(event="refused", **new))

    def _tell_and_go_on(self, loop: AbstractEventLoop) -> None:
        self.tell()
        self.start(loop)
