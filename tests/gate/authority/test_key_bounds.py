"""Keys that may do less than their role, and keys that get a new secret: on the whole road."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.gate.conftest import Gate
from tests.gate.test_keys import FixedClock, refused
from tests.homes import PATIENCE_S, Home, make_home
from toolgate.errors import OK, Ending, Refusal
from toolgate.gate.keys import MAX_OLDER, KeyFileFault, KeyNotRotated, KeyRing
from toolgate.model.call import Caller, CallerBounds

SCOPED = CallerBounds(scopes=("unruly_e*", "prompt:*"))
RANGED = CallerBounds(ranges=("10.0.0.0/8", "2001:db8::/32"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "callers.json"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def ring(path: Path, clock: FixedClock) -> KeyRing:
    return KeyRing(path, clock)


# Scopes ----------------------------------------------------------------------------------------------------------


def test_a_scope_refuses_what_it_does_not_cover_and_names_itself(gate: Gate) -> None:
    _, text = gate.home.ring().create("admin", bounds=SCOPED)
    assert gate.call("unruly_echo", key=text).ending is OK
    answer = gate.call("unruly_write", {"name": "x"}, key=text)
    assert answer.ending is Ending.INSUFFICIENT_ROLE
    assert answer.details == {"reason": "out_of_scope"}
    assert answer.text is not None
    assert "unruly_e*, prompt:*" in answer.text
    assert not (gate.home.workspace / "x").exists()


def test_a_scope_does_not_give_what_the_role_does_not_hold(gate: Gate) -> None:
    _, text = gate.home.ring().create("builder", bounds=CallerBounds(scopes=("*",)))
    assert gate.call("unruly_admin", key=text).ending is Ending.INSUFFICIENT_ROLE


def test_lists_show_what_the_scope_covers(gate: Gate) -> None:
    permits = gate.app.road.admission.permits
    caller = Caller("k", "admin", bounds=SCOPED)
    assert {grant.tool.name for grant in permits.visible(caller)} == {
        grant.tool.name for grant in permits.all() if grant.tool.name.startswith("unruly_e")
    }
    assert all(each["name"].startswith("unruly_e") for each in permits.holdings(caller))


@pytest.mark.parametrize(("scopes", "kinds"), [(("prompt:*",), {"prompt"}), (("resource:*",), {"resource"})])
def test_prompts_and_resources_are_held_by_their_rows(tmp_path: Path, scopes: tuple[str, ...], kinds: set[str]) -> None:
    home = make_home(tmp_path / "home", packs=("governance",))
    gate = Gate(home, home.app())
    try:
        permits, caller = gate.app.road.admission.permits, Caller("k", "admin", bounds=CallerBounds(scopes=scopes))
        shown = {each["kind"] for each in permits.holdings(caller)}
        assert shown == kinds
        helpers = [grant for grant in permits.all() if grant.tool.row]
        assert helpers
        for grant in helpers:
            assert grant.is_held_by(caller) is (grant.tool.row.partition(":")[0] in kinds)
    finally:
        gate.run(gate.app.close())
        gate.loop.close()


@given(
    role=st.sampled_from(["builder", "committer", "admin", "auditor", "nobody"]),
    scopes=st.lists(st.sampled_from(["*", "unruly_*", "unruly_a*", "unruly_?cho", "none"]), max_size=3).map(tuple),
)
@cases(60, 300)
def test_whatever_the_scope_a_key_holds_no_more_than_its_role(
    unruly_permits: Any, role: str, scopes: tuple[str, ...]
) -> None:
    whole, bounded = Caller("k", role), Caller("k", role, bounds=CallerBounds(scopes=scopes))
    held = {grant.tool.name for grant in unruly_permits.visible(whole)}
    within = {grant.tool.name for grant in unruly_permits.visible(bounded)}
    assert within <= held
    for grant in unruly_permits.all():
        try:
            unruly_permits.permit(bounded, grant.tool.name)
        except Refusal:
            assert grant.tool.name not in within
        else:
            assert grant.tool.name in within or grant.tool.kind != "tool"


@pytest.fixture(scope="module")
def unruly_permits(unruly_home: Home) -> Iterator[Any]:
    app = unruly_home.app()
    yield app.road.admission.permits
    asyncio.run(app.close())


def test_a_key_that_is_held_to_tools_administers_nothing() -> None:
    assert Caller("k", "admin").administers
    assert Caller("k", "admin", bounds=RANGED).administers
    assert not Caller("k", "admin", bounds=SCOPED).administers
    assert not Caller("k", "committer").administers


# Addresses -------------------------------------------------------------------------------------------------------


def test_a_key_for_some_addresses_is_refused_from_others_and_from_none(ring: KeyRing) -> None:
    key, text = ring.create("admin", bounds=RANGED)
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::9"):
        assert ring.authenticate(text.encode(), address).key_id == key.id
    for address in ("192.0.2.1", "2001:db9::1", "10.0.0.1, 192.0.2.1", "", None):
        with pytest.raises(Refusal) as caught:
            ring.authenticate(text.encode(), address)
        assert caught.value.ending is Ending.INVALID_KEY
        assert caught.value.recorded == {"refusedKey": {"id": key.id, "state": "elsewhere"}}
        assert "10.0.0.0" not in caught.value.text, "ranges are told to nobody"
    assert ring.live(key.id, "10.1.2.3") is not None
    assert ring.live(key.id, "192.0.2.1") is None
    assert ring.live(key.id) is None


def test_a_wrong_secret_learns_nothing_of_addresses(ring: KeyRing) -> None:
    key, _ = ring.create("admin", bounds=RANGED)
    with pytest.raises(Refusal) as caught:
        ring.authenticate(f"tg_{key.id}_{'0' * 64}".encode(), "192.0.2.1")
    assert (caught.value.text, caught.value.recorded) == ("API key is invalid.", None)


# Rotation --------------------------------------------------------------------------------------------------------


def test_both_secrets_are_good_until_the_overlap_has_ended(ring: KeyRing, clock: FixedClock) -> None:
    key, old = ring.create("committer", label="ci", expires=clock.now + 9e6, bounds=SCOPED)
    turned, new = ring.rotate(key.id, 3600)
    assert new != old
    assert (turned.id, turned.role, turned.label, turned.expires, turned.bounds) == (
        key.id,
        key.role,
        key.label,
        key.expires,
        key.bounds,
    )
    assert ring.authenticate(old.encode()) == ring.authenticate(new.encode())
    clock.now += 3600
    assert ring.authenticate(new.encode()).key_id == key.id
    fault = refused(ring, old.encode())
    assert fault.ending is Ending.INVALID_KEY
    assert "expired" in fault.text
    assert fault.recorded == {"refusedKey": {"id": key.id, "state": "expired"}}


def test_a_rotated_key_is_rotated_again_and_each_secret_has_its_own_end(ring: KeyRing, clock: FixedClock) -> None:
    key, first = ring.create("admin")
    _, second = ring.rotate(key.id, 100)
    _, third = ring.rotate(key.id, 10)
    for text in (first, second, third):
        ring.authenticate(text.encode())
    clock.now += 10
    ring.authenticate(first.encode())
    assert "expired" in refused(ring, second.encode()).text
    ring.revoke(key.id)
    for text in (first, third):
        assert "revoked" in refused(ring, text.encode()).text


def test_no_overlap_ends_the_old_secret_at_once(ring: KeyRing) -> None:
    key, old = ring.create("admin")
    _, new = ring.rotate(key.id, 0)
    assert "expired" in refused(ring, old.encode()).text
    assert ring.authenticate(new.encode()).key_id == key.id


def test_so_many_older_secrets_are_good_at_once_and_no_more(ring: KeyRing, clock: FixedClock) -> None:
    key, first = ring.create("admin")
    for _ in range(MAX_OLDER):
        ring.rotate(key.id, 60)
    with pytest.raises(KeyNotRotated, match="older secrets of this key are still good"):
        ring.rotate(key.id, 60)
    ring.authenticate(first.encode())
    clock.now += 60
    ring.rotate(key.id, 60)
    assert len(ring.all()[0].older) == MAX_OLDER


KILLED = """
import os, pathlib, signal, sys
from toolgate.gate.keys import KeyRing

path, key, step = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
before, replace = step == "before", pathlib.Path.replace

def killed(*names):
    if not before:
        replace(*names)
    os.kill(os.getpid(), signal.SIGKILL)

pathlib.Path.replace = killed
KeyRing(path).rotate(key, 3600)
"""


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_writer_killed_while_it_rotates_leaves_the_old_secret_good_and_the_file_free(path: Path, step: str) -> None:
    ring = KeyRing(path)
    key, old = ring.create("admin")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), key.id, step], check=False, timeout=PATIENCE_S)
    assert done.returncode == -signal.SIGKILL
    assert ring.authenticate(old.encode()).key_id == key.id
    _, new = ring.rotate(key.id, 3600)
    for text in (old, new):
        assert ring.authenticate(text.encode()).key_id == key.id


def test_what_is_revoked_or_expired_gets_no_new_secret(ring: KeyRing, clock: FixedClock) -> None:
    key, _ = ring.create("admin")
    ring.revoke(key.id)
    with pytest.raises(KeyNotRotated, match="revoked"):
        ring.rotate(key.id, 60)
    ended, _ = ring.create("admin", expires=clock.now)
    with pytest.raises(KeyNotRotated, match="expired"):
        ring.rotate(ended.id, 60)
    with pytest.raises(KeyError):
        ring.rotate("000000000000", 60)


def test_a_rotation_that_cannot_be_written_leaves_the_old_secret_good(
    ring: KeyRing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, old = ring.create("admin")
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("toolgate.gate.keys.replace_file", full)
    with pytest.raises(OSError, match="No space"):
        ring.rotate(key.id, 60)
    assert path.read_bytes() == before
    assert ring.authenticate(old.encode()).key_id == key.id


def test_what_was_opened_with_a_secret_ends_with_it(ring: KeyRing, clock: FixedClock) -> None:
    key, _ = ring.create("admin")
    began = clock.now
    clock.now += 10
    ring.rotate(key.id, 100)
    assert ring.live(key.id, since=began) is not None
    clock.now += 100
    assert ring.live(key.id, since=began) is None
    assert ring.live(key.id, since=clock.now) is not None


# The file --------------------------------------------------------------------------------------------------------

OLD_FILE = """{
  "version": 1,
  "keys": [
    {
      "id": "0123456789ab",
      "role": "committer",
      "label": "ci",
      "created": "2026-11-15T10:00:00.000Z",
      "expires": null,
      "revoked": null,
      "digest": "%s"
    }
  ]
}
"""


def test_a_file_of_before_loads_and_is_written_as_it_was_until_a_key_needs_more(ring: KeyRing, path: Path) -> None:
    from hashlib import sha256

    secret = f"tg_0123456789ab_{'5' * 64}"
    path.parent.mkdir(mode=0o700)
    path.write_text(OLD_FILE % sha256(secret.encode()).hexdigest())
    path.chmod(0o600)
    assert ring.authenticate(secret.encode()) == Caller("0123456789ab", "committer", "ci")
    other, _ = ring.create("builder")
    document = json.loads(path.read_text())
    assert document["version"] == 1
    assert all(
        set(row) == {"id", "role", "label", "created", "expires", "revoked", "digest"} for row in document["keys"]
    )
    assert document["keys"][0] == json.loads(OLD_FILE % sha256(secret.encode()).hexdigest())["keys"][0]
    ring.create("builder", bounds=RANGED)
    document = json.loads(path.read_text())
    assert document["version"] == 2
    assert [set(row) - {"ranges"} == set(document["keys"][0]) for row in document["keys"]] == [True] * 3
    assert ring.authenticate(secret.encode()).bounds is None
    assert other.bounds is None


def test_everything_about_a_key_is_read_back(ring: KeyRing, path: Path, clock: FixedClock) -> None:
    key, _ = ring.create("admin", bounds=CallerBounds(("git_*",), ("10.0.0.0/8",), 60, 3))
    turned, _ = ring.rotate(key.id, 60)
    (found,) = KeyRing(path, clock).all()
    assert found == turned
    shown = json.dumps(found.as_json())
    assert turned.digest.hex() not in shown
    assert key.digest.hex() not in shown


def test_bounds_that_are_wrong_make_no_key(ring: KeyRing) -> None:
    with pytest.raises(ValueError, match="neither an address nor a network"):
        ring.create("admin", bounds=CallerBounds(ranges=("10.0.0.1/8",)))
    with pytest.raises(KeyFileFault):
        ring.check()
