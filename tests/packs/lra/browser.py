"""A real browser for tests of the page: served from a loopback port, watched for every request and console message."""

from __future__ import annotations

import functools
import http.server
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Playwright

from tests.homes import PATIENCE_S
from tests.support import need, one_at_a_time

ROOT = Path(__file__).parents[3]
CACHE = ROOT / ".cache" / "axe"
AXE = "axe-core@4.14.0"
"""Pinned: a newer axe may know more rules, and a test must fail for the page's fault alone."""
ARTIFACTS = ROOT / "artifacts" / "papers"


def axe_source() -> str:
    """axe-core from the package registry, kept in the cache of the checkout."""
    script = CACHE / "node_modules" / "axe-core" / "axe.min.js"
    with one_at_a_time("axe"):
        if not script.is_file():
            need("node")
            CACHE.mkdir(parents=True, exist_ok=True)
            command = [
                "npm",
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--no-save",
                "--prefix",
                str(CACHE),
                AXE,
            ]
            subprocess.run(command, check=True, timeout=120)
    return script.read_text(encoding="utf-8")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """The directory on a free loopback port; ends with the block."""
    handler = functools.partial(_Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


def launch(playwright: Playwright, *arguments: str) -> Browser:
    """Containers have no user namespaces to build the browser's own sandbox with; the pages are ours."""
    return playwright.chromium.launch(executable_path=need("browser"), args=["--no-sandbox", *arguments])


@dataclass
class Tab:
    page: Page
    said: list[str] = field(default_factory=list)
    """Console messages, page errors and failed requests."""
    requested: list[str] = field(default_factory=list)


@contextmanager
def tab(browser: Browser, **options: Any) -> Iterator[Tab]:
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_S * 1000)
    found = Tab(context.new_page())
    context.on("request", lambda request: found.requested.append(request.url))
    found.page.on("console", lambda message: found.said.append(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda fault: found.said.append(f"error: {fault}"))
    found.page.on("requestfailed", lambda request: found.said.append(f"failed: {request.url} ({request.failure})"))
    yield found
    context.close()
