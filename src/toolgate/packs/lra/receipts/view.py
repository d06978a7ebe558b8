"""Receipts for people's eyes: one as text, and what changed between two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolgate.kit.reports.printable import printable
from toolgate.packs.lra.receipts import dsse, verdict
from toolgate.packs.lra.receipts import receipt as forms

_FACTS = ("target_url", "compliance_tier", "integrity", "target_hash", "artifact_root", "timestamp", "verifier_version")


def receipt_in(data: bytes) -> dict[str, Any]:
    """The receipt in any of its forms, signed or not; nothing is verified here. Raises: ReceiptFault."""
    value = forms.read(data)
    if dsse.is_envelope(value):
        return dict(forms.predicate_of(dsse.parse(data).payload)["receipt"])
    return forms.unsigned(forms.from_nested(value))


def show(receipt: Mapping[str, Any]) -> str:
    lines = [*verdict.lines(receipt), ""]
    lines += [f"{name.replace('_', ' '):18}{_plain(receipt[name])}" for name in _FACTS if name in receipt]
    lines += ["", "claims"]
    lines += [
        f"  {_plain(claim.get('number'))}. {_plain(claim.get('text'))}  [{_state(claim)}]"
        for claim in _list(receipt, "claims")
    ]
    lines += ["", "files"]
    lines += [f"  {_plain(file.get('sha256'))}  {_plain(file.get('name'))}" for file in _list(receipt, "files")]
    return "\n".join([*lines, ""])


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What a reader of the second receipt should know who has read the first; empty when nothing that matters changed."""
    changes = [
        f"{name.replace('_', ' ')}: {_plain(before.get(name))} -> {_plain(after.get(name))}"
        for name in ("target_url", "verified", "compliance_tier", "integrity", "artifact_root")
        if before.get(name) != after.get(name)
    ]
    changes += _changed("file", _by(before, "files", "name"), _by(after, "files", "name"), "sha256")
    return changes + _changed("claim", _by(before, "claims", "number"), _by(after, "claims", "number"), "text")


def _changed(what: str, old: Mapping[str, Any], new: Mapping[str, Any], key: str) -> list[str]:
    lines = []
    for name in sorted({*old, *new}):
        if name not in new:
            lines.append(f"{what} {name}: gone")
        elif name not in old:
            lines.append(f"{what} {name}: new")
        elif old[name].get(key) != new[name].get(key):
            lines.append(f"{what} {name}: changed")
        elif _state(old[name]) != _state(new[name]):
            lines.append(f"{what} {name}: {_state(old[name])} -> {_state(new[name])}")
    return lines


def _by(receipt: Mapping[str, Any], field: str, key: str) -> dict[str, Mapping[str, Any]]:
    return {_plain(item.get(key)): item for item in _list(receipt, field)}


def _list(receipt: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    found = receipt.get(field)
    return [name for name in found if isinstance(name, dict)] if isinstance(found, list) else []


def _state(claim: Mapping[str, Any]) -> str:
    for key, word in (("matched", "evidence matched"), ("ran", "evidence ran"), ("resolves", "evidence resolves")):
        if claim.get(key) is True:
            return word
    return "no evidence" if claim.get("evidence") is None else "evidence missing"


def _plain(value: Any) -> str:
    """A stranger's text on a terminal: control characters would move the cursor or colour a lie."""
    return printable(str(value))
