"""What an admin does on a page: it happens once, is recorded before it happens, and stale pages do nothing."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.console.visiting import Visitor, call, console, visitor
from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment
from tests.waiting import until
from toolgate.gate.authority.stops import STOPS_FILE, Stops, new_stop
from toolgate.model.call import CallerBounds


@pytest.fixture
def admin(served: tuple[Home, Server]) -> Visitor:
    return visitor(served[1], served[0].keys["admin"])


def acts(home: Home, act: str) -> list[dict[str, object]]:
    return [each for each in home.records() if each.get("act") == act]


def test_a_key_is_made_shown_once_and_recorded(served: tuple[Home, Server], admin: Visitor) -> None:
    home, server = served
    seen = admin.act("keys/create", role="builder", label="ada’s laptop", life="1d")
    found = re.search(r'value="(tg_[0-9a-f]{12}_[0-9a-f]{64})"', seen.text)
    assert found is not None
    assert call(server.port, found[1], "dummy_experimental") == 200
    assert found[1] not in admin.get("keys").text
    intent, outcome = acts(home, "keys.create")[-2:]
    assert (intent["stage"], outcome["stage"], outcome["status"]) == ("intent", "outcome", "ok")
    assert outcome["by"]["key"] == home.keys["admin"].split("_")[1]  # type: ignore[index]
    assert found[1].rpartition("_")[2] not in str(home.records())


@pytest.mark.parametrize(
    "form",
    [
        {"role": "root", "life": "1d"},
        {"role": "admin", "life": "9y"},
        {"role": "admin", "life": "1d", "label": "a\u202eb"},
    ],
)
def test_a_wrong_form_makes_no_key(served: tuple[Home, Server], admin: Visitor, form: dict[str, str]) -> None:
    before = len(served[0].ring().all())
    assert admin.act("keys/create", **form).status == 400
    assert len(served[0].ring().all()) == before


def test_a_key_is_revoked_at_once_and_a_stale_page_is_told(served: tuple[Home, Server], admin: Visitor) -> None:
    home, server = served
    key, text = home.ring().create("builder", label="gone soon")
    stale = admin.get("keys").token
    assert admin.act(f"keys/{key.id}/revoke").headers["Location"] == "../../keys"
    assert call(server.port, text, "dummy_experimental") == 403
    again = admin.post(f"keys/{key.id}/revoke", {"token": stale})
    assert (again.status, "revoked already" in again.shown) == (409, True)
    assert len(acts(home, "keys.revoke")) == 2


@pytest.mark.parametrize("key", ["000000000000", "x", "%2e%2e"])
def test_a_key_that_is_not_there_is_not_revoked(served: tuple[Home, Server], admin: Visitor, key: str) -> None:
    assert admin.act(f"keys/{key}/revoke").status == 409


def test_an_act_is_a_record_that_the_page_shows(served: tuple[Home, Server], admin: Visitor) -> None:
    admin.act("keys/create", role="auditor", label="seen", life="30d")
    request = acts(served[0], "keys.create")[-1]["requestId"]
    page = admin.get(f"calls/{request}")
    assert (page.status, "keys.create" in page.shown) == (200, True)
    assert str(request) in admin.get("calls?kind=act").text


def test_the_command_line_tells_the_last_use_that_the_page_tells(served: tuple[Home, Server], admin: Visitor) -> None:
    home, server = served
    key, text = home.ring().create("builder", label="used once", bounds=CallerBounds(scopes=("unruly_*",)))
    idle, _ = home.ring().create("builder", label="never used")
    speak.mrt(server.port, "no_such_tool", {}, text)

    def told() -> bool:
        return "tools unruly_*" in admin.get("keys").shown and _last_use(home, key.id) is not None

    until(told, "its use is in the index")
    assert _last_use(home, idle.id) is None


def _last_use(home: Home, key_id: str) -> str | None:
    done = subprocess.run(
        home.command("keys", "show", key_id, "--json"),
        env=environment(),
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    found: str | None = json.loads(done.stdout)["lastUse"]
    return found


def test_what_an_operator_has_stopped_is_on_the_overview(tmp_path: Path) -> None:
    with console(tmp_path / "home") as (home, server):
        stop = new_stop(tool="dummy_*", caller=None, upstream=None, reason="", since=0.0, until=None)
        Stops(home.path / "keys" / STOPS_FILE).add(stop)
        admin = visitor(server, home.keys["admin"])
        assert "Stopped until resumed: tool dummy_*" in admin.get().shown
        assert "Stopped until" not in visitor(server, home.keys["builder"]).get().shown
        (home.path / "keys" / STOPS_FILE).write_text("{")
        assert "Every call is stopped" in admin.get().shown


def test_the_overview_names_the_policy_and_contract_that_the_log_says_are_in_force(
    served: tuple[Home, Server], admin: Visitor
) -> None:
    serves = next(each["serves"] for each in served[0].records() if "serves" in each)
    page = admin.get().shown
    assert set(serves) == {"policy", "contract"}
    assert [digest in page for digest in serves.values()] == [True, True]
