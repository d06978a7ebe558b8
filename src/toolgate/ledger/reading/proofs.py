"""One record, proved: a small file that shows, to whoever has the log's public key, that the record is in the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolgate.kit import merkle, note
from toolgate.ledger import record
from toolgate.ledger.files import RunName, runs_in
from toolgate.ledger.handover import MAX_HANDOVERS, followed, named_in, opened
from toolgate.ledger.reading.query import Located, find_request, lines_of_run

FORMAT = "toolgate-audit-proof/1"


class ProofError(ValueError):
    """There is no proof, or it does not hold. The text says why."""


def prove(directory: Path, request_id: str, event: str = "outcome") -> dict[str, Any]:
    """Raises: ProofError: no such record, or no checkpoint covers it yet; OSError."""
    found = [located for located in find_request(directory, request_id) if _stage_of(located) == event]
    if not found:
        raise ProofError(f"no {event} record of request {request_id}")
    return prove_at(directory, found[0].run, found[0].seq)


def prove_at(directory: Path, run: RunName, seq: int) -> dict[str, Any]:
    """The same for the record that stands there. Raises: ProofError, OSError."""
    leaves: list[bytes] = []
    proved = b""
    runs = runs_in(directory)
    notes = list(dict.fromkeys(str(note) for segments in runs.values() for note in named_in(segments)))
    for line in lines_of_run(runs.get(run, ())):
        # The first checkpoint behind the record: the shortest proof, and the same whenever it is asked for.
        if len(leaves) > seq and record.is_checkpoint(line):
            proof = _proof(Located(run, seq, proved), leaves, str((record.read(line) or {}).get("note")))
            return proof | ({"handovers": notes} if notes else {})
        if len(leaves) == seq:
            proved = line
        leaves.append(merkle.leaf_hash(line))
    if len(leaves) <= seq:
        raise ProofError("the log has no such record")
    raise ProofError("no checkpoint covers this record yet; there is one every second while the server runs")


def check(proof: Any, trusted: Sequence[note.Verifier]) -> dict[str, Any]:
    """The record that the proof is about. Raises: ProofError."""
    try:
        if proof["format"] != FORMAT:
            raise ProofError(f"not a proof of the form {FORMAT}")
        line, seq, path = proof["record"].encode(), proof["seq"], [bytes.fromhex(node) for node in proof["proof"]]
        keys = followed(trusted, opened(proof.get("handovers", ())[:MAX_HANDOVERS]))
        checkpoint = note.open_checkpoint(proof["checkpoint"], keys)
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
        "proof": [node.hex() for node in merkle.inclusion_proof(leaves, located.seq)],
        "checkpoint": checkpoint,
    }


def _stage_of(located: Located) -> Any:
    """Intent or outcome, of a call or of an act."""
    found = record.read(located.line) or {}
    return found.get("stage") if found.get("event") == "act" else found.get("event")
