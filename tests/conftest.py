"""Before any test: choose which cases property tests draw, wait for no disk, and restore the signals that a shell may have told
us to ignore."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("fast", derandomize=True, deadline=None)
"""The same cases every time: a change that turns a test red is the change under test. No time limits: machines are shared."""
settings.register_profile("search", max_examples=500, derandomize=False, deadline=None, database=None, print_blob=True)
"""For `make search`, which chooses the seed and prints it."""
settings.load_profile("fast")


def pytest_configure() -> None:
    os.fsync = os.fdatasync = _kept_in_memory
    metadata.entry_points = _entry_points
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # how shells start what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # how nohup does
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _kept_in_memory(descriptor: Any) -> None:
    """What a test writes has to survive no power cut, and a disk that others use is waited for longer than everything else.
    Programs that tests start write to the disk as ever."""
    os.fstat(descriptor)  # one that is closed is a fault as before


_search = metadata.entry_points


def _entry_points(**wanted: str) -> metadata.EntryPoints:
    """Every command and every home looks for packs among a hundred packages: here only when one may have come or gone."""
    return _installed(tuple((each, _changed(each)) for each in sys.path)).select(**wanted)


@lru_cache(maxsize=4)
def _installed(_places: tuple[tuple[str, int], ...]) -> metadata.EntryPoints:
    return _search()


def _changed(place: str) -> int:
    try:
        return Path(place or ".").stat().st_mtime_ns
    except OSError:
        return 0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Tests that were collected stay until the end: to look for garbage among them takes a third of collecting them, and later
    0.2 s each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """A command that runs in this process decides where its log goes; the next test's begins as an embedding program's does."""
    logger = logging.getLogger("toolgate")
    before = (list(logger.handlers), logger.propagate, logger.level)
    yield
    logger.handlers[:], logger.propagate = before[:2]
    logger.setLevel(before[2])
