"""Every number on a page leads to the records behind it: as many as it says, or it says what else it counts."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, urljoin

import pytest

from scripts.console_budget import desk_of, shown_page
from tests.console.filling import call_for_panels, fill_panels, full_panels
from tests.console.index.test_index import Log, refusal
from tests.console.pages.seeded import keep_papers, keep_reviews, reviews
from tests.console.visiting import CONSOLE, Visitor, call, visitor
from tests.homes import Home, Server, make_home
from toolgate.console.index import reading
from toolgate.console.pages.calls import exported
from toolgate.console.pages.overview import overview
from toolgate.console.session import ConsoleSession
from toolgate.gate.keys import KeyRing
from toolgate.model.call import Caller
from toolgate.model.envelope import Clamp
from toolgate.packs.governance.stores.reviews import ReviewEvent

CELLS = re.compile(r'<td class="number"(?![^>]*data-gauge)[^>]*>(.*?)</td>|<dl class="tiles">(.*?)</dl>', re.DOTALL)
TILE = re.compile(r"<dd>(.*?)</dd>", re.DOTALL)
LINK = re.compile(r'<a href="([^"]+)">(.*?)</a>', re.DOTALL)
UP = re.compile(r"^(\.{1,2}/)*")
COUNT = re.compile("[0-9\u202f]+(?=$|\\s+[a-z])(?!\\s+m?s\\b)")
PANELS = ("governance/reviews", "consensus/rounds", "lra/papers")
ALL_PANELS = (*PANELS, "toolgate/contract-health")
MOST_BYTES = 100_000

Counted = Callable[[str], int]
"""How many records the list has that an address opens."""


def numbers(page: str) -> list[str]:
    """Cells and tiles that show a number other than zero."""
    cells = [tile for cell, tiles in CELLS.findall(page) for tile in (TILE.findall(tiles) if tiles else [cell])]
    return [cell for cell in cells if re.search("[1-9]", re.sub("<[^>]*>", "", cell))]


def assert_linked(page: str) -> None:
    found = numbers(page)
    assert found
    assert [cell for cell in found if LINK.search(cell) is None] == []


def links(page: str) -> list[tuple[str, int]]:
    """Addresses of lists, and the number that each stands at."""
    found = [(UP.sub("", html.unescape(href)), re.sub("<[^>]*>", "", text)) for href, text in LINK.findall(page)]
    lists = [(href, COUNT.match(text)) for href, text in found if href.startswith("calls?")]
    return [(href, int(number[0].replace("\u202f", ""))) for href, number in lists if number is not None]


def assert_counts(page: str, counted: Counted) -> int:
    """How many numbers were compared."""
    found = links(page)
    assert [(href, number, counted(href)) for href, number in found if counted(href) != number] == []
    return len(found)


# -- a long log, at every edge of time ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Eight days, a call every 97 seconds: some in every ten minutes, none at their edges by design."""
    made = Log(tmp_path_factory.mktemp("links"))
    clamp = Clamp("rule", "field", 1, 0)
    kinds: list[Mapping[str, object]] = [{}, refusal("too_fast"), refusal("bad_arguments"), {"clamps": (clamp,)}]
    for number in range(7200):
        made.clock.now += 96
        made.call(
            number % 7, tool=f"notes.t{number % 11}", caller="ab"[number % 2] * 12, **dict(kinds[number * 5 % 13 % 4])
        )
    made.clock.now += 333  # not where a sum begins
    made.fresh()
    return made


def session_of(role: str, key: str = "a" * 12) -> ConsoleSession:
    return ConsoleSession(Caller(key, role), "token", 0.0, 0.0)


@pytest.mark.parametrize("role", ["admin", "builder"])
@pytest.mark.parametrize("span", ["1h", "24h", "7d"])
def test_the_overview_counts_what_its_lists_hold(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span: str, role: str
) -> None:
    monkeypatch.setattr(reading, "SAMPLE", 300)
    ring, session = KeyRing(tmp_path / "keys" / "callers.json"), session_of(role)
    desk = desk_of(log, ring, session, {"span": span})
    page = shown_page(desk, overview(desk, {"log": True}))

    def counted(href: str) -> int:
        data, is_all = exported(desk_of(log, ring, session, dict(parse_qsl(href.partition("?")[2]))), "jsonl")
        assert is_all
        return data.count(b"\n")

    assert_linked(page)
    assert assert_counts(page, counted) > 20
    times = {href for href, text in LINK.findall(page) if "timed=1" in href}
    assert len(times) == 1, "the times are those of the calls that the sample's number leads to"


# -- a running server -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    packs = ("governance", "library", "consensus", "lra")
    home = make_home(tmp_path_factory.mktemp("links") / "home", packs=packs, settings=CONSOLE)
    with home.serving() as server:
        for role in ("builder", "committer", "builder"):
            assert call(server.port, home.keys[role], "dummy_experimental") == 200
        assert call(server.port, home.keys["builder"], "dummy_experimental", {"no": "such"}) == 400
        call(server.port, home.keys["builder"], "no_such_tool")
        call(server.port, "nobody", "dummy_experimental")
        call(server.port, home.keys["builder"], "query_fp_store", {"orgId": "example"})
        call(server.port, home.keys["builder"], "consensus_finality", {"round_id": 7})
        for _ in range(3):
            call(server.port, home.keys["builder"], "lra_validate", {"path": "paper"})
        yield visitor(server, home.keys["admin"])


PAGES = ["", "?span=1h", "tools", "tools/dummy_experimental", "keys", *(f"panels/{name}" for name in PANELS)]


@pytest.mark.parametrize("path", PAGES)
def test_every_number_of_a_page_links_to_as_many_records(admin: Visitor, path: str) -> None:
    page = admin.get(path).text

    def counted(href: str) -> int:
        found = admin.get(href.replace("calls?", "calls.jsonl?", 1))
        assert (found.status, found.headers["x-toolgate-cut"]) == (200, None)
        return found.raw.count(b"\n")

    if path in ("", "?span=1h", "tools", "keys"):
        assert_linked(page)
    assert assert_counts(page, counted) > 0


# -- panels ---------------------------------------------------------------------------------------------------------

ROW_LINK = re.compile(r'<a href="(\?of=[0-9a-f]{16})">(.*?)</a>')
NEXT = re.compile(r'rel="next" href="([^"]+)"')


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server]]:
    """Panels with something on each, one list of which is longer than a page."""
    folder = tmp_path_factory.mktemp("panels")
    home = make_home(folder / "home", packs=("governance", "consensus", "lra"), settings=CONSOLE + full_panels(folder))
    fill_panels(home)
    keep_papers(home)
    now = int(time.time() * 1000)
    many = [
        ReviewEvent("acme", "MD-009", 1, f"{number:032x}", "repo", "false_positive", now, "ann", now, "T-1")
        for number in range(230)
    ]
    keep_reviews(home, [*reviews(), *many])
    with home.serving() as server:
        call_for_panels(home, server)
        yield home, server


@pytest.fixture(scope="module")
def auditor(full: tuple[Home, Server]) -> Visitor:
    return visitor(full[1], full[0].keys["auditor"])


def rows_of(person: Visitor, address: str) -> int:
    """Of a list, on all its pages."""
    page = person.get(address)
    assert (page.status, len(page.raw) < MOST_BYTES) == (200, True), address
    more = NEXT.search(page.text)
    here = page.text.count("<tr data-row>")
    return here if more is None else here + rows_of(person, urljoin(address, html.unescape(more[1])))


@pytest.mark.parametrize("path", ALL_PANELS)
def test_every_number_of_a_panel_and_of_its_lists_opens_as_many_rows(auditor: Visitor, path: str) -> None:
    waiting, seen, compared = [f"panels/{path}"], set[str](), 0
    while waiting:
        address = waiting.pop()
        page = auditor.get(address).text
        assert "and from what the pack keeps" in page
        assert [cell for cell in numbers(page) if LINK.search(cell) is None] == [], address
        for href, inner in ROW_LINK.findall(page):
            text, to = re.sub("<[^>]*>", "", inner), urljoin(address, href)
            number = re.fullmatch("[0-9\u202f]+", text)
            assert number is None or rows_of(auditor, to) == int(text.replace("\u202f", "")), (address, text)
            compared += number is not None
            if to not in seen:
                seen.add(to)
                waiting.append(to)
    assert compared > 0


def test_a_rate_and_a_time_lead_to_what_they_were_made_of(auditor: Visitor) -> None:
    for path, text in (("panels/governance/reviews", "0.25"), ("panels/toolgate/contract-health", "48.0 h")):
        href = next(href for href, inner in ROW_LINK.findall(auditor.get(path).text) if f">{text}<" in inner)
        rows = rows_of(auditor, urljoin(path, href))
        assert rows == {"0.25": 12, "48.0 h": 3}[text]


def test_a_list_is_shown_by_pages_of_its_panel(auditor: Visitor) -> None:
    path = "panels/governance/reviews"
    href = next(href for href, text in ROW_LINK.findall(auditor.get(path).text) if text == "230")
    first, last = auditor.get(path + href).shown, auditor.get(f"{path}{href}&from=200").shown
    assert "Rows 1 to 100 of 230." in first
    assert "Rows 201 to 230 of 230." in last
    for begins in ("x", "-1", "99", "\u0663", "9" * 30):
        assert "Rows 1 to 100 of 230." in auditor.get(f"{path}{href}&from={quote(begins)}").shown, begins
    assert auditor.get(f"{path}{href}&from=900").status == 200


def test_a_list_that_no_panel_has_is_not_found_and_who_sees_no_panel_sees_no_list(
    full: tuple[Home, Server], auditor: Visitor
) -> None:
    path = "panels/consensus/rounds"
    href, _ = ROW_LINK.findall(auditor.get(path).text)[0]
    assert auditor.get(path + href).status == 200
    assert auditor.get(f"{path}?of=0123456789abcdef").status == 404
    assert auditor.get(f"panels/governance/reviews{href}").status == 404, "another panel's"
    builder = visitor(full[1], full[0].keys["builder"])
    assert [builder.get(each).status for each in (path, path + href)] == [404, 404]


def test_a_list_of_calls_that_reached_no_tool_has_those_alone(admin: Visitor) -> None:
    page = admin.get("calls?tool=-").text
    assert page.count("<tr data-row>") == 2
    assert "dummy_experimental" not in re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)[0]
    assert admin.get("calls?caller=-").text.count("<tr data-row>") == 1
