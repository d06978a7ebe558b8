"""The numbers of this process, read from its parts when somebody asks."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolgate import __version__

if TYPE_CHECKING:
    from toolgate.app import App
    from toolgate.gate.admit import Slots
    from toolgate.model.record import LedgerStanding
    from toolgate.telemetry.families import Numbers, Samples
    from toolgate.telemetry.tally import Tally

_STARTED: Final = time.time()
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Telemetry:
    """What a server shows of itself. `more`: numbers of parts that the application does not know, such as its server."""

    def __init__(self, app: App, tally: Tally) -> None:
        self._app, self._tally = app, tally
        self.more: list[Callable[[], Numbers]] = []
        self.address = ""
        """Where they can be read, once a server has said so."""

    def refusals(self) -> Mapping[str, int]:
        """So far, by verdict."""
        self._tally.count()
        return self._tally.refusals

    def numbers(self) -> Numbers:
        """Of this process, as plain data. Never waits."""
        app, standing = self._app, self._app.ledger.standing()
        found: dict[str, Samples] = {
            **self._tally.numbers(),
            **_slots(app.road.admission.slots),
            **_ledger(standing),
            **_parts(app),
            **_process(),
            "toolgate_answers_withheld": _one(self._tally.withheld + standing.lost),
            "toolgate_streams": _one(app.road.watch.open_streams()),
            "toolgate_environment": [((app.powers.environment()[0],), 1.0)],
        }
        for more in self.more:
            found |= more()
        return found


def _slots(slots: Slots) -> Numbers:
    return {
        "toolgate_slots_held": _one(slots.held()),
        "toolgate_slots_limit": _one(slots.total),
        "toolgate_slots_busiest_caller": _one(slots.most_of_a_caller()),
        "toolgate_slots_per_caller_limit": _one(slots.per_caller),
    }


def _ledger(standing: LedgerStanding) -> Numbers:
    found: dict[str, Samples] = {
        "toolgate_ledger_records": _one(standing.records),
        "toolgate_ledger_unsynced_records": _one(standing.unsynced),
        "toolgate_ledger_unsigned_records": _one(standing.unsigned),
        "toolgate_ledger_checkpoint_age_seconds": _one(standing.checkpoint_age_s),
        "toolgate_ledger_syncs": _one(standing.syncs),
        "toolgate_ledger_sync_seconds": _one(standing.sync_s),
        "toolgate_ledger_writable": _one(standing.is_writable),
    }
    return found if standing.free_bytes is None else found | {"toolgate_ledger_free_bytes": _one(standing.free_bytes)}


def _parts(app: App) -> Numbers:
    """What it depends on, as far as it is configured."""
    found: dict[str, Samples] = {}
    if stores := app.powers.shared_stores():
        found["toolgate_store_up"] = [((name,), float(is_up)) for name, is_up in stores.items()]
    if app.upstreams is not None:
        found["toolgate_upstream_state"] = [((each.name, each.state), 1.0) for each in app.upstreams.status()]
    if app.shared_limits is not None:
        found["toolgate_limits_engine_up"] = _one(app.limits_fault() is None)
    return found


def _process() -> Numbers:
    used = resource.getrusage(resource.RUSAGE_SELF)
    found: dict[str, Samples] = {
        "toolgate_build": [((__version__,), 1.0)],
        "toolgate_processes": _one(1),
        "process_cpu_seconds": _one(used.ru_utime + used.ru_stime),
        "process_start_time_seconds": _one(_STARTED),
    }
    with suppress(OSError):  # Linux has these
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        found["process_resident_memory_bytes"] = _one(pages * _PAGE_BYTES)
        found["process_open_fds"] = _one(sum(1 for _ in Path("/proc/self/fd").iterdir()))
    return found


def _one(value: float) -> Samples:
    return [((), float(value))]
