"""Goal: what is relayed to a partition's leader keeps its order and waits no longer than it may.

Method: two nodes on one virtual time; connections between them are cut, held, and lose answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from dragoman.broker import accumulator
from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.errors import NotLeader
from dragoman.broker.leader_queues import Answered, Append
from dragoman.cluster.metadata import NO_LEADER
from dragoman.errors import DragomanError
from dragoman.limits import RELAY_PATIENCE_S, RELAY_RETRY_S
from dragoman.log.batch import Record
from dragoman.replication.replica import Replica
from dragoman.types import Buffer
from worlds.two_nodes import Pair

TOPIC = "t"


@pytest.fixture
def pair() -> Pair:
    """Node 2 leads the partition that clients of node 1 write to."""
    pair = Pair()
    pair.create(TOPIC, 2)
    return pair


class LeaderOperation:
    """One that is never done, because the leader cannot be reached or does not answer."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.arrived = pair.scheduler.time()
        self.waited_s = -1.0
        self.error: DragomanError | None = None

    def here(self, _replica: Replica) -> None:
        raise AssertionError("this node leads nothing")

    def request(self) -> tuple[Append, Sequence[Buffer]]:
        return Append(topic=TOPIC, partition=0, caller=NODE_ITSELF), (b"",)

    def done(self, answer: Answered) -> None:
        assert isinstance(answer, DragomanError)
        self.error = answer
        self.waited_s = self._pair.scheduler.time() - self.arrived


def run(pair: Pair, count: int, pause_s: float) -> list[LeaderOperation]:
    partition = pair.one.broker.image.topics[TOPIC].partitions[0]
    operations = []
    for _ in range(count):
        operation = LeaderOperation(pair)
        pair.one.broker.leader_queues.run(partition, operation)
        operations.append(operation)
        pair.advance(pause_s)
    return operations


def values(pair: Pair) -> list[bytes | None]:
    log = pair.two.broker.partitions.find(TOPIC, 0).log
    return [each.value for each in log.iterate(0, log.log_end_offset)]


class Placed(list[tuple[int, str]]):
    def __call__(self, offset: int, error: DragomanError | None) -> None:
        self.append((offset, type(error).__name__ if error else ""))


def add(
    pair: Pair, value: bytes, placed: accumulator.Placed, *, is_leader_only: bool = False
) -> None:
    partition = pair.one.broker.image.topics[TOPIC].partitions[0]
    record = Record(value=value, timestamp=pair.one.clock.wall_ms())
    pair.one.broker.leader_queues.add(
        partition, record, placed, is_leader_only=is_leader_only, caller=NODE_ITSELF
    )


def test_queued_errands_wait_from_their_arrival_on(pair: Pair) -> None:
    pair.lines[1].is_cut = True
    operations = run(pair, 5, 0.5)
    pair.advance(RELAY_PATIENCE_S)
    for operation in operations:
        assert isinstance(operation.error, NotLeader)
        assert RELAY_PATIENCE_S <= operation.waited_s <= RELAY_PATIENCE_S + 2 * RELAY_RETRY_S


def test_errands_behind_one_without_an_answer_wait_from_their_arrival_on(pair: Pair) -> None:
    """The outcome of the first is not known for long; the others have not been sent at all."""
    pair.lines[1].held = []
    first, *others = run(pair, 4, 0.5)
    pair.advance(RELAY_PATIENCE_S)
    for operation in others:
        assert isinstance(operation.error, NotLeader)
        assert operation.error.leader == 2
        assert operation.waited_s == pytest.approx(RELAY_PATIENCE_S)
    assert first.error is None
    assert len(pair.lines[1].asked) == 1


def test_records_that_come_late_have_a_deadline_of_their_own(pair: Pair) -> None:
    pair.lines[1].is_cut = True
    run(pair, 1, 0.5)
    early, late = Placed(), Placed()
    add(pair, b"a", early)
    pair.advance(2)
    add(pair, b"b", late)
    pair.advance(RELAY_PATIENCE_S - 2 + RELAY_RETRY_S)
    assert (early, late) == ([(-1, "NotLeader")], [])
    pair.lines[1].is_cut = False
    pair.advance(1)
    assert late == [(0, "")]
    assert values(pair) == [b"b"]


def test_an_errand_that_was_given_up_does_not_hold_up_what_follows(pair: Pair) -> None:
    pair.lines[1].held = []
    first, second, third = Placed(), Placed(), Placed()
    add(pair, b"a", first)
    pair.settle()
    add(pair, b"b", second)
    pair.advance(RELAY_PATIENCE_S + 1)
    add(pair, b"c", third)
    pair.lines[1].release()
    pair.advance(1)
    assert (first, second, third) == ([(0, "")], [(-1, "NotLeader")], [(1, "")])
    assert values(pair) == [b"a", b"c"]


def test_records_for_the_leader_alone_do_not_wait_behind_those_for_all(pair: Pair) -> None:
    line = pair.lines[1]
    line.held = []
    for_all, for_leader = Placed(), Placed()
    add(pair, b"a", for_all)
    pair.settle()
    held, line.held = line.held, None
    add(pair, b"b", for_leader, is_leader_only=True)
    pair.settle()
    assert (for_all, for_leader) == ([], [(0, "")])
    for arrive in held:
        arrive()
    pair.settle()
    assert for_all == [(1, "")]
    assert [each.is_leader_only for each in line.asked if isinstance(each, Append)] == [False, True]


def test_records_behind_a_slow_answer_gather_into_one_batch(pair: Pair) -> None:
    """Of many batches each would take as long: the line would grow faster than it is worked off."""
    line = pair.lines[1]
    line.held = []
    placed = Placed()
    for number in range(20):
        add(pair, b"%d" % number, placed)
        pair.advance(2 * RELAY_RETRY_S)
    line.release()
    pair.settle()
    assert placed == [(number, "") for number in range(20)]
    assert len(line.asked) == 2
    assert values(pair) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("is_known", [True, False], ids=["unreachable", "unknown"])
def test_records_of_one_batch_have_deadlines_of_their_own(pair: Pair, is_known: bool) -> None:
    """No record is refused early because others came before it, in the first operation either."""
    if not is_known:
        pair.one.broker.image.topics[TOPIC].partitions[0].leader = NO_LEADER
    pair.lines[1].is_cut = True
    waited: list[float] = []

    def placed_since(start: float) -> accumulator.Placed:
        def placed(_offset: int, error: DragomanError | None) -> None:
            assert isinstance(error, NotLeader)
            waited.append(pair.scheduler.time() - start)

        return placed

    for number in range(20):
        add(pair, b"%d" % number, placed_since(pair.scheduler.time()))
        pair.advance(0.2)
    pair.advance(RELAY_PATIENCE_S)
    assert len(waited) == 20
    assert min(waited) >= RELAY_PATIENCE_S - RELAY_RETRY_S
    assert max(waited) <= RELAY_PATIENCE_S + 2 * RELAY_RETRY_S


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_records_of_one_line_are_there_once_in_order_or_refused(
    pair: Pair, seed: int
) -> None:
    random, line, leader_queues = Random(seed), pair.lines[1], pair.one.broker.leader_queues
    partition = pair.one.broker.image.topics[TOPIC].partitions[0]
    outcomes: list[Placed] = []
    for _ in range(40):
        match random.choice(["add", "add", "add", "cut", "hold", "move", "forget"]):
            case "add":
                for _ in range(random.randint(1, 4)):
                    placed = Placed()
                    record = Record(value=b"%d" % len(outcomes), timestamp=pair.one.clock.wall_ms())
                    outcomes.append(placed)
                    leader_queues.add(
                        partition,
                        record,
                        placed,
                        is_leader_only=random.random() < 0.5,
                        in_leader_queue=False,
                        caller=NODE_ITSELF,
                    )
            case "cut":
                line.is_cut = not line.is_cut
            case "hold" if line.held is None:
                line.held = []
            case "hold":
                line.release()
            case "move" if line.held is None:
                pair.settle()
                pair.move(TOPIC, 0, 3 - partition.leader)
            case "forget":
                leader, partition.leader = partition.leader, NO_LEADER
                pair.advance(random.choice([0.1, 1.0, 4.0]))
                partition.leader = leader
        pair.advance(random.choice([0.0, 0.01, 0.06, 0.3, 1.0, 3.5]))
    line.is_cut = False
    line.release()
    pair.advance(2 * RELAY_PATIENCE_S)
    log = pair.worlds[partition.leader].broker.partitions.find(TOPIC, 0).log
    found = [int(each.value or b"") for each in log.iterate(0, log.log_end_offset)]
    assert found == sorted(set(found))
    for number, placed in enumerate(outcomes):
        (outcome,) = placed
        if number in found:
            assert outcome == (found.index(number), "")
        else:
            assert outcome == (-1, "NotLeader")
