"""MD-003: the committed tool contract beside the running server's and the manifest's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.packs.governance.repository.model import CONTRACTS, MANIFEST
from toolgate.packs.governance.rules.base import NotEvaluated, NothingOfTheKind, RepositoryPlace, found, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.kit.findings import Finding
    from toolgate.packs.governance.repository.model import Repository

_POLICY_KEYS: Final = ("x-tier", "x-adr", "x-visibilityHint")


def md_003(repository: Repository) -> Iterator[Finding]:
    committed = [path for path in CONTRACTS if repository.table(path)]
    manifest = repository.table(MANIFEST)
    if not committed and manifest is None and not any(path in repository.files for path in (*CONTRACTS, MANIFEST)):
        raise NothingOfTheKind(f"there is no {CONTRACTS[0]} here: no server's tools are declared")
    if not committed:
        raise NotEvaluated(f"{CONTRACTS[0]} is missing or unreadable")
    if repository.live_contract is None and manifest is None:
        raise NotEvaluated(f"there is no live contract and no {MANIFEST} to compare {committed[0]} with")
    for path in committed:
        if repository.live_contract is not None:
            yield from _against_live(repository, path, repository.live_contract)
        if manifest is not None:
            rows = {name: {key: row.get(key) for key in _POLICY_KEYS} for name, row in manifest.rows.items()}
            # A manifest may declare a tool before there is one, so only what the contract names is compared.
            yield from _differences(repository, path, rows, MANIFEST)


def _against_live(repository: Repository, path: str, live: dict[str, Any]) -> Iterator[Finding]:
    """Only packs that are enabled here are compared: a contract of all packs serves many deployments."""
    rows = {row["name"]: row for row in live["tools"]}
    enabled = {row.get("pack") for row in rows.values()}
    yield from _differences(repository, path, rows, "the running server", enabled)
    table = repository.table(path)
    for name in sorted(rows.keys() - (table.rows.keys() if table else ())):
        yield _finding(repository, path, name, f"Tool {quoted(name)} is served and not in the committed contract.")


def _differences(
    repository: Repository, path: str, other: dict[str, dict[str, Any]], where: str, packs: set[Any] | None = None
) -> Iterator[Finding]:
    table = repository.table(path)
    assert table is not None
    for name, row in sorted(table.rows.items()):
        if name not in other:
            if packs is None or row.get("pack") in packs:
                yield _finding(
                    repository, path, name, f"Tool {quoted(name)} is in the committed contract and not in {where}."
                )
            continue
        keys = sorted(key for key, value in other[name].items() if row.get(key) != value)
        if keys:
            yield _finding(repository, path, name, f"Tool {quoted(name)} differs from {where} in {', '.join(keys)}.")


def _finding(repository: Repository, path: str, name: str, text: str) -> Finding:
    table = repository.table(path)
    return found(
        RepositoryPlace(repository, path, table.lines.get(name, 1) if table else 1),
        "MD-003",
        "critical",
        text,
        because=f"the row of {quoted(name)} in {path} and its counterpart were compared field by field.",
        fix="If the change is meant, run `toolgate contract build`, review the difference and commit it.",
        anchor=text,
    )
