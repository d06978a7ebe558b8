"""Callers' keys: what gets in, what does not, and what is on disk."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import Ending, Refusal
from toolgate.gate import keys as module
from toolgate.gate.keys import Key, KeyFileFault, KeyRing


class FixedClock:
    """The date stands still; each look at the key file is as much later as the last one holds."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now
        self.step = module.TRUSTED_S
        self._passed = 0.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        self._passed += self.step
        return self._passed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "callers.json"


@pytest.fixture
def ring(path: Path) -> KeyRing:
    return KeyRing(path, FixedClock())


def refused(ring: KeyRing, presented: bytes | None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        ring.authenticate(presented)
    return caught.value


@pytest.mark.req("000-C-auth-identity")
@pytest.mark.parametrize("role", ["builder", "committer", "admin"])
def test_a_created_key_gives_its_role_and_nothing_else(ring: KeyRing, role) -> None:
    key, text = ring.create(role, label="laptop")
    caller = ring.authenticate(text.encode())
    assert (caller.key_id, caller.role, caller.label) == (key.id, role, "laptop")
    assert text.startswith(f"tg_{key.id}_")


@pytest.mark.req("000-D-missing-key")
def test_no_key_is_another_refusal_than_a_wrong_one(ring: KeyRing) -> None:
    ring.create("admin")
    assert refused(ring, None).ending is Ending.MISSING_KEY


HOSTILE = {
    "empty": b"",
    "blank": b" ",
    "not ours": b"sk-committer-abc123",
    "only the prefix": b"tg_",
    "no secret": b"tg_0123456789ab_",
    "unknown id": b"tg_0123456789ab_" + b"0" * 64,
    "latin-1 letter": b"tg_0123456789ab_" + b"\xe9" * 64,
    "UTF-8 letter": "tg_0123456789ab_é".encode(),
    "NUL": b"tg_\0",
    "newline at the end": b"tg_0123456789ab_" + b"0" * 64 + b"\n",
    "capital hex": b"tg_0123456789AB_" + b"0" * 64,
    "one byte too long": b"t" * 257,
    "a megabyte": b"t" * 1_000_000,
    "every byte": bytes(range(256)),
}


@pytest.mark.req("000-D-invalid-key")
@pytest.mark.parametrize("presented", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_an_invalid_key(ring: KeyRing, presented: bytes) -> None:
    ring.create("admin")
    fault = refused(ring, presented)
    assert fault.ending is Ending.INVALID_KEY
    assert fault.text == "API key is invalid."
    assert not fault.details


@pytest.mark.parametrize(
    "presented", [b"${TOOLGATE_KEY}", b"$TOOLGATE_KEY", b"${KEY:-none}", b"%TOOLGATE_KEY%", b"$(cat key)"]
)
def test_a_variable_that_was_not_expanded_is_named_as_such(ring: KeyRing, presented: bytes) -> None:
    ring.create("admin")
    fault = refused(ring, presented)
    assert fault.ending is Ending.INVALID_KEY
    assert "not expanded" in fault.text
    assert "KEY" not in fault.text.replace("API key", "")


@given(presented=st.binary(max_size=300))
def test_no_bytes_get_in_and_none_raise_anything_but_a_refusal(
    presented: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ring = KeyRing(_prepared(tmp_path_factory), FixedClock())
    assert refused(ring, presented).ending is Ending.INVALID_KEY


_made: list[Path] = []


def _prepared(factory: pytest.TempPathFactory) -> Path:
    if not _made:
        _made.append(factory.mktemp("ring") / "callers.json")
        KeyRing(_made[0], FixedClock()).create("admin")
    return _made[0]


@given(place=st.integers(0, 79), to=st.integers(0, 255))
def test_any_single_changed_byte_is_refused(place: int, to: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    ring = KeyRing(tmp_path_factory.getbasetemp() / "changed" / "callers.json", FixedClock())
    _, text = ring.create("admin") if not ring.all() else (None, _texts[0])
    _texts[:] = [text]
    changed = bytearray(text.encode())
    if changed[place] == to:
        to ^= 1
    changed[place] = to
    assert refused(ring, bytes(changed)).ending is Ending.INVALID_KEY
    assert ring.authenticate(text.encode()).role == "admin"


_texts: list[str] = []


def test_the_secret_of_one_key_does_not_open_another(ring: KeyRing) -> None:
    _, one = ring.create("builder")
    _, two = ring.create("admin")
    mixed = two.rsplit("_", 1)[0] + "_" + one.rsplit("_", 1)[1]
    assert refused(ring, mixed.encode()).ending is Ending.INVALID_KEY


def test_an_unknown_id_is_compared_as_often_as_a_wrong_secret(ring: KeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = ring.create("admin")
    compared: list[int] = []

    def counting(one: bytes, two: bytes) -> bool:
        compared.append(len(one) + len(two))
        return False

    monkeypatch.setattr(module, "compare_digest", counting)
    refused(ring, b"tg_000000000000_" + b"0" * 64)
    refused(ring, f"tg_{key.id}_".encode() + b"0" * 64)
    refused(ring, b"\xff")
    assert compared == [64, 64, 64]


def test_an_expired_key_is_refused_from_its_very_second(path: Path) -> None:
    clock = FixedClock(1000.0)
    ring = KeyRing(path, clock)
    _, text = ring.create("admin", expires=2000.0)
    clock.now = 1999.999
    assert ring.authenticate(text.encode()).role == "admin"
    clock.now = 2000.0
    fault = refused(ring, text.encode())
    assert fault.ending is Ending.INVALID_KEY
    assert "expired" in fault.text


def test_revocation_by_another_process_works_on_the_next_call(ring: KeyRing, path: Path) -> None:
    key, text = ring.create("committer")
    assert ring.authenticate(text.encode()).key_id == key.id
    KeyRing(path, FixedClock()).revoke(key.id)
    assert "revoked" in refused(ring, text.encode()).text


def test_a_key_made_by_another_process_works_on_the_next_call(ring: KeyRing, path: Path) -> None:
    ring.create("admin")
    _, text = KeyRing(path, FixedClock()).create("builder")
    assert ring.authenticate(text.encode()).role == "builder"


def test_revoking_twice_keeps_the_first_moment(path: Path) -> None:
    clock = FixedClock(1000.0)
    ring = KeyRing(path, clock)
    key, _ = ring.create("admin")
    first = ring.revoke(key.id)
    clock.now = 2000.0
    assert ring.revoke(key.id).revoked == first.revoked == 1000.0
    with pytest.raises(KeyError):
        ring.revoke("000000000000")


def test_the_file_holds_digests_only_and_is_private_from_the_start(
    ring: KeyRing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    real = os.open

    def watching(name, flags, mode=0o777, **more):
        if flags & os.O_CREAT:
            modes.append(mode)
        return real(name, flags, mode, **more)

    monkeypatch.setattr(os, "open", watching)
    before = os.umask(0)
    try:
        _, text = ring.create("admin", label="first")
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    content = path.read_text()
    assert text not in content
    assert text.rsplit("_", 1)[1] not in content
    assert set(json.loads(content)["keys"][0]) == {"id", "role", "label", "digest", "created", "expires", "revoked"}
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_what_is_written_is_what_is_read(path: Path) -> None:
    ring = KeyRing(path, FixedClock(1_800_000_000.125))
    ring.create("builder", label="ä → b", expires=1_900_000_000.5)
    key, _ = ring.create("admin")
    ring.revoke(key.id)
    assert KeyRing(path).all() == ring.all()
    assert ring.all()[0].expires == 1_900_000_000.5


@pytest.mark.parametrize("label", ["a\nb", "x" * 101, "\x1b[31mred"])
def test_a_label_is_short_and_printable(ring: KeyRing, path: Path, label: str) -> None:
    with pytest.raises(ValueError, match="label"):
        ring.create("admin", label=label)
    assert not path.exists()


def _make_ten(path: Path) -> None:
    for _ in range(10):
        KeyRing(path).create("builder")


def test_writers_in_several_processes_lose_no_key(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_make_ten, args=(path,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(KeyRing(path).all()) == 30


EXPOSED = {
    "readable by others": lambda path: path.chmod(0o644),
    "readable by the group": lambda path: path.chmod(0o640),
    "writable by others": lambda path: path.chmod(0o602),
    # Looked at whenever the file changes: who uses the open directory to replace the file shuts everyone out.
    "a directory others can write": lambda path: (path.parent.chmod(0o777), os.utime(path)),
    "a link": lambda path: path.rename(path.with_name("real")) and path.symlink_to(path.with_name("real")),
    "a directory": lambda path: (path.unlink(), path.mkdir(0o700)),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path, 0o600)),
    "empty": lambda path: path.write_text(""),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[:150]),
    "not an object": lambda path: path.write_text("[]"),
    "another version": lambda path: path.write_text('{"version": 3, "keys": []}'),
    "a bound in a file of version 1": lambda path: path.write_text(_with(path.read_text(), 1, scopes=["a"])),
    "a scope that is not text": lambda path: path.write_text(_with(path.read_text(), 2, scopes=[1])),
    "scopes that are not a list": lambda path: path.write_text(_with(path.read_text(), 2, scopes="a")),
    "a range that is none": lambda path: path.write_text(_with(path.read_text(), 2, ranges=["10.0.0.1/8"])),
    "a rate of nothing": lambda path: path.write_text(_with(path.read_text(), 2, perMinute=0)),
    "a limit that is not a number": lambda path: path.write_text(_with(path.read_text(), 2, concurrency="3")),
    "older secrets that are not a list": lambda path: path.write_text(_with(path.read_text(), 2, older=1)),
    "an older secret without an end": lambda path: path.write_text(
        _with(path.read_text(), 2, older=[{"digest": "0" * 64}])
    ),
    "an older secret with a naive end": lambda path: path.write_text(
        _with(path.read_text(), 2, older=[{"digest": "0" * 64, "until": "2026-11-18T00:00:00"}])
    ),
    "an older secret with half a digest": lambda path: path.write_text(
        _with(path.read_text(), 2, older=[{"digest": "0" * 32, "until": "2026-11-18T00:00:00.000Z"}])
    ),
    "keys that are not a list": lambda path: path.write_text('{"version": 1, "keys": {}}'),
    "a key that is not an object": lambda path: path.write_text('{"version": 1, "keys": [1]}'),
    "a role that no policy can name": lambda path: path.write_text(path.read_text().replace('"admin"', '"Root 1"')),
    "a role that is not text": lambda path: path.write_text(path.read_text().replace('"admin"', "1")),
    "a short digest": lambda path: path.write_text(path.read_text().replace('"digest": "', '"digest": "0')),
    "an unknown field": lambda path: path.write_text(path.read_text().replace('"label"', '"lable"')),
    "a naive moment": lambda path: path.write_text(
        path.read_text().replace('Z",\n      "expires"', '",\n      "expires"')
    ),
    "the same key twice": lambda path: path.write_text(_doubled(path.read_text())),
    "duplicate JSON keys": lambda path: path.write_text('{"version": 1, "version": 1, "keys": []}'),
    "deleted": lambda path: path.unlink(),
}


def _with(text: str, version: int, **fields: Any) -> str:
    document = json.loads(text)
    return json.dumps({"version": version, "keys": [row | fields for row in document["keys"]]})


def _doubled(text: str) -> str:
    document = json.loads(text)
    return json.dumps(document | {"keys": document["keys"] * 2})


@pytest.mark.parametrize("expose", EXPOSED.values(), ids=EXPOSED)
def test_a_key_file_that_cannot_be_trusted_lets_nobody_in(ring: KeyRing, path: Path, expose, caplog) -> None:
    _, text = ring.create("admin")
    ring.authenticate(text.encode())
    expose(path)
    fault = refused(ring, text.encode())
    assert fault.ending is Ending.INVALID_KEY
    assert str(path) not in fault.text
    assert refused(ring, None).ending is Ending.MISSING_KEY
    with pytest.raises(KeyFileFault) as caught:
        ring.check()
    assert "\n" in str(caught.value)
    assert len(caplog.records) == 1, "said once, not on every call"


def test_a_file_changed_by_hand_is_noticed_without_a_restart_once_the_last_look_no_longer_holds(path: Path) -> None:
    clock = FixedClock()
    ring = KeyRing(path, clock)
    _, text = ring.create("admin")
    ring.authenticate(text.encode())
    path.chmod(0o644)
    clock.step = 0.0
    ring.authenticate(text.encode())
    clock.step = module.TRUSTED_S
    refused(ring, text.encode())


def test_whoever_changes_keys_waits_until_no_look_before_that_holds(
    ring: KeyRing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(module, "sleep", lambda seconds: waited.append(seconds) or path.stat())
    ring.create("admin")
    assert waited[0] > module.TRUSTED_S


def test_when_a_revocation_returns_no_other_reader_of_the_file_lets_the_key_in(ring: KeyRing, path: Path) -> None:
    reader = KeyRing(path, FixedClock())
    for _ in range(20):
        key, text = ring.create("builder")
        assert reader.authenticate(text.encode()).key_id == key.id
        ring.revoke(key.id)
        assert "revoked" in refused(reader, text.encode()).text


def test_a_repaired_key_file_lets_callers_in_again(ring: KeyRing, path: Path) -> None:
    _, text = ring.create("admin")
    path.chmod(0o644)
    refused(ring, text.encode())
    path.chmod(0o600)
    assert ring.authenticate(text.encode()).role == "admin"


def test_a_damaged_file_is_not_overwritten_by_a_new_key(ring: KeyRing, path: Path) -> None:
    ring.create("admin")
    path.write_text("damaged")
    with pytest.raises(KeyFileFault):
        ring.create("admin")
    assert path.read_text() == "damaged"


def test_a_server_without_a_live_key_is_told_so(path: Path) -> None:
    ring = KeyRing(path, FixedClock())
    with pytest.raises(KeyFileFault, match="toolgate keys create"):
        ring.check()
    key, _ = ring.create("admin")
    ring.check()
    ring.revoke(key.id)
    with pytest.raises(KeyFileFault, match="no live"):
        ring.check()


def test_ten_thousand_keys_are_one_lookup(ring: KeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    with ring._writing() as keys:
        keys.update((f"{n:012x}", Key(f"{n:012x}", "builder", "", bytes(32), 0.0)) for n in range(10_000))
    _, text = ring.create("admin")
    assert ring.authenticate(text.encode()).role == "admin"
    loads: list[Path] = []
    monkeypatch.setattr(module, "_load", loads.append)
    compared: list[bytes] = []
    real = module.compare_digest
    monkeypatch.setattr(module, "compare_digest", lambda one, two: compared.append(one) or real(one, two))
    ring.authenticate(text.encode())
    assert not loads, "an unchanged file is not read again"
    assert len(compared) == 1
