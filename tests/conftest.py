"""Before any test: a run that was started in the background must not hand its deafness down to the processes it starts."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # how shells start what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
