"""Signing keys by name, from one directory outside the workspace (decision 60).

Callers name a key and get signatures; the secret bytes leave only through `seed`, which exists for the VRF. Five forms
are read because people bring keys from elsewhere; one is written. What is not certainly an Ed25519 key is refused.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)

from toolgate.errors import StartRefused, ToolError
from toolgate.kit import ed25519

if TYPE_CHECKING:
    from pathlib import Path

MAX_KEY_BYTES: Final = 16 * 1024
"""A PKCS#8 or OpenSSH file of one Ed25519 key is under 500 bytes."""
HOME_PREFIX: Final = "~/.lra/"
"""Document 000 writes `~/.lra/NAME`: it means NAME in the key directory, wherever that is."""
KEY_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_PEM: Final = b"-----BEGIN PRIVATE KEY-----"
_OPENSSH: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_HEX: Final = re.compile(rb"(?:[0-9a-fA-F]{64}){1,2}")


class KeyDirectory:
    """The keys of one directory. Reads on each use, so a key that is removed or replaced counts at once."""

    def __init__(self, directory: Path, *, workspace: Path | None = None) -> None:
        """Raises: StartRefused: the directory lies inside the workspace, where tools and dev servers read."""
        if workspace is not None and directory.resolve().is_relative_to(workspace.resolve()):
            raise StartRefused("The key directory lies inside the workspace. Set paths.secrets to a place outside it.")
        self._directory = directory
        self._temporary: dict[str, bytes] = {}

    def seed(self, name: str) -> bytes:
        """The 32 secret bytes. Raises ToolError KEY_NOT_FOUND (missing), INVALID_KEY_FORMAT, INVALID_PATH."""
        if name in self._temporary:
            return self._temporary[name]
        return parse_key(_read_private(self._directory / _plain_name(name)))

    def public_key(self, name: str) -> bytes:
        return ed25519.public_key(self.seed(name))

    def sign(self, name: str, message: bytes) -> bytes:
        return ed25519.sign(self.seed(name), message)

    def temporary(self, name: str) -> bytes:
        return ed25519.public_key(self._temporary.setdefault(name, secrets.token_bytes(ed25519.SEED_BYTES)))

    def bind(self, name: str, owner: str, *, replace: bool = False) -> str:
        """Side effects: writes `NAME.store` beside the key (0600). Raises ToolError INVALID_PATH, IO_ERROR."""
        if name in self._temporary:
            return owner
        path = self._directory / f"{_plain_name(name)}.store"
        if path.exists() and not replace:
            return self._owner(path)
        if replace:
            with suppress(FileNotFoundError):
                path.unlink()
        # Written whole, then linked: a killed process leaves no empty note, and of two writers one comes first.
        draft = self._directory / f".{path.name}.{secrets.token_hex(8)}"
        _write_new(draft, owner.encode() + b"\n", 0o600)
        try:
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
        return self._owner(path)

    @staticmethod
    def _owner(path: Path) -> str:
        try:
            return path.read_text("ascii").strip()
        except (OSError, ValueError):
            raise ToolError("IO_ERROR", f"{path.name} cannot be read in the key directory") from None

    def generate(self, name: str) -> bytes:
        """Make a new key and return its public half.

        Side effects: NAME (PKCS#8 PEM, 0600) and its `.pub` (OpenSSH) are written; nothing is ever overwritten.
        Raises ToolError KEY_EXISTS, INVALID_PATH, IO_ERROR.
        """
        plain = _plain_name(name)
        seed = secrets.token_bytes(ed25519.SEED_BYTES)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        public_file = f"{plain.removesuffix('.key')}.pub"
        _write_new(self._directory / plain, to_pem(seed), 0o600)
        try:
            _write_new(self._directory / public_file, to_openssh(ed25519.public_key(seed), plain), 0o644)
        except ToolError:
            (self._directory / plain).unlink()
            raise
        return ed25519.public_key(seed)


def _plain_name(name: str) -> str:
    plain = name.removeprefix(HOME_PREFIX)
    if not KEY_NAME.fullmatch(plain):
        raise ToolError("INVALID_PATH", "a key is named like lra-identity.key or ~/.lra/NAME; paths are not followed")
    return plain


def _invalid(text: str) -> ToolError:
    return ToolError("INVALID_KEY_FORMAT", f"Invalid key format: {text}")


def _read_private(path: Path) -> bytes:
    """Raises ToolError: not there, not a plain file, or open to others (a key that others can read is not ours alone)."""
    try:
        # No link and no pipe: neither may lead to, or wait for, something that is not a key file here.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ToolError("KEY_NOT_FOUND", "Key file not found", missing=True) from None
    except OSError:
        raise _invalid("the key cannot be read; it must be a plain file of the server's own user") from None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise _invalid("the key is not a plain file")
        if info.st_mode & 0o077:
            raise _invalid("the key file is open to other users; run chmod 600 on it")
        data = os.read(descriptor, MAX_KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_KEY_BYTES:
        raise _invalid("the file is too large for a key")
    return data


def parse_key(data: bytes) -> bytes:
    """The seed in a key file's bytes: hex (32 or 64 bytes), 32 raw bytes, PKCS#8 PEM or OpenSSH.

    Raises: ToolError INVALID_KEY_FORMAT: anything else, another algorithm, a passphrase, or halves that disagree.
    """
    text = data.strip()
    if text.startswith((_PEM, _OPENSSH)):
        return _from_container(text)
    if _HEX.fullmatch(text):
        return _from_hex(bytes.fromhex(text.decode()))
    if len(data) == ed25519.SEED_BYTES:
        return data
    raise _invalid("expected an Ed25519 secret key as hex, 32 raw bytes, PKCS#8 PEM or OpenSSH")


def _from_hex(key: bytes) -> bytes:
    """64 bytes are a seed with its public half, as LRA-1.0's text describes keys; the halves must belong together."""
    seed, public = key[: ed25519.SEED_BYTES], key[ed25519.SEED_BYTES :]
    if public and ed25519.public_key(seed) != public:
        raise _invalid("the public half does not belong to the secret half")
    return seed


def _from_container(text: bytes) -> bytes:
    load = load_ssh_private_key if text.startswith(_OPENSSH) else load_pem_private_key
    try:
        key = load(text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _invalid("the file is damaged, needs a passphrase, or is of an unknown kind") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _invalid("the key is not an Ed25519 key")
    return key.private_bytes_raw()


def to_pem(seed: bytes) -> bytes:
    """PKCS#8, unencrypted: what openssl and every language's library read."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def to_openssh(public: bytes, comment: str) -> bytes:
    """One line of an `authorized_keys` or `allowed_signers` file."""
    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b" " + comment.encode() + b"\n"


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise ToolError(
            "KEY_EXISTS", f"{path.name} exists already; keys are never overwritten, choose another name"
        ) from None
    except OSError:
        raise ToolError("IO_ERROR", f"{path.name} cannot be written in the key directory") from None
    try:
        os.fchmod(descriptor, mode)
        os.write(descriptor, data)
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise ToolError("IO_ERROR", f"{path.name} cannot be written in the key directory") from None
    finally:
        os.close(descriptor)
