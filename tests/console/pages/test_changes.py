"""What an upstream changed is shown whole, or nobody approves it on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.console.visiting import CONSOLE, visitor
from tests.upstreams.homes import Swapping, adopting_home
from toolgate.console.pages.changes import MAX_LINES, MAX_SHOWN, WIDTH, fitting, side_by_side
from toolgate.console.ports import FieldChange

STUB = "upstreams/stub"
MOST_BYTES = 100_000
"""Of the page of an upstream, whatever that says."""


def row(after: str, before: str = "") -> FieldChange:
    return FieldChange("echo", "description", before, after)


def test_the_end_of_a_long_line_is_shown() -> None:
    told = list(side_by_side("a", "a" * 10 * WIDTH + "send it elsewhere"))
    assert "send it elsewhere" in told[-1][2]
    assert all(len(right) <= WIDTH for _, _, right in told)


def test_another_end_of_line_is_a_difference() -> None:
    assert [word for word, _, _ in side_by_side("one\ntwo", "one\u2028two")] == ["changed", "gone"]
    assert list(side_by_side("one", "one\n")) == [("same", "one", "one"), ("new", "", "")]
    assert list(side_by_side("same", "same")) == []


@pytest.mark.parametrize(
    "rows",
    [
        [row("x" * MAX_SHOWN)],
        [row("", "x" * MAX_SHOWN)],
        [row("x\n" * MAX_LINES)],
        [row("")] * 1000,
        [row("fits"), row("x" * MAX_SHOWN), row("after it")],
    ],
    ids=["long", "was long", "many lines", "many fields", "long among short"],
)
def test_what_is_too_much_is_shown_in_part_and_said_to_be_so(rows: list[FieldChange]) -> None:
    shown, is_all = fitting(rows)
    assert not is_all
    assert sum(len(each.before) + len(each.after) for each in shown) < MAX_SHOWN
    assert len(shown) <= 200
    assert fitting([row("x" * WIDTH)]) == ([row("x" * WIDTH)], True)


@pytest.mark.parametrize("behaviour", ["long description", "many new tools"])
def test_a_change_that_no_page_holds_is_not_approved_on_one(tmp_path: Path, behaviour: str) -> None:
    swapping = Swapping(tmp_path)
    home = adopting_home(tmp_path / "home", {"stub": swapping.table()}, settings=CONSOLE)
    pin = home.path / "policy" / "upstreams" / "stub.pin.json"
    before = pin.read_bytes()
    swapping.behave(behaviour)
    with home.serving() as server:
        admin = visitor(server, home.keys["admin"])
        page = admin.get(STUB)
        assert (page.status, len(page.raw) < MOST_BYTES) == (200, True)
        assert "nothing is approved here" in page.shown
        assert f"{STUB}/approve" not in page.text
        digest = re.search(r'name="digest" value="([0-9a-f]{64})"', page.text)
        assert digest is not None, "it may be refused"
        refused = admin.post(f"{STUB}/approve", {"token": page.token, "digest": digest[1]})
        assert (refused.status, pin.read_bytes()) == (409, before)
        assert admin.post(f"{STUB}/refuse", {"token": page.token, "digest": digest[1]}).status == 200
