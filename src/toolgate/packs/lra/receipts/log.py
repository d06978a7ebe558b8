"""The receipts of one paper as a chain and as an append-only log (RFC 9162), so that none can vanish unseen.

An entry is the DSSE envelope file as written, `receipt-log/00000001.dsse.json`; its statement names the entry before it
(`prev`). The checkpoint beside them, a signed note, promises how many there were and under which root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from toolgate.kit import merkle, note
from toolgate.model import strictjson
from toolgate.packs.lra.receipts import dsse
from toolgate.packs.lra.receipts.receipt import ReceiptFault, digest, predicate_of

DIRECTORY: Final = "receipt-log"
CHECKPOINT: Final = "checkpoint"
ORIGIN: Final = "lra-receipt-log"
"""The first line of a checkpoint: which kind of log speaks."""
MAX_ENTRIES: Final = 10_000
"""Receipts of one paper: all of them are read, one at a time, to extend or check the log."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""All receipts of one paper together: as many of the usual size, and some seconds to read."""


MAX_TOLD: Final = 10
"""Missing receipts that are named one by one."""


def entry_name(number: int) -> str:
    """Counting from 1."""
    return f"{number:08d}.dsse.json"


def number_of(name: str) -> int:
    """0 for a file that is not an entry."""
    number = int(name[:8]) if name[:8].isascii() and name[:8].isdigit() else 0
    return number if number and name == entry_name(number) else 0


def signer_name(public_hex: str) -> str:
    return f"lra-ed25519-{public_hex[:16]}"


def last_of(newest_first: Iterable[bytes], target_url: Any) -> str | None:
    """The digest that the next receipt of this paper names as `prev`."""
    for entry in newest_first:
        if _predicate_of(entry)["receipt"].get("target_url") == target_url:
            return digest(entry)
    return None


class LogReport(Struct, frozen=True):
    size: int
    checkpoint_size: int | None
    problems: tuple[str, ...]


def check(
    entries: Iterable[bytes], note_text: str | None, keys: Sequence[bytes], gaps: Sequence[int] = (), beyond: int = 0
) -> LogReport:
    """Is the chain unbroken, and does the checkpoint, signed by one of `keys`, still describe the beginning of the log?

    `entries` are those up to the first gap; `gaps` are the numbers that are not there, `beyond` how many come after the first.
    """
    problems = [f"receipt {number} is missing" for number in gaps[:MAX_TOLD]]
    leaves: list[bytes] = []
    last: dict[bytes, str] = {}
    for number, entry in enumerate(entries, 1):
        leaves.append(merkle.leaf_hash(entry))
        problem = _chain_problem(entry, last)
        problems += [f"receipt {number} {problem}"] if problem else []
    promised: note.Checkpoint | None = None
    if note_text is None:
        problems.append("the log has no checkpoint")
    else:
        try:
            promised = note.open_checkpoint(note_text, [note.Verifier(signer_name(key.hex()), key) for key in keys])
        except note.NoteError as fault:
            problems.append(f"the checkpoint is not valid: {fault}")
    if promised is not None:
        problems += _checkpoint_problems(leaves, promised, len(leaves) + beyond)
    return LogReport(len(leaves) + beyond, promised.size if promised else None, tuple(problems))


def _chain_problem(entry: bytes, last: dict[bytes, str]) -> str | None:
    """What is wrong with an entry that comes after `last`, the newest of each paper; remembers it there."""
    try:
        predicate = _predicate_of(entry)
    except ReceiptFault as fault:
        return f"cannot be read: {fault}"
    target = strictjson.dumps(predicate["receipt"].get("target_url"))  # a stranger's may be anything
    follows = predicate.get("prev") == last.get(target)
    last[target] = digest(entry)
    return None if follows else "does not follow the one before it: a receipt is missing or was changed"


def _checkpoint_problems(leaves: Sequence[bytes], promised: note.Checkpoint, held: int) -> list[str]:
    if promised.size > len(leaves):
        return [f"the checkpoint counts {promised.size} receipts, the log holds {held}: receipts have vanished"]
    root = merkle.root_of(leaves[: promised.size])
    return [] if root == promised.root else ["the log differs from what its checkpoint promised: a receipt was changed"]


def _predicate_of(entry: bytes) -> dict[str, Any]:
    return predicate_of(dsse.parse(entry).payload)
