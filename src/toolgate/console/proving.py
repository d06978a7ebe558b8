"""An inclusion proof, made in a worker process: a long run is hashed from its beginning."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from toolgate.ledger.files import RunName
from toolgate.ledger.lines import SegmentDamaged
from toolgate.ledger.reading.proofs import ProofError, prove_at

LONGEST_S: Final = 60.0


class ProofAsked(Struct, frozen=True):
    log: str
    run: str
    """`stamp.id`."""
    seq: int


def make_proof(asked: ProofAsked) -> dict[str, Any]:
    """The proof, or `{"fault": why there is none}`."""
    stamp, _, run = asked.run.partition(".")
    try:
        return prove_at(Path(asked.log), RunName(stamp, run), asked.seq)
    except ProofError as fault:
        return {"fault": str(fault)}
    except (SegmentDamaged, OSError):
        return {"fault": "the log cannot be read there; toolgate audit verify says more"}
