"""Signing keys by name, from one directory outside the workspace.

Callers name a key and get signatures; the secret bytes leave only through `seed`, which exists for the VRF. Five forms
are read because people bring keys from elsewhere; one is written. What is not certainly an Ed25519 key is refused.

A key has one use, and signs for no other: a signature over bytes that somebody chose must never count as a vote. Whose use a
key has, is said by `NAME.use` beside it; else by the pack that is configured with its name; else by its first use, which is
then written down. Which uses there are, is the packs' business.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
import time
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

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
from toolgate.model.tool import USE_FORM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from toolgate.model.powers import Unchanged

MAX_KEY_BYTES: Final = 16 * 1024
"""A PKCS#8 or OpenSSH file of one Ed25519 key is under 500 bytes."""
MAX_REMEMBERED: Final = 256
"""Public halves, and uses, that are remembered: a server signs with a handful."""
SETTLED_NS: Final = 100_000_000
"""A tenth of a second: ten times the coarsest tick of a clock that Linux stamps files by."""
KEY_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_PEM: Final = b"-----BEGIN PRIVATE KEY-----"
_OUR_PEM: Final = re.compile(rb"-----BEGIN PRIVATE KEY-----\n([A-Za-z0-9+/]{64})\n-----END PRIVATE KEY-----")
"""As `to_pem` and openssl write it. Read without a library, because that takes longer than to sign."""
_PKCS8_ED25519: Final = bytes.fromhex("302e020100300506032b657004220420")
"""All but the seed of a PKCS#8 key without a public half (RFC 8410): 16 of 48 bytes."""
_OPENSSH: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_HEX: Final = re.compile(rb"(?:[0-9a-fA-F]{64}){1,2}")


class KeyDirectory:
    """The keys of one directory. Reads on each use, so a key that is removed or replaced counts at once."""

    def __init__(
        self,
        directory: Path,
        *,
        workspace: Path | None = None,
        uses: Mapping[str, str] = MappingProxyType({}),
        states: bool = True,
    ) -> None:
        """`uses`: name -> use, as the packs are configured. `states`: may a use be written down beside a key?

        Raises: StartRefused: the directory lies inside the workspace, where tools and dev servers read.
        """
        if workspace is not None and directory.resolve().is_relative_to(workspace.resolve()):
            raise StartRefused("The key directory lies inside the workspace. Set paths.secrets to a place outside it.")
        self._directory = directory
        self._uses = uses
        self._states = states
        self._temporary: dict[str, _Temporary] = {}
        self._publics: _Remembered[bytes] = _Remembered()
        self._stated: _Remembered[str] = _Remembered()
        """Uses that stand beside keys."""

    @property
    def place(self) -> str:
        return str(self._directory)

    def seed(self, name: str, *, use: str, named: str = "") -> bytes:
        """The 32 secret bytes. Raises ToolError KEY_NOT_FOUND (missing), INVALID_KEY_FORMAT, INVALID_PATH, WRONG_KEY_USE."""
        secret = self._secret(name)
        if named:
            self._refuse_another(named, name, secret)
        stated = self._use_of(name, use)
        if stated != use:
            raise ToolError(
                "WRONG_KEY_USE",
                f"the key {name} is for {stated}, not for {use}; name or make a key for {use}",
            )
        return secret

    def public_key(self, name: str) -> bytes:
        """Of a key for any use: to know a key is not to use it."""
        if name in self._temporary:
            return self._temporary[name].public
        return self._publics.of(self._at(_plain_name(name)), lambda: ed25519.public_key(self._secret(name)))

    def mark(self, name: str) -> Unchanged | None:
        if name in self._temporary:
            return _always
        plain = _plain_name(name)
        paths = [self._at(file) for file in (plain, f"{plain}.use", f"{plain}.store")]
        then = [_stamp(path) for path in paths]
        if not all(stamp is None or _is_settled(stamp) for stamp in then):
            return None
        return lambda: [_stamp(path) for path in paths] == then

    def sign(self, name: str, message: bytes, *, use: str) -> bytes:
        return ed25519.sign(self.seed(name, use=use), message)

    def _secret(self, name: str) -> bytes:
        if name in self._temporary:
            return self._temporary[name].seed
        path = self._at(_plain_name(name))
        try:
            return parse_key(_read_private(path))
        except ToolError as fault:
            if not fault.missing:
                raise
            raise ToolError(
                "KEY_NOT_FOUND", f"{fault.text}: there is no {name} in {self.place}", missing=True
            ) from None

    def _refuse_another(self, named: str, name: str, secret: bytes) -> None:
        """Raises ToolError KEY_NOT_FOUND: a file of this path is there and is another key than ours of its name."""
        own = Path(named).expanduser()
        if not os.path.lexists(own):
            return
        try:
            is_same = parse_key(_read_private(own)) == secret
        except ToolError:
            is_same = False
        if not is_same:
            text = (
                f"Key file not found: {named} is a file of its own, and the keys that sign here are in {self.place}; to "
                f"sign with that one: install -m 600 {named} {shlex.quote(self.place)}/; to sign with the other, say {name}"
            )
            raise ToolError("KEY_NOT_FOUND", text, missing=True)

    def _use_of(self, name: str, asked: str) -> str:
        """What the key is for; a key that nothing was said about is from now on for what it is asked for."""
        if name in self._temporary:
            return self._temporary[name].use
        plain = _plain_name(name)
        path = self._directory / f"{plain}.use"
        configured = self._uses.get(plain)
        if os.path.lexists(at := self._at(f"{plain}.use")):
            return self._stated.of(at, lambda: _stated_use(path))
        if not self._states:
            return configured or asked
        try:
            return self._write_once(path, configured or asked)
        except ToolError:
            if configured is not None:
                return configured  # a directory that is mounted read-only; the settings say it at every start
            raise ToolError(
                "IO_ERROR",
                f"nothing says what the key {plain} is for, and {path.name} cannot be written; put the word {asked} into it",
            ) from None

    def temporary(self, name: str, *, use: str) -> bytes:
        if name not in self._temporary:
            seed = secrets.token_bytes(ed25519.SEED_BYTES)
            self._temporary.setdefault(name, _Temporary(use, seed, ed25519.public_key(seed)))
        return self._temporary[name].public

    def _at(self, file: str) -> str:
        return f"{self._directory}{os.sep}{file}"

    def is_temporary(self, name: str) -> bool:
        return name in self._temporary

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
        return self._write_once(path, owner)

    def _write_once(self, path: Path, word: str) -> str:
        """What stands in the file: this word, or the one that somebody wrote before us."""
        # Written whole, then linked: a killed process leaves no empty note, and of two writers one comes first.
        draft = self._directory / f".{path.name}.{secrets.token_hex(8)}"
        _write_new(draft, word.encode() + b"\n", 0o600)
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

    def generate(self, name: str, *, use: str) -> bytes:
        """Make a new key for one use and return its public half.

        Side effects: NAME (PKCS#8 PEM, 0600), its `.pub` (OpenSSH) and its `.use` are written; nothing is overwritten.
        Raises ToolError KEY_EXISTS, WRONG_KEY_USE, INVALID_PATH, IO_ERROR.
        """
        plain = _plain_name(name)
        seed = secrets.token_bytes(ed25519.SEED_BYTES)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        public = self._directory / f"{plain.removesuffix('.key')}.pub"
        _write_new(self._directory / plain, to_pem(seed), 0o600)
        made = [self._directory / plain]
        try:
            _write_new(public, to_openssh(ed25519.public_key(seed), plain), 0o644)
            made.append(public)
            self._state_use(plain, use)
        except ToolError:
            for path in made:
                path.unlink()
            raise
        return ed25519.public_key(seed)

    def _state_use(self, plain: str, use: str) -> None:
        """A note that outlived its key stands: it keeps a name from changing its use unseen."""
        path = self._directory / f"{plain}.use"
        stated = _stated_use(path) if os.path.lexists(path) else self._write_once(path, use)
        if stated != use:
            raise ToolError(
                "WRONG_KEY_USE", f"{path.name} says that {plain} is for {stated}, not for {use}; choose another name"
            )


class PackKeys:
    """The keys of a directory as one pack gets them: for the uses that it declares, whatever else the directory holds."""

    __slots__ = ("_keys", "_own", "_uses")

    def __init__(self, keys: Callable[[], KeyDirectory], uses: Collection[str], own: Collection[str]) -> None:
        """`own`: names of the keys that the pack's settings name."""
        self._keys = keys
        self._uses = frozenset(uses)
        self._own = frozenset(own)

    def public_key(self, name: str) -> bytes:
        return self._keys().public_key(name)

    def mark(self, name: str) -> Unchanged | None:
        return self._keys().mark(name)

    def sign(self, name: str, message: bytes, *, use: str) -> bytes:
        return self._for(use).sign(name, message, use=use)

    @property
    def place(self) -> str:
        return self._keys().place

    def seed(self, name: str, *, use: str, named: str = "") -> bytes:
        return self._for(use).seed(name, use=use, named=named)

    def temporary(self, name: str, *, use: str) -> bytes:
        return self._for(use).temporary(name, use=use)

    def bind(self, name: str, owner: str, *, replace: bool = False) -> str:
        keys = self._keys()
        if name not in self._own and not keys.is_temporary(name):
            raise ToolError("WRONG_KEY_USE", f"the key {name} is not one of this pack's own")
        return keys.bind(name, owner, replace=replace)

    def _for(self, use: str) -> KeyDirectory:
        if use not in self._uses:
            raise ToolError("WRONG_KEY_USE", f"the pack does not declare the use {use}; its keys sign for nothing else")
        return self._keys()


class _Temporary(NamedTuple):
    use: str
    seed: bytes
    public: bytes


_Stamp = tuple[int, ...]
V = TypeVar("V")


class _Remembered(Generic[V]):
    """What was read of files, each as long as it is the same file. Never a secret."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Stamp, V]] = {}

    def of(self, path: str, read: Callable[[], V]) -> V:
        stamp, known = _stamp(path), self._known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        value = read()
        if stamp is not None and stat.S_ISREG(stamp[_MODE]) and _is_settled(stamp):
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[path] = stamp, value
        return value


_MODE: Final = 5
"""Of a stamp."""


def _stamp(path: str) -> _Stamp | None:
    """What differs for a file that was replaced, written to, or opened to others; None: it cannot be looked at."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ctime_ns, info.st_dev, info.st_ino, info.st_size, info.st_mode, info.st_uid


def _is_settled(stamp: _Stamp) -> bool:
    """Not changed just now: a second change within one tick of the disk's clock would leave the same stamp."""
    return time.time_ns() - max(stamp[:2]) > SETTLED_NS


def _always() -> bool:
    return True


def _stated_use(path: Path) -> str:
    try:
        word = path.read_bytes()[:MAX_KEY_BYTES].decode("ascii").strip()
    except (OSError, ValueError):
        word = ""
    if not USE_FORM.fullmatch(word):
        raise _invalid(f"{path.name} does not say in one word what the key is for")
    return word


def _plain_name(name: str) -> str:
    if not KEY_NAME.fullmatch(name):
        raise ToolError("INVALID_PATH", "a key has a name like identity.key; paths are not followed")
    return name


def _invalid(text: str) -> ToolError:
    return ToolError("INVALID_KEY_FORMAT", f"Invalid key format: {text}")


def _read_private(path: str | Path) -> bytes:
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
    """64 bytes are a seed with its public half, as some documents describe keys; the halves must belong together."""
    seed, public = key[: ed25519.SEED_BYTES], key[ed25519.SEED_BYTES :]
    if public and ed25519.public_key(seed) != public:
        raise _invalid("the public half does not belong to the secret half")
    return seed


def _from_container(text: bytes) -> bytes:
    if ours := _OUR_PEM.fullmatch(text):
        held = b64decode(ours[1])
        if held.startswith(_PKCS8_ED25519):
            return held[len(_PKCS8_ED25519) :]
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
