"""What operators see of calls, joined for the app: counting and tracing stand before the log, if the settings want them."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from toolgate.errors import StartRefused
from toolgate.powers.secrets import SecretSources

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolgate.app import App
    from toolgate.model.record import Ledger
    from toolgate.settings import Settings
    from toolgate.telemetry.tracing import Traces


class Observers:
    """Of one process. `ledger`: the log as the road gets it, which is the log itself if nobody looks."""

    def __init__(self, settings: Settings, ledger: Ledger, run: str, name_of: Callable[[str], str]) -> None:
        """`name_of`: a canonical id's short name. Raises: StartRefused."""
        self.traces = open_traces(settings, run, name_of) if settings.traces.endpoint else None
        self.ledger = ledger if self.traces is None else self.traces.of(ledger)
        self._tally = None
        if settings.metrics.are_shown or settings.log.sums_refusals:
            from toolgate.telemetry.tally import Tally  # noqa: PLC0415 (for servers that show numbers)

            self._tally = Tally(name_of)
            self.ledger = self._tally.of(self.ledger)

    def join(self, app: App) -> None:
        """The app shows these numbers and sends these spans."""
        app.traces = self.traces
        app.powers.sampler = None if self.traces is None else self.traces.sampler
        if self._tally is not None:
            app.telemetry = self._tally.beside(app)
            app.telemetry.more += [] if self.traces is None else [self.traces.exporter.numbers]


def open_traces(settings: Settings, run: str, name_of: Callable[[str], str]) -> Traces:
    """Nothing is sent yet. Raises: StartRefused: the extra is not installed, or the headers are not there."""
    try:
        from toolgate.telemetry.exporting import traces_to  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        raise StartRefused(
            "Traces need the package opentelemetry-proto.\nInstall it: pip install 'toolgate[otel]'"
        ) from None
    wanted, secrets = settings.traces, SecretSources(settings.paths.secrets, os.environ)
    headers = partial(secrets.read, wanted.headers) if wanted.headers else None
    return traces_to(wanted.endpoint, wanted.sample, headers, run, name_of)
