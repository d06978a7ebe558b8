"""Strangers' words on pages: markup, direction, escapes and length are text, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.visiting import Visitor, call, console, visitor
from tests.homes import Home, Server
from toolgate.console.pages.panels import _cell, _of_rows, name_of
from toolgate.console.rendering import MAX_TEXT, ManyLines, fields, render, shown
from toolgate.console.web import ConsoleVisit
from toolgate.model.tool import PanelCell, PanelMark, PanelTable

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}"
BIDI = "safe\u202egnp.exe\u2066\u200f\u200b"
ANSI = "\x1b[31mred\x1b]0;title\x07\x00"
LONG = "a" * 1_000_000
HOSTILE = {"markup": MARKUP, "bidi": BIDI, "ansi": ANSI, "long": LONG}


@pytest.fixture(scope="module")
def admin(served: tuple[Home, Server]) -> Visitor:
    return visitor(served[1], served[0].keys["admin"])


def assert_harmless(text: str) -> None:
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert ">49<" not in text
    assert not any(char in text for char in "\u202e\u2066\u200f\x1b\x07\x00")


def test_names_of_tools_that_callers_made_up_are_text(served: tuple[Home, Server], admin: Visitor) -> None:
    home, server = served
    for text in (MARKUP, BIDI, ANSI, "b" * 500_000):
        call(server.port, home.keys["builder"], text, X_Request_ID="<b>id</b>")
    for each in home.calls()[-4:]:
        assert_harmless(admin.get(f"calls/{each['requestId']}").text)
    for path in ("", "calls", "tools"):
        assert_harmless(admin.get(path).text)


@pytest.mark.parametrize("text", [MARKUP, BIDI, ANSI, "b" * 3000], ids=["markup", "bidi", "ansi", "long"])
def test_filters_come_back_as_text(admin: Visitor, text: str) -> None:
    from urllib.parse import quote

    for name in ("tool", "caller", "verdict", "since", "before", "q", "span"):
        for page in ("calls", "tools", ""):
            seen = admin.get(f"{page}?{name}={quote(text)}")
            assert seen.status in (200, 414)
            assert_harmless(seen.text)


def test_labels_of_keys_are_text(served: tuple[Home, Server], admin: Visitor) -> None:
    home, server = served
    _, key = home.ring().create("builder", label="<img src=x onerror=alert(1)>")
    call(server.port, key, "dummy_experimental")
    for path in ("keys", "calls", ""):
        assert_harmless(admin.get(path).text)
    assert_harmless(visitor(server, key).get().text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_whatever_a_template_shows_is_printable_and_bounded(kind: str) -> None:
    text = HOSTILE[kind]
    assert len(shown(text)) <= 6 * (MAX_TEXT + 2)
    assert "\n" in shown(ManyLines(f"a\n{text}"))
    assert_harmless(shown(text).replace("<", "&lt;"))


def base(**values: object) -> dict[str, object]:
    common = {
        "up": "./",
        "title": MARKUP,
        "session": None,
        "section": "",
        "environment": "local",
        "behind": None,
        "panels": (),
    }
    return {**common, **values}


@pytest.mark.parametrize("kind", HOSTILE)
def test_panels_upstreams_and_records_show_strangers_texts_as_text(kind: str) -> None:
    text = HOSTILE[kind]
    behind = PanelTable(text, [text], [[text]])
    cells = [PanelCell(text, "bad"), PanelCell(text, "bad", behind), PanelCell(text, "plain", behind), behind]
    table = PanelTable(text, [text], [[text], *([cell] for cell in cells)], note=text, tool=text)
    linked = {**_cell(text), "request": text}
    shaped = {"title": text, "note": text, "tool": text, "calls": 1, **_of_rows(table)}
    shaped["rows"].append([linked])
    strip = {"title": text, "note": text, "tool": "", "marks": [PanelMark(text, text, "bad")]}
    panel = type("P", (), {"name": text, "title": text, "summary": text})
    pages = [render("panel", base(panel=panel, tables=[shaped, strip], fault=text, pack=text, ever="", of=""))]
    whole = {"tables": [shaped], "of": name_of(behind), "first": 100, "step": 100}
    pages.append(render("panel", base(panel=panel, fault="", pack=text, ever="", **whole)))
    state = type("S", (), {"name": text, "state": text, "reason": text, "pin": text, "refused": {text: text}})
    row = type("R", (), {"tool": text, "field": text})
    change = type("C", (), {"rows": [row], "notes": [text], "blocked": text, "digest": "x"})
    session = type(
        "X",
        (),
        {
            "acts": False,
            "sees_all": True,
            "caller": type("K", (), {"label": text, "key_id": "k", "role": text}),
            "token": "t",
        },
    )
    pages.append(
        render(
            "upstream",
            base(state=state, change=change, diffs=[(row, [("changed", text, text)])], fault=text, session=session),
        )
    )
    for page in pages:
        assert_harmless(page)
        assert len(page) < 200_000


def test_a_record_of_another_shape_does_not_break_the_page() -> None:
    assert fields({"by": {"user": None}})["by"]["key"] is None
    assert ConsoleVisit("GET", ("calls", "x"), {}, {}).up == "../"


def test_a_log_with_foreign_lines_is_shown_as_far_as_it_is_ours(tmp_path: Path) -> None:
    with console(tmp_path / "home") as (home, server):
        person = visitor(server, home.keys["admin"])
        assert person.get().status == 200
        folder = home.path / "runs" / "mcp_server" / "envelope_validation"
        (folder / "20260101T000000Z.stranger.001.jsonl").write_bytes(
            b'not json\n[]\n{"event":"outcome","ts":7,"seq":"x"}\n'
            b'{"event":"outcome","ts":"2026-01-01T00:00:00Z","seq":1,"requestId":"<b>","caller":7,"metadata":[],"error":"x",'
            b'"clamps":{},"durationMs":"long","tier":["x"]}\n' + b"x" * 100
        )
        for path in ("", "calls", "tools", "keys", "calls.jsonl", "calls.csv", "calls/%3Cb%3E"):
            seen = person.get(path)
            assert seen.status == 200, path
            assert "<b>" not in seen.text or path in ("calls.jsonl", "calls.csv")
