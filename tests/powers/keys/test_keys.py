"""The key directory: which names, which files and which forms are keys."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import toolgate.powers.keys
from tests.homes import PATIENCE_S
from tests.support import need
from toolgate.errors import StartRefused, ToolError
from toolgate.kit import ed25519
from toolgate.powers.keys import MAX_KEY_BYTES, KeyDirectory, parse_key, to_openssh, to_pem

SEED = bytes(range(32))
PUBLIC = ed25519.public_key(SEED)


def openssh(seed: bytes) -> bytes:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def pkcs8(
    key: ec.EllipticCurvePrivateKey
    | rsa.RSAPrivateKey
    | ed448.Ed448PrivateKey
    | x25519.X25519PrivateKey
    | Ed25519PrivateKey,
    word: bytes = b"",
) -> bytes:
    locked = serialization.BestAvailableEncryption(word) if word else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)


def put(directory: Path, name: str, data: bytes, mode: int = 0o600) -> Path:
    path = directory / name
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "data",
    [
        SEED.hex().encode(),
        SEED.hex().upper().encode() + b"\n",
        (SEED + PUBLIC).hex().encode(),
        SEED,
        to_pem(SEED),
        b"\n" + to_pem(SEED) + b"\n\n",
        to_pem(SEED).replace(b"\n", b"\r\n"),
        openssh(SEED),
    ],
    ids=["hex-32", "hex-32-newline", "hex-64", "raw", "pkcs8", "pkcs8-blank-lines", "pkcs8-crlf", "openssh"],
)
def test_every_form_of_one_key_is_the_same_key(tmp_path: Path, data: bytes) -> None:
    put(tmp_path, "me.key", data)
    keys = KeyDirectory(tmp_path)
    assert keys.seed("me.key", use="receipts") == SEED
    assert keys.public_key("me.key") == PUBLIC
    assert ed25519.verify(PUBLIC, b"message", keys.sign("me.key", b"message", use="receipts"))


@pytest.mark.req("000-D-SIGN-KEY-FORMAT")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"hello",
        SEED.hex().encode()[:-1],
        SEED.hex().encode() + b"ff",
        b"0x" + SEED.hex().encode(),
        SEED.hex().encode()[:32] + b" " + SEED.hex().encode()[32:],
        (SEED + bytes(32)).hex().encode(),
        (SEED + SEED).hex().encode(),
        SEED[:31],
        SEED + b"\n",
        pkcs8(Ed25519PrivateKey.from_private_bytes(SEED), b"word"),
        pkcs8(ec.generate_private_key(ec.SECP256R1())),
        pkcs8(ed448.Ed448PrivateKey.generate()),
        pkcs8(x25519.X25519PrivateKey.generate()),
        to_pem(SEED)[:-40],
        b"-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
        b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n",
        b"x" * (MAX_KEY_BYTES + 1),
    ],
)
def test_what_is_not_certainly_an_ed25519_secret_is_no_key(tmp_path: Path, data: bytes) -> None:
    put(tmp_path, "me.key", data)
    with pytest.raises(ToolError) as refused:
        KeyDirectory(tmp_path).seed("me.key", use="receipts")
    assert refused.value.code == "INVALID_KEY_FORMAT"
    assert refused.value.text.startswith("Invalid key format")
    assert not refused.value.missing
    assert SEED.hex()[:12] not in str(refused.value)
    assert str(tmp_path) not in str(refused.value)


@pytest.mark.req("000-D-SIGN-KEY-404")
def test_a_key_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ToolError) as refused:
            KeyDirectory(directory).public_key("other.key")
        assert (refused.value.code, refused.value.missing, refused.value.text) == (
            "KEY_NOT_FOUND",
            True,
            f"Key file not found: there is no other.key in {directory}",
        )


@pytest.mark.req("000-D-SIGN-KEY-PATH")
@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../me.key", "/etc/passwd", "a/b", "~/.lra/", "~/.lra/me.key", "~/.ssh/id_ed25519", "~root/x",
     "a\\b", "a\0b", "a\n", ".hidden", "-n", "~/.lra/~/.lra/me.key", "k" * 129, "clé"],
)  # fmt: skip
def test_a_key_is_a_name_and_never_a_path(tmp_path: Path, name: str) -> None:
    put(tmp_path, "me.key", SEED)
    inner = tmp_path / "keys"
    inner.mkdir()
    for act in (KeyDirectory(inner).seed, KeyDirectory(inner).generate):
        with pytest.raises(ToolError) as refused:
            act(name, use="receipts")
        assert refused.value.code == "INVALID_PATH"
    assert list(inner.iterdir()) == []


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o601])
def test_a_key_that_others_can_reach_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    put(tmp_path, "me.key", SEED, mode)
    with pytest.raises(ToolError, match="chmod 600"):
        KeyDirectory(tmp_path).seed("me.key", use="receipts")


def test_links_pipes_and_directories_are_not_keys(tmp_path: Path) -> None:
    real = put(tmp_path, "real.key", SEED)
    (tmp_path / "link.key").symlink_to(real)
    (tmp_path / "dir.key").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "pipe.key", 0o600)
    for name in ("link.key", "dir.key", "pipe.key"):
        with pytest.raises(ToolError, match="INVALID_KEY_FORMAT"):
            KeyDirectory(tmp_path).seed(name, use="receipts")


def test_a_new_key_is_private_readable_by_all_and_never_overwrites(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        keys = KeyDirectory(tmp_path / "a" / "keys")
        public = keys.generate("lra-identity.key", use="receipts")
    finally:
        os.umask(old)
    path = tmp_path / "a" / "keys" / "lra-identity.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert keys.public_key("lra-identity.key") == public
    assert (path.parent / "lra-identity.pub").read_text().startswith("ssh-ed25519 ")
    before = path.read_bytes()
    with pytest.raises(ToolError, match="KEY_EXISTS"):
        keys.generate("lra-identity.key", use="receipts")
    assert path.read_bytes() == before
    assert keys.generate("other.key", use="receipts") != public


def test_a_public_file_in_the_way_leaves_no_half_made_key(tmp_path: Path) -> None:
    (tmp_path / "me.pub").write_text("mine")
    with pytest.raises(ToolError, match="KEY_EXISTS"):
        KeyDirectory(tmp_path).generate("me.key", use="receipts")
    assert [path.name for path in tmp_path.iterdir()] == ["me.pub"]
    assert (tmp_path / "me.pub").read_text() == "mine"


def test_of_twenty_that_make_one_key_at_once_one_wins(tmp_path: Path) -> None:
    won: list[bytes] = []
    lost: list[str] = []

    def make() -> None:
        try:
            won.append(KeyDirectory(tmp_path).generate("one.key", use="receipts"))
        except ToolError as fault:
            lost.append(fault.code)

    threads = [threading.Thread(target=make) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(won) == 1
    assert lost == ["KEY_EXISTS"] * 19
    assert KeyDirectory(tmp_path).public_key("one.key") == won[0]


def test_a_key_directory_inside_the_workspace_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    for directory in (
        tmp_path / "work",
        tmp_path / "work" / "keys",
        tmp_path / "link" / "keys",
        tmp_path / "work" / ".." / "work",
    ):
        with pytest.raises(StartRefused, match="outside"):
            KeyDirectory(directory, workspace=tmp_path / "work")
    KeyDirectory(tmp_path / "work2", workspace=tmp_path / "work")


@pytest.mark.guard
def test_keys_made_by_openssl_and_ssh_keygen_are_read_and_ours_are_read_by_them(tmp_path: Path) -> None:
    openssl, keygen = need("openssl"), need("ssh-keygen")
    subprocess.run([openssl, "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "o.key"], check=True)
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "s.key"], check=True)
    (tmp_path / "o.key").chmod(0o600)
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "word", "-f", tmp_path / "locked.key"], check=True)
    with pytest.raises(ToolError, match="passphrase"):
        KeyDirectory(tmp_path).seed("locked.key", use="receipts")
    shown = subprocess.run(
        [openssl, "pkey", "-in", tmp_path / "o.key", "-pubout", "-outform", "DER"], check=True, capture_output=True
    )
    keys = KeyDirectory(tmp_path)
    assert keys.public_key("o.key") == shown.stdout[-32:]
    line = (tmp_path / "s.key.pub").read_text().split()
    made = keys.generate("ours.key", use="receipts")
    assert to_openssh(keys.public_key("s.key"), "x").decode().split()[1] == line[1]
    theirs = subprocess.run(
        [openssl, "pkey", "-in", tmp_path / "ours.key", "-pubout", "-outform", "DER"], check=True, capture_output=True
    )
    assert theirs.stdout[-32:] == made


def test_parsing_is_a_function_of_the_bytes_alone() -> None:
    assert parse_key(to_pem(SEED)) == parse_key(openssh(SEED)) == SEED


def settled(path: Path) -> Path:
    """As if it had been written an hour ago."""
    then = time.time() - 3600
    os.utime(path, (then, then))
    return path


@pytest.mark.parametrize("change", ["replaced", "rewritten", "opened", "removed"])
def test_a_key_that_was_looked_at_before_counts_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(toolgate.powers.keys, "SETTLED_NS", -1)  # the test does not wait for the disk's clock
    keys, path = KeyDirectory(tmp_path), put(tmp_path, "a.key", SEED.hex().encode())
    assert keys.public_key("a.key") == keys.public_key("a.key") == PUBLIC
    mark = keys.mark("a.key")
    assert mark is not None
    assert mark()
    other = bytes(32)
    match change:
        case "replaced":
            put(tmp_path, "b.key", other.hex().encode()).replace(path)
        case "rewritten":
            settled(put(tmp_path, "a.key", other.hex().encode()))
        case "opened":
            path.chmod(0o644)
        case "removed":
            path.unlink()
    assert not mark()
    if change in ("replaced", "rewritten"):
        assert keys.public_key("a.key") == ed25519.public_key(other)
    else:
        with pytest.raises(ToolError, match=r"open to other users|not found"):
            keys.public_key("a.key")


def test_a_key_changed_a_moment_ago_is_read_again_and_has_no_mark(tmp_path: Path) -> None:
    keys = KeyDirectory(tmp_path)
    ahead = time.time() + 3600
    os.utime(put(tmp_path, "a.key", SEED.hex().encode()), (ahead, ahead))
    assert keys.public_key("a.key") == PUBLIC
    put(tmp_path, "a.key", bytes(32).hex().encode())
    os.utime(tmp_path / "a.key", (ahead, ahead))
    assert keys.public_key("a.key") == ed25519.public_key(bytes(32))
    assert keys.mark("a.key") is None


@pytest.mark.parametrize("note", ["use", "store"])
def test_the_mark_of_a_key_ends_when_its_use_or_its_owner_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    monkeypatch.setattr(toolgate.powers.keys, "SETTLED_NS", -1)
    keys = KeyDirectory(tmp_path)
    put(tmp_path, "a.key", SEED.hex().encode())
    mark = keys.mark("a.key")
    assert mark is not None
    put(tmp_path, f"a.key.{note}", b"voting\n")
    assert not mark()


def test_the_mark_of_a_temporary_key_holds_as_long_as_the_process(tmp_path: Path) -> None:
    keys = KeyDirectory(tmp_path)
    keys.temporary("t", use="voting")
    mark = keys.mark("t")
    assert mark is not None
    assert mark()
