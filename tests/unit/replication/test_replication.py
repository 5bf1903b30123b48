"""Goal: a node becomes what the image says, and throws nothing away that may count.

Method: `Replication` over a real log; the test is the controller and everybody else.
"""

from __future__ import annotations

from dragoman.broker.errors import ReplicaDamaged
from dragoman.broker.fetch import FetchLimits, Wanted, read_all
from dragoman.cluster.events import (
    Event,
    Member,
    NodeRegistered,
    PartitionChanged,
    PartitionPlacement,
    TopicCreated,
)
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.config.overrides import TopicConfig
from dragoman.config.settings import Settings
from dragoman.errors import CorruptionError
from dragoman.outcome import Outcome
from dragoman.replication.life import Life
from dragoman.replication.messages import (
    ControlReply,
    ControlRequest,
    Decision,
    FetchRequest,
    Registration,
)
from dragoman.replication.replica import Replica
from dragoman.replication.replication import Replication
from worlds.log import World as LogWorld

CONFIG = TopicConfig.build(Settings(), {})


class World:
    """Node 1, started again on a log with some records of the only partition."""

    def __init__(self) -> None:
        self.logs = LogWorld()
        self.logs.fill(12)
        self.logs.store.on_stable = lambda _: None
        self.image = MetadataImage()
        for node in (2, 3):
            self.image.apply(NodeRegistered(node_id=node, incarnation=1))
        placement = PartitionPlacement(1, (1, 2, 3))
        self.image.apply(TopicCreated(name="t", topic_id=b"t" * 16, partitions=(placement,)))
        self.asked: list[ControlRequest] = []
        self.fetched: list[FetchRequest] = []
        self.replication = Replication(
            1, self.image, self.logs.scheduler, self, self, self.open, self.unshared
        )
        self.replication.start(Life(self.logs.store, {}))

    def open(self, metadata: PartitionMetadata) -> Replica:
        self.replica = Replica(metadata, self.logs.log, CONFIG)
        return self.replica

    def unshared(self, metadata: PartitionMetadata) -> None:
        assert 1 not in metadata.replicas
        self.logs.log.restart_at(0)

    # ---- the ports

    async def ask(self, request: ControlRequest) -> ControlReply | None:
        self.asked.append(request)
        self.answer: Outcome[ControlReply | None] = Outcome()
        return await self.answer

    def fetch(self, _node_id: int, request: FetchRequest, _done: object) -> None:
        self.fetched.append(request)

    def report(self, *_arguments: object) -> None: ...

    # ---- what is agreed on

    def agree(self, event: Event) -> None:
        self.image.apply(event)
        self.replication.applied(event)

    def register(self) -> None:
        request = next(each for each in reversed(self.asked) if isinstance(each, Registration))
        self.agree(
            NodeRegistered(
                node_id=1,
                incarnation=1,
                directory=request.directory,
                life=request.life,
            )
        )
        self.answer.succeed(ControlReply(outcomes=(Decision.ACCEPTED,)))

    def change(self, *nodes: int, leader: int) -> None:
        before = self.image.partitions[1]
        self.agree(
            PartitionChanged(
                partition_id=1,
                leader=leader,
                leader_epoch=before.leader_epoch + 1,
                partition_epoch=before.partition_epoch + 1,
                replicas=nodes,
                in_sync=tuple(Member(each, 1) for each in nodes),
            )
        )


def test_a_move_of_long_ago_empties_nothing() -> None:
    """A start reads the metadata from the last snapshot on, over and over again."""
    world = World()
    world.change(2, 3, leader=2)
    assert world.logs.log.log_end_offset == 12
    world.change(1, 2, 3, leader=2)
    world.register()
    assert world.logs.log.log_end_offset == 12


def test_a_partition_that_was_moved_is_emptied_when_that_is_known() -> None:
    world = World()
    world.change(2, 3, leader=2)
    world.register()
    assert world.logs.log.log_end_offset == 0


def test_damage_that_a_client_meets_gives_the_lead_to_another() -> None:
    world = World()
    world.register()
    world.change(1, 2, 3, leader=1)
    assert world.replica.is_led
    world.replica.log.advance_high_watermark(12)
    world.logs.store.checkpoint_now()
    world.logs.log.clear_tail()
    segment = world.logs.log.segments[0]
    world.logs.disk._tree.file(segment.log_path).data[100] ^= 1
    wanted = Wanted(world.replica, 0, 1000)
    (found,), _, _ = read_all([wanted], FetchLimits(0, 1000, 0, False))
    assert isinstance(found.error, ReplicaDamaged)
    world.logs.scheduler.run_ready()
    last = world.asked[-1]
    assert isinstance(last, Registration)
    assert last.damaged == (1,)


def test_damage_below_the_reported_end_starts_a_new_incarnation() -> None:
    """It is not in sync, but its leader may have asked for that already."""
    world = World()
    world.register()
    world.change(1, 2, 3, leader=2)
    in_sync = (Member(2, 1), Member(3, 1))
    before = world.image.partitions[1]
    world.agree(
        PartitionChanged(
            partition_id=1,
            leader=2,
            leader_epoch=before.leader_epoch,
            partition_epoch=before.partition_epoch + 1,
            replicas=(1, 2, 3),
            in_sync=in_sync,
        )
    )
    world.logs.scheduler.run_ready()
    assert len(world.fetched) == 1
    asked = len(world.asked)
    world.replication.damaged(world.replica, CorruptionError("a file", 7, "a bit is wrong"))
    world.logs.scheduler.run_ready()
    assert [type(each) for each in world.asked[asked:]] == [Registration]
