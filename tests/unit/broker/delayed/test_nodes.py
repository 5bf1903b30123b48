"""Goal: a record is delivered exactly once although the node that was asked, the one that keeps the
record and the one that leads its partition are different ones, which change.

Method: two nodes on one virtual time. Connections are cut and answers lost, leaders move at any
moment, from a seed; what is readable at the end is compared with what was delayed and decided.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from unittest import mock

import pytest

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.delayed import DELAYED_TOPIC, Content, Token
from dragoman.broker.delayed.targets import DeliverDelayed, Targets
from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    LabelsDiffer,
    RequestTimedOut,
    UnknownDelayedRecord,
    UnknownTopic,
)
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.limits import DELAYED_RETRY_S, RELAY_PATIENCE_S
from dragoman.log.batch import Record, build_batch
from dragoman.outcome import start
from worlds.delayed_records import LABELS, TOPIC, Told, delivered, record_of
from worlds.two_nodes import Pair

SETTINGS = Settings(
    transaction_state_log_num_partitions=1,
    transaction_state_log_replication_factor=1,
    offsets_topic_num_partitions=1,
    offsets_topic_replication_factor=1,
    held_record_check_max=1_000_000,
)


class DelayedPair(Pair):
    """Partition 0 of the topic is led by node 1, partition 1 by node 2."""

    def __init__(self, keeper: int = 1) -> None:
        with mock.patch("dragoman.broker.delayed.store.DELAYED_PARTITIONS", 1):
            super().__init__(SETTINGS)
        self.create(TOPIC, 1, 2)
        start(self.one.broker.delayed.store.log.ensure())
        self.settle()
        self.lead(DELAYED_TOPIC, 0, keeper)

    def leader(self, topic: str, index: int = 0) -> int:
        return self.one.broker.image.topics[topic].partitions[index].leader

    def lead(self, topic: str, index: int, node: int) -> None:
        if self.leader(topic, index) != node:
            self.move(topic, index, node)
            self.settle()

    def delay(self, value: bytes, seconds: float, partition: int = 0, node: int = 1) -> Told:
        told = Told()
        world = self.worlds[node]
        due_ms = world.clock.wall_ms() + int(seconds * 1000)
        start(
            world.broker.delayed.delay(TOPIC, partition, record_of(value), due_ms, NODE_ITSELF)
        ).then(told)
        self.settle()
        return told

    def hold(self, value: bytes, partition: int = 0, node: int = 1) -> Told:
        told = Told()
        delayed = self.worlds[node].broker.delayed
        start(
            delayed.hold(TOPIC, partition, record_of(value), dict(LABELS), None, NODE_ITSELF)
        ).then(told)
        self.settle()
        return told

    def decide(self, token: Token, *, is_release: bool, node: int, owner: str = "me") -> Told:
        told = Told()
        delayed = self.worlds[node].broker.delayed
        decide = delayed.release if is_release else delayed.drop
        start(decide(token, {"owner": owner}, NODE_ITSELF)).then(told)
        self.settle()
        return told

    def values(self, index: int) -> list[bytes]:
        return delivered(self.worlds[self.leader(TOPIC, index)], index)


@pytest.mark.parametrize("asked", [1, 2])
@pytest.mark.parametrize("keeper", [1, 2])
@pytest.mark.parametrize("partition", [0, 1])
def test_delayed_records_work_through_any_node_and_placement(
    asked: int, keeper: int, partition: int
) -> None:
    pair = DelayedPair(keeper)
    for value in (b"a", b"b"):
        assert pair.delay(value, 5, partition, asked).token
    held, dropped = (pair.hold(value, partition, asked).token for value in (b"c", b"d"))
    read = Told()
    start(pair.worlds[3 - asked].broker.delayed.read(held)).then(read)
    pair.settle()
    assert isinstance(read.outcome, Content)
    assert (read.outcome.record.value, read.outcome.labels) == (b"c", LABELS)
    assert read.outcome.target == (TOPIC, partition)
    pair.advance(4.9)
    assert pair.values(partition) == []
    pair.advance(0.2)
    assert pair.values(partition) == [b"a", b"b"]
    refused = pair.decide(held, is_release=True, node=asked, owner="you")
    assert isinstance(refused.outcome, LabelsDiffer)
    for _ in range(2):
        assert pair.decide(held, is_release=True, node=asked).outcome is None
        assert pair.decide(dropped, is_release=False, node=3 - asked).outcome is None
    contrary = pair.decide(dropped, is_release=True, node=asked)
    assert isinstance(contrary.outcome, UnknownDelayedRecord)
    pair.advance(60)
    assert pair.values(partition) == [b"a", b"b", b"c"]
    assert pair.values(1 - partition) == []


def test_errors_of_a_remote_coordinator_reach_the_caller() -> None:
    pair = DelayedPair(2)
    assert isinstance(pair.delay(b"a", 5, 7).outcome, UnknownTopic)
    target = pair.one.broker.image.topics[TOPIC].partitions[0].partition_id
    for token in (Token(target, 0), Token(pair.hold(b"a").token.partition_id, 77)):
        told = Told()
        start(pair.one.broker.delayed.read(token)).then(told)
        pair.settle()
        assert isinstance(told.outcome, UnknownDelayedRecord)


def test_the_first_record_makes_the_topic() -> None:
    with mock.patch("dragoman.broker.delayed.store.DELAYED_PARTITIONS", 1):
        pair = Pair(SETTINGS)
    pair.create(TOPIC, 1, 2)
    told = Told()
    due_ms = pair.two.clock.wall_ms() + 1000
    start(pair.two.broker.delayed.delay(TOPIC, 0, record_of(b"a"), due_ms, NODE_ITSELF)).then(told)
    pair.advance(2)
    assert told.token
    assert delivered(pair.one) == [b"a"]


def test_a_keeper_that_cannot_be_asked() -> None:
    pair = DelayedPair(2)
    pair.lines[1].is_cut = True
    waits, fails = pair.delay(b"a", 1), pair.delay(b"b", 1)
    pair.advance(RELAY_PATIENCE_S / 2)
    assert not waits.calls
    pair.lines[1].is_cut = False
    pair.advance(RELAY_PATIENCE_S / 2)
    assert waits.token
    assert fails.token
    pair.lines[1].is_cut = True
    told = pair.delay(b"c", 1)
    pair.advance(RELAY_PATIENCE_S + 1)
    assert isinstance(told.outcome, CoordinatorNotAvailable)
    pair.lines[1].is_cut = False
    pair.lines[1].loses_answers = True
    assert isinstance(pair.delay(b"d", 1).outcome, RequestTimedOut)
    pair.advance(3)
    assert pair.values(0) == [b"a", b"b", b"d"]


def test_a_keeper_that_moves_is_followed() -> None:
    pair = DelayedPair(1)
    told = pair.delay(b"a", 5)
    held = pair.hold(b"b")
    pair.lead(DELAYED_TOPIC, 0, 2)
    assert pair.one.broker.delayed.record_count == 0
    assert pair.two.broker.delayed.record_count == 2
    pair.advance(6)
    assert pair.values(0) == [b"a"]
    assert pair.decide(held.token, is_release=True, node=1).outcome is None
    assert pair.values(0) == [b"a", b"b"]
    unknown = pair.decide(told.token, is_release=False, node=1)
    assert isinstance(unknown.outcome, UnknownDelayedRecord)


def test_a_target_that_is_away_gets_its_records_later() -> None:
    pair = DelayedPair(1)
    pair.delay(b"a", 1, partition=1)
    pair.lines[1].is_cut = True
    pair.advance(10)
    pair.delay(b"b", 1, partition=1)
    pair.advance(10)
    assert pair.values(1) == []
    pair.lines[1].is_cut = False
    pair.advance(DELAYED_RETRY_S)
    assert pair.values(1) == [b"a", b"b"]


def test_a_node_that_does_not_answer_delays_no_others() -> None:
    pair = DelayedPair(1)
    pair.create("far", 2, 2, 2, 2)
    for index in range(4):
        delayed, due_ms = pair.one.broker.delayed, pair.one.clock.wall_ms() + 1000
        start(delayed.delay("far", index, record_of(b"far"), due_ms, NODE_ITSELF)).then(Told())
    pair.delay(b"near", 2, partition=0)
    line = pair.lines[1]
    line.held = []
    with mock.patch("dragoman.broker.delayed.delivery.DELAYED_DELIVERIES_MAX", 2):
        pair.advance(3)
        assert len(line.held) == 2
        assert pair.values(0) == [b"near"]
        line.release()
        pair.settle()
    for index in range(4):
        assert delivered(pair.two, index, "far") == [b"far"]


def test_a_delivery_whose_answer_is_lost_is_not_doubled() -> None:
    pair = DelayedPair(1)
    pair.delay(b"a", 1, partition=1)
    pair.lines[1].loses_answers = True
    pair.advance(5)
    asked = [each for each in pair.lines[1].asked if isinstance(each, DeliverDelayed)]
    assert len(asked) > 3
    pair.lines[1].loses_answers = False
    pair.delay(b"b", 1, partition=1)
    pair.advance(5)
    assert pair.values(1) == [b"a", b"b"]
    assert pair.one.broker.delayed.record_count == 0


@pytest.mark.parametrize("arrives", ["before", "after", "never"])
def test_a_successor_delivers_what_was_decided(arrives: str) -> None:
    """The first keeper's own delivery arrives before that of its successor, after it or never."""
    pair = DelayedPair(1)
    pair.delay(b"a", 1, partition=1)
    pair.delay(b"b", 1, partition=1)
    line = pair.lines[1]
    line.held = []
    pair.advance(2)
    assert len(line.held) == 1
    assert pair.values(1) == []
    if arrives == "before":
        line.release()
    pair.lead(DELAYED_TOPIC, 0, 2)
    pair.advance(2)
    assert pair.values(1) == [b"a", b"b"]
    if arrives == "after":
        line.release()
    pair.delay(b"c", 1, partition=1, node=2)
    pair.advance(5)
    assert pair.values(1) == [b"a", b"b", b"c"]


def test_a_late_delivery_of_the_first_keeper_does_not_disturb_the_next_batches() -> None:
    pair = DelayedPair(1)
    pair.delay(b"a", 1, partition=1)
    line = pair.lines[1]
    line.held = []
    pair.advance(2)
    pair.lead(DELAYED_TOPIC, 0, 2)
    values = [b"%d" % number for number in range(10)]
    for value in values:
        pair.delay(value, 0.1, partition=1, node=2)
        pair.advance(1)
    line.release()
    pair.advance(5)
    assert pair.values(1) == [b"a", *values]


@pytest.mark.parametrize("keeper", [1, 2])
def test_a_target_that_moves_while_a_batch_is_under_way(keeper: int) -> None:
    pair = DelayedPair(keeper)
    for value in (b"a", b"b"):
        pair.delay(value, 1, partition=0)
    with suppress(RuntimeError):
        # The batch is decided on, and is with the first leader or on its way there.
        pair.scheduler.advance(1.0, 4)
    pair.lead(TOPIC, 0, 2)
    pair.advance(5)
    pair.lead(TOPIC, 0, 1)
    pair.delay(b"c", 1, partition=0)
    pair.advance(5)
    assert pair.values(0) == [b"a", b"b", b"c"]


# ---- faults from a seed


class Clients:
    """Defer, hold and decide, and note the outcomes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.pair = DelayedPair()
        self.sent: dict[bytes, tuple[int, Told]] = {}
        #: By value: whether it is to be delivered, and whether that is certain.
        self.decided: dict[bytes, tuple[bool, Told]] = {}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._act()
            self._fault()
            self.pair.advance(self.random.choice((0, 0.1, 1.1)))
        for line in self.pair.lines.values():
            line.is_cut = line.loses_answers = False
        self.pair.advance(20)

    def _act(self) -> None:
        random, node = self.random, self.random.choice((1, 2))
        partition, value = random.randrange(2), b"%d" % len(self.sent)
        action = random.choice(("delay", "hold", "decide"))
        delayed = self.pair.worlds[node].broker.delayed
        told = Told()
        if action == "delay":
            due_ms = (self.pair.one.clock.wall_ms() // 1000 + random.randint(1, 3)) * 1000
            start(delayed.delay(TOPIC, partition, record_of(value), due_ms, NODE_ITSELF)).then(told)
            self.sent[value] = (partition, told)
            self.decided[value] = (True, told)
        elif action == "hold":
            start(
                delayed.hold(TOPIC, partition, record_of(value), dict(LABELS), None, NODE_ITSELF)
            ).then(told)
            self.sent[value] = (partition, told)
        else:
            self._decide(node, told)

    def _decide(self, node: int, told: Told) -> None:
        held = [
            (value, each.token)
            for value, (_, each) in self.sent.items()
            if value not in self.decided and each.calls and isinstance(each.outcome, Token)
        ]
        if held:
            value, token = self.random.choice(held)
            is_release = self.random.random() < 0.7
            delayed = self.pair.worlds[node].broker.delayed
            decide = delayed.release if is_release else delayed.drop
            start(decide(token, LABELS, NODE_ITSELF)).then(told)
            self.decided[value] = (is_release, told)

    def _fault(self) -> None:
        random, pair = self.random, self.pair
        for line in pair.lines.values():
            line.is_cut = random.random() < 0.2
            line.loses_answers = random.random() < 0.2
        # As deep into what is under way as it comes.
        with suppress(RuntimeError):
            pair.scheduler.run_ready(random.randint(1, 40))
        if random.random() < 0.4:
            topic, index = random.choice([(DELAYED_TOPIC, 0), (TOPIC, 0), (TOPIC, 1)])
            pair.move(topic, index, 3 - pair.leader(topic, index))

    def check(self) -> int:
        """Returns how many were certain."""
        certain = 0
        for partition in range(2):
            found = self.pair.values(partition)
            assert len(set(found)) == len(found), found
            for value, (index, _) in self.sent.items():
                is_wanted, told = self.decided.get(value, (False, None))
                if index != partition:
                    assert value not in found
                elif told is not None and not isinstance(told.outcome, DragomanError):
                    certain += 1
                    assert (value in found) is is_wanted, (value, is_wanted, found)
                elif not is_wanted:
                    assert value not in found, value
        return certain


def _run_seeds(seeds: range) -> int:
    certain = 0
    for seed in seeds:
        clients = Clients(seed)
        clients.run(40)
        certain += clients.check()
    return certain


def test_nothing_is_lost_or_doubled() -> None:
    assert _run_seeds(range(15)) > 150


def _without_producer(found: list[Record], **_: int) -> bytearray:
    return build_batch(found)


async def _answered_at_once(self: Targets, target_id: int, batch: bytearray) -> None:
    """It is done before the target has it, and the target gets it once."""
    later = self._context.scheduler.call_soon
    later(lambda: start(_deliver(self, target_id, batch)))


_deliver = Targets.deliver


@pytest.mark.parametrize("mutant", ["no sequence", "removed before appended"])
def test_mutants_die(mutant: str) -> None:
    patches = {
        "no sequence": mock.patch(
            "dragoman.broker.delayed.delivery.build_batch", _without_producer
        ),
        "removed before appended": mock.patch.object(Targets, "deliver", _answered_at_once),
    }
    with patches[mutant], pytest.raises(AssertionError):
        _run_seeds(range(15))
