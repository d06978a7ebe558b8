"""A browser and a dev site for the tests that look at pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.homes import PATIENCE_S
from tests.packs.lra.deployed.papers import plant
from tests.packs.lra.devsite.browsing import Background, page_saying
from tests.support import need

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    plant(tmp_path / "paper", **{"index.html": page_saying("zero").encode()})
    return tmp_path


@pytest.fixture
def site(workspace: Path) -> Iterator[Background]:
    running = Background(workspace)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: while it lives, its loop runs in this thread, and other modules run loops of their own."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=need("browser"), args=["--no-sandbox"])
        yield started
        started.close()
