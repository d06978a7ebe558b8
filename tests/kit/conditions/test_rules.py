"""Conditions over one call: what is refused when they are compiled, what they decide, and what cannot be judged."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from toolgate.kit.conditions import rules
from toolgate.kit.conditions.checks import ConditionFault
from toolgate.kit.conditions.rules import LOOP_BYTES, RuleChecker, RuleText, Subject, Unjudged
from toolgate.model import strictjson

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["branch", "n", "names"],
    "properties": {
        "branch": {"type": "string", "maxLength": 20},
        "force": {"type": "boolean"},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
        "amount": {"type": "number"},
        "kind": {"enum": ["push", "pull"]},
        "names": {"type": "array", "items": {"$ref": "#/$defs/name"}},
        "numbers": {"type": "array", "items": {"type": "number"}},
        "options": {"type": "object", "required": ["depth"], "properties": {"depth": {"type": "integer"}}},
        "any": {},
        "open": {"type": "object", "properties": {"depth": {"type": "integer"}}, "additionalProperties": True},
        "files": {"type": "array", "items": {"$ref": "#/$defs/file"}},
        "tree": {"$ref": "#/$defs/tree"},
        "grid": {"type": "array", "items": {"type": "array", "items": {"$ref": "#/$defs/name"}}},
        "or_null": {"type": ["string", "null"]},
    },
    "$defs": {
        "name": {"type": "string", "enum": ["x", "y"]},
        "file": {
            "type": "object",
            "required": ["path", "size"],
            "properties": {
                "path": {"type": "string"},
                "size": {"type": "integer", "minimum": 0},
                "mode": {"enum": ["text", "binary"]},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/name"}},
                "owner": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "group_id": {"type": "integer"}},
                },
                "group_name": {"type": "string"},
                "groupName": {"type": "string"},
            },
        },
        "tree": {
            "type": "object",
            "properties": {
                "leaf": {"type": "number"},
                "below": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                "next": {"$ref": "#/$defs/tree"},
            },
        },
    },
}
FILE = {"path": "a", "size": 7}
CHECKER = RuleChecker(SCHEMA, ["builder", "committer", "admin"])


def subject(*, role: str = "builder", now: float = 0.0, environment: str = "local", **arguments: Any) -> Subject:
    given = {"branch": "main", "n": 5, "names": [], **arguments}
    size = len(strictjson.dumps(given))
    return Subject(given, size, {"id": "k", "role": role, "label": "ci"}, "git_push", "git", lambda: environment, now)


def decide(condition: str, about: Subject) -> bool | str:
    try:
        return CHECKER.compile([RuleText("r", "deny", condition)]).deciding(about) is not None
    except Unjudged as unjudged:
        return unjudged.reason


@pytest.mark.parametrize(
    ("condition", "place", "text"),
    [
        ("args.nope == 1", (1, 5), "undeclared reference to 'args.nope'; the arguments are args.branch, args.force"),
        ("true &&\n  args.nope == 1", (2, 7), "undeclared reference"),
        ("branch == 'main'", (1, 1), "undeclared reference"),
        ("args.n > 'a'", (1, 8), "no matching overload"),
        ("args.amount > 1", (1, 13), "no matching overload"),
        ("args.branch == null", (1, 13), "no matching overload"),
        ("args.n > 10", (1, 10), "args.n is never 10"),
        ("args.n == -1", (1, 11), "args.n is never -1"),
        ("11 < args.n", (1, 1), "args.n is never 11"),
        ("args.kind == 'fetch'", (1, 14), "args.kind is never 'fetch'"),
        ("args.kind in ['push', 'fetch']", (1, 23), "args.kind is never 'fetch'"),
        ("'z' in args.names", (1, 1), "args.names[] is never 'z'"),
        ("args.branch == 'a branch with a long name'", (1, 16), "is never"),
        ("caller.role == 'root'", (1, 16), "caller.role is never 'root'"),
        ("environment == 'prod'", (1, 16), "environment is never 'prod'"),
        ("has(args.force)", (1, 4), "an absent argument is null: write args.force != null"),
        ("args.branch.matches(args.kind)", (1, 20), "must be a constant"),
        ("args.names.exists(x, args.branch.contains(x))", (1, 42), "must be a constant"),
        ("args.options.typo == 1", (1, 13), "there is no field 'typo' in it; there are depth"),
        ("has(args.options.typo)", (1, 4), "there is no field 'typo'"),
        ("args.options['depth'] == 1", (1, 13), "'(object, string)'"),
        ("args.options.depth > 'a'", (1, 20), "no matching overload"),
        ("args.files.exists(f, f.typo == 1)", (1, 23), "no field 'typo' in it; there are path, size, mode, tags"),
        ("args.files.exists(f, f.owner.typo == 1)", (1, 29), "no field 'typo' in it; there are name, group_id"),
        ("args.files[0].typo == 1", (1, 14), "no field 'typo'"),
        ("args.files.filter(f, f.size > 1).exists(f, f.typo == 1)", (1, 45), "no field 'typo'"),
        ("args.files.exists(f, f.size > 'a')", (1, 29), "no matching overload"),
        ("args.files.exists(f, f.path == null)", (1, 29), "no matching overload"),
        ("args.files.exists(f, f.size > -2)", (1, 31), "f.size is never -2"),
        ("args.files.exists(f, f.mode == 'odd')", (1, 32), "f.mode is never 'odd'"),
        ("args.files.filter(f, true)[0].mode == 'odd'", (1, 39), "mode is never 'odd'"),
        ("args.files[0].mode in ['text', 'odd']", (1, 32), "args.files[].mode is never 'odd'"),
        ("args.files.exists(f, 'z' in f.tags)", (1, 22), "f.tags[] is never 'z'"),
        ("args.files.exists(f, has(f.mode))", (1, 25), "write f.mode != null"),
        ("has(args.files.filter(f, true)[0].mode)", (1, 4), "an absent argument is null"),
        ("args.names.exists(x, x == 'z')", (1, 27), "x is never 'z'"),
        ("args.grid.exists(row, row.exists(x, x == 'z'))", (1, 42), "x is never 'z'"),
        ("args.grid[0][0] == 'z'", (1, 20), "args.grid[][] is never 'z'"),
        ("args.tree.below[0].below[0].typo == 1", (1, 28), "there are leaf, below, next"),
        ("args.tree.next.next.leaf > 1", (1, 26), "no matching overload"),
        ("args.files == 1", (1, 12), "no matching overload"),
        ("object.files{} == args.files[0]", (1, 1), "undeclared reference"),
        ("args.branch", (1, 1), "not boolean"),
        ("args.any", (1, 1), "not boolean"),
        ("args.n +", (1, 9), "Syntax error"),
        ("now > 3", (1, 5), "no matching overload"),
    ],
)
def test_a_condition_that_cannot_be_right_is_refused_with_its_place(
    condition: str, place: tuple[int, int], text: str
) -> None:
    with pytest.raises(ConditionFault) as caught:
        CHECKER.compile([RuleText("r", "deny", condition)])
    assert text in caught.value.text
    assert (caught.value.line, caught.value.column) == place


@pytest.mark.parametrize(
    ("condition", "given", "decided"),
    [
        ("args.force == true && args.branch == 'main'", {"force": True}, True),
        ("args.force == true && args.branch == 'main'", {"force": False}, False),
        ("args.force == true && args.branch == 'main'", {}, False),
        ("args.n > 3", {"n": 4.0}, True),
        ("args.amount > 1.5", {"amount": 2}, True),
        ("args.amount == null || args.amount > 1.5", {}, True),
        ("args.options.depth > 2", {"options": {"depth": 3}}, True),
        ("args.options != null && args.options.depth > 2", {}, False),
        ("has(args.open.more)", {"open": {"depth": 3, "more": 1}}, True),
        ("args.open.depth > 2 && args.open.more == 1", {"open": {"depth": 3.0, "more": 1}}, True),
        ("args.files != null && args.files.exists(f, f.size > 5)", {}, False),
        ("args.files.exists(f, f.size > 5 && f.mode == 'text')", {"files": [FILE, FILE | {"mode": "text"}]}, True),
        ("args.files.exists(f, f.mode == null)", {"files": [FILE]}, True),
        ("args.files.all(f, f.tags == null || 'x' in f.tags)", {"files": [FILE, FILE | {"tags": ["x"]}]}, True),
        ("args.files.all(f, f.owner == null)", {"files": [FILE]}, True),
        ("args.files.all(f, f.owner != null && f.owner.name == null)", {"files": [FILE | {"owner": {}}]}, True),
        ("args.files[0].path == 'a'", {"files": [FILE]}, True),
        ("args.files.filter(f, f.size == 7).size() == 1", {"files": [FILE | {"size": 7.0}]}, True),
        ("args.tree.below[0].below[0].leaf > 1.0", {"tree": {"below": [{"below": [{"leaf": 2}]}]}}, True),
        ("args.tree.next == null && args.tree.leaf == null", {"tree": {}}, True),
        ("args.grid.exists(row, row.exists(x, x == 'y'))", {"grid": [["x"], ["y"]]}, True),
        ("args.names.exists(x, x == 'y')", {"names": ["x", "y"]}, True),
        ("args.numbers != null && args.numbers.all(x, x > 1.0)", {"numbers": [2, 3.5]}, True),
        ("args.branch.matches('^ma')", {}, True),
        ("args.or_null == null", {"or_null": None}, True),
        ("args.any == 'a'", {"any": {"deep": 1}}, False),
        ("{'n': args.n}['n'] == 5", {}, True),
        ("caller.role in ['builder'] && caller.id == 'k' && caller.label == 'ci'", {}, True),
        ("tool == 'git_push' && upstream == 'git' && environment == 'cloud'", {"environment": "cloud"}, True),
        ("now >= timestamp('2026-11-18T00:00:00Z')", {"now": 1_795_000_000.0}, True),
        ("now >= timestamp('2026-11-18T00:00:00Z')", {"now": 1_700_000_000.0}, False),
    ],
)
def test_a_condition_decides_about_the_arguments(condition: str, given: dict[str, Any], decided: bool) -> None:
    assert decide(condition, subject(**given)) is decided


@pytest.mark.parametrize(
    ("condition", "given"),
    [
        ("args.force && args.branch == 'main'", {}),
        ("args.amount > 1.5", {}),
        ("args.kind.startsWith('p')", {}),
        ("args.options.depth > 2", {}),
        ("1 / (args.n - 5) > 0", {}),
        ("args.any.deep > 1", {"any": "text"}),
    ],
)
def test_what_cannot_be_judged_is_an_error_and_not_a_no(condition: str, given: dict[str, Any]) -> None:
    assert decide(condition, subject(**given)) == "rule_error"


def test_a_loop_ends_with_its_budget() -> None:
    nested = "args.names.all(a, args.names.all(b, a == b))"
    assert decide(nested, subject(names=["x"] * 50)) is True
    assert decide(nested, subject(names=["x"] * 2000)) == "rule_budget"


def test_a_rule_that_loops_is_not_judged_on_long_arguments_and_one_that_does_not_is() -> None:
    long = subject(or_null="a" * LOOP_BYTES)
    assert decide("args.names.exists(x, x == 'y')", long) == "rule_budget"
    assert decide("args.or_null.contains('b')", long) is False


def test_memory_in_which_rules_are_judged_is_left_after_some_and_long_arguments_have_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = CHECKER.compile([RuleText("r", "deny", "args.or_null == 'b'")])
    made: list[Any] = []
    make = rules._room.make

    def counted() -> Any:
        made.append(make())
        return made[-1]

    monkeypatch.setattr(rules._room, "make", counted)
    monkeypatch.setattr(rules._room, "_left", 0)
    brief = subject(or_null="a")
    of_one_room = -(-rules.ROOM_BYTES // (brief.size + rules.RULE_BYTES))
    for _ in range(2 * of_one_room + 1):
        assert compiled.deciding(brief) is None
    assert len(made) == 3
    monkeypatch.setattr(rules._room, "_left", 0)
    assert compiled.deciding(subject(or_null="a" * rules.SHARED_BYTES)) is None
    assert len(made) == 3
    assert compiled.deciding(subject(or_null="b")) is not None
    assert len(made) == 4


def test_the_first_rule_that_holds_decides() -> None:
    compiled = CHECKER.compile([RuleText("one", "deny", "args.n == 1"), RuleText("two", "deny", "true")])
    found = [compiled.deciding(subject(n=n)) for n in (1, 2)]
    assert [rule.source.name for rule in found if rule] == ["one", "two"]


# A model beside it: the same conditions, decided in Python ------------------------------------------------------------

ERROR = "error"


def both(one: Any, other: Any) -> Any:
    """`&&` of CEL: false wins over an error."""
    if one is False or other is False:
        return False
    return ERROR if ERROR in (one, other) else True


def negated(value: Any) -> Any:
    return ERROR if value == ERROR else not value


def least(name: str, bound: int) -> tuple[str, Any]:
    def model(given: dict[str, Any]) -> Any:
        value = given.get(name)
        return ERROR if value is None else value > bound

    return f"args.{name} > {float(bound) if name == 'amount' else bound}", model


def equal(name: str, word: Any) -> tuple[str, Any]:
    spelt = "true" if word is True else f"'{word}'"
    return f"args.{name} == {spelt}", lambda given: given.get(name) == word and type(given.get(name)) is type(word)


def absent(name: str) -> tuple[str, Any]:
    return f"args.{name} == null", lambda given: given.get(name) is None


ATOMS = [
    *(least("n", bound) for bound in range(9)),
    *(least("amount", bound) for bound in range(-2, 3)),
    *(equal("branch", word) for word in ("main", "dev")),
    *(equal("kind", word) for word in ("push", "pull")),
    equal("force", True),
    *(absent(name) for name in ("force", "kind", "amount")),
]
CONDITIONS: st.SearchStrategy[tuple[str, Any]] = st.recursive(
    st.sampled_from(ATOMS),
    lambda below: st.one_of(
        st.tuples(below, below).map(
            lambda two: (f"({two[0][0]} && {two[1][0]})", lambda given: both(two[0][1](given), two[1][1](given)))
        ),
        st.tuples(below, below).map(
            lambda two: (
                f"({two[0][0]} || {two[1][0]})",
                lambda given: negated(both(negated(two[0][1](given)), negated(two[1][1](given)))),
            )
        ),
        below.map(lambda one: (f"!({one[0]})", lambda given: negated(one[1](given)))),
    ),
    max_leaves=6,
)
CALLS_A_CONDITION = 100


def random_call(random: Random) -> dict[str, Any]:
    optional = {
        "force": random.random() < 0.5,
        "kind": random.choice(["push", "pull"]),
        "amount": random.uniform(-5, 5),
    }
    optional["amount"] = random.choice([optional["amount"], round(optional["amount"])])
    present = {name: value for name, value in optional.items() if random.random() < 0.5}
    return {"branch": random.choice(["main", "dev", "x"]), "n": random.randint(0, 9), **present}


@cases(50, 1000)
@given(CONDITIONS, st.integers(0, 2**32))
def test_conditions_decide_as_a_model_of_them_does(condition: tuple[str, Any], seed: int) -> None:
    """A hundred thousand random calls in `make search`."""
    text, model = condition
    compiled, random = CHECKER.compile([RuleText("r", "deny", text)]), Random(seed)
    for _ in range(CALLS_A_CONDITION):
        call = random_call(random)
        try:
            found: Any = compiled.deciding(subject(**call)) is not None
        except Unjudged:
            found = ERROR
        assert found == model(call), (text, call)
