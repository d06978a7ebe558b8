"""Signed notes and checkpoints, as C2SP specifies them (signed-note, tlog-checkpoint): text that people can read and
anyone can verify.

    example.org/log            the origin: which log speaks
    42                         how many leaves
    Yv2...=                    the root over them
    run 0198f...               extension lines, ours to choose
                               (an empty line)
    — example.org/log sRz...=  key id and Ed25519 signature over everything above the empty line
"""

from __future__ import annotations

import base64
import binascii
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.kit import ed25519
from toolgate.kit.merkle import HASH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

_ED25519: Final = b"\x01"
"""Signature type byte of the signed-note specification."""
_KEY_ID_BYTES: Final = 4
_SECRET_PREFIX: Final = "PRIVATE+KEY+"  # noqa: S105 (a format mark, not a secret)
_SIGNATURE_MARK: Final = "— "
MAX_NOTE_BYTES: Final = 64 * 1024
"""A checkpoint is some 250 bytes; this bounds what a stranger's file can make us parse."""
MAX_SIGNATURES: Final = 16
"""Signature lines read from one note: the log's own and a few witnesses'."""


class NoteError(ValueError):
    """The note is malformed or carries no valid signature of a trusted key."""


class Verifier(Struct, frozen=True):
    """A public key with its name. Its text form (`name+id+key`) is what auditors are given."""

    name: str
    public_key: bytes

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise NoteError("a key name is not empty and has no space, line break or plus sign")
        if not ed25519.is_valid_public_key(self.public_key):
            raise NoteError("the key is not a valid Ed25519 public key")

    @property
    def key_id(self) -> bytes:
        return sha256(self.name.encode() + b"\n" + _ED25519 + self.public_key).digest()[:_KEY_ID_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{_to_base64(_ED25519 + self.public_key)}"

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Raises: NoteError: not `name+id+key`, another algorithm, or an id that is not the key's."""
        name, _, rest = text.strip().partition("+")
        key_id, _, encoded = rest.partition("+")
        key = _from_base64(encoded)
        if key is None or key[:1] != _ED25519:
            raise NoteError("not a verifier key of the form name+id+key for Ed25519")
        verifier = cls(name, key[1:])
        if verifier.key_id.hex() != key_id:
            raise NoteError("the verifier key's id does not belong to its key")
        return verifier


class NoteSigner:
    """Signs notes under one name."""

    __slots__ = ("_key", "verifier")

    def __init__(self, name: str, seed: bytes) -> None:
        self._key = ed25519.SigningKey(seed)
        self.verifier = Verifier(name, self._key.public_key)

    @classmethod
    def parse(cls, text: str) -> NoteSigner:
        """From the text of `secret_text`. Raises: NoteError."""
        name, _, rest = text.strip().removeprefix(_SECRET_PREFIX).partition("+")
        key_id, _, encoded = rest.partition("+")
        seed = _from_base64(encoded)
        if not text.startswith(_SECRET_PREFIX) or seed is None or len(seed) != 1 + ed25519.SEED_BYTES:
            raise NoteError("not a signing key of the form PRIVATE+KEY+name+id+key")
        signer = cls(name, seed[1:])
        if seed[:1] != _ED25519 or signer.verifier.key_id.hex() != key_id:
            raise NoteError("the signing key's id does not belong to its key")
        return signer

    def sign(self, text: str) -> str:
        """The note: text, empty line, signature. Raises: NoteError: the text cannot be a note's text."""
        _refuse_bad_text(text)
        signature = self.verifier.key_id + self._key.sign(text.encode())
        return f"{text}\n{_SIGNATURE_MARK}{self.verifier.name} {_to_base64(signature)}\n"

    def cosign(self, note: str) -> str:
        """The same note with one more signature. Raises: NoteError: it is not a note."""
        signature = self.verifier.key_id + self._key.sign(text_of(note).encode())
        return f"{note}{_SIGNATURE_MARK}{self.verifier.name} {_to_base64(signature)}\n"


def secret_text(name: str, seed: bytes) -> str:
    """How a signing key is kept in a file. Raises: NoteError, ValueError."""
    return f"{_SECRET_PREFIX}{name}+{NoteSigner(name, seed).verifier.key_id.hex()}+{_to_base64(_ED25519 + seed)}"


def text_of(note: str) -> str:
    """What is signed, whoever signed it. Raises: NoteError: it is not a note."""
    return _split(note)[0]


def open_note(note: str, trusted: Iterable[Verifier]) -> tuple[str, list[Verifier]]:
    """The note's text, and which of the trusted keys signed it.

    A signature by a key that is not trusted is passed over (a witness we do not know); a wrong one by a trusted key
    condemns the note. Raises: NoteError: malformed, a wrong signature, or none by a trusted key.
    """
    text, signatures = _split(note)
    by_line = {(verifier.name, verifier.key_id): verifier for verifier in trusted}
    signed_by: list[Verifier] = []
    for name, key_id, signature in signatures:
        verifier = by_line.get((name, key_id))
        if verifier is None or verifier in signed_by:
            continue
        if not ed25519.verify(verifier.public_key, text.encode(), signature):
            raise NoteError(f"the signature of {name} is wrong")
        signed_by.append(verifier)
    if not signed_by:
        raise NoteError("no signature by a trusted key")
    return text, signed_by


class Checkpoint(Struct, frozen=True):
    """A log's promise about itself: so many leaves, this root."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def text(self) -> str:
        lines = (self.origin, str(self.size), _to_base64(self.root), *self.extensions)
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Raises: NoteError: not origin, size, root, extensions; each on its line."""
        lines = text.split("\n")
        if len(lines) < 4 or lines[-1]:
            raise NoteError("a checkpoint has an origin, a size and a root, each on its line")
        origin, digits, encoded, *extensions = lines[:-1]
        root = _from_base64(encoded)
        if not origin or not all(extensions):
            raise NoteError("a checkpoint has no empty line")
        if not (digits.isascii() and digits.isdigit()) or (len(digits) > 1 and digits[0] == "0") or len(digits) > 18:
            raise NoteError("a checkpoint's size is a decimal number")
        if root is None or len(root) != HASH_BYTES:
            raise NoteError("a checkpoint's root is 32 bytes in base64")
        return cls(origin, int(digits), root, tuple(extensions))


def sign_checkpoint(checkpoint: Checkpoint, signer: NoteSigner) -> str:
    return signer.sign(checkpoint.text())


def open_checkpoint(note: str, trusted: Iterable[Verifier]) -> Checkpoint:
    """Raises: NoteError: not a checkpoint signed by a trusted key."""
    return Checkpoint.parse(open_note(note, trusted)[0])


def _split(note: str) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """Text and (name, key id, signature) lines; the text ends at the last empty line."""
    if len(note) > MAX_NOTE_BYTES:
        raise NoteError(f"a note is at most {MAX_NOTE_BYTES} bytes")
    text, found, block = note.rpartition("\n\n")
    if not found or not block.endswith("\n"):
        raise NoteError("a note is text, an empty line and signature lines")
    text += "\n"
    _refuse_bad_text(text)
    lines = block[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise NoteError(f"more than {MAX_SIGNATURES} signatures")
    return text, [_signature(line) for line in lines]


def _signature(line: str) -> tuple[str, bytes, bytes]:
    name, found, encoded = line.removeprefix(_SIGNATURE_MARK).partition(" ")
    raw = _from_base64(encoded)
    if (
        not line.startswith(_SIGNATURE_MARK)
        or not found
        or not _is_name(name)
        or raw is None
        or len(raw) <= _KEY_ID_BYTES
    ):
        raise NoteError("a signature line is a dash, a name and base64")
    return name, raw[:_KEY_ID_BYTES], raw[_KEY_ID_BYTES:]


def _refuse_bad_text(text: str) -> None:
    if not text.endswith("\n") or any(ord(char) < 0x20 and char != "\n" for char in text):
        raise NoteError("a note's text ends with a line break and has no control characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NoteError("a note's text is not valid Unicode") from None


def _is_name(name: str) -> bool:
    return bool(name) and "+" not in name and not any(char.isspace() for char in name) and name.isprintable()


def _to_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes | None:
    """None unless the text is the one canonical spelling: decoders drop what they do not know."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if _to_base64(data) == text else None
