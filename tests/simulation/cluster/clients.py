"""Clients of a simulated cluster, each a process of its own, and what they know in the end."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

from dragoman.broker.topics import NewTopic
from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    ClientSettings,
    FetchFrom,
    Isolation,
    KafkaClient,
    KafkaError,
    OffsetRangeError,
    ProducerFencedError,
    SequenceError,
    TopicPartition,
    UnknownTopicError,
)
from dragoman.client_core.errors import ClientError
from dragoman.cluster.events import Event, TopicConfigChanged, TopicCreated, TopicDeleted
from dragoman.errors import DragomanError, OutcomeUnknownError
from dragoman.log.batch import Record, batches, build_batch
from dragoman.outcome import start
from dragoman.testing.sim.scheduler import SimClock

if TYPE_CHECKING:
    from simulation.cluster.cluster import Cluster

#: The topic that is there from the beginning to the end.
MAIN = "main"
_SETTINGS = ClientSettings(
    connect_timeout_s=1.0, request_timeout_s=2.0, operation_timeout_s=5.0, metadata_age_max_s=5.0
)
#: Small segments; and clocks may jump.
CONFIG = {"segment.bytes": "2500", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
_START_MS = 1_704_067_200_000


class Client:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.random = Random(cluster.random.getrandbits(64))
        self.loop = cluster.world.loop(name)
        self.is_stopped = False
        self.task = cluster.world.start(self._run(), self.loop)

    async def _run(self) -> None:
        nodes = ",".join(f"{each.host}:9092" for each in self.cluster.nodes)
        client = KafkaClient(nodes, _SETTINGS, clock=SimClock(self.loop), random=self.random)
        await self.work(client)
        await client.close()

    async def work(self, client: KafkaClient) -> None:
        raise NotImplementedError

    async def pause(self, seconds_max: float) -> None:
        await asyncio.sleep(self.random.uniform(0.01, seconds_max))

    def where(self) -> TopicPartition:
        topics = [MAIN] if self.cluster.is_healed else sorted(self.cluster.topics)
        topic = self.random.choice(topics)
        return TopicPartition(topic, self.random.randrange(self.cluster.topics[topic]))


class Producer(Client):
    """Idempotent ones repeat a batch until they know that it is there; others try once."""

    def __init__(
        self, cluster: Cluster, number: int, *, is_idempotent: bool, acks: Literal[-1, 1]
    ) -> None:
        self._is_idempotent = is_idempotent
        self._acks: Literal[-1, 1] = acks
        self._identity = (-1, -1)
        self._number = 0
        self._sequences: dict[TopicPartition, int] = {}
        #: Values by the outcome that their producer saw.
        self.acknowledged: dict[bytes, tuple[TopicPartition, int]] = {}
        self.refused: dict[bytes, str] = {}
        self.acknowledged_at: dict[TopicPartition, float] = {}
        #: Below these offsets nothing is in doubt.
        self.settled: dict[TopicPartition, int] = {}
        super().__init__(cluster, f"producer{number}")

    @property
    def promises(self) -> bool:
        """Whether an acknowledgement holds for ever."""
        return self._acks == -1

    async def work(self, client: KafkaClient) -> None:
        while not self.is_stopped:
            if self._is_idempotent and self._identity[0] < 0 and not await self._identify(client):
                continue
            where = self.where()
            values = []
            for _ in range(self.random.choice((1, 1, 2))):
                self._number += 1
                size = self.random.choice((0, 20, 300, 1000))
                text = f"{self.name}:{self._number}:".encode()
                values.append(text + b"x" * size)
            await self._write(client, where, values)
            await self.pause(self.cluster.pace_s)

    async def _identify(self, client: KafkaClient) -> bool:
        try:
            found = await client.new_producer_identity()
        except ClientError:
            await self.pause(0.3)
            return False
        self._identity = (found.producer_id, found.producer_epoch)
        self._sequences.clear()
        is_new = found.producer_id not in self.cluster.producer_ids
        self.cluster.checker.expect(is_new, f"producer id {found.producer_id} is given twice")
        self.cluster.producer_ids.add(found.producer_id)
        return True

    async def _write(self, client: KafkaClient, where: TopicPartition, values: list[bytes]) -> None:
        producer_id, epoch = self._identity
        batch = bytes(
            build_batch(
                [Record(value=each, timestamp=_START_MS) for each in values],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self._sequences.get(where, 0) if self._is_idempotent else -1,
            )
        )
        while True:
            try:
                told = await client.produce(
                    *where, batch, acks=self._acks, timeout_ms=2000, auto_create=False
                )
            except UnknownTopicError as error:
                if where.topic != MAIN:
                    # Deleted meanwhile.
                    return
                self._failed(values, error)
            except (SequenceError, ProducerFencedError) as error:
                self.cluster.checker.expect(
                    not self.promises, f"S11: {self.name} gets {error} at {where}"
                )
                self._identity = (-1, -1)
                return
            except ClientError as error:
                self._failed(values, error)
            else:
                self._succeeded(where, values, told.base_offset)
                return
            if not self._is_idempotent or self.is_stopped:
                return
            await self.pause(0.3)

    def _failed(self, values: list[bytes], error: ClientError) -> None:
        is_definite = isinstance(error, KafkaError) and not error.is_ambiguous
        if is_definite and not self._is_idempotent:
            self.refused.update(dict.fromkeys(values, str(error)))

    def _succeeded(self, where: TopicPartition, values: list[bytes], offset: int) -> None:
        self.acknowledged_at[where] = self.cluster.world.now
        self._sequences[where] = self._sequences.get(where, 0) + len(values)
        self.settled[where] = max(self.settled.get(where, 0), offset)
        if self.promises:
            self.cluster.checker.told_committed(*where, offset + len(values))
            for at, value in enumerate(values):
                self.acknowledged[value] = (where, offset + at)


class Consumer(Client):
    """Reads from any offset: what it gets is committed, follows on, and never changes."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._positions: dict[TopicPartition, int] = {}
        self.batches = 0
        super().__init__(cluster, f"consumer{number}")

    async def work(self, client: KafkaClient) -> None:
        while not self.is_stopped:
            where = self.where()
            offset = self._positions.get(where, 0)
            if offset and self.random.random() < 0.2:
                offset = self.random.randrange(offset)
            try:
                await self._read(client, where, offset)
            except OffsetRangeError:
                await self._find_start(client, where)
            except ClientError:
                await self.pause(0.2)
            await self.pause(self.cluster.pace_s)

    async def _read(self, client: KafkaClient, where: TopicPartition, offset: int) -> None:
        found = await client.fetch(
            {where: FetchFrom(offset, 3000)}, max_wait_ms=200, isolation=Isolation.READ_UNCOMMITTED
        )
        topic = self.cluster.agreed.image.topics.get(where.topic)
        if topic is None:
            return
        data = found[where].records
        expect = self.cluster.checker.expect
        next_offset = offset
        for header, _ in batches(data):
            self.batches += 1
            is_first = next_offset == offset
            follows = (
                header.base_offset <= offset if is_first else header.base_offset == next_offset
            )
            expect(follows, f"S10: {where} has {header.base_offset} where {next_offset} was due")
            next_offset = header.last_offset + 1
        partition = topic.partitions[where.partition]
        self.cluster.checker.consumed(partition.partition_id, bytes(data))
        self._positions[where] = max(next_offset, self._positions.get(where, 0))

    async def _find_start(self, client: KafkaClient, where: TopicPartition) -> None:
        try:
            start = (await client.list_offsets({where: EARLIEST}))[where].offset
        except ClientError:
            return
        self._positions[where] = start


class Change(NamedTuple):
    """A request of an operator to a node, and its outcome."""

    kind: type[Event]
    #: Found in the event and in no other.
    mark: str
    outcome: str


class Admin(Client):
    """Changes topics through whichever node; those that do not lead the metadata send it on."""

    def __init__(self, cluster: Cluster) -> None:
        self.changes: list[Change] = []
        self._number = 0
        super().__init__(cluster, "admin")

    async def work(self, client: KafkaClient) -> None:
        while not self.is_stopped:
            await self.pause(self.cluster.admin_pace_s)
            kind = self.random.choice(("create", "create", "delete", "config", "list", "records"))
            if kind == "list":
                await self._list(client)
            elif kind == "records":
                await self._delete_records(client)
            else:
                for _ in range(self.random.choice((1, 1, 3))):
                    self._change(kind)

    async def _list(self, client: KafkaClient) -> None:
        try:
            await client.cluster()
        except ClientError:
            await self.pause(0.2)

    async def _delete_records(self, client: KafkaClient) -> None:
        """Not what a producer may send again: a copy made anew knows only of what is in the log."""
        where = TopicPartition(MAIN, self.random.randrange(self.cluster.topics[MAIN]))
        settled = [each.settled.get(where, 0) for each in self.cluster.producers]
        if self.random.random() < 0.5 and min(settled) > 0:
            try:
                await client.delete_records({where: min(settled)})
            except ClientError:
                await self.pause(0.2)

    def _change(self, kind: str) -> None:
        ready = [each for each in self.cluster.nodes if each.is_ready and each.node is not None]
        extra = sorted(name for name in self.cluster.topics if name != MAIN)
        if not ready or (kind == "delete" and not extra):
            return
        process = self.random.choice(ready)
        assert process.node is not None
        assert process.loop is not None
        topics = process.node.broker.topics
        self._number += 1
        if kind == "create" and len(extra) < 4:
            new = NewTopic(
                name=f"extra{self._number}",
                partition_count=self.random.choice((1, 2)),
                replication_factor=self.random.choice((1, 2, 3)),
                config=CONFIG,
            )

            def created(error: DragomanError | None) -> None:
                self._note(TopicCreated, new.name, error)
                if error is None:
                    self.cluster.topics[new.name] = new.partition_count

            process.loop.call_soon(lambda: start(topics.create(new)).then(created))
        elif kind == "delete":
            name = self.random.choice(extra)
            del self.cluster.topics[name]
            process.loop.call_soon(
                lambda: start(topics.delete(name)).then(partial(self._note, TopicDeleted, name))
            )
        else:
            value = str(1_000_000_000 + self._number)
            topic = self.random.choice([MAIN, *extra])

            def alter() -> None:
                altered = topics.alter_config(topic, lambda old: {**old, "retention.ms": value})
                start(altered).then(partial(self._note, TopicConfigChanged, value))

            process.loop.call_soon(alter)

    def _note(self, kind: type[Event], mark: str, error: DragomanError | None) -> None:
        if error is None:
            outcome = "done"
        else:
            outcome = "unknown" if isinstance(error, OutcomeUnknownError) else "refused"
        self.cluster.note(f"{kind.__name__} {mark}: {error or 'done'}")
        self.changes.append(Change(kind, mark, outcome))


class LastReader(Client):
    """Reads all that is there, in the end."""

    def __init__(self, cluster: Cluster) -> None:
        self.found: dict[TopicPartition, list[bytes]] = {}
        self.why = ""
        super().__init__(cluster, "reader")

    async def work(self, client: KafkaClient) -> None:
        for name, topic in list(self.cluster.agreed.image.topics.items()):
            for partition in topic.partitions:
                where = TopicPartition(name, partition.index)
                self.found[where] = await self._read(client, where)
                if name not in self.cluster.agreed.image.topics:
                    del self.found[where]

    async def _read(self, client: KafkaClient, where: TopicPartition) -> list[bytes]:
        while where.topic in self.cluster.agreed.image.topics:
            try:
                start = (await client.list_offsets({where: EARLIEST}))[where].offset
                end = (await client.list_offsets({where: LATEST}))[where].offset
                found: list[bytes] = []
                while start < end:
                    reply = await client.fetch({where: FetchFrom(start, 1 << 20)})
                    for header, batch in batches(reply[where].records):
                        found.append(bytes(batch))
                        start = header.last_offset + 1
            except ClientError as error:
                self.why = str(error)
                await self.pause(0.3)
            else:
                return found
        return []


# ---- the end


def check_changes(cluster: Cluster) -> None:
    """S4 and S15, of the metadata: what was said to be done was agreed on, and only that."""
    ids: dict[bytes, str] = {}
    agreed: set[tuple[type[Event], str]] = set()
    for event in cluster.agreed.events:
        match event:
            case TopicCreated():
                ids[event.topic_id] = event.name
                agreed.add((TopicCreated, event.name))
            case TopicDeleted():
                agreed.add((TopicDeleted, ids[event.topic_id]))
            case TopicConfigChanged():
                agreed.add((TopicConfigChanged, event.config.get("retention.ms", "")))
            case _:
                pass
    for change in cluster.admin.changes:
        is_there = (change.kind, change.mark) in agreed
        if change.outcome != "unknown":
            text = f"S15: {change.kind.__name__} {change.mark} was {change.outcome}"
            cluster.checker.expect(is_there == (change.outcome == "done"), text)
