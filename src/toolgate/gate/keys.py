"""Step 1: a key becomes a Caller, or a refusal.

A key is `tg_<id>_<secret>`: found by its id in one dictionary, so ten thousand cost what ten do, and compared as
SHA-256 digests in constant time. Only digests are stored. What the file said is trusted for a millisecond, and whoever changes
it waits that long: when a key was revoked, it is dead, without a restart. When the file cannot be trusted, nobody gets in.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from time import sleep
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec import Struct, convert, field
from msgspec.structs import replace

from toolgate.atomic_file import replace_file
from toolgate.errors import Ending, Refusal, StartRefused
from toolgate.model import strictjson
from toolgate.model.call import NO_BOUNDS, ROLE_NAME, Caller, CallerBounds, check_bounds
from toolgate.model.clock import Clock, SystemClock, from_rfc3339, rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MAX_KEY_BYTES: Final = 256
"""Ours are 80; of anything longer no more is hashed, because that is work done for a stranger."""
MAX_LABEL: Final = 100
"""Characters: a label is a reminder, not a document."""
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Some 50 000 keys."""

TRUSTED_S: Final = 0.001
"""How long one look at the key file holds: without it every call begins with a system call, which is 5 of its 42 µs (in process,
`benchmarks.road`)."""
_UNEXPANDED: Final = re.compile(rb"\$[A-Za-z_{(]|%[A-Za-z_]+%")
"""`${NAME}`, `$NAME`, `%NAME%`: what clients send when a variable is not set or not supported there."""
_BEGINNING: Final = 16
"""Characters of `tg_<id>_`."""
_ANY_KEY: Final = re.compile(r"tg_[0-9a-f]{12}_[0-9a-f]*")
_NO_DIGEST: Final = bytes(32)
"""Compared with when the id is unknown, so that an unknown id costs what a wrong secret costs."""
_FIELDS: Final = {"id", "role", "label", "digest", "created", "expires", "revoked"}
_MORE: Final = {"scopes", "ranges", "perMinute", "concurrency", "older", "owner"}
"""Fields of some keys. A file with one of them is of version 2, and every other is written as version 1 always was."""
_BOUNDS: Final = {"scopes": "scopes", "ranges": "ranges", "perMinute": "per_minute", "concurrency": "concurrency"}
"""Of these fields, how `CallerBounds` calls them."""
MAX_OLDER: Final = 8
"""Secrets of one key that are remembered beside the current one."""

_log = logging.getLogger("toolgate.keys")


class KeyFileFault(StartRefused):
    """The key file is missing, exposed or damaged."""


class KeyNotRotated(ValueError):
    """The key cannot get a new secret; the text says why."""


class OlderSecret(Struct, frozen=True):
    """One that was replaced, by its digest. It is good until the overlap has ended, and remembered longer to say so."""

    digest: bytes
    until: float


class Authenticate(Protocol):
    """Raises: Refusal: MISSING_KEY, INVALID_KEY."""

    def __call__(self, presented: bytes | None, address: str | None = None, /) -> Caller: ...


class Key(Struct, frozen=True):
    """One stored key: everything but the secret."""

    id: str
    role: str
    label: str
    digest: bytes
    created: float
    expires: float | None = None
    revoked: float | None = None
    bounds: CallerBounds | None = None
    older: tuple[OlderSecret, ...] = ()
    """The newest first."""
    owner: str = ""
    """Who is behind it: keys of one owner are one person where people are counted."""

    def state(self, now: float) -> Literal["live", "expired", "revoked"]:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and now >= self.expires else "live"

    def as_json(self) -> dict[str, Any]:
        """What may be shown: times as text, no digest."""
        bounds = self.bounds or NO_BOUNDS
        return self._plain() | {
            "scopes": list(bounds.scopes),
            "ranges": list(bounds.ranges),
            "perMinute": bounds.per_minute,
            "concurrency": bounds.concurrency,
            "older": [rfc3339(each.until) for each in self.older],
            "owner": self.owner,
        }

    def as_stored(self) -> dict[str, Any]:
        more = {} if self.bounds is None else stored_bounds(self.bounds)
        if self.owner:
            more["owner"] = self.owner
        if self.older:
            more["older"] = [{"digest": each.digest.hex(), "until": rfc3339(each.until)} for each in self.older]
        return self._plain() | {"digest": self.digest.hex()} | more

    def caller(self) -> Caller:
        return Caller(self.id, self.role, self.label, bounds=self.bounds, owner=self.owner)

    def _plain(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "role": self.role,
            "label": self.label,
            "created": rfc3339(self.created),
            "expires": None if self.expires is None else rfc3339(self.expires),
            "revoked": None if self.revoked is None else rfc3339(self.revoked),
        }


class _Known(Struct, frozen=True):
    """A key in the form that every call looks up."""

    key: Key
    digest: bytes
    caller: Caller
    """Made once: every call of this key is the same caller."""
    is_conditional: bool
    """It expires, is revoked already, or comes from some addresses only."""


class _Loaded(Struct):
    """What the file said when it had this stamp. The descriptor stays open: while it is, no other file gets its inode."""

    stamp: tuple[int, ...] | None
    keys: Mapping[str, Key]
    fault: str | None
    descriptor: int | None = None
    by_beginning: Mapping[bytes, _Known] = field(default_factory=dict)
    """`tg_<id>_` -> key."""

    def __del__(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


class KeyRing:
    """The keys of one file. Reading needs no lock; writers take turns and replace the file whole."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path = path
        self._text = str(path)
        self._clock: Clock = clock or SystemClock()
        self._loaded = _Loaded(None, {}, "not read yet")
        self._trusted_until = float("-inf")

    def authenticate(self, presented: bytes | None, address: str | None = None, /) -> Caller:
        """`address`: where it comes from, if that is known. Raises: Refusal: MISSING_KEY, INVALID_KEY. Never anything else,
        whatever the bytes are."""
        if presented is None:
            raise Refusal(Ending.MISSING_KEY, "API key is required.")
        loaded = self._loaded if self._clock.monotonic() < self._trusted_until else self._read_if_changed()
        digest = sha256(presented[:MAX_KEY_BYTES]).digest()
        known = loaded.by_beginning.get(presented[:_BEGINNING])
        right = compare_digest(digest, known.digest if known else _NO_DIGEST)
        if known is None or not (right or self._is_older(known.key, digest)):
            # The log does not hold this id either: anyone could write another's there.
            raise Refusal(Ending.INVALID_KEY, _why_not(presented, loaded))
        if known.is_conditional:
            self._check_usable(known.key, address)
        return known.caller

    def _check_usable(self, key: Key, address: str | None) -> None:
        """Only whoever holds the secret learns what is wrong. Raises: Refusal INVALID_KEY."""
        if (state := key.state(self._clock.wall())) != "live":
            raise _unusable(key, state, f"This API key is {state}.")
        if key.bounds is not None and not key.bounds.admits(address):
            why = "from this address" if address is not None else "here: it is for some addresses, and here is none"
            raise _unusable(key, "elsewhere", f"This API key may not be used {why}.")

    def _is_older(self, key: Key, digest: bytes) -> bool:
        """Is this the digest of a replaced secret that is still good? Raises: Refusal INVALID_KEY: it was."""
        found = [each for each in key.older if compare_digest(digest, each.digest)]
        if found and self._clock.wall() >= found[0].until:
            raise _unusable(key, "expired", "This API key is expired: it was replaced by a newer one.")
        return bool(found)

    def live(self, key_id: str, address: str | None = None, *, since: float = 0.0) -> Caller | None:
        """Whose key this is, for what was opened with it at `since`; None: it is not there any more, expired, revoked, not for
        this address, or a secret that may have opened it is good no more."""
        key, now = self._read_if_changed().keys.get(key_id), self._clock.wall()
        if key is None or key.state(now) != "live" or any(since < each.until <= now for each in key.older):
            return None
        if key.bounds is not None and not key.bounds.admits(address):
            return None
        return key.caller()

    def check(self) -> None:
        """Raises: KeyFileFault: with this file no key could be accepted."""
        loaded = self._read_if_changed()
        if loaded.fault:
            raise KeyFileFault(loaded.fault)
        now = self._clock.wall()
        if not any(key.state(now) == "live" for key in loaded.keys.values()):
            raise KeyFileFault("There is no live API key.\nMake one: toolgate keys create --role admin")

    def all(self) -> list[Key]:
        """Every key, oldest first. A file that is not there yet holds none. Raises: KeyFileFault."""
        if not self._path.exists():
            return []
        loaded = self._read_if_changed()
        if loaded.fault:
            raise KeyFileFault(loaded.fault)
        return list(loaded.keys.values())

    def create(
        self,
        role: str,
        *,
        label: str = "",
        expires: float | None = None,
        bounds: CallerBounds | None = None,
        owner: str = "",
    ) -> tuple[Key, str]:
        """A new key and its full text, which exists nowhere else.

        Raises: KeyFileFault. ValueError: label, owner, or a bound. Side effects: replaces the key file.
        """
        check_label(label)
        check_owner(owner)
        if bounds is not None:
            check_bounds(bounds)
        bounds = None if bounds == NO_BOUNDS else bounds
        with self._writing() as keys:
            while (key_id := secrets.token_hex(6)) in keys:
                pass
            text = _new_secret(key_id)
            key = Key(key_id, role, label, _digest(text), self._clock.wall(), expires, bounds=bounds, owner=owner)
            keys[key_id] = key
        return key, text

    def rotate(self, key_id: str, overlap_s: float) -> tuple[Key, str]:
        """A new secret for a key; the one it has is good for `overlap_s` more seconds. The file is replaced once: whatever is
        interrupted, one of the two secrets is good.

        Raises: KeyFileFault. KeyError: there is no such key. KeyNotRotated. Side effects: replaces the key file.
        """
        with self._writing() as keys:
            key, now = keys[key_id], self._clock.wall()
            if (state := key.state(now)) != "live":
                raise KeyNotRotated(f"This key is {state}.\nMake a new one: toolgate keys create")
            good = [each for each in key.older if each.until > now]
            if len(good) >= MAX_OLDER:
                ends = rfc3339(min(each.until for each in good))
                raise KeyNotRotated(
                    f"{len(good)} older secrets of this key are still good.\nWait until {ends}, or revoke the key."
                )
            text = _new_secret(key_id)
            older = (
                OlderSecret(key.digest, now + overlap_s),
                *good,
                *(each for each in key.older if each.until <= now),
            )
            keys[key_id] = key = replace(key, digest=_digest(text), older=older[:MAX_OLDER])
        return key, text

    def revoke(self, key_id: str) -> Key:
        """Raises: KeyFileFault. KeyError: there is no such key. Side effects: replaces the key file."""
        with self._writing() as keys:
            key = keys[key_id]
            if key.revoked is None:
                keys[key_id] = key = replace(key, revoked=self._clock.wall())
        return key

    def _read_if_changed(self) -> _Loaded:
        """What the file says now."""
        self._trusted_until = self._clock.monotonic() + TRUSTED_S
        try:
            stamp: tuple[int, ...] | None = _stamp(os.stat(self._text))  # noqa: PTH116 (half the cost of Path.stat)
        except OSError:
            stamp = None
        if stamp is None or stamp != self._loaded.stamp:
            before = self._loaded.fault
            self._loaded = _load(self._path)
            if self._loaded.fault and self._loaded.fault != before:
                _log.error("%s Until then every key is refused.", self._loaded.fault.replace("\n", " "))
        return self._loaded

    @contextmanager
    def _writing(self) -> Iterator[dict[str, Key]]:
        """The keys, to be changed; written when the block ends well. Writers in other processes wait."""
        directory = self._path.parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = {key.id: key for key in self.all()}
            yield keys
            rows = [key.as_stored() for key in keys.values()]
            version = 2 if any(row.keys() & _MORE for row in rows) else 1
            replace_file(self._path, strictjson.dumps_pretty({"version": version, "keys": rows}))
            os.fsync(lock)
            sleep(2 * TRUSTED_S)  # when the writer goes on, no server still trusts what the file said before
        finally:
            os.close(lock)


def check_label(label: str) -> None:
    """Raises: ValueError."""
    if len(label) > MAX_LABEL or not label.isprintable():
        raise ValueError(f"a label is at most {MAX_LABEL} printable characters")


def check_owner(owner: str) -> None:
    """Raises: ValueError."""
    if len(owner) > MAX_LABEL or not owner.isprintable() or owner != owner.strip():
        raise ValueError(f"an owner is a name of at most {MAX_LABEL} printable characters")


def without_keys(text: str) -> str:
    """Of what people put in a wrong place (a tool's name, a header), as it may be written down."""
    return _ANY_KEY.sub("[key]", text)


def _known(key: Key) -> _Known:
    has_ranges = key.bounds is not None and len(key.bounds.ranges) > 0
    is_conditional = key.expires is not None or key.revoked is not None or has_ranges
    return _Known(key, key.digest, key.caller(), is_conditional)


def _new_secret(key_id: str) -> str:
    return f"tg_{key_id}_{secrets.token_hex(32)}"


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _unusable(key: Key, state: str, text: str) -> Refusal:
    return Refusal(Ending.INVALID_KEY, text, recorded={"refusedKey": {"id": key.id, "state": state}})


def _why_not(presented: bytes, loaded: _Loaded) -> str:
    if _UNEXPANDED.match(presented):
        return "The API key looks like a variable that was not expanded; set the variable where the client starts."
    if loaded.fault:
        return "The server cannot read its keys; its error output says why."
    return "API key is invalid."


def _stamp(info: os.stat_result) -> tuple[int, ...]:
    """Changes when the file is replaced, rewritten, or its mode or owner changes."""
    return (info.st_ino, info.st_dev, info.st_mtime_ns, info.st_ctime_ns, info.st_size)


def _load(path: Path) -> _Loaded:
    """Read the file through one descriptor, so that what was checked is what is read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _Loaded(None, {}, "There are no API keys.\nMake one: toolgate keys create --role admin")
    except OSError as fault:
        return _Loaded(
            None, {}, f"The key file cannot be opened: {fault.strerror}.\nMake it a plain file you may read."
        )
    info = os.fstat(descriptor)
    loaded = _Loaded(_stamp(info), {}, None, descriptor)
    try:
        _check_private(info, path)
        loaded.keys = _parse(_read(descriptor, min(info.st_size, MAX_FILE_BYTES) + 1))
        loaded.by_beginning = {f"tg_{key.id}_".encode(): _known(key) for key in loaded.keys.values()}
    except (ValueError, OSError) as fault:
        loaded.fault = (
            str(fault) if isinstance(fault, _Exposed) else "The key file is damaged.\nRestore it from a backup."
        )
    return loaded


def _read(descriptor: int, size: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(size)


class _Exposed(ValueError):
    pass


def _check_private(info: os.stat_result, path: Path) -> None:
    """Whoever can write the file can create keys; whoever can read it learns who has one."""
    if info.st_mode & 0o077:
        raise _Exposed("The key file can be used by others.\nRun: chmod 600 on it.")
    if info.st_uid not in (os.geteuid(), 0):
        raise _Exposed("The key file belongs to someone else.\nRun the server as its owner.")
    if path.parent.stat().st_mode & 0o022:
        raise _Exposed("Others can write to the key file's directory.\nRun: chmod 700 on it.")


def _parse(raw: bytes) -> dict[str, Key]:
    """Raises: ValueError: anything but what `_writing` writes."""
    document = strictjson.loads(raw, max_bytes=MAX_FILE_BYTES, max_values=None)
    if not isinstance(document, dict) or document.keys() != {"version", "keys"}:
        raise ValueError("not a key file")
    if document["version"] not in (1, 2):
        raise ValueError("not a key file of version 1 or 2")
    more = _MORE if document["version"] == 2 else set()
    if not isinstance(document["keys"], list):
        raise ValueError("keys is not a list")
    keys: dict[str, Key] = {}
    for row in document["keys"]:
        key = _parse_row(row, more)
        if key.id in keys:
            raise ValueError("two keys with one id")
        keys[key.id] = key
    return keys


def _parse_row(row: Any, more: set[str]) -> Key:
    if not isinstance(row, dict) or row.keys() - more != _FIELDS:
        raise ValueError("not the fields of a key")
    texts = [row[name] for name in ("id", "role", "label", "digest")]
    if not all(isinstance(text, str) for text in texts) or not ROLE_NAME.fullmatch(row["role"]):
        raise ValueError("not the values of a key")
    if not re.fullmatch(r"[0-9a-f]{12}", row["id"]) or not re.fullmatch(r"[0-9a-f]{64}", row["digest"]):
        raise ValueError("not an id and a digest")
    return Key(
        id=row["id"],
        role=row["role"],
        label=row["label"],
        digest=bytes.fromhex(row["digest"]),
        created=from_rfc3339(row["created"]),
        expires=None if row["expires"] is None else from_rfc3339(row["expires"]),
        revoked=None if row["revoked"] is None else from_rfc3339(row["revoked"]),
        bounds=_parse_bounds(row),
        older=_parse_older(row.get("older", [])),
        owner=_parse_owner(row.get("owner", "")),
    )


def _parse_owner(owner: Any) -> str:
    if not isinstance(owner, str):
        raise ValueError("not an owner")
    check_owner(owner)
    return owner


def stored_bounds(bounds: CallerBounds) -> dict[str, Any]:
    """As the file and the log have them: only those that there are."""
    found = {name: getattr(bounds, name) for name in _BOUNDS.values()}
    return {name: found[own] for name, own in _BOUNDS.items() if found[own] not in ((), None)}


def _parse_bounds(row: dict[str, Any]) -> CallerBounds | None:
    """A bound that cannot be read bounds everything: no key of such a file is good."""
    bounds = convert({own: row[name] for name, own in _BOUNDS.items() if name in row}, CallerBounds)
    check_bounds(bounds)
    return None if bounds == NO_BOUNDS else bounds


def _parse_older(items: Any) -> tuple[OlderSecret, ...]:
    if not isinstance(items, list) or len(items) > MAX_OLDER:
        raise ValueError("not the older secrets of a key")
    return tuple(map(_parse_older_secret, items))


def _parse_older_secret(item: Any) -> OlderSecret:
    if not isinstance(item, dict) or item.keys() != {"digest", "until"} or not isinstance(item["digest"], str):
        raise ValueError("not an older secret")
    if not re.fullmatch(r"[0-9a-f]{64}", item["digest"]):
        raise ValueError("not the digest of an older secret")
    return OlderSecret(bytes.fromhex(item["digest"]), from_rfc3339(item["until"]))
