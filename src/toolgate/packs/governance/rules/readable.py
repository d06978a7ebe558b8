"""MD-000: a governed file that cannot be understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolgate.packs.governance.repository.model import GATE_TYPES, FileFault
from toolgate.packs.governance.rules.base import RepositoryPlace, found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.kit.findings import Finding
    from toolgate.packs.governance.repository.model import Repository


def md_000(repository: Repository) -> Iterator[Finding]:
    """What decides how the gate judges is not here: that it cannot be read is an error of the gate, not a finding."""
    for path, file in repository.files.items():
        if isinstance(file.parsed, FileFault) and file.type not in GATE_TYPES:
            yield found(
                RepositoryPlace(repository, path, file.parsed.line),
                "MD-000",
                "high",
                f"This file cannot be understood: {file.parsed.text}.",
                because=f"line {file.parsed.line} stops making sense to a reader of its format.",
                fix="Correct it: no rule has seen what is in it.",
                anchor=file.parsed.text,
            )
