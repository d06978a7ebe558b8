"""The round machine obeys the laws; each known wrong machine breaks one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.packs.consensus.domain.laws import FIRST_FAILURE, LAWS, Machine, play
from tests.packs.consensus.domain.people import WINDOW, network_of, statement, unsigned
from toolgate.packs.consensus.domain.arbiters import ArbiterFault, Network, max_faulty, quorum, sender_id
from toolgate.packs.consensus.domain.bounds import MAX_ARBITERS
from toolgate.packs.consensus.domain.evidence import Level
from toolgate.packs.consensus.domain.messages import ABSTAIN, ACCEPT, REJECT, Statement, Vote
from toolgate.packs.consensus.domain.rounds import MAX_STATEMENTS, Certified, Effect, Rose, Round

LawFunction = Callable[[Machine], None]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
@cases(60, 300)
@given(data=st.data())
def test_d17_round_is_split_exactly_when_no_choice_of_the_silent_arbiters_decides_it(
    n: int, data: st.DataObject
) -> None:
    """Judged by trying: every silent arbiter says the same, for each statement on the table and for a new one."""
    heard = data.draw(st.integers(0, n))
    said = [statement(number, kind) for number in (1, 2) for kind in (ACCEPT, REJECT, ABSTAIN)]
    votes = [unsigned(network_of(n), index, 1, data.draw(st.sampled_from(said))) for index in range(heard)]
    one = Machine().round(n)
    play(one, votes)
    outcomes = set()
    for choice in [*said, statement(3)]:
        trial = Machine().round(n)
        play(trial, [*votes, *(unsigned(network_of(n), index, 1, choice) for index in range(heard, n))])
        outcomes.add(bool(trial.certificates))
    if not one.certificates:
        assert one.outcome == ("OPEN" if True in outcomes else "SPLIT")
    assert one.silent() == list(network_of(n).senders[heard:])


@pytest.mark.search
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_machine_obeys(law: LawFunction) -> None:
    law(Machine())


# The mutants. Each is a plausible mistake somewhere in the field.


class DiscountsEquivocators(Round):
    def _raise_level(self, vote: Vote, epoch: int, effects: list[Effect]) -> None:
        for said in self._counts:
            self._counts[said] = sum(said in mine and len(mine) == 1 for mine in self.votes.values())
        super()._raise_level(vote, epoch, effects)


class CountsAbstentions(Round):
    def _raise_level(self, vote: Vote, epoch: int, effects: list[Effect]) -> None:
        root, rule, kind = vote.statement
        said = Statement(root, rule, ACCEPT)
        if kind == ABSTAIN:
            self._counts[said] = self._counts.get(said, 0) + 1
            vote = vote._replace(statement=said)
        super()._raise_level(vote, epoch, effects)


class FirstWriteWins(Round):
    def _see_vote(self, vote: Vote, epoch: int) -> list[Effect]:
        return [] if vote.sender in self.votes else super()._see_vote(vote, epoch)


class LastWriteWins(Round):
    def _see_vote(self, vote: Vote, epoch: int) -> list[Effect]:
        for old in self.votes.pop(vote.sender, {}):
            self._counts[old] -= 1
        return super()._see_vote(vote, epoch)


class QuorumOverTurnout(Round):
    def _raise_level(self, vote: Vote, epoch: int, effects: list[Effect]) -> None:
        turnout = network_of(len(self.votes))
        enough, self.network = self.network, _Counting(self.network, turnout.quorum)  # type: ignore[assignment]
        super()._raise_level(vote, epoch, effects)
        self.network = enough


class _Counting:
    """A network with another idea of enough."""

    def __init__(self, network: Network, quorum: int) -> None:
        self._network = network
        self.quorum = quorum

    def __getattr__(self, name: str) -> object:
        return getattr(self._network, name)


def _counting(rule: Callable[[int], int]) -> Callable[[int], Network]:
    return lambda n: _Counting(network_of(n), rule(n))  # type: ignore[return-value]


MUTANTS = {
    "equivocators are discounted": Machine(round_type=DiscountsEquivocators),
    "a bare majority is enough": Machine(network=_counting(lambda n: n // 2 + 1)),
    "two thirds are enough": Machine(network=_counting(lambda n: -(-2 * n // 3))),
    "abstentions count": Machine(round_type=CountsAbstentions),
    "the first vote of an arbiter wins": Machine(round_type=FirstWriteWins),
    "the last vote of an arbiter wins": Machine(round_type=LastWriteWins),
    "the quorum is over those who voted": Machine(round_type=QuorumOverTurnout),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_known_mistake_is_caught(name: str) -> None:
    wrong = replace(MUTANTS[name], runs=FIRST_FAILURE)
    assert any(_breaks(law, wrong) for law in LAWS)


def _breaks(law: LawFunction, machine: Machine) -> bool:
    try:
        law(machine)
    except AssertionError:
        return True
    return False


# What the laws leave open.


@pytest.mark.req("004-D2")
def test_one_arbiter_climbs_two_steps_with_one_vote_because_its_quorum_is_one() -> None:
    alone = Round(network_of(1), 1)
    effects = alone.see(unsigned(alone.network, 0, 1, statement(0)), 0)
    assert [(e.before, e.after) for e in effects if isinstance(e, Rose)] == [
        (Level.PENDING, Level.SOFT),
        (Level.SOFT, Level.QUORUM),
    ]


def test_four_arbiters_reach_quorum_with_the_third_matching_vote() -> None:
    network, four = network_of(4), Round(network_of(4), 1)
    levels = []
    for index in (0, 1, 1, 2, 3):
        four.see(unsigned(network, index, 1, statement(0)), 0)
        levels.append(four.level)
    assert levels == [Level.SOFT, Level.SOFT, Level.SOFT, Level.QUORUM, Level.QUORUM]


def test_same_root_under_another_rule_is_another_statement() -> None:
    network, four = network_of(4), Round(network_of(4), 1)
    said = statement(0)
    for index, rule in enumerate((said.rule, said.rule, bytes(32), bytes(32))):
        four.see(unsigned(network, index, 1, said._replace(rule=rule)), 0)
    assert (four.level, four.support()) == (Level.SOFT, 2)


def test_conflicting_certificates_freeze_the_round_and_say_so() -> None:
    network, four = network_of(4), Round(network_of(4), 1)
    effects = play(four, [unsigned(network, i, 1, statement(s)) for s in (0, 1) for i in range(4)])
    assert sum(isinstance(effect, Certified) for effect in effects) == 2
    assert (four.outcome, four.accepted()) == ("SAFETY_FAULT", None)
    seal = next(effect.certificate for effect in effects if isinstance(effect, Certified))
    assert four.reach(5, seal) == []


def test_equivocation_between_vote_types_is_seen_and_blocks_nothing() -> None:
    network, four = network_of(4), Round(network_of(4), 1)
    play(four, [unsigned(network, 0, 1, statement(0, kind)) for kind in (ACCEPT, REJECT)])
    play(four, [unsigned(network, i, 1, statement(0)) for i in (1, 2)])
    assert four.outcome == "ACCEPTED"
    assert [proof.first.sender for proof in four.equivocations()] == [network.senders[0]]


@given(data=st.data())
@cases(50, 150)
def test_flood_by_one_liar_is_bounded_and_leaves_equal_votes_and_evidence(data: st.DataObject) -> None:
    network = network_of(4)
    flood = [unsigned(network, 0, 1, statement(number, REJECT)) for number in range(3 * MAX_STATEMENTS)]
    one, two = Round(network, 1), Round(network, 1)
    play(one, data.draw(st.permutations(flood)))
    play(two, data.draw(st.permutations(flood)) + flood)
    assert len(one.votes[network.senders[0]]) == MAX_STATEMENTS
    assert one.digest() == two.digest()


def test_flooding_liar_cannot_stop_the_honest() -> None:
    network, four = network_of(4), Round(network_of(4), 1)
    play(four, [unsigned(network, 0, 1, statement(number)) for number in range(50)])
    play(four, [unsigned(network, i, 1, statement(99)) for i in (1, 2, 3)])
    assert four.level == Level.QUORUM


@pytest.mark.req("004-D3")
def test_hard_needs_a_later_epoch_and_ignores_an_earlier_one() -> None:
    network, four = network_of(4), Round(network_of(4), 1)
    votes = [unsigned(network, i, 1, statement(0)) for i in range(3)]
    effects = [effect for vote in votes for effect in four.see(vote, 5)]
    seal = next(effect.certificate for effect in effects if isinstance(effect, Certified))
    assert four.quorum_epoch == 5
    for epoch in (0, 4, 5):
        assert four.reach(epoch, seal) == []
    (rose,) = four.reach(6, seal)
    assert isinstance(rose, Rose)
    assert (rose.after, four.hard_epoch) == (Level.HARD, 6)
    assert four.reach(7, seal) == []


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 10, 13, 100])
def test_quorum_and_tolerated_liars_add_up(n: int) -> None:
    assert quorum(n) + max_faulty(n) == n


@given(n=st.integers(1, MAX_ARBITERS), highest=st.integers(0, 10_000))
def test_round_ids_of_different_arbiters_never_meet(n: int, highest: int) -> None:
    network = network_of(n)
    ids = [network.next_round_of(sender, highest) for sender in network.senders]
    assert len(set(ids)) == n
    for sender, number in zip(network.senders, ids, strict=True):
        assert highest < number <= highest + n
        assert network.proposer_of(number) == sender


def test_one_arbiter_counts_rounds_from_one() -> None:
    network = network_of(1)
    assert [network.next_round_of(network.senders[0], highest) for highest in (0, 1, 2)] == [1, 2, 3]


GOOD = network_of(4).public_keys


@pytest.mark.parametrize(
    ("keys", "window"),
    [
        ([], WINDOW),
        ([*GOOD, GOOD[0]], WINDOW),
        ([b"\x01" + bytes(31)], WINDOW),
        ([GOOD[0][:31]], WINDOW),
        (GOOD, 0),
        (GOOD, 1001),
    ],
    ids=["empty", "twice", "small order", "short", "no window", "endless window"],
)
def test_arbiter_set_that_cannot_be_trusted_is_refused(keys: list[bytes], window: int) -> None:
    with pytest.raises(ArbiterFault):
        Network(keys, window)


def test_network_id_changes_with_any_arbiter_and_with_the_window_but_not_with_order() -> None:
    ids = {network_of(n).id for n in range(1, 20)} | {Network(GOOD, 3).id}
    assert len(ids) == 20
    assert Network(reversed(GOOD), WINDOW).id == network_of(4).id
    assert network_of(1).senders == (sender_id(network_of(1).public_keys[0]),)


@pytest.mark.parametrize("believers", list(product((0, 1), repeat=3)), ids=str)
def test_every_interleaving_of_a_twins_round_ends_alike(believers: tuple[int, ...]) -> None:
    """Twins, exhaustively: one identity says two things, each honest arbiter hears either first; all 120 arrival orders."""
    network = network_of(4)
    votes = [unsigned(network, 0, 1, statement(said)) for said in (0, 1)]
    votes += [unsigned(network, index, 1, statement(said)) for index, said in enumerate(believers, start=1)]
    digests = set()
    for order in permutations(votes):
        one = Round(network, 1)
        play(one, list(order))
        digests.add(one.digest())
        assert len(one.certificates) <= 1
        assert [proof.first.sender for proof in one.equivocations()] == [network.senders[0]]
    assert len(digests) == 1
