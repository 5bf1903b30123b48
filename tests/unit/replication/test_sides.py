"""Goal: leader and follower of one partition obey the rules, each message by itself.

Method: real logs on disks in memory; messages are handed over by the test. What many nodes do
together under faults is the matter of `tests/simulation/replication`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from dragoman.checksum import crc32c
from dragoman.cluster.events import (
    Member,
    NodeRegistered,
    PartitionChanged,
    PartitionPlacement,
    TopicCreated,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.config.overrides import TopicConfig
from dragoman.config.settings import Settings
from dragoman.errors import DecodeError
from dragoman.log.batch import batches
from dragoman.replication.fetch_server import FetchServer, Partitions, Throttle
from dragoman.replication.fetcher import Fetcher
from dragoman.replication.follower import FollowedPartition
from dragoman.replication.leader import LedPartition
from dragoman.replication.messages import (
    NONE,
    Decision,
    Fetched,
    FetchReply,
    FetchRequest,
    InSyncChange,
    Position,
    Progress,
    Status,
    decode_message,
    encode_message,
)
from dragoman.replication.ports import TakeReply, Timing
from dragoman.replication.replica import Replica
from dragoman.types import Buffer
from worlds.log import World as LogWorld

LAG_S = 10.0


@dataclass(eq=False)
class Ear:
    """A listener that only records its notifications."""

    seen_at: float = 0.0
    growths: int = 0

    def grown(self, partition_id: int) -> None:
        self.growths += 1

    def committed(self, partition_id: int) -> None: ...


class Side:
    """One node's log of a partition with three replicas; node 1 leads."""

    def __init__(self) -> None:
        self.world = LogWorld()
        self.image = MetadataImage()
        for node in (1, 2, 3):
            self.image.apply(NodeRegistered(node_id=node, incarnation=1))
        placement = PartitionPlacement(1, (1, 2, 3))
        self.image.apply(TopicCreated(name="t", topic_id=b"t" * 16, partitions=(placement,)))
        self.metadata = self.image.partitions[1]
        self.log = self.world.log
        self.log.high_watermark = 0
        self.replica = Replica(self.metadata, self.log, TopicConfig.build(Settings(), {}))
        self.world.store.on_stable = lambda _: None

    def agree(self, *members: Member, leader: int = 1, more_epochs: int = 0) -> None:
        self.image.apply(
            PartitionChanged(
                partition_id=1,
                leader=leader,
                leader_epoch=self.metadata.leader_epoch + more_epochs,
                partition_epoch=self.metadata.partition_epoch + 1,
                replicas=(1, 2, 3),
                in_sync=members,
            )
        )

    def append(self, count: int) -> None:
        for _ in range(count):
            self.world.append(b"value")
        self.world.commit()


class Leader(Side):
    def __init__(self, records: int = 0) -> None:
        super().__init__()
        self.log.begin_epoch(0)
        self.append(records)
        self.leading = LedPartition(self.replica, self.image, Member(1, 1), 0.0)
        self.replica.role = self.leading
        self.ear = Ear()

    def write(self, count: int, now: float = 0.0) -> None:
        self.append(count)
        self.leading.stable(now)

    def hear(
        self, node: int, offset: int, *, stable: int | None = None, incarnation: int = 1
    ) -> Fetched | None:
        last_epoch = 0 if offset else NONE
        stable = offset if stable is None else stable
        epoch = self.metadata.partition_epoch
        position = Position(1, self.metadata.leader_epoch, offset, last_epoch, stable, epoch)
        return self.leading.follow(Member(node, incarnation), position, self.ear, self.ear.seen_at)


# ---- what is committed


def test_the_watermark_is_the_lowest_stable_end_in_sync() -> None:
    leader = Leader()
    leader.write(3)
    assert leader.log.high_watermark == 0
    leader.hear(2, 3)
    assert leader.log.high_watermark == 0
    leader.hear(3, 3, stable=2)
    assert leader.log.high_watermark == 2
    leader.leading.progressed(Member(3, 1), 3, 0.0)
    assert leader.log.high_watermark == 3


def test_what_followers_have_before_their_leader_counts_once_the_leader_has_it() -> None:
    leader = Leader()
    leader.hear(2, 0)
    leader.hear(3, 0)
    leader.world.store.commits.sync_average_s = 1.0
    leader.world.append(b"value")
    leader.world.store.commits.commit_scheduled()
    leader.hear(2, 1)
    leader.hear(3, 1, stable=0)
    leader.leading.progressed(Member(3, 1), 1, 0.0)
    assert (leader.log.stable_end, leader.log.high_watermark) == (0, 0)
    leader.world.commit()
    leader.leading.stable(0.0)
    assert (leader.log.stable_end, leader.log.high_watermark) == (1, 1)


def test_the_watermark_stands_still_below_the_minimum_and_never_goes_back() -> None:
    leader = Leader()
    leader.write(1)
    leader.hear(2, 1)
    leader.hear(3, 1)
    leader.agree(Member(1, 1))
    leader.leading.agreed()
    leader.write(1)
    assert leader.log.high_watermark == 1
    leader.agree(Member(1, 1), Member(2, 1))
    leader.leading.agreed()
    assert leader.log.high_watermark == 1
    leader.hear(2, 2)
    assert leader.log.high_watermark == 2


def test_another_life_of_a_member_does_not_count() -> None:
    leader = Leader()
    leader.write(1)
    leader.hear(2, 1)
    leader.hear(3, 1, incarnation=2)
    assert leader.log.high_watermark == 0


def test_proposed_in_sync_members_count_until_they_are_agreed() -> None:
    leader = Leader()
    leader.agree(Member(1, 1), Member(2, 1))
    leader.leading.agreed()
    leader.hear(2, 0)
    leader.hear(3, 0)
    change = leader.leading.wanted_change(0.0, LAG_S)
    assert change is not None
    assert [each.node_id for each in change.in_sync] == [1, 2, 3]
    leader.write(1)
    leader.hear(2, 1)
    assert leader.log.high_watermark == 0
    assert leader.leading.answered(change, Decision.UNKNOWN)
    assert leader.log.high_watermark == 0
    again = leader.leading.wanted_change(0.0, LAG_S)
    assert again is not None
    assert leader.leading.answered(again, Decision.REFUSED), "the change has to be requested again"
    assert leader.log.high_watermark == 0, "the first request may still be on its way"
    leader.agree(Member(1, 1), Member(2, 1))
    leader.leading.agreed()
    assert leader.log.high_watermark == 1


def test_the_refusal_of_the_only_request_takes_it_back() -> None:
    leader = Leader()
    leader.agree(Member(1, 1), Member(2, 1))
    leader.leading.agreed()
    leader.hear(2, 0)
    leader.hear(3, 0)
    change = leader.leading.wanted_change(0.0, LAG_S)
    assert isinstance(change, InSyncChange)
    leader.write(1)
    leader.hear(2, 1)
    assert not leader.leading.answered(change, Decision.REFUSED)
    assert leader.log.high_watermark == 1


# ---- who is in sync


def wanted(leader: Leader, now: float) -> list[int] | None:
    change = leader.leading.wanted_change(now, LAG_S)
    return None if change is None else [each.node_id for each in change.in_sync]


def test_members_that_lag_or_are_silent_leave() -> None:
    leader = Leader()
    leader.hear(2, 0)
    leader.hear(3, 0)
    assert wanted(leader, 1.0) is None
    leader.write(1, now=5.0)
    leader.ear.seen_at = 20.0
    leader.hear(2, 1)
    assert wanted(leader, 20.0) == [1, 2]


def test_idle_partition_keeps_all_replicas_in_sync() -> None:
    leader = Leader()
    leader.hear(2, 0)
    leader.hear(3, 0)
    leader.ear.seen_at = 1000.0
    assert wanted(leader, 1000.0) is None
    leader.write(1, now=1000.0)
    assert wanted(leader, 1001.0) is None, "they had everything until just now"


def test_a_follower_joins_at_the_watermark_and_the_start_of_the_epoch() -> None:
    leader = Leader(records=3)
    leader.agree(Member(1, 1), Member(2, 1))
    leader.leading.agreed()
    leader.hear(2, 3)
    leader.hear(3, 2)
    assert wanted(leader, 0.0) is None
    leader.hear(3, 3, stable=2)
    assert wanted(leader, 0.0) is None
    leader.hear(3, 3)
    assert wanted(leader, 0.0) == [1, 2, 3]


def test_a_replica_that_was_dropped_and_came_back_begins_anew() -> None:
    leader = Leader(records=1)
    leader.hear(3, 1)
    old = Position(1, 0, 1, 0, 1, leader.metadata.partition_epoch)
    for replicas in ((1, 2), (1, 2, 3)):
        leader.image.apply(
            PartitionChanged(
                partition_id=1,
                leader=1,
                leader_epoch=0,
                partition_epoch=leader.metadata.partition_epoch + 1,
                replicas=replicas,
                in_sync=(Member(1, 1), Member(2, 1)),
            )
        )
        leader.leading.agreed()
    leader.hear(2, 1)
    assert wanted(leader, 0.0) is None
    refused = leader.leading.follow(Member(3, 1), old, leader.ear, 0.0)
    assert refused is not None
    assert refused.status is Status.NOT_LEADER


# ---- whether it still leads


def granted(leader: Leader) -> None:
    """What it asks for is agreed on."""
    change = leader.leading.wanted_change(0.0, LAG_S)
    assert change is not None
    assert change.in_sync == leader.metadata.members
    leader.agree(*change.in_sync)
    leader.leading.agreed()
    leader.leading.answered(change, Decision.ACCEPTED)


def test_a_leader_refuses_by_what_it_lacks_only_once_it_is_known_to_lead() -> None:
    leader = Leader()
    asked: list[bool] = []
    leader.leading.on_doubt = lambda: asked.append(True)
    assert not leader.leading.is_sure("a")
    assert len(asked) == 1
    granted(leader)
    assert leader.leading.is_sure("a")
    assert not leader.leading.is_sure("a"), "another time is another question"
    assert not leader.leading.is_sure("b"), "that was not asked about"


def test_a_change_that_was_on_its_way_before_tells_nothing() -> None:
    leader = Leader()
    assert not leader.leading.is_sure("a")
    change = leader.leading.wanted_change(0.0, LAG_S)
    assert change is not None
    assert not leader.leading.is_sure("b")
    leader.agree(*change.in_sync)
    leader.leading.agreed()
    leader.leading.answered(change, Decision.ACCEPTED)
    assert leader.leading.is_sure("a")
    assert not leader.leading.is_sure("b")
    granted(leader)
    assert leader.leading.is_sure("b")


def test_only_voter_is_sure_of_its_leadership() -> None:
    leader = Leader()
    leader.agree(Member(1, 1))
    leader.leading.agreed()
    assert leader.leading.is_sure("a")


# ---- histories


def follower_of(leader: Leader) -> tuple[Side, FollowedPartition]:
    side = Side()
    following = FollowedPartition(side.replica, Member(2, 1))
    side.replica.role = following
    return side, following


def exchange(leader: Leader, side: Side, following: FollowedPartition) -> Status:
    """One position, one answer, obeyed."""
    position = following.position()
    told = leader.leading.follow(Member(2, 1), position, leader.ear, 0.0)
    body = b""
    if told is None:
        log = leader.log
        if position.offset < log.stable_end:
            start = max(position.offset, log.log_start_offset)
            body = b"".join(log.read(start, 1 << 20, log.stable_end).buffers)
        told = leader.leading.answer(position, Status.OK, size=len(body))
    following.take(told, memoryview(bytearray(body)))
    side.world.commit()
    side.replica.advance()
    return told.status


def test_a_follower_copies_and_follows_the_watermark() -> None:
    leader = Leader(records=4)
    side, following = follower_of(leader)
    exchange(leader, side, following)
    assert side.log.log_end_offset == 4
    leader.log.advance_high_watermark(3)
    exchange(leader, side, following)
    assert side.log.high_watermark == 3


def test_a_diverging_tail_is_cut_by_epochs() -> None:
    """The follower led epoch 1 and wrote what was never replicated; the leader is in epoch 2."""
    leader = Leader(records=2)
    side, following = follower_of(leader)
    exchange(leader, side, following)
    side.log.begin_epoch(1)
    side.append(3)
    leader.log.begin_epoch(2)
    leader.agree(Member(1, 1), Member(2, 1), more_epochs=2)
    leader.leading = LedPartition(leader.replica, leader.image, Member(1, 1), 0.0)
    leader.append(2)
    side.agree(Member(1, 1), Member(2, 1), more_epochs=2)
    following = FollowedPartition(side.replica, Member(2, 1))
    assert exchange(leader, side, following) is Status.DIVERGING
    assert side.log.log_end_offset == 2
    assert exchange(leader, side, following) is Status.OK
    assert side.log.epochs.entries() == [(0, 0), (2, 2)]
    assert side.log.log_end_offset == 4


def test_an_answer_to_an_earlier_position_at_the_same_offset_cuts_nothing() -> None:
    leader = Leader(records=2)
    side, following = follower_of(leader)
    exchange(leader, side, following)
    side.append(2)
    leader.log.begin_epoch(2)
    leader.agree(Member(1, 1), Member(2, 1), more_epochs=2)
    leader.leading = LedPartition(leader.replica, leader.image, Member(1, 1), 0.0)
    leader.world.append(b"value")
    leader.append(1)
    side.agree(Member(1, 1), Member(2, 1), more_epochs=2)
    following = FollowedPartition(side.replica, Member(2, 1))
    diverging = leader.leading.follow(Member(2, 1), following.position(), leader.ear, 0.0)
    assert diverging is not None
    assert diverging.status is Status.DIVERGING
    assert following.take(diverging, memoryview(b""))
    exchange(leader, side, following)
    assert side.log.log_end_offset == 4
    assert not following.take(diverging, memoryview(b""))
    assert side.log.epochs.entries() == [(0, 0), (2, 2)]
    assert side.log.log_end_offset == 4


def test_an_epoch_led_without_a_record_gives_way_to_older_records() -> None:
    leader = Leader(records=3)
    side = Side()
    data = b"".join(leader.log.read(0, 1, 1).buffers)
    side.log.append_as_is(bytearray(data))
    side.world.commit()
    side.log.begin_epoch(1)
    leader.agree(Member(1, 1), Member(2, 1), more_epochs=2)
    leader.log.begin_epoch(2)
    leader.leading = LedPartition(leader.replica, leader.image, Member(1, 1), 0.0)
    side.agree(Member(1, 1), Member(2, 1), more_epochs=2)
    following = FollowedPartition(side.replica, Member(2, 1))
    assert exchange(leader, side, following) is Status.OK
    assert side.log.log_end_offset == 3
    side.world.restart(clean=False)
    assert side.world.log.log_end_offset == 3
    assert not side.world.log.is_damaged


def test_what_the_leader_has_deleted_is_jumped_over() -> None:
    leader = Leader(records=5)
    leader.log.advance_high_watermark(5)
    leader.log.move_log_start(3)
    side, following = follower_of(leader)
    side.agree(Member(1, 1))
    assert exchange(leader, side, following) is Status.OUT_OF_RANGE
    assert side.log.log_start_offset == 3
    assert exchange(leader, side, following) is Status.OK
    assert side.log.log_end_offset == 5


def test_a_damaged_copy_is_given_up_only_when_it_does_not_count() -> None:
    leader = Leader(records=3)
    side, following = follower_of(leader)
    exchange(leader, side, following)
    side.log.report("a bit is wrong")
    assert exchange(leader, side, following) is Status.OUT_OF_RANGE
    assert side.log.log_end_offset == 3, "still in sync, as far as this node knows"
    side.agree(Member(1, 1))
    exchange(leader, side, following)
    assert (side.log.log_end_offset, side.log.is_damaged) == (0, False)
    exchange(leader, side, following)
    assert side.log.log_end_offset == 3


@pytest.mark.parametrize(("epoch", "status"), [(0, Status.FENCED), (2, Status.NOT_LEADER)])
def test_another_leadership_is_fenced(epoch: int, status: Status) -> None:
    leader = Leader()
    leader.agree(Member(1, 1), more_epochs=1)
    leader.leading = LedPartition(leader.replica, leader.image, Member(1, 1), 0.0)
    told = leader.leading.follow(Member(2, 1), Position(1, epoch, 0, NONE, 0, 1), leader.ear, 0.0)
    assert told is not None
    assert told.status is status


# ---- fetches


class Server:
    """A leader, asked by node 2 in one session."""

    def __init__(self, records: int = 0, moved_bytes_per_s: int = 0) -> None:
        self.leader = Leader(records)
        self.scheduler = self.leader.world.scheduler
        partitions = Partitions({1: self.leader.leading}.get, lambda _: None, lambda *_: None)
        throttle = Throttle(lambda: moved_bytes_per_s)
        self.serving = FetchServer(partitions, self.scheduler, throttle)
        #: Per reply: the offset that each partition's part goes up to.
        self.replies: list[list[int]] = []
        self._number = 0

    def move_to(self, target: tuple[int, ...], in_sync: tuple[int, ...]) -> None:
        self.leader.image.apply(
            PartitionChanged(
                partition_id=1,
                leader=1,
                leader_epoch=0,
                partition_epoch=self.leader.metadata.partition_epoch + 1,
                replicas=(1, 2, 3),
                in_sync=tuple(Member(node, 1) for node in in_sync),
                target=target,
            )
        )
        self.leader.leading.agreed()

    def fetch(self, offset: int, *, wait_ms: int = 500) -> None:
        epoch = self.leader.metadata.partition_epoch
        last_epoch = 0 if offset else NONE
        request = FetchRequest(
            follower=Member(2, 1),
            session=1,
            number=self._number,
            positions=(Position(1, 0, offset, last_epoch, offset, epoch),),
            wait_ms=wait_ms,
            bytes_max=1 << 20,
        )
        self._number += 1
        self.serving.fetch(request, self._answered)

    def _answered(self, reply: FetchReply, body: Sequence[Buffer]) -> None:
        assert crc32c(b"".join(body)) == reply.checksum
        found = list(batches(memoryview(b"".join(body))))
        ends = [header.last_offset + 1 for header, _ in found][-1:]
        self.replies.append(ends)


def test_a_fetch_gets_what_is_being_synced_and_nothing_twice() -> None:
    server = Server()
    leader = server.leader
    server.fetch(0, wait_ms=0)
    server.fetch(0)
    assert server.replies == [[]], "the second one waits"
    leader.world.store.commits.sync_average_s = 1.0
    leader.world.append(b"value")
    leader.world.store.commits.commit_scheduled()
    leader.leading.grown()
    assert server.replies[1:] == [[1]]
    server.fetch(1)
    leader.world.commit()
    leader.leading.stable(0.0)
    assert leader.log.stable_end == 1
    assert len(server.replies) == 2, "there is nothing new for it"


def test_a_replica_that_is_added_is_sent_so_many_bytes_a_second() -> None:
    server = Server(records=60, moved_bytes_per_s=1000)
    server.move_to((1, 2), in_sync=(1, 3))
    offset, seconds = 0, 0.0
    while offset < 60:
        server.fetch(offset, wait_ms=60_000)
        while not server.replies:
            server.scheduler.advance(0.05)
            seconds += 0.05
            assert seconds < 60
        offset = server.replies.pop()[0]
    # What was saved up before is sent at once.
    at_rate = server.leader.log.size / 1000
    assert at_rate - 1.5 < seconds < at_rate + 0.5


@pytest.mark.parametrize(
    ("target", "in_sync"),
    [((), (1, 3)), ((1, 2), (1, 2)), ((1, 3), (1,))],
    ids=["comes back", "in sync", "leaves"],
)
def test_other_replicas_are_not_throttled(
    target: tuple[int, ...], in_sync: tuple[int, ...]
) -> None:
    server = Server(records=60, moved_bytes_per_s=1000)
    server.move_to(target, in_sync)
    server.fetch(0)
    assert server.replies == [[60]]


class Wire:
    """Peers that keep what they are given."""

    def __init__(self) -> None:
        self.fetches: list[tuple[FetchRequest, TakeReply]] = []
        self.reports: list[Progress] = []

    def fetch(self, node_id: int, request: FetchRequest, done: TakeReply) -> None:
        self.fetches.append((request, done))

    def report(self, node_id: int, progress: Progress) -> None:
        self.reports.append(progress)

    def answer(self, *partitions: Fetched, body: bytes = b"") -> None:
        request, done = self.fetches[-1]
        reply = FetchReply(
            session=request.session,
            number=request.number,
            partitions=partitions,
            checksum=crc32c(body),
        )
        done(reply, memoryview(bytearray(body)))


def test_the_fetch_after_a_report_says_the_same_for_the_report_may_be_lost() -> None:
    leader = Leader(records=2)
    side, following = follower_of(leader)
    wire = Wire()
    fetcher = Fetcher(1, wire, side.world.scheduler, Timing(), lambda _: None)
    fetcher.add(following, Member(2, 1))
    side.world.commit()
    position = wire.fetches[0][0].positions[0]
    body = b"".join(leader.log.read(0, 1 << 20, 2).buffers)
    side.world.store.commits.sync_average_s = 1.0
    wire.answer(leader.leading.answer(position, Status.OK, size=len(body)), body=body)
    fetcher._send()
    assert [(each.offset, each.stable_end) for each in wire.fetches[1][0].positions] == [(2, 0)]
    side.world.commit()
    fetcher.became_stable(following)
    side.world.commit()
    assert [each.stable_ends for each in wire.reports] == [((1, 0, 2),)]
    wire.answer()
    side.world.commit()
    assert [(each.offset, each.stable_end) for each in wire.fetches[2][0].positions] == [(2, 2)]
    wire.answer()
    side.world.commit()
    assert wire.fetches[3][0].positions == ()


def test_replies_from_before_a_cut_belong_to_another_session() -> None:
    leader = Leader(records=2)
    side, following = follower_of(leader)
    exchange(leader, side, following)
    side.log.begin_epoch(1)
    side.append(3)
    leader.log.begin_epoch(2)
    wire = Wire()
    fetcher = Fetcher(1, wire, side.world.scheduler, Timing(), lambda _: None)
    fetcher.add(following, Member(2, 1))
    side.world.commit()
    told = wire.fetches[0][0]
    assert [each.stable_end for each in told.positions] == [5]
    diverging = leader.leading.answer(told.positions[0], Status.DIVERGING, epoch=0, epoch_end=2)
    wire.answer(diverging)
    side.world.commit()
    again = wire.fetches[1][0]
    assert [(each.offset, each.stable_end) for each in again.positions] == [(2, 2)]
    assert (again.session, again.number) == (told.session + 1, 0)


def test_a_damaged_copy_reports_nothing() -> None:
    leader = Leader(records=2)
    side, following = follower_of(leader)
    exchange(leader, side, following)
    wire = Wire()
    fetcher = Fetcher(1, wire, side.world.scheduler, Timing(), lambda _: None)
    fetcher.add(following, Member(2, 1))
    side.world.commit()
    side.append(1)
    side.log.report("a bit is wrong")
    fetcher.became_stable(following)
    side.world.commit()
    assert wire.reports == []


# ---- messages


def test_messages_survive_their_encoding() -> None:
    request = FetchRequest(
        follower=Member(2, 7),
        session=3,
        number=0,
        positions=(Position(1, 2, 3, 4, 5, 6),),
        dropped=(9,),
        wait_ms=500,
        bytes_max=1000,
    )
    assert decode_message(encode_message(request)) == request


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x81\xa4type\xa1x", b"\xc1" * 40])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_message(data)


def test_the_higher_minimum_of_a_node_holds_back_what_is_committed() -> None:
    leader = Leader()
    # The topic requires one replica in sync, and the node's own settings two.
    leader.metadata.topic.config = {"min.insync.replicas": "1"}
    leader.replica.config = TopicConfig.build(Settings(min_insync_replicas=2), {})
    leader.agree(Member(1, 1))
    assert (leader.metadata.min_insync, leader.replica.min_insync) == (1, 2)
    leader.write(3)
    assert leader.log.high_watermark == 0
    leader.replica.config = TopicConfig.build(Settings(), {})
    leader.leading.advance()
    assert leader.log.high_watermark == 3
