"""A key has one use: what it is for is stated, configured, or settled by its first use; it signs for nothing else."""

from __future__ import annotations

import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gate.conftest import Gate
from tests.homes import PATIENCE_S, make_home
from tests.powers.keys.test_keys import SEED, put
from toolgate.app import build
from toolgate.cli.init.home import furnish
from toolgate.config import load_settings
from toolgate.errors import Ending, SettingsError, ToolError
from toolgate.kit import ed25519
from toolgate.packs.consensus import PACK
from toolgate.packs.consensus.settings import DEFAULTS
from toolgate.powers.keys import KeyDirectory


def refused(keys: KeyDirectory, name: str, use: str) -> ToolError:
    with pytest.raises(ToolError) as fault:
        keys.sign(name, b"message", use=use)
    return fault.value


def test_f22_a_key_signs_for_its_use_and_for_no_other(tmp_path: Path) -> None:
    keys = KeyDirectory(tmp_path)
    public = keys.generate("arbiter.key", use="voting")
    assert ed25519.verify(public, b"message", keys.sign("arbiter.key", b"message", use="voting"))
    fault = refused(keys, "arbiter.key", "receipts")
    assert (fault.code, fault.text) == (
        "WRONG_KEY_USE",
        "the key arbiter.key is for voting, not for receipts; name or make a key for receipts",
    )
    assert refused(keys, "arbiter.key", "vrf").code == "WRONG_KEY_USE"
    assert stat.S_IMODE((tmp_path / "arbiter.key.use").stat().st_mode) == 0o600
    assert keys.public_key("arbiter.key") == public, "to know a key is not to use it"


def test_f22_a_key_of_an_older_home_is_for_what_the_settings_name_it_for(tmp_path: Path) -> None:
    put(tmp_path, "old.key", SEED)
    keys = KeyDirectory(tmp_path, uses={"old.key": "voting"})
    assert refused(keys, "old.key", "receipts").code == "WRONG_KEY_USE", "also before it ever voted"
    assert keys.seed("old.key", use="voting") == SEED
    assert refused(KeyDirectory(tmp_path), "old.key", "receipts").code == "WRONG_KEY_USE", "and it is written down"


@pytest.mark.parametrize("behind_a_link", [False, True])
def test_f22_what_a_key_is_for_counts_as_it_is_stated_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, behind_a_link: bool
) -> None:
    monkeypatch.setattr("toolgate.powers.keys.SETTLED_NS", -1)  # the test does not wait for the disk's clock
    put(tmp_path, "a.key", SEED)
    word = note = tmp_path / "a.key.use"
    if behind_a_link:
        word = tmp_path / "elsewhere"
        note.symlink_to(word)
    word.write_text("voting\n")
    keys = KeyDirectory(tmp_path)
    assert keys.seed("a.key", use="voting") == keys.seed("a.key", use="voting") == SEED
    word.write_text("receipts\n")
    assert refused(keys, "a.key", "voting").code == "WRONG_KEY_USE"
    assert keys.seed("a.key", use="receipts") == SEED


def test_f22_a_key_that_nobody_named_is_for_its_first_use(tmp_path: Path) -> None:
    put(tmp_path, "mine.key", SEED)
    assert KeyDirectory(tmp_path).seed("mine.key", use="receipts") == SEED
    assert (tmp_path / "mine.key.use").read_text() == "receipts\n"
    assert refused(KeyDirectory(tmp_path, uses={"mine.key": "voting"}), "mine.key", "voting").code == "WRONG_KEY_USE"


def test_f22_of_many_first_uses_at_once_one_counts(tmp_path: Path) -> None:
    put(tmp_path, "mine.key", SEED)
    got: list[str] = []
    lost: list[str] = []

    def use(word: str) -> None:
        try:
            KeyDirectory(tmp_path).seed("mine.key", use=word)
            got.append(word)
        except ToolError as fault:
            lost.append(fault.code)

    threads = [threading.Thread(target=use, args=(word,)) for word in ["voting", "receipts", "vrf"] * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(set(got)) == 1
    assert len(got) == 5
    assert lost == ["WRONG_KEY_USE"] * 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.key", "mine.key.use"]


@pytest.mark.parametrize("content", [b"", b"\n", b"Voting\n", b"voting receipts\n", b"\xff", b"x" * 40, b"../x"])
def test_f22_a_use_that_cannot_be_read_is_no_use_at_all(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, "mine.key", SEED)
    (tmp_path / "mine.key.use").write_bytes(content)
    assert (
        refused(KeyDirectory(tmp_path, uses={"mine.key": "voting"}), "mine.key", "voting").code == "INVALID_KEY_FORMAT"
    )


@contextmanager
def nothing_can_be_written() -> Iterator[None]:
    """As in a directory that is mounted read-only; a mode would not stop root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_f22_where_nothing_can_be_written_the_settings_count_and_an_unnamed_key_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "old.key", SEED)
    put(tmp_path, "mine.key", SEED)
    keys = KeyDirectory(tmp_path, uses={"old.key": "voting"})
    with nothing_can_be_written():
        assert keys.seed("old.key", use="voting") == SEED
        fault = refused(keys, "mine.key", "receipts")
    assert fault.code == "IO_ERROR"
    assert "put the word receipts into it" in fault.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.key", "old.key"]


def test_f22_a_persons_own_key_is_not_written_beside(tmp_path: Path) -> None:
    put(tmp_path, "id_ed25519", SEED)
    assert KeyDirectory(tmp_path, states=False).seed("id_ed25519", use="receipts") == SEED
    assert [path.name for path in tmp_path.iterdir()] == ["id_ed25519"]


def test_f22_a_missing_key_leaves_no_note_of_a_use(tmp_path: Path) -> None:
    assert refused(KeyDirectory(tmp_path), "none.key", "voting").code == "KEY_NOT_FOUND"
    assert list(tmp_path.iterdir()) == []


def test_f22_a_temporary_key_has_a_use_too(tmp_path: Path) -> None:
    keys = KeyDirectory(tmp_path)
    keys.temporary("temporary-arbiter.key", use="voting")
    assert refused(keys, "temporary-arbiter.key", "receipts").code == "WRONG_KEY_USE"


def test_f22_a_new_key_does_not_take_over_a_name_that_had_another_use(tmp_path: Path) -> None:
    (tmp_path / "arbiter.key.use").write_text("voting\n")
    with pytest.raises(ToolError, match="WRONG_KEY_USE"):
        KeyDirectory(tmp_path).generate("arbiter.key", use="receipts")
    assert [path.name for path in tmp_path.iterdir()] == ["arbiter.key.use"]


def test_f22_a_new_home_states_what_its_keys_are_for(tmp_path: Path) -> None:
    furnish(tmp_path / "home", policy=False)
    stated = {path.name: path.read_text() for path in (tmp_path / "home" / "secrets").glob("*.use")}
    receipts = {"identity.key.use": "receipts\n", "lra-identity.key.use": "receipts\n"}
    assert stated == {"arbiter.key.use": "voting\n", "vrf.key.use": "vrf\n"} | receipts


@pytest.mark.parametrize(
    ("name", "use"), [("arbiter.key", "voting"), ("vrf.key", "vrf"), ("~/.lra/arbiter.key", "voting")]
)
@pytest.mark.parametrize("stated", [True, False], ids=["new home", "older home"])
def test_f22_no_receipt_is_signed_with_a_key_of_the_consensus(
    tmp_path: Path, name: str, use: str, stated: bool
) -> None:
    home = make_home(tmp_path / "home", packs=("consensus", "lra"))
    keys = KeyDirectory(home.path / "secrets")
    for each, word in PACK.keys(DEFAULTS).items():
        keys.generate(each, use=word)
        if not stated:
            (home.path / "secrets" / f"{each}.use").unlink()
    (home.workspace / "r.json").write_text('{"anything": "a committer likes", "timestamp": "2026-01-01T00:00:00Z"}')
    gate = Gate(home, home.app())
    try:
        answer = gate.call("lra_sign", {"receipt": "r.json", "key": name}, key="committer")
    finally:
        gate.run(gate.app.close())
        gate.loop.close()
    assert answer.envelope is not None
    assert (answer.ending, answer.envelope.code) == (Ending.TOOL_SAID_NO, "WRONG_KEY_USE")
    assert f"is for {use}, not for receipts" in (answer.text or "")
    assert sorted(path.name for path in home.workspace.iterdir()) == ["r.json"]


def test_f22_one_key_for_two_uses_does_not_start(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("consensus",), settings='[packs.consensus]\nvoting_key = "audit.key"\n')
    with pytest.raises(SettingsError, match=r"audit\.key is named for voting, and it is for log"):
        build(load_settings(home.path, {}, {}))
