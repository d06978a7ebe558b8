"""The invariants as functions of the machine under test, so that wrong machines can be put through them too.

Each law raises AssertionError on a counterexample. Cases are drawn, not enumerated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.cases import cases
from tests.packs.consensus.domain.people import network_of, statement, unsigned
from toolgate.packs.consensus.domain.arbiters import Network, max_faulty
from toolgate.packs.consensus.domain.evidence import Level
from toolgate.packs.consensus.domain.messages import ABSTAIN, ACCEPT, REJECT, Vote
from toolgate.packs.consensus.domain.rounds import Convicted, Effect, KeptMessage, Rose, Round

RUNS = cases(80, 400)
FIRST_FAILURE = settings(RUNS, derandomize=True, database=None, report_multiple_bugs=False, phases=[Phase.generate])
"""For machines that are expected to fail, always by the same case: no shrinking."""
SIZES = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 10, 13, 31, 100])
KINDS = st.sampled_from([ACCEPT, ACCEPT, ACCEPT, REJECT, ABSTAIN])


@dataclass(frozen=True)
class Machine:
    """What is under test: how a round behaves and how a network counts."""

    round_type: type[Round] = Round
    network: Callable[[int], Network] = network_of
    runs: settings = RUNS

    def round(self, n: int, round_id: int = 1) -> Round:
        return self.round_type(self.network(n), round_id)


def play(round_: Round, votes: list[Vote]) -> list[Effect]:
    return [effect for vote in votes for effect in round_.see(vote, 0)]


def law_quorum_is_more_than_two_thirds(machine: Machine) -> None:
    """I9: n - floor((n-1)/3), and two quorums share more than the tolerated liars."""
    for n in range(1, 101):
        q, f = machine.network(n).quorum, max_faulty(n)
        assert q == n - f
        assert 2 * q - n >= f + 1
    assert [machine.network(n).quorum for n in (1, 2, 3, 4, 7, 100)] == [1, 2, 3, 3, 5, 67]


def law_at_most_one_statement_is_certified(machine: Machine) -> None:
    """I1: with at most f liars, whatever each replica saw of them, no two replicas certify different statements."""

    @machine.runs
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        n = data.draw(SIZES)
        network, liars = machine.network(n), data.draw(st.integers(0, max_faulty(n)))
        honest = [
            unsigned(network, i, 1, statement(data.draw(st.integers(0, 1)), data.draw(KINDS))) for i in range(liars, n)
        ]
        lies = [
            unsigned(network, i, 1, statement(s, k)) for i in range(liars) for s in (0, 1) for k in (ACCEPT, REJECT)
        ]
        certified = set()
        for _ in range(2):
            replica = machine.round(n)
            play(replica, data.draw(st.permutations(honest + lies))[: data.draw(st.integers(0, len(honest + lies)))])
            certified |= set(replica.certificates)
        assert len(certified) <= 1

    run()


def law_order_and_duplication_do_not_matter(machine: Machine) -> None:
    """I3: the same votes in any order, any number of times, through any partition, give the same state."""

    @machine.runs
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        n = data.draw(SIZES)
        network = machine.network(n)
        votes = data.draw(
            st.lists(
                st.builds(
                    lambda i, s, k, t: unsigned(network, i, 1, statement(s, k), t),
                    st.integers(0, n - 1),
                    st.integers(0, 2),
                    KINDS,
                    st.integers(1, 3),
                ),
                max_size=3 * n if n < 10 else 2 * n,
            )
        )
        one, two = machine.round(n), machine.round(n)
        play(one, votes)
        play(two, data.draw(st.permutations(votes)) + votes)
        assert one.digest() == two.digest()
        assert one.outcome == two.outcome
        assert one.support() == two.support()
        assert one.equivocations() == two.equivocations()

    run()


def law_levels_only_rise_one_step_at_a_time(machine: Machine) -> None:
    """I2."""

    @machine.runs
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        n = data.draw(SIZES)
        network, replica, level = machine.network(n), machine.round(n), Level.PENDING
        for _ in range(data.draw(st.integers(0, 3 * min(n, 15)))):
            said = statement(data.draw(st.integers(0, 2)), data.draw(KINDS))
            for effect in replica.see(unsigned(network, data.draw(st.integers(0, n - 1)), 1, said), 0):
                if isinstance(effect, Rose):
                    assert (effect.before, effect.after) == (level, level + 1)
                    assert effect.evidence
                    level = effect.after
            assert replica.level == level

    run()


def law_abstention_changes_no_tally(machine: Machine) -> None:
    """ABSTAIN is turnout only: nothing rises, nothing is certified, no other statement's count moves."""

    @machine.runs
    @given(n=SIZES, others=st.integers(0, 99))
    def run(n: int, others: int) -> None:
        network, replica = machine.network(n), machine.round(n)
        accepts = min(others, n)
        play(replica, [unsigned(network, i, 1, statement(0)) for i in range(accepts)])
        before = (replica.level, replica.support(), set(replica.certificates))
        play(replica, [unsigned(network, i, 1, statement(0, ABSTAIN)) for i in range(n)])
        assert (replica.level, replica.support(), set(replica.certificates)) == before

    run()


def law_silence_of_f_does_not_stop_and_of_more_does(machine: Machine) -> None:
    """I8: n - f acceptances certify; one fewer, with everybody else abstaining or silent, does not."""

    @machine.runs
    @given(n=SIZES, said=st.booleans())
    def run(n: int, said: bool) -> None:
        network, replica = machine.network(n), machine.round(n)
        enough = n - max_faulty(n)
        play(replica, [unsigned(network, i, 1, statement(0)) for i in range(enough - 1)])
        if said:
            play(replica, [unsigned(network, i, 1, statement(0, ABSTAIN)) for i in range(enough, n)])
        assert replica.level < Level.QUORUM
        play(replica, [unsigned(network, enough - 1, 1, statement(0))])
        assert replica.level == Level.QUORUM
        assert replica.outcome == "ACCEPTED"

    run()


def law_rejection_is_never_an_acceptance(machine: Machine) -> None:
    @machine.runs
    @given(n=SIZES)
    def run(n: int) -> None:
        network, replica = machine.network(n), machine.round(n)
        play(replica, [unsigned(network, i, 1, statement(0, REJECT)) for i in range(n)])
        assert (replica.level, replica.outcome) == (Level.PENDING, "REJECTED")

    run()


def law_exactly_the_equivocators_are_convicted(machine: Machine) -> None:
    """I4: one proof for each arbiter that signed two statements, none for anybody else; its votes stay counted."""

    @machine.runs
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        n = data.draw(SIZES)
        network, replica = machine.network(n), machine.round(n)
        said = {i: data.draw(st.sets(st.integers(0, 3), min_size=1, max_size=3)) for i in range(min(n, 20))}
        votes = [unsigned(network, i, 1, statement(s)) for i, each in said.items() for s in sorted(each)]
        effects = play(replica, data.draw(st.permutations(votes)))
        guilty = sorted(network.senders[i] for i, each in said.items() if len(each) > 1)
        assert [proof.first.sender for proof in replica.equivocations()] == guilty
        assert {effect.proof.first.sender for effect in effects if isinstance(effect, Convicted)} == set(guilty)
        for s in range(4):
            assert replica.count(statement(s)) == sum(s in each for each in said.values())
        assert sum(isinstance(effect, KeptMessage) for effect in effects) == len(votes)

    run()


LAWS = [
    law_quorum_is_more_than_two_thirds,
    law_abstention_changes_no_tally,
    law_silence_of_f_does_not_stop_and_of_more_does,
    law_rejection_is_never_an_acceptance,
    law_at_most_one_statement_is_certified,
    law_order_and_duplication_do_not_matter,
    law_levels_only_rise_one_step_at_a_time,
    law_exactly_the_equivocators_are_convicted,
]
