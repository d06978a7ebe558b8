"""The receipts of one paper as a chain and as an append-only log (RFC 9162), so that none can vanish unseen.

An entry is the DSSE envelope file as written, `receipt-log/00000001.dsse.json`; its statement names the entry before it
(`prev`). The checkpoint beside them, a signed note, promises how many there were and under which root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from toolgate.kit import merkle, note
from toolgate.packs.lra import receipt_dsse
from toolgate.packs.lra.receipt import ReceiptFault, digest, predicate_of

DIRECTORY: Final = "receipt-log"
CHECKPOINT: Final = "checkpoint"
ORIGIN: Final = "lra-receipt-log"
"""The first line of a checkpoint: which kind of log speaks."""
MAX_ENTRIES: Final = 10_000
"""Receipts of one paper; read whole to extend or check the log."""


def entry_name(number: int) -> str:
    """Counting from 1."""
    return f"{number:08d}.dsse.json"


def signer_name(public_hex: str) -> str:
    return f"lra-ed25519-{public_hex[:16]}"


def last_of(entries: Sequence[bytes], target_url: Any) -> str | None:
    """The digest that the next receipt of this paper names as `prev`."""
    for entry in reversed(entries):
        if _predicate_of(entry)["receipt"].get("target_url") == target_url:
            return digest(entry)
    return None


def checkpoint(entries: Sequence[bytes], log_origin: str, signer: note.Signer) -> str:
    root = merkle.root_of(merkle.leaf_hash(entry) for entry in entries)
    return note.sign_checkpoint(note.Checkpoint(log_origin, len(entries), root), signer)


class LogReport(Struct, frozen=True):
    size: int
    checkpoint_size: int | None
    problems: tuple[str, ...]


def check(entries: Sequence[bytes], note_text: str | None, keys: Sequence[bytes]) -> LogReport:
    """Is the chain unbroken, and does the checkpoint, signed by one of `keys`, still describe the beginning of the log?"""
    problems = list(_chain_problems(entries))
    promised: note.Checkpoint | None = None
    if note_text is None:
        problems.append("the log has no checkpoint")
    else:
        try:
            promised = note.open_checkpoint(note_text, [note.Verifier(signer_name(key.hex()), key) for key in keys])
        except note.NoteError as fault:
            problems.append(f"the checkpoint is not valid: {fault}")
    if promised is not None:
        problems += _checkpoint_problems(entries, promised)
    return LogReport(len(entries), promised.size if promised else None, tuple(problems))


def _chain_problems(entries: Sequence[bytes]) -> list[str]:
    problems = []
    last: dict[Any, str] = {}
    for number, entry in enumerate(entries, 1):
        try:
            predicate = _predicate_of(entry)
        except ReceiptFault as fault:
            problems.append(f"receipt {number} cannot be read: {fault}")
            continue
        target = predicate["receipt"].get("target_url")
        if predicate.get("prev") != last.get(target):
            problems.append(f"receipt {number} does not follow the one before it: a receipt is missing or was changed")
        last[target] = digest(entry)
    return problems


def _checkpoint_problems(entries: Sequence[bytes], promised: note.Checkpoint) -> list[str]:
    if promised.size > len(entries):
        return [f"the checkpoint counts {promised.size} receipts, the log holds {len(entries)}: receipts have vanished"]
    root = merkle.root_of(merkle.leaf_hash(entry) for entry in entries[: promised.size])
    return [] if root == promised.root else ["the log differs from what its checkpoint promised: a receipt was changed"]


def _predicate_of(entry: bytes) -> dict[str, Any]:
    return predicate_of(receipt_dsse.parse(entry).payload)
