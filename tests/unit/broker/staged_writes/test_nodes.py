"""Goal: a batch is published exactly once although its writer's coordinator, the records it staged
and the partitions they go to are led by different nodes, which change.

Method: two nodes on one virtual time. Connections are cut and answers lost, leaders move at any
moment, from a seed; what is readable at the end is compared with what was published.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from unittest import mock

import msgspec
import pytest

from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    InvalidPublication,
    RequestTimedOut,
    StagedRecordsGone,
    UnknownTopic,
)
from dragoman.broker.staged_writes import STAGING_TOPIC, Destination, Piece, Publication
from dragoman.broker.staged_writes import records as stored
from dragoman.broker.staged_writes.destinations import CopyPieces
from dragoman.broker.staged_writes.staging_topic import KeepStaged
from dragoman.config.settings import Settings
from dragoman.errors import DiskFullError, DragomanError
from dragoman.limits import STAGING_HOLD_LEASE_S
from dragoman.outcome import start
from dragoman.rpc import Node
from worlds.staged_writes import Published, never, publication, small_slices, stage, values_of
from worlds.two_nodes import Pair

SETTINGS = Settings(
    transaction_state_log_num_partitions=1,
    transaction_state_log_replication_factor=1,
    offsets_topic_num_partitions=1,
    offsets_topic_replication_factor=1,
)
TOPIC = "out"
COPY = "dragoman.broker.staged_writes.destinations.Destinations.copy"


class PublishingPair(Pair):
    """Partition 0 of the topic is led by node 1, partition 1 by node 2."""

    def __init__(self, *, staging: int = 2, coordinator: int = 1) -> None:
        super().__init__(SETTINGS)
        self.create(TOPIC, 1, 2)
        with small_slices():
            self._open_staging()
        self.lead(STAGING_TOPIC, 0, staging)
        start(self.one.broker.staged_writes.log.ensure())
        self.settle()
        self.lead(stored.TOPIC, 0, coordinator)

    def _open_staging(self) -> None:
        start(self.one.broker.staged_writes.staging_topic.open())
        self.settle()

    def leader(self, topic: str, index: int = 0) -> int:
        return self.one.broker.image.topics[topic].partitions[index].leader

    def lead(self, topic: str, index: int, node: int) -> None:
        if self.leader(topic, index) != node:
            self.move(topic, index, node)

    def stage(self, *batches: list[bytes]) -> Piece:
        return stage(self.worlds[self.leader(STAGING_TOPIC)], *batches)

    def publish(self, request: Publication, node: int = 1) -> Published:
        reply = Published()
        start(self.worlds[node].broker.staged_writes.publish(request)).then(reply)
        self.settle()
        return reply

    def values(self, index: int) -> list[bytes | None]:
        return values_of(self.worlds[self.leader(TOPIC, index)], TOPIC, index)


def both(piece: Piece) -> list[Destination]:
    return [Destination(TOPIC, index, (piece,)) for index in range(2)]


@pytest.mark.parametrize("asked", [1, 2])
@pytest.mark.parametrize("coordinator", [1, 2])
@pytest.mark.parametrize("staging", [1, 2])
def test_publication_works_through_any_node_and_placement(
    asked: int, coordinator: int, staging: int
) -> None:
    pair = PublishingPair(staging=staging, coordinator=coordinator)
    values = [[b"%d" % number, b"x"] for number in range(20)]
    with small_slices():
        first = publication(0, *both(pair.stage(*values)))
        assert pair.publish(first, asked).outcome is False
        assert pair.publish(first, asked).outcome is True
        second = publication(1, *both(pair.stage([b"end"])))
        assert pair.publish(second, 3 - asked).outcome is False
    expected = [value for each in values for value in each] + [b"end"]
    assert pair.values(0) == pair.values(1) == expected


def test_errors_of_a_remote_coordinator_reach_the_caller() -> None:
    pair = PublishingPair(staging=2, coordinator=1)
    piece = pair.stage([b"a"], [b"b"])
    partition, first, end, count, checksum = msgspec.structs.astuple(piece)
    wrong = [
        Piece(partition, first, end, count, checksum + 1),
        Piece(partition, first, end + 5, count, checksum),
        Piece(partition, first, end + 5000, count, checksum),
        Piece(partition, end + 9, end + 10, count, checksum),
        Piece(partition, first, first, count, checksum),
    ]
    for each in wrong:
        for index in range(2):
            request = publication(0, Destination(TOPIC, index, (each,)))
            assert isinstance(pair.publish(request).outcome, InvalidPublication), each
    unknown = publication(0, Destination(TOPIC, 7, (piece,)))
    assert isinstance(pair.publish(unknown).outcome, UnknownTopic)
    twice = publication(0, *both(piece), *both(piece))
    assert isinstance(pair.publish(twice).outcome, InvalidPublication)
    pair.two.broker.partitions.find(STAGING_TOPIC, 0).delete_below(end)
    gone = pair.publish(publication(0, *both(piece)))
    assert isinstance(gone.outcome, StagedRecordsGone)
    assert pair.values(0) == pair.values(1) == []


def test_a_coordinator_that_cannot_be_asked() -> None:
    pair = PublishingPair(staging=1, coordinator=2)
    request = publication(0, *both(pair.stage([b"a"])))
    pair.lines[1].is_cut = True
    assert isinstance(pair.publish(request).outcome, CoordinatorNotAvailable)
    pair.lines[1].is_cut = False
    pair.lines[1].loses_answers = True
    assert isinstance(pair.publish(request).outcome, RequestTimedOut)
    pair.lines[1].loses_answers = False
    # It may still be published, and is.
    assert pair.publish(request).outcome is True
    assert pair.values(0) == pair.values(1) == [b"a"]


def test_before_the_topic_is_made_a_publication_makes_it() -> None:
    pair = Pair(SETTINGS)
    pair.create(TOPIC, 1, 2)
    reply = Published()
    start(pair.two.broker.staged_writes.publish(publication(0))).then(reply)
    pair.settle()
    assert reply.outcome is False
    assert stored.TOPIC in pair.one.broker.image.topics


def test_a_target_that_is_away_gets_its_records_later() -> None:
    pair = PublishingPair(staging=1, coordinator=1)
    request = publication(0, *both(pair.stage([b"a"])))
    line = pair.lines[1]
    line.cuts_at = (CopyPieces,)
    reply = pair.publish(request)
    pair.advance(3)
    assert not reply.answers
    assert (pair.values(0), pair.values(1)) == ([b"a"], [])
    line.cuts_at = ()
    pair.advance(2)
    assert reply.outcome is False
    assert pair.values(0) == pair.values(1) == [b"a"]


def test_a_successor_publishes_what_was_decided() -> None:
    pair = PublishingPair(staging=1, coordinator=1)
    request = publication(0, *both(pair.stage([b"a"], [b"b"])))
    pair.lines[1].cuts_at = (CopyPieces,)
    reply = pair.publish(request)
    assert not reply.answers
    pair.lead(stored.TOPIC, 0, 2)
    pair.advance(1)
    assert isinstance(reply.outcome, DragomanError)
    assert pair.values(0) == pair.values(1) == [b"a", b"b"]
    assert pair.publish(request, 2).outcome is True


def test_a_copy_that_is_asked_for_again_is_not_begun_again() -> None:
    pair = PublishingPair(staging=1, coordinator=2)
    with small_slices():
        piece = pair.stage(*([b"%d" % number] for number in range(30)))
        request = publication(0, Destination(TOPIC, 0, (piece,)))
        pair.lines[2].impatient_with = (CopyPieces,)
        with mock.patch(COPY, mock.Mock(side_effect=never)) as copy:
            pair.publish(request, 2)
            pair.advance(5)
        asked = [each for each in pair.lines[2].asked if isinstance(each, CopyPieces)]
        assert len(asked) > 2
        assert len(copy.mock_calls) == 1


def test_a_staged_piece_is_kept_while_another_node_needs_it_and_goes_after() -> None:
    pair = PublishingPair(staging=2, coordinator=1)
    log = pair.two.broker.partitions.find(STAGING_TOPIC, 0).log
    first = pair.stage([b"first"])
    request = publication(0, Destination(TOPIC, 0, (first,)))

    with mock.patch(COPY, side_effect=DiskFullError("the disk is full")):
        pair.publish(request)
        pair.advance(2)
        with mock.patch("dragoman.broker.staged_writes.staging_topic.STAGING_AGE_MAX_S", 1.0):
            pair.advance(10)
        assert log.log_start_offset == first.first_offset
    assert any(isinstance(each, KeepStaged) for each in pair.lines[1].asked)
    pair.lead(stored.TOPIC, 0, 2)
    pair.advance(3)
    assert pair.values(0) == [b"first"]
    assert log.log_start_offset == first.next_offset


def test_the_word_of_a_node_that_is_gone_does_not_hold_for_ever() -> None:
    pair = PublishingPair(staging=2, coordinator=1)
    log = pair.two.broker.partitions.find(STAGING_TOPIC, 0).log
    piece = pair.stage([b"a"])
    request = KeepStaged(partition=0, held_from=piece.first_offset)
    start(pair.one.broker.rpc.call(request, Node(2)))
    pair.settle()
    with mock.patch("dragoman.broker.staged_writes.staging_topic.STAGING_AGE_MAX_S", 1.0):
        pair.advance(5)
        assert log.log_start_offset == piece.first_offset
        pair.advance(STAGING_HOLD_LEASE_S)
    assert log.log_start_offset == piece.next_offset


# ---- faults from a seed


class Query:
    """A driver that publishes one batch after the other, and repeats each until acknowledged."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.pair = PublishingPair()
        self.batches: list[list[bytes]] = []

    def run(self, count: int) -> None:
        for batch_id in range(count):
            values = [b"%d.%d" % (batch_id, each) for each in range(self.random.randint(1, 9))]
            self.batches.append(values)
            self._publish(batch_id, values)

    def _publish(self, batch_id: int, values: list[bytes]) -> None:
        for _ in range(200):
            piece = self.pair.stage(*([each] for each in values))
            reply = Published()
            node = self.random.choice((1, 2))
            request = publication(batch_id, *both(piece))
            start(self.pair.worlds[node].broker.staged_writes.publish(request)).then(reply)
            while not reply.answers:
                self._fault()
                self.pair.advance(self.random.choice((0, 0.1, 1.1)))
            if isinstance(reply.outcome, bool):
                return
        raise AssertionError(f"batch {batch_id} was never published")

    def _fault(self) -> None:
        random, pair = self.random, self.pair
        for line in pair.lines.values():
            line.is_cut = random.random() < 0.2
            line.loses_answers = random.random() < 0.2
        # As deep into what is under way as it comes.
        with suppress(RuntimeError):
            pair.scheduler.run_ready(random.randint(1, 40))
        if random.random() < 0.5:
            places = [(stored.TOPIC, 0), (STAGING_TOPIC, 0), (TOPIC, 0), (TOPIC, 1)]
            topic, index = random.choice(places)
            pair.move(topic, index, 3 - pair.leader(topic, index))


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_doubled_or_reordered(seed: int) -> None:
    query = Query(seed)
    with small_slices(150):
        query.run(12)
    expected = [value for values in query.batches for value in values]
    assert query.pair.values(0) == expected
    assert query.pair.values(1) == expected
