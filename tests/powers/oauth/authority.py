"""The authorization server of the tests, and a person with a browser."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2

from scripts.upstreams.install import PLACE
from tests.homes import PATIENCE_S
from tests.support import need

SCRIPT = Path(__file__).with_name("authority.mjs")
MAX_PAGES = 12


class Authority:
    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.url = f"{origin}/mcp"

    def counts(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.origin}/counts", timeout=PATIENCE_S) as answer:
            return dict(json.loads(answer.read()))


@contextmanager
def authority(token_seconds: int) -> Iterator[Authority]:
    need("upstreams")
    command = [need("node"), str(SCRIPT), str(PLACE), str(token_seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        yield Authority(process.stdout.readline().decode().strip())
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


class _Form(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form" and self.action is None:
            self.action = given.get("action") or ""
        elif tag in ("input", "button") and given.get("name"):
            self.fields.setdefault(str(given["name"]), given.get("value") or "")


def log_in(url: str) -> httpx2.Response:
    """Go there, and fill in every form until there is none."""
    with httpx2.Client(follow_redirects=True, timeout=PATIENCE_S, trust_env=False) as browser:
        page = browser.get(url)
        for _ in range(MAX_PAGES):
            form = _Form(page.text)
            if form.action is None:
                return page
            fields = {name: value or "someone" for name, value in form.fields.items() if name != "abort"}
            page = browser.post(urljoin(str(page.url), form.action), data=fields)
    raise AssertionError("the forms do not end")


def address_in(text: str) -> str:
    found = re.search(r"https?://\S+", text)
    assert found is not None, text
    return found[0]


def tokens_in(state: Any) -> list[str]:
    return [value for value in (state["access"], state["refresh"], state.get("client_secret")) if value]
