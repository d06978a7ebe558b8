"""Rules never widen: whatever they are, and whatever a deployment adds to packaged ones, what is let through is let through
without them, too; and where a person is asked, never fewer people, and nobody else."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cases import cases
from tests.policy.support import ALL, manifest, pack, row, tool
from toolgate.cli.policy.judged import Judge
from toolgate.errors import OK, Ending, StartRefused
from toolgate.kit.conditions.approval import ANSWERER
from toolgate.kit.conditions.rules import RuleText, Subject
from toolgate.model.call import Caller, CallerBounds
from toolgate.policy.manifest import Manifest, narrow

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
        "text": {"type": "string", "maxLength": 5},
        "items": {"type": "array", "items": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    },
}
PACK = pack(tool("probe", input_schema=SCHEMA))
CUSTOM = {"lead": "builder", "chief": "admin"}
LEAD = frozenset({"lead"})
CONDITIONS = st.sampled_from(
    [
        "true",
        "false",
        "args.n > 4",
        "args.n == null",
        "args.n != null && args.n < 3",
        "args.text == 'x'",
        "args.text.startsWith('x')",
        "1 / (args.n - 4) > 0",
        "args.items != null && args.items.exists(each, each.size == 1)",
        "args.items.all(each, each.size > 0)",
        "caller.role == 'builder'",
        "tool == 'probe' && environment == 'cloud'",
        "now > timestamp('2026-11-18T00:00:00Z')",
    ]
)
BY = st.sampled_from([(), (), ("admin",), ("lead",), ("admin", "lead")])


@st.composite
def _rules(draw: st.DrawFn, prefix: str, by: st.SearchStrategy[tuple[str, ...]]) -> RuleText:
    name, when = prefix + draw(st.sampled_from("abcd")), draw(CONDITIONS)
    if draw(st.booleans()):
        return RuleText(name, "deny", when)
    return RuleText(name, "require-approval", when, "", draw(st.integers(1, 3)), draw(by))


def _several(prefix: str, by: st.SearchStrategy[tuple[str, ...]]) -> st.SearchStrategy[tuple[RuleText, ...]]:
    return st.lists(_rules(prefix, by), max_size=4, unique_by=lambda rule: rule.name).map(tuple)


ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"n": None, "text": "x"},
    {"n": 0, "items": []},
    {"n": 4, "text": "xy", "items": [{"size": 1}, {}]},
    {"n": 5, "text": "x", "items": [{"size": 2}]},
    {"n": 9, "text": "y", "items": [{"size": 1}]},
    {"n": 10},
    {"other": 1},
]
CALLERS = [
    *(Caller("k", role) for role in (*sorted(ALL), *CUSTOM, "auditor", "nobody")),
    Caller("k", "builder", bounds=CallerBounds(scopes=("pro*",))),
    Caller("k", "builder", bounds=CallerBounds(scopes=("other",))),
]
MOMENTS = [("local", 0.0), ("cloud", 1.9e9)]
GRID = list(product(CALLERS, ARGUMENTS, MOMENTS))
"""Every policy that is drawn decides about all of these."""
HELD = st.frozensets(st.sampled_from([*sorted(ALL), *CUSTOM]), min_size=1)
Decided = tuple[int, int, frozenset[str]]
"""How far a call gets (2: through, 1: to a person, 0: nowhere), how many people are asked, and of which roles."""


def decisions(policy: Manifest, *, as_bases: bool = False) -> list[Decided]:
    """`as_bases`: a custom role as what it was made of."""
    judge = Judge([PACK], policy)
    bases = CUSTOM if as_bases else {}
    callers = {caller: replace(caller, role=bases.get(caller.role, caller.role)) for caller in CALLERS}
    return [decided(judge, policy, callers[caller], *about) for caller, *about in GRID]


def decided(
    judge: Judge, policy: Manifest, caller: Caller, arguments: dict[str, Any], when: tuple[str, float]
) -> Decided:
    found = judge.call("probe", caller, arguments, *when)
    if found.ending is not Ending.APPROVAL_REQUIRED:
        return (2 if found.ending is OK else 0), 0, frozenset()
    given = {name: value for name, value in arguments.items() if value is not None}
    who = {"id": caller.key_id, "role": caller.role, "label": caller.label}
    rule = judge.rules["probe"].deciding(Subject(given, 0, who, "probe", "", lambda: when[0], when[1]))
    assert rule is not None
    return 1, rule.source.approvers, frozenset(rule.source.answered_by) or policy.answerers


def is_within(own: Decided, base: Decided) -> bool:
    if own[0] != base[0] or own[0] != 1:
        return own[0] <= base[0]
    return own[1] >= base[1] and own[2] <= base[2]


@cases(100, 2000)
@given(held=HELD, rules=_several("", BY), more=_several("more-", BY))
def test_rules_let_nothing_through_that_would_not_be_without_them(
    held: frozenset[str], rules: tuple[RuleText, ...], more: tuple[RuleText, ...]
) -> None:
    without, some, added, before = (
        decisions(manifest(row(roles=held, rules=each), roles=CUSTOM, answering=LEAD))
        for each in ((), rules, (*rules, *more), (*more, *rules))
    )
    assert all(map(is_within, some, without))
    assert all(map(is_within, added, some))
    assert all(map(is_within, before, some))


def _kept(data: st.DataObject, packaged: tuple[RuleText, ...]) -> list[RuleText]:
    """What a deployment makes of packaged rules: it keeps them, drops some, or changes one thing about one."""
    how = data.draw(st.sampled_from(["keeps", "drops", "changes"])) if packaged else "keeps"
    if how == "drops":
        return data.draw(st.lists(st.sampled_from(packaged), unique=True))
    if how == "changes":
        victim = data.draw(st.sampled_from(packaged))
        changed = data.draw(
            st.one_of(
                st.builds(dict, approvers=st.just(1)),
                st.builds(dict, when=CONDITIONS),
                st.builds(dict, kind=st.just("require-approval")),
                st.builds(dict, answered_by=st.just(("lead",))),
            )
        )
        return [replace(rule, **changed) if rule is victim else rule for rule in packaged]
    return list(packaged)


@cases(200, 2000)
@given(st.data())
def test_what_a_deployment_lets_through_the_packaged_policy_does_too(data: st.DataObject) -> None:
    """Of a custom role: what its base gets."""
    packaged = data.draw(_several("", st.just(())))
    own = [*_kept(data, packaged), *data.draw(_several("more-", BY))]
    roles = data.draw(st.one_of(st.just(ALL), st.frozensets(st.sampled_from(sorted(ALL)), min_size=1)))
    default = manifest(row(roles=roles, rules=packaged))
    held = data.draw(st.one_of(st.just(roles), HELD))
    wanted = manifest(row(roles=held, rules=tuple(data.draw(st.permutations(own)))), roles=CUSTOM, answering=LEAD)
    try:
        in_force = narrow(default, wanted)
    except StartRefused:
        assume(False)
    assert default.answerers == {ANSWERER}
    assert all(map(is_within, decisions(in_force), decisions(default, as_bases=True)))
