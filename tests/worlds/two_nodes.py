"""Two nodes on one virtual time that know of each other and can ask each other.

Metadata is agreed on by hand: what one proposes is applied on both. There is no replication: when a
partition gets another leader, `move` copies its log first, as if the new one had followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import (
    Event,
    Member,
    NodeRegistered,
    PartitionChanged,
    TopicCreated,
)
from dragoman.config.settings import Settings
from dragoman.errors import ClusterError, DragomanError, NotSentError
from dragoman.log.partition import PartitionLog
from dragoman.outcome import Outcome, ignore, start
from dragoman.rpc import Answer, RawReply, Request
from dragoman.testing.sim.scheduler import SimScheduler
from dragoman.types import Buffer
from worlds.broker import World

SETTINGS = Settings(
    transaction_state_log_num_partitions=2,
    transaction_state_log_replication_factor=1,
    offsets_topic_num_partitions=2,
    offsets_topic_replication_factor=1,
)


class Line:
    """What one node sees of the other."""

    def __init__(self, pair: Pair, node: int) -> None:
        self._pair = pair
        self._node = node
        #: Nothing gets through; or answers do not.
        self.is_cut = False
        self.loses_answers = False
        #: Requests that do not get through.
        self.cuts_at: tuple[type, ...] = ()
        #: Requests whose answers come too late.
        self.impatient_with: tuple[type, ...] = ()
        self.asked: list[Request[Answer]] = []
        #: When set, requests wait here until `release`.
        self.held: list[Callable[[], None]] | None = None

    def exchange(self, node_id: int, header: bytes, body: Sequence[Buffer]) -> Outcome[RawReply]:
        """`Transport` of remote procedure calls."""
        outcome: Outcome[RawReply] = Outcome()
        registry = self._pair.worlds[self._node].broker.registry
        request = registry.decode_request(header)
        self.asked.append(request)
        soon = self._pair.scheduler.call_soon
        is_cut = self.is_cut or isinstance(request, self.cuts_at)
        if is_cut or node_id not in self._pair.worlds:
            soon(outcome.fail, NotSentError(f"node {node_id} is not connected"))
            return outcome
        data = memoryview(b"".join(body))

        is_late = isinstance(request, self.impatient_with)

        def answered(reply: bytes, pieces: Sequence[Buffer]) -> None:
            if is_late:
                return
            if self.loses_answers:
                soon(outcome.fail, ClusterError("the connection was lost; the outcome is unknown"))
            else:
                soon(outcome.succeed, RawReply(reply, memoryview(b"".join(pieces))))

        def arrive() -> None:
            served = self._pair.worlds[node_id].broker.registry
            served.answer(self._node, memoryview(header), data, answered)

        if is_late:
            soon(outcome.fail, ClusterError("no answer in time; the outcome is unknown"))
        if self.held is not None:
            self.held.append(arrive)
        else:
            soon(arrive)
        return outcome

    def release(self) -> None:
        held, self.held = self.held, None
        for arrive in held or ():
            self._pair.scheduler.call_soon(arrive)


class Pair:
    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.scheduler = SimScheduler()
        self.worlds = {
            node: World(
                msgspec.structs.replace(settings, node_id=node), scheduler=self.scheduler, seed=node
            )
            for node in (1, 2)
        }
        self.lines = {node: Line(self, node) for node in self.worlds}
        for node, world in self.worlds.items():
            world.broker.rpc.transport = self.lines[node]
            self._forget_leads(world)
            self._share_metadata(world)
        self.propose(*(self._registration(node) for node in self.worlds))

    @property
    def one(self) -> World:
        return self.worlds[1]

    @property
    def two(self) -> World:
        return self.worlds[2]

    def settle(self) -> None:
        self.scheduler.run_ready()

    def advance(self, seconds: float) -> None:
        self.scheduler.advance(seconds)

    # ---- metadata

    def _registration(self, node: int) -> NodeRegistered:
        addresses = {
            name: f"node-{node}.example:{port}"
            for name, port in (
                ("peer", 7071),
                ("kafka", 9092),
                ("cursus", 9000),
                ("minibroker", 4222),
            )
        }
        known = self.worlds[node].broker.image.registrations[node]
        return msgspec.structs.replace(known, addresses=addresses)

    def _forget_leads(self, world: World) -> None:
        """Alone, each took everything for its own."""
        for internal in world.broker.directory.internal_topics.values():
            for index in range(internal.partition_count):
                internal.resign(index)

    def _share_metadata(self, world: World) -> None:
        quorum = world.broker.quorum
        others = [each for each in self.worlds.values() if each is not world]
        propose = quorum.propose
        applied = quorum.on_applied

        def propose_to_all(events: list[Event]) -> Outcome[None]:
            for each in others:
                quorum = each.broker.quorum
                type(quorum).propose(quorum, events).then(ignore)
            return propose(events)

        def lead_applied(event: Event, removed: object) -> None:
            applied(event, removed)  # type: ignore[arg-type]
            if isinstance(event, TopicCreated):
                self._tell_leads(world, event.name)

        quorum.propose = propose_to_all  # type: ignore[method-assign]
        quorum.on_applied = lead_applied

    def _tell_leads(self, world: World, topic: str) -> None:
        internal = world.broker.directory.internal_topics.get(topic)
        for partition in world.broker.image.topics[topic].partitions:
            if internal is not None and partition.leader == world.broker.node_id:
                internal.lead(partition.index, partition.leader_epoch)

    def propose(self, *events: Event) -> None:
        self.one.broker.quorum.propose(list(events)).then(ignore)
        self.settle()

    def create(self, name: str, *leaders: int) -> None:
        """A topic whose partitions have these leaders."""
        assignment = tuple((leader,) for leader in leaders)
        told: list[DragomanError | None] = []
        start(self.one.broker.topics.create(NewTopic(name=name, assignment=assignment))).then(
            told.append
        )
        self.settle()
        assert told == [None]

    def create_internal(self, *names: str) -> None:
        for world in (self.one, self.two):
            coordination = world.broker.coordination
            for internal in (coordination.groups.log, coordination.transactions.log):
                name, count = internal.name, internal.partition_count
                if name in names and name not in world.broker.image.topics:
                    new = NewTopic(
                        name=name, partition_count=count, replication_factor=1, is_internal=True
                    )
                    start(world.broker.topics.create(new)).then(ignore)
                    self.settle()

    def move(self, topic: str, index: int, leader: int) -> None:
        """The partition gets this leader at once, which has all that was committed, and no more."""
        # What this makes happen still happens under the old leader.
        self.worlds[leader].store.settle_all()
        before = self.one.broker.image.topics[topic].partitions[index].leader
        old = self.worlds[before].broker.partitions.find(topic, index)
        self._copy(leader, topic, index, old.log)
        for world in self.worlds.values():
            partition = world.broker.image.topics[topic].partitions[index]
            world.broker.image.apply(
                PartitionChanged(
                    partition_id=partition.partition_id,
                    leader=leader,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                    replicas=(leader,),
                    in_sync=(Member(leader, 1),),
                )
            )
        broker = self.worlds[before].broker
        broker.partitions.unshared(broker.image.topics[topic].partitions[index])
        if topic in broker.directory.internal_topics:
            broker.directory.internal_topics[topic].resign(index)
        broker = self.worlds[leader].broker
        broker.partitions.unshared(broker.image.topics[topic].partitions[index])
        self._tell_leads(self.worlds[leader], topic)

    def _copy(self, leader: int, topic: str, index: int, old: PartitionLog) -> None:
        broker = self.worlds[leader].broker
        log = broker.partitions.open(broker.image.topics[topic].partitions[index]).log
        # What was never committed when it led last.
        log.truncate(log.high_watermark)
        data = _committed(old)
        log.append_as_is(bytearray(data[_bytes_below(log.log_end_offset, data) :]))
        log.commits.settle_all()
        if old.log_start_offset > log.log_start_offset:
            log.advance_high_watermark(log.stable_end)
            log.move_log_start(old.log_start_offset)


def _committed(log: PartitionLog) -> bytes:
    found = bytearray()
    offset = log.log_start_offset
    while offset < log.high_watermark:
        buffers, _, offset = log.read(offset, 1 << 20, log.high_watermark)
        found += b"".join(buffers)
    return bytes(found)


def _bytes_below(offset: int, data: bytes) -> int:
    """Where the batch of an offset begins, in batches that follow each other."""
    position = 0
    while position < len(data) and int.from_bytes(data[position : position + 8], "big") < offset:
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return position
