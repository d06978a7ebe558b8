"""One record, proved: a small file that shows, to whoever has the log's public key, that the record is in the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolgate.kit import merkle, note
from toolgate.ledger import record
from toolgate.ledger.files import runs_in
from toolgate.ledger.query import Located, find_request, lines_of_run

FORMAT = "toolgate-audit-proof/1"


class ProofError(ValueError):
    """There is no proof, or it does not hold. The text says why."""


def prove(directory: Path, request_id: str, event: str = "outcome") -> dict[str, Any]:
    """Raises: ProofError: no such record, or no checkpoint covers it yet; OSError."""
    found = [one for one in find_request(directory, request_id) if _event_of(one) == event]
    if not found:
        raise ProofError(f"no {event} record of request {request_id}")
    located = found[0]
    leaves: list[bytes] = []
    for line in lines_of_run(runs_in(directory)[located.run]):
        # The first checkpoint behind the record: the shortest proof, and the same whenever it is asked for.
        if len(leaves) > located.seq and record.is_checkpoint(line):
            return _proof(located, leaves, str((record.read(line) or {}).get("note")))
        leaves.append(merkle.leaf_hash(line))
    raise ProofError("no checkpoint covers this record yet; there is one every second while the server runs")


def check(proof: Any, trusted: Sequence[note.Verifier]) -> dict[str, Any]:
    """The record that the proof is about. Raises: ProofError."""
    try:
        if proof["format"] != FORMAT:
            raise ProofError(f"not a proof of the form {FORMAT}")
        line, seq, path = proof["record"].encode(), proof["seq"], [bytes.fromhex(one) for one in proof["proof"]]
        checkpoint = note.open_checkpoint(proof["checkpoint"], trusted)
    except note.NoteError as fault:
        raise ProofError(f"the checkpoint is not good: {fault}") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ProofError("the proof is malformed") from None
    if type(seq) is not int or not merkle.verify_inclusion(
        merkle.leaf_hash(line), seq, checkpoint.size, path, checkpoint.root
    ):
        raise ProofError("the record is not in the log that the checkpoint speaks of")
    found = record.read(line)
    if found is None:
        raise ProofError("the record is not JSON")
    return found


def _proof(located: Located, leaves: Sequence[bytes], checkpoint: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "run": located.run.id,
        "seq": located.seq,
        "record": located.line.decode(),
        "proof": [one.hex() for one in merkle.inclusion_proof(leaves, located.seq)],
        "checkpoint": checkpoint,
    }


def _event_of(located: Located) -> Any:
    return (record.read(located.line) or {}).get("event")
