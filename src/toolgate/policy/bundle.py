"""All that policy says, read together: the manifest in force, the decision records, the lock.

A deployment keeps its own in one directory (`policy/`): the three files of the packaged one, and its own decision
records in `adr/`. The packaged records are files only in a source tree; a wheel knows them by its lock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import StartRefused
from toolgate.model import strictjson
from toolgate.policy import adr, contract
from toolgate.policy.manifest import LOCK_FILE, MANIFEST_FILE, default_file, load_manifest, narrow

if TYPE_CHECKING:
    from toolgate.kit.conditions.rules import CallRules
    from toolgate.policy.contract import Contract
    from toolgate.policy.manifest import Manifest

ADR_FOLDER: Final = "adr"


class Policy(Struct, frozen=True):
    manifest: Manifest
    adrs: Mapping[str, adr.Adr]
    lock: Contract
    rules: Mapping[str, CallRules] = {}
    """By tool, checked against the packs it is in force over."""
    digests: Mapping[str, str] = {}
    """What the log names policy and contract by."""


def load_policy(directory: Path | None, tools: Collection[str] | None = None) -> Policy:
    """The policy of a deployment; without a directory, the packaged one. With `tools`, of the packaged decision records
    only those are read that these tools rest on: no other is asked for when they are judged.

    Raises: StartRefused: a file is missing or wrong, or the deployment asks for more than the packaged policy gives.
    """
    manifest, adrs = load_decisions(directory, tools)
    return Policy(manifest, adrs, contract.read_lock(lock_path(directory)))


def load_decisions(directory: Path | None, tools: Collection[str] | None = None) -> tuple[Manifest, dict[str, adr.Adr]]:
    """What people decided: manifest and records, without the lock that is built from them. Raises: StartRefused."""
    default = load_manifest(None)
    packaged = _packaged_adrs(default, tools)
    if directory is None:
        return default, packaged
    if not directory.is_dir():
        raise StartRefused(f"{directory} is not a directory.\nMake it with `toolgate init`, or leave paths.policy out.")
    own = adr.load_directory(directory / ADR_FOLDER)
    manifest = narrow(default, load_manifest(directory / MANIFEST_FILE), own)
    return manifest, records_in_force(default, own, packaged)


def digests(manifest: Manifest, lock: Contract) -> dict[str, str]:
    """What the log calls them by. The manifest counts as far as calls are decided by it; decision records are in the contract,
    each with a digest of its own. What the lock says its digest is does not count: nobody has checked that."""
    return {"policy": policy_digest(manifest), "contract": _digest(lock)}


def policy_digest(manifest: Manifest) -> str:
    return _digest(manifest.as_decided())


def _digest(value: Mapping[str, Any]) -> str:
    """Sorted, and not canonical: that would take a tenth of the time of a start."""
    return sha256(strictjson.dumps_sorted({key: part for key, part in value.items() if key != "digest"})).hexdigest()


def records_in_force(
    default: Manifest, own: Mapping[str, adr.Adr], packaged: Mapping[str, adr.Adr]
) -> dict[str, adr.Adr]:
    """A deployment counts its records from 1, and so does Toolgate. A number that binds a packaged tool means the
    packaged record, and if that is missing, none: no other stands in for it."""
    bound = {row.adr for row in default.rows.values()}
    return {number: record for number, record in own.items() if number not in bound} | {
        number: record for number, record in packaged.items() if number in bound
    }


def lock_path(directory: Path | None) -> Path:
    """Where the contract of this policy is committed."""
    return (directory or _packaged()) / LOCK_FILE


def adr_directory() -> Path | None:
    """Where the packaged decision records are files: in a source tree."""
    root = _packaged().parents[3]
    folder = root / "docs" / "adr"
    return folder if (root / "pyproject.toml").is_file() and folder.is_dir() else None


def _packaged() -> Path:
    return Path(str(default_file(""))).resolve()


def _packaged_adrs(default: Manifest, tools: Collection[str] | None) -> dict[str, adr.Adr]:
    folder = adr_directory()
    bound = None if tools is None else {row.adr for row in default.rows.values() if row.name in tools and row.adr}
    return adr.load_directory(folder, bound) if folder else contract.adrs_of(contract.read_lock(None))
