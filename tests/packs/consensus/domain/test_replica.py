"""Many rounds, several replicas, seals, partitions and reloads: replicas that know the same messages are the same."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from tests.cases import cases
from tests.packs.consensus.domain.people import DictShelf, checkpoint, network_of, replica, statement, vote
from toolgate.packs.consensus.domain.arbiters import Network, max_faulty
from toolgate.packs.consensus.domain.evidence import Level, decode, verify
from toolgate.packs.consensus.domain.messages import ACCEPT, REJECT, Message, SealingCheckpoint, Statement
from toolgate.packs.consensus.domain.replica import MAX_CLOCK_JUMP, Replica, may_accept, merged_clock, state_hash
from toolgate.packs.consensus.domain.rounds import Rose, Round, TookEffect

ROUNDS = 3


def rounds_of(machine: Replica) -> dict[int, Round]:
    assert isinstance(machine.shelf, DictShelf)
    return machine.shelf.rounds


def hash_of(machine: Replica) -> bytes:
    return state_hash(
        machine.network, [(n, one.digest()) for n, one in rounds_of(machine).items() if one.votes or one.checkpoints]
    )


class Cluster(RuleBasedStateMachine):
    """Replicas that lose, repeat, reorder and reload; liars at most as many as are tolerated."""

    sent: Bundle[Message] = Bundle("sent")

    @initialize(n=st.sampled_from([1, 2, 3, 4, 5, 7]))
    def start(self, n: int) -> None:
        self.network: Network = network_of(n)
        self.liars = max_faulty(n)
        self.replicas = [replica(self.network) for _ in range(2)]
        self.all: list[Message] = []
        self.honest: dict[tuple[int, int], Statement] = {}
        self.levels: dict[tuple[int, int], Level] = {}
        self.rises: list[Rose] = []
        self.seals = 0

    def deliver(self, which: int, message: Message) -> None:
        for _, effect in self.replicas[which].see(message):
            if isinstance(effect, Rose):
                self.rises.append(effect)

    @rule(target=sent, data=st.data())
    def honest_vote(self, data: st.DataObject) -> Message:
        index = data.draw(st.integers(self.liars, self.network.size - 1))
        round_id = data.draw(st.integers(1, ROUNDS))
        # The signer guard of a real arbiter: the first thing it says in a round is the only one.
        said = self.honest.setdefault(
            (index, round_id),
            statement(data.draw(st.integers(0, 1)), data.draw(st.sampled_from([ACCEPT, ACCEPT, REJECT]))),
        )
        return self.remember(vote(self.network, index, round_id, said))

    @rule(target=sent, data=st.data())
    def lie(self, data: st.DataObject) -> Message:
        index = data.draw(st.integers(0, max(self.liars - 1, 0)))
        said = statement(data.draw(st.integers(0, 2)), data.draw(st.sampled_from([ACCEPT, REJECT])))
        if not self.liars:
            said = self.honest.setdefault((index, 1), said)
            return self.remember(vote(self.network, index, 1, said))
        return self.remember(
            vote(self.network, index, data.draw(st.integers(1, ROUNDS)), said, data.draw(st.integers(1, 3)))
        )

    @rule(target=sent, which=st.integers(0, 1))
    def propose_a_seal(self, which: int) -> Message:
        """Everybody honest accepts it: the votes go to all replicas at once, or through `deliver_one`, in any order."""
        index, machine = self.network.size - 1, self.replicas[which]
        round_id = self.network.next_round_of(self.network.senders[index], 100 + self.seals * self.network.size)
        self.seals += 1
        covered = [one for _, one in sorted(rounds_of(machine).items()) if one.level < Level.ABSOLUTE]
        made = checkpoint(self.network, index, round_id, machine.epoch, covered)
        for voter in range(self.liars, self.network.size):
            message = vote(self.network, voter, round_id, made.statement())
            self.remember(message)
            self.deliver(which, message)
        self.deliver(which, made)
        return self.remember(made)

    def remember(self, message: Message) -> Message:
        self.all.append(message)
        return message

    @rule(which=st.integers(0, 1), message=sent)
    def deliver_one(self, which: int, message: Message) -> None:
        self.deliver(which, message)

    @rule(message=sent)
    def deliver_to_all_twice(self, message: Message) -> None:
        for which in (0, 1, 1, 0):
            self.deliver(which, message)

    @rule(which=st.integers(0, 1))
    def crash_and_reload(self, which: int) -> None:
        """From what is stored: messages, certificates, level and epochs."""
        old = self.replicas[which]
        shelf = DictShelf(self.network)
        for number, one in rounds_of(old).items():
            messages: list[Message] = [each for mine in one.votes.values() for each in mine.values()]
            messages += one.checkpoints.values()
            shelf.rounds[number] = Round(self.network, number).restore(
                messages,
                one.certificates.values(),
                level=one.level,
                quorum_epoch=one.quorum_epoch,
                hard_epoch=one.hard_epoch,
                sealed=one.sealed,
            )
        self.replicas[which] = Replica(self.network, shelf, epoch=old.epoch, clock=old.clock)
        assert hash_of(self.replicas[which]) == hash_of(old)

    @invariant()
    def levels_never_fall(self) -> None:
        for which, machine in enumerate(getattr(self, "replicas", [])):
            for number, one in rounds_of(machine).items():
                assert one.level >= self.levels.get((which, number), Level.PENDING)
                self.levels[which, number] = one.level

    @invariant()
    def one_statement_at_most_is_certified(self) -> None:
        for number in range(1, ROUNDS + 1):
            certified = {
                said for machine in getattr(self, "replicas", []) for said in machine.shelf.get(number).certificates
            }
            assert len(certified) <= 1

    def teardown(self) -> None:
        """Heal: everybody gets everything, in opposite orders."""
        for message in getattr(self, "all", []):
            self.deliver(0, message)
        for message in reversed(getattr(self, "all", [])):
            self.deliver(1, message)
        if not getattr(self, "replicas", []):
            return
        one, two = self.replicas
        assert hash_of(one) == hash_of(two)
        assert one.epoch == two.epoch
        liars = set(self.network.senders[: self.liars])
        for number, each in rounds_of(one).items():
            assert {proof.first.sender for proof in each.equivocations()} <= liars
            assert each.equivocations() == two.shelf.get(number).equivocations()
        for rise in self.rises[-3:]:
            verify(self.network, decode(rise.evidence.to_bytes()))


Cluster.TestCase.settings = cases(40, 120, stateful_step_count=25)
TestCluster = Cluster.TestCase


def seal(machine: Replica, round_id: int) -> SealingCheckpoint:
    network = machine.network
    index = network.index_of(network.proposer_of(round_id))
    covered = [one for _, one in sorted(rounds_of(machine).items()) if one.level < Level.ABSOLUTE]
    made = checkpoint(network, index, round_id, machine.epoch, covered)
    machine.see(made)
    for voter in range(network.quorum):
        machine.see(vote(network, voter, round_id, made.statement()))
    return made


def test_one_arbiter_climbs_to_absolute_by_sealing() -> None:
    """Window 2: QUORUM in epoch 0, HARD in 1, ABSOLUTE in 3."""
    machine = replica(network_of(1))
    machine.see(vote(machine.network, 0, 1, statement(0)))
    levels = [machine.shelf.get(1).level]
    for number in (2, 3, 4):
        seal(machine, number)
        levels.append(machine.shelf.get(1).level)
    assert levels == [Level.QUORUM, Level.HARD, Level.HARD, Level.ABSOLUTE]
    assert machine.epoch == 3


def test_sealing_round_does_not_carry_itself_to_hard() -> None:
    machine = replica(network_of(1))
    machine.see(vote(machine.network, 0, 1, statement(0)))
    seal(machine, 2)
    assert machine.shelf.get(2).level == Level.QUORUM
    seal(machine, 3)
    assert machine.shelf.get(2).level == Level.HARD


def test_seal_takes_effect_at_its_quorum_and_not_before() -> None:
    machine = replica(network_of(4))
    network = machine.network
    for index in range(3):
        machine.see(vote(network, index, 1, statement(0)))
    made = checkpoint(network, 1, 2, 0, [machine.shelf.get(1)])
    effects = [machine.see(vote(network, index, 2, made.statement())) for index in range(2)]
    effects += [machine.see(made)]
    assert machine.epoch == 0
    last = machine.see(vote(network, 2, 2, made.statement()))
    assert machine.epoch == 1
    assert sum(isinstance(effect, TookEffect) for _, effect in last) == 1
    machine.see(vote(network, 3, 2, made.statement()))
    assert machine.epoch == 1


def test_quorum_for_a_root_that_is_not_of_the_checkpoints_list_seals_nothing() -> None:
    machine = replica(network_of(4))
    network = machine.network
    made = checkpoint(network, 1, 2, 0, [])
    machine.see(made)
    for index in range(4):
        machine.see(vote(network, index, 2, made.statement()._replace(root=bytes(32))))
    assert (machine.epoch, machine.shelf.get(2).level) == (0, Level.QUORUM)


def test_arbiter_vouches_only_for_certificates_it_holds_and_for_the_present_epoch() -> None:
    ours, theirs = replica(network_of(4)), replica(network_of(4))
    for index in range(3):
        theirs.see(vote(ours.network, index, 1, statement(0)))
    made = checkpoint(ours.network, 1, 2, 0, [theirs.shelf.get(1)])
    assert may_accept(made, 0, theirs.shelf) is None
    assert may_accept(made, 1, theirs.shelf) == "STALE_EPOCH"
    assert may_accept(made._replace(epoch=1), 0, theirs.shelf) == "STALE_EPOCH"
    assert may_accept(made, 0, ours.shelf) == "ROUND_NOT_FOUND"
    for index in range(3):
        ours.see(vote(ours.network, index, 1, statement(1)))
    assert may_accept(made, 0, ours.shelf) == "ROUND_NOT_FOUND"


def test_logical_clock_follows_what_it_sees_but_not_a_leap() -> None:
    assert merged_clock(5, 9) == 10
    assert merged_clock(5, 2) == 6
    assert merged_clock(5, 5 + MAX_CLOCK_JUMP) == 6 + MAX_CLOCK_JUMP
    assert merged_clock(5, 6 + MAX_CLOCK_JUMP) == 6
