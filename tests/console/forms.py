"""Every form of the console, with a server on which each of them could do something: read from the routes, so that a form
without a row here is noticed."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path

from tests.console.visiting import CONSOLE, Visitor, visitor
from tests.faces import speak
from tests.homes import Home, Server
from tests.upstreams.homes import Swapping, adopting_home
from toolgate.console import site

ACTS: Mapping[str, Mapping[str, str]] = {
    "keys/create": {"role": "admin", "label": "planted", "life": "1d"},
    "keys/{key}/revoke": {},
    "approvals/{approval}/approve": {"reason": "planted"},
    "approvals/{approval}/refuse": {"reason": "planted"},
    "upstreams/stub/approve": {"digest": "{digest}"},
    "upstreams/stub/refuse": {"digest": "{digest}"},
}
"""What an admin may send, and what a page sends with it beside the token."""
FORMS: Mapping[str, Mapping[str, str]] = {"sign-in": {"key": "{secret}", "next": "./"}, "sign-out": {}, **ACTS}
ASKED = "unruly_echo"
"""The tool that needs a person here."""

_CHANGING = ("keys.", "approvals.approve", "approvals.refuse", "upstream.approve", "upstream.refuse")


@dataclass(frozen=True)
class World:
    """A server with a key to revoke, a call that waits for a person, and an upstream that is not as it was approved."""

    home: Home
    server: Server
    swapping: Swapping

    @property
    def port(self) -> int:
        return self.server.port

    def admin(self) -> Visitor:
        return visitor(self.server, self.home.keys["admin"])

    def waiting(self, text: str) -> str:
        """A new request that waits."""
        heard = speak.mrt(self.port, ASKED, {"text": text}, self.home.keys["builder"])
        assert heard.status == 202
        return str(heard.body["details"]["approval_id"])

    def change(self, behaviour: str = "described otherwise") -> None:
        self.swapping.behave(behaviour)

    def digest(self, admin: Visitor) -> str:
        found = re.search(r'name="digest" value="([0-9a-f]{64})"', admin.get("upstreams/stub").text)
        assert found is not None
        return found[1]

    def state(self, approvals: tuple[str, ...] = ()) -> dict[str, object]:
        """All that a form could change."""
        pin = self.home.path / "policy" / "upstreams" / "stub.pin.json"
        return {
            "keys": [(key.id, key.state(0)) for key in self.home.ring().all()],
            "pin": pin.read_bytes(),
            "approvals": [self._approval(each) for each in approvals],
            "done": [act for act, stage, status in self.acts() if (stage, status) == ("outcome", "ok")],
        }

    def acts(self) -> list[tuple[str, str, str]]:
        """What is on record of forms: (act, stage, status)."""
        found = [each for each in self.home.records() if str(each.get("act")).startswith(_CHANGING)]
        return [(each["act"], each["stage"], each.get("status", "")) for each in found]

    def _approval(self, request: str) -> tuple[str, int]:
        headers = {"x-mcp-api-key": self.home.keys["admin"]}
        _, _, body = speak.send(self.port, "/approvals/show", {"id": request}, headers)
        return str(body["state"]), len(body.get("votes", ()))


@contextmanager
def world(folder: Path) -> Iterator[World]:
    swapping = Swapping(folder)
    home = adopting_home(
        folder / "home",
        {"stub": swapping.table()},
        packs=("governance", "unruly"),
        settings=CONSOLE,
        rows={ASKED: {"x-rules": [{"name": "ask", "require-approval": "true"}]}},
    )
    with home.serving() as server:
        yield World(home, server, swapping)


# -- from the routes --------------------------------------------------------------------------------------------


def shape(path: str) -> str:
    """An address without its names: those are the parts that a route leaves open."""
    return re.sub(r"\{[^}]*\}|(?<=upstreams/)stub", "*", path)


def routes() -> set[str]:
    """The shapes of all that a form may be sent to, as the console's own source has them."""
    tree = ast.parse(inspect.getsource(site))
    methods = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    cases = [node for node in ast.walk(methods["_act"]) if isinstance(node, ast.match_case)]
    found = {way for case in cases if isinstance(case.pattern, ast.MatchSequence) for way in _ways(case.pattern)}
    for node in ast.walk(methods["_post"]):
        # A whole path is a route; a part of one (`path[:1] == ...`) only says who may go on.
        is_whole = isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute)
        if is_whole and isinstance(node.comparators[0], ast.Tuple):
            found.add("/".join(ast.literal_eval(node.comparators[0])))
    return found


def _ways(pattern: ast.MatchSequence) -> set[str]:
    return {"/".join(parts) for parts in product(*(_words(each) for each in pattern.patterns))}


def _words(pattern: ast.pattern | None) -> list[str]:
    if isinstance(pattern, ast.MatchValue):
        return [ast.literal_eval(pattern.value)]
    if isinstance(pattern, ast.MatchOr):
        return [word for each in pattern.patterns for word in _words(each)]
    return _words(pattern.pattern) if isinstance(pattern, ast.MatchAs) and pattern.pattern is not None else ["*"]


def in_templates() -> set[str]:
    """The shapes of all that a page sends a form to."""
    found: set[str] = set()
    for page in (resources.files("toolgate.console") / "templates").iterdir():
        text = page.read_text()
        sent = re.findall(r'<form[^>]*method="post"[^>]*\baction="([^"]*)"', text) + re.findall(
            r'formaction="([^"]*)"', text
        )
        found |= {re.sub(r"\{\{[^}]*\}\}", "*", each.replace("{{ up }}", "")) for each in sent}
    return found
