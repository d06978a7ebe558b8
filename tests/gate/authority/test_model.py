"""A hundred thousand random calls on the whole road, each decided as a model beside it decides."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection
from sqlalchemy.pool import StaticPool

from tests.gate.authority.model import ERROR, Halt, Model, Request, Rule, Who
from tests.gate.conftest import WIRE, Gate
from tests.homes import Home, make_home
from toolgate.errors import Refusal
from toolgate.gate.admit import Grant, Permits
from toolgate.gate.authority import stops
from toolgate.gate.road import Road
from toolgate.kit.conditions.approval import ApprovalClaim, ApprovalRequest, Person, VoteRefused
from toolgate.kit.conditions.rules import RuleChecker, RuleText
from toolgate.kit.sql import sql
from toolgate.model.call import Call, Caller, CallerBounds
from toolgate.model.clock import SystemClock
from toolgate.model.envelope import Answer
from toolgate.powers.approvals import tables

CALLS = 100_000
POLICIES = 50
TOOLS = ("alpha_one", "alpha_two", "beta_one", "beta_two")
ROLES = ("builder", "committer", "admin", "lead")
PEOPLE = [
    Who("k-ann", "builder", frozenset({"ann"})),
    Who("k-ann-2", "admin", frozenset({"ann", "phone"})),
    Who("k-bob", "committer", frozenset({"bob"}), "alpha_"),
    Who("k-eve", "admin", frozenset({"eve"})),
    Who("k-lead", "lead", frozenset({"zoe"}), "beta_"),
    Who("k-none", "lead", frozenset()),
    Who("k-none-2", "admin", frozenset()),
    Who("k-ian", "builder", frozenset({"ian"})),
]
ATOMS = [
    *(
        (f"args.n > {bound}", lambda a, _, bound=bound: a["n"] > bound if "n" in a else ERROR)
        for bound in range(0, 9, 3)
    ),
    *((f"args.text == '{word}'", lambda a, _, word=word: a.get("text") == word) for word in ("x", "y")),
    *((f"caller.role == '{role}'", lambda _, own, role=role: own == role) for role in ROLES),
    ("args.n == null", lambda a, _: "n" not in a),
    ("args.n != null && args.n == 4", lambda a, _: a.get("n") == 4),
    ("true", lambda _a, _r: True),
    ("args.text.startsWith('x')", lambda a, _: a["text"].startswith("x") if "text" in a else ERROR),
]


class OneConnection:
    """The store's own statements on a database in memory: a hundred thousand calls do not wait for a disk."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        for migration in tables.MIGRATIONS:
            for statement in migration.statements:
                connection.execute(sql(statement))

    async def claim(self, request: ApprovalRequest, now: float) -> ApprovalClaim:
        return tables._claim(self.connection, request, now)

    async def take_expired(self, now: float) -> list[ApprovalRequest]:
        return tables._take_expired(self.connection, now)

    async def expiry_recorded(self, approval: str) -> None:
        self.connection.execute(sql(tables._LOGGED), {"id": approval})


class World:
    """The road and the model, side by side."""

    def __init__(self, gate: Gate, connection: Connection, random: Random) -> None:
        self.random, self.model = random, Model(now=1_900_000_000)
        self.store = OneConnection(connection)
        self.stops = gate.app.stops
        approvals = replace(gate.app.road.approvals, store=self.store)
        self.road: Road = replace(gate.app.road, approvals=approvals)
        known = gate.app.road.admission.permits.known("unruly_echo")
        assert known is not None
        self.echo: Grant = known
        self.checker = RuleChecker(known.tool.input_schema, ROLES)
        self.ids: dict[str, Request] = {}
        self.seen: Counter[str] = Counter()
        self.asked: deque[tuple[Who, str, dict[str, Any]]] = deque(maxlen=8)
        self.latest: deque[str] = deque(maxlen=8)

    def govern(self) -> None:
        """Another policy, and other stops."""
        self.model.policy += 1
        self.model.tools = {name: (self._roles(), self._rules()) for name in TOOLS}
        grants = [self._grant(name, *decided) for name, decided in self.model.tools.items()]
        self.road = replace(self.road, admission=replace(self.road.admission, permits=Permits(grants)))
        self.stops.remove(frozenset(stop.id for stop in self.stops.in_force()))
        self.model.halts = [self._halt() for _ in range(self.random.choice([0, 0, 1, 2]))]
        for halt in self.model.halts:
            until = None if halt.until is None else float(halt.until)
            glob = f"{halt.tool}*" if halt.tool else None
            self.stops.add(stops.new_stop(tool=glob, caller=halt.who, upstream=None, reason="", since=0.0, until=until))

    def _roles(self) -> frozenset[str]:
        return frozenset(self.random.sample(ROLES, self.random.randint(2, 4)))

    def _rules(self) -> list[Rule]:
        found = []
        for text, holds in self.random.sample(ATOMS, self.random.choice([0, 1, 1, 2, 3, 4])):
            asks = self.random.random() < 0.7
            by = (
                frozenset(self.random.choice([(), (), ("lead",), ("admin",), ("admin", "lead")]))
                if asks
                else frozenset()
            )
            found.append(Rule(text, holds, asks, self.random.choice([1, 1, 2]) if asks else 1, by))
        return found

    def _halt(self) -> Halt:
        until = self.random.choice([None, self.model.now + self.random.randint(1, 4000)])
        return Halt(self.random.choice(["", *TOOLS, "beta_"]), self.random.choice([None, "k-eve", "k-ian"]), until)

    def _grant(self, name: str, roles: frozenset[str], rules: list[Rule]) -> Grant:
        texts = [
            RuleText(f"r{n}", "require-approval" if rule.asks else "deny", rule.text, "", rule.people, tuple(rule.by))
            for n, rule in enumerate(rules)
        ]
        compiled = replace(self.checker.compile(texts), digest=f"{self.model.policy}") if texts else None
        tool = replace(self.echo.tool, name=name, id=f"model.{name}")
        return replace(self.echo, tool=tool, roles=roles, rules=compiled, tool_id=tool.canonical_id)

    async def step(self) -> None:
        chance = self.random.random()
        if chance < 0.1 and self.ids:
            self._answer()
        elif chance < 0.11:
            self.model.now += self.random.choice([1, 60, 1800, 3599, 3600])
        elif chance < 0.112:
            await self.road.approvals.record_expired()
        await self._call()

    def _chosen(self) -> tuple[Who, str, dict[str, Any]]:
        """Often one that was asked for already: whoever waits asks again."""
        if self.asked and self.random.random() < 0.3:
            return self.random.choice(self.asked)
        who, tool = self.random.choice(PEOPLE), self.random.choice((*TOOLS, *TOOLS, "gamma"))
        given = {"n": self.random.choice([None, 0, 1, 4, 7, 10]), "text": self.random.choice([None, "x", "y", "xy"])}
        return who, tool, {name: value for name, value in given.items() if self.random.random() < 0.8}

    async def _call(self) -> None:
        who, tool, given = self._chosen()
        expected = self.model.call(who, tool, given)
        answer = await self._travel(who, tool, given)
        details = answer.details or {}
        found = (str(answer.ending), details.get("reason", "") if expected[1] else "")
        assert found == expected, (who, tool, given, self.model.tools.get(tool), details)
        self.seen[f"{expected[0]} {expected[1]}"] += 1
        if answer.ending == "approval_required":
            same = (self.model.policy, who.id, tool, tuple(sorted((k, v) for k, v in given.items() if v is not None)))
            self.ids[details["approval_id"]] = self.model.requests[same]
            self.latest.append(details["approval_id"])
            self.asked.append((who, tool, given))

    async def _travel(self, who: Who, tool: str, given: dict[str, Any]) -> Answer:
        names = sorted(who.names)
        bounds = None if who.scope is None else CallerBounds(scopes=(f"{who.scope}*",))
        label, owner = (*names, "", "")[:2]
        caller, call = Caller(who.id, who.role, label, bounds=bounds, owner=owner), Call(WIRE, tool, given)
        try:
            ticket = self.road.admission.enter(caller, call)
        except Refusal as refusal:
            return self.road.refuse(refusal, WIRE, caller, call)
        return await self.road.travel(ticket)

    def _answer(self) -> None:
        approval = self.random.choice(list(self.latest))
        who, yes = self.random.choice(PEOPLE), self.random.random() < 0.8
        expected = self.model.answer(self.ids[approval], who, yes=yes)
        label, owner = (*sorted(who.names), "", "")[:2]
        person, verdict = Person(who.id, label, owner, who.role), "approve" if yes else "refuse"
        try:
            state = tables._vote(self.store.connection, approval, person, verdict, "", self.model.now)
        except VoteRefused:
            state = ""
        assert state == {"waits": "pending", "granted": "approved"}.get(expected, expected)
        self.seen[f"answer {expected or 'does not count'}"] += 1


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    home: Home = make_home(tmp_path / "home", packs=("unruly",), settings="[limits]\nrate_per_minute = 0\n")
    gate = Gate(home, home.app())
    yield gate
    gate.run(gate.app.close())
    gate.loop.close()


def decided(gate: Gate, monkeypatch: pytest.MonkeyPatch, *, calls: int, policies: int, seed: int) -> Counter[str]:
    monkeypatch.setattr(stops, "sleep", lambda _: None)  # there is no other process that would have to look
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.connect() as connection:
        world = World(gate, connection, Random(seed))
        monkeypatch.setattr(SystemClock, "wall", staticmethod(lambda: float(world.model.now)))

        async def go() -> None:
            for _ in range(policies):
                world.govern()
                for _ in range(calls // policies):
                    await world.step()

        gate.loop.run_until_complete(go())
    engine.dispose()
    return world.seen


EVERYTHING = {
    "ok ",
    "unknown_tool ",
    "insufficient_role ",
    "stopped stopped",
    "bad_arguments ",
    "rule_denied rule_denied",
    "rule_denied rule_error",
    "rule_denied approval_refused",
    "approval_required approval_required",
    "answer waits",
    "answer granted",
    "answer refused",
    "answer does not count",
}


@pytest.mark.parametrize("seed", [1, 2])
def test_the_road_decides_as_the_model_does(gate: Gate, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    seen = decided(gate, monkeypatch, calls=3000, policies=15, seed=seed)
    assert seen.keys() == EVERYTHING


@pytest.mark.guard
def test_the_road_decides_a_hundred_thousand_calls_as_the_model_does(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = decided(gate, monkeypatch, calls=CALLS, policies=POLICIES, seed=23)
    assert seen.keys() == EVERYTHING
    assert sum(number for what, number in seen.items() if not what.startswith("answer")) == CALLS
    assert min(seen.values()) > 50
