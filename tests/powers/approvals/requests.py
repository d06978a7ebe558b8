"""Requests for tests."""

from __future__ import annotations

from toolgate.kit.conditions.approval import ApprovalRequest

LIFE_S = 1e9


def a_request(
    identity: str,
    *,
    binding: str = "b",
    caller: str = "asker",
    label: str = "ann",
    needed: int = 1,
    created: float = 0.0,
    life_s: float = LIFE_S * 10,
    owner: str = "",
    roles: str = "",
) -> ApprovalRequest:
    about = ("git_push", "", "policy", "rule", needed, "{}", created, created + life_s, owner, roles)
    return ApprovalRequest(identity, binding, caller, label, *about)
