"""What needs a person, on the first page: each thing that no program decides is there, and leads to where it is decided."""

from __future__ import annotations

import html
import http.client
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.visiting import CONSOLE, Visitor, visitor
from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment, first_line
from tests.upstreams.homes import Swapping, adopting_home, ask
from tests.waiting import until
from toolgate.gate.authority.stops import STOPS_FILE, Stops, new_stop

NEEDS = re.compile(r'<section class="needs".*?</section>', re.DOTALL)
ITEM = re.compile(r"<li data-row>(.*?)</li>", re.DOTALL)
LINK = re.compile(r'<a href="([^"]+)">(.*?)</a>', re.DOTALL)
DAY_S = 86_400


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server, str]]:
    folder: Path = tmp_path_factory.mktemp("needs")
    swapping = Swapping(folder)
    home = adopting_home(
        folder / "home",
        {"stub": swapping.table()},
        packs=("governance", "unruly"),
        settings=CONSOLE,
        rows={"unruly_echo": {"x-rules": [{"name": "ask", "require-approval": "true"}]}},
    )
    lost = left_in_the_middle(home)
    swapping.behave("described otherwise")
    now = time.time()
    for label, ends in (("ends soon", 3 * DAY_S), ("ends late", 30 * DAY_S), ("has ended", -1)):
        home.ring().create("builder", label=label, expires=now + ends)
    stop = new_stop(tool="dummy_*", caller=None, upstream=None, reason="", since=0.0, until=None)
    Stops(home.path / "keys" / STOPS_FILE).add(stop)
    with home.serving() as server:
        ask("mrt", server.port, ("stub", "echo"), {"text": "x"}, home.keys["builder"])
        assert speak.mrt(server.port, "unruly_echo", {"text": "x"}, home.keys["builder"]).status == 202
        assert speak.mrt(server.port, "dummy_experimental", {}, home.keys["builder"]).status == 503
        yield home, server, lost


def left_in_the_middle(home: Home) -> str:
    """The call during which a server was killed: its intent is written, and no outcome."""
    process = subprocess.Popen(
        home.command("serve", "--port", "0", "--json"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        port = int(str(first_line(process)["url"]).rpartition(":")[2])
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        headers = {"content-type": "application/json", **speak.key_header(home.keys["builder"])}
        asked.request("POST", "/mrt_dispatch", json.dumps({"tool": "unruly_wait", "args": {}}), headers)
        found = until(lambda: [each for each in home.records() if each["event"] == "intent"], "an intent")
        asked.close()
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    return str(found[-1]["requestId"])


def needs(person: Visitor) -> dict[str, str]:
    """What stands there, each with where it leads; empty: nowhere."""
    found = NEEDS.search(person.get().text)
    items = ITEM.findall(found[0]) if found else []
    pairs = [LINK.fullmatch(item) for item in items]
    told = [(each[2], each[1]) if each else (item, "") for each, item in zip(pairs, items, strict=True)]
    return {html.unescape(what): html.unescape(to).removeprefix("./") for what, to in told}


def test_each_thing_that_needs_a_person_is_there_and_leads_to_where_it_is_decided(
    served: tuple[Home, Server, str],
) -> None:
    home, server, lost = served
    admin = visitor(server, home.keys["admin"])
    found = needs(admin)
    soon = next(key for key in home.ring().all() if key.label == "ends soon")
    wanted = {
        "echo of stub is refused: ": ("upstreams/stub", "Says it twice."),
        f"Nobody knows whether call {lost} happened": (f"calls/{lost}", "There is an intent and no outcome"),
        f"Key ends soon ({soon.id}) expires at ": ("keys", "ends soon"),
        "Stopped until resumed: tool dummy_*": ("calls?verdict=stopped", "dummy_experimental"),
        "unruly_echo of ": ("approvals/", "Approve this one call"),
    }
    for begins, (to, shows) in wanted.items():
        (what,) = [each for each in found if each.startswith(begins)]
        assert found[what].startswith(to), what
        page = admin.get(found[what])
        assert (page.status, shows in page.shown) == (200, True), what
    assert len(found) == len(wanted), found


def test_keys_that_end_late_or_have_ended_need_nobody(served: tuple[Home, Server, str]) -> None:
    home, server, _ = served
    told = " ".join(needs(visitor(server, home.keys["auditor"])))
    assert ("ends soon" in told, "ends late" in told, "has ended" in told) == (True, False, False)


def test_who_sees_only_their_own_is_told_of_their_own_key_alone(served: tuple[Home, Server, str]) -> None:
    home, server, _ = served
    assert needs(visitor(server, home.keys["builder"])) == {}
    key, text = home.ring().create("builder", label="mine", expires=time.time() + DAY_S)
    (only,) = needs(visitor(server, text))
    assert only.startswith(f"Key mine ({key.id}) expires at ")
