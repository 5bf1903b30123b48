"""A broker on virtual time and a disk in memory, and clients on pipes made of lists.

`World` is a node without sockets: nothing happens until `settle` runs what is ready or `advance`
lets time pass. `Pipe` is one connection to it, through the real channel and session, `Wire` one of
Kafka's; what the peer has not taken yet stays in `transport.unsent`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from dragoman.broker.broker import Broker
from dragoman.broker.fetch import Fetch, Fetched, FetchLimits, Wanted
from dragoman.broker.produce import check_produced, place
from dragoman.broker.topics import NewTopic
from dragoman.captures.rights import CaptureAuthorizer
from dragoman.captures.service import Captures
from dragoman.cluster.etcd.calls import Gateway
from dragoman.cluster.events import Event, RulesChanged
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.framing import Scratch
from dragoman.log.batch import Marker, Record, batches, build_batch, build_marker, records
from dragoman.log.compression import Codec
from dragoman.log.partition import Appended
from dragoman.log.store import Durability, LogStore
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel, Channels, Session
from dragoman.outcome import start
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import ClientConnection, Reply
from dragoman.protocols.kafka.handlers.consumer_protocol import KafkaGroupDialect
from dragoman.protocols.kafka.handlers.service import KafkaService
from dragoman.protocols.kafka.handlers.session import KafkaSession
from dragoman.replication.replica import Replica
from dragoman.security.authorizer import Authorizer
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.background import ImmediateBackground
from dragoman.testing.sim.scheduler import SimClock, SimScheduler
from dragoman.types import Buffer
from dragoman.world import Disk

Answer = TypeVar("Answer", bound=m.Message)


class Outcome:
    """Records the result passed to a callback."""

    def __init__(self) -> None:
        self.calls: list[DragomanError | None] = []

    def __call__(self, error: DragomanError | None) -> None:
        self.calls.append(error)

    @property
    def is_known(self) -> bool:
        return bool(self.calls)

    @property
    def error(self) -> DragomanError | None:
        assert len(self.calls) == 1, self.calls
        return self.calls[0]


class World:
    def __init__(
        self,
        settings: Settings | None = None,
        *,
        disk: Disk | None = None,
        durability: Durability = Durability.FSYNC,
        authorizer: Authorizer | None = None,
        start: bool = True,
        seed: int = 1,
        scheduler: SimScheduler | None = None,
        etcd: Gateway | None = None,
    ) -> None:
        self.settings = settings if settings is not None else Settings()
        self.scheduler = scheduler if scheduler is not None else SimScheduler()
        self.clock = SimClock(self.scheduler)
        self.disk: Disk = disk if disk is not None else MemoryDisk()
        background = ImmediateBackground(self.disk, self.scheduler)
        generator = random.Random(seed)
        self.store = LogStore(
            self.disk, background, self.scheduler, self.clock, generator, durability
        )
        self.broker = Broker(
            self.store,
            self.settings,
            self.scheduler,
            self.clock,
            generator,
            authorizer,
            KafkaGroupDialect(),
            etcd=etcd,
        )
        rights = CaptureAuthorizer(self.broker.image, self.broker.authorizer)
        self.broker.authorizer = self.broker.context.authorizer = rights
        self.captures = Captures(
            self.broker.context,
            self.broker.partitions,
            self.broker.topics,
            self.broker.changes,
            self.broker.coordination.transactions.coordinator,
            self.broker.rpc,
            self.broker.keys,
            self.broker.cluster_key,
            self.broker,
        )
        self.broker.attach(self.captures)
        self.budget = MemoryBudget(self.settings.memory_budget_bytes)
        self.channels = Channels(self.budget, self.scheduler)
        self.service = KafkaService(self.broker, self.budget, lambda _: ("broker.example", 9092))
        if start:
            self.start()

    def start(self) -> None:
        outcome = Outcome()
        start(self.broker.start()).then(outcome)
        self.settle()
        assert outcome.error is None, outcome.error

    def settle(self) -> None:
        """Run everything that needs no time to pass."""
        self.scheduler.run_ready()

    def advance(self, seconds: float) -> None:
        self.scheduler.advance(seconds)

    def reopened(self, settings: Settings | None = None, *, kill: bool = False) -> World:
        """The next start on the same disk: after a clean stop, or after the process died."""
        if kill:
            self.store.abandon()
        else:
            self.broker.stop()
            self.store.close()
        return World(
            settings if settings is not None else self.settings,
            disk=self.disk,
            durability=self.store.durability,
            seed=2,
        )

    def pretend_loading(self, is_loading: bool) -> None:
        """Groups are as while they are read back, or as after that."""
        for kept in self.broker.coordination.groups.log._kept.values():
            kept.is_loaded = not is_loading

    def apply(self, *events: Event) -> None:
        """Events of the metadata are applied."""
        outcome = Outcome()
        start(self._make(list(events))).then(outcome)
        self.settle()
        assert outcome.error is None, outcome.error

    async def _make(self, events: list[Event]) -> None:
        await self.broker.changes.make(lambda: events)

    def change_rules(self) -> None:
        """The rules have changed; what the authorizer answers is up to the test."""
        self.apply(RulesChanged())

    # ---- topics and records

    def create(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> list[Replica]:
        outcome = Outcome()
        new = NewTopic(name=name, partition_count=partitions, config=config or {})
        start(self.broker.topics.create(new)).then(outcome)
        self.settle()
        assert outcome.error is None, outcome.error
        return [self.broker.partitions.find(name, index) for index in range(partitions)]

    def create_outcome(self, new: NewTopic) -> DragomanError | None:
        outcome = Outcome()
        start(self.broker.topics.create(new)).then(outcome)
        self.settle()
        return outcome.error

    def append(self, replica: Replica, batch: Buffer, *, settle: bool = True) -> Appended:
        view = memoryview(bytearray(batch))
        appended = place(replica, view, check_produced(view), self.clock.wall_ms())
        if settle:
            self.settle()
        return appended

    def write(self, replica: Replica, *values: bytes, settle: bool = True) -> Appended:
        return self.append(
            replica, batch_of(*values, timestamp=self.clock.wall_ms()), settle=settle
        )

    def end_transaction(self, replica: Replica, producer_id: int, *, commit: bool) -> None:
        marker = Marker(is_commit=commit, coordinator_epoch=0)
        batch = build_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=self.clock.wall_ms(),
        )
        header = next(batches(memoryview(batch)))[0]
        replica.log.append_marker(batch, header, replica.leader_epoch, marker)
        self.settle()

    def fetch(
        self,
        wanted: Sequence[Wanted],
        *,
        bytes_min: int = 1,
        bytes_max: int = 1 << 20,
        wait_s: float = 10.0,
        committed_only: bool = False,
    ) -> FetchProbe:
        probe = FetchProbe()
        limits = FetchLimits(bytes_min, bytes_max, wait_s, committed_only)
        probe.parked = self.broker.fetches.begin(list(wanted), limits, probe)
        return probe


class FetchProbe:
    def __init__(self) -> None:
        self.answers: list[list[Fetched]] = []
        self.parked: Fetch | None = None

    def __call__(self, found: list[Fetched]) -> None:
        self.answers.append(found)

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def found(self) -> list[Fetched]:
        assert len(self.answers) == 1, self.answers
        return self.answers[0]

    @property
    def values(self) -> list[list[bytes | None]]:
        return [values_in(each.buffers) for each in self.found]


def values_in(buffers: Buffer | Sequence[Buffer] | None) -> list[bytes | None]:
    """Values of all records that are not control records."""
    if buffers is None:
        return []
    if isinstance(buffers, bytes | bytearray | memoryview):
        buffers = [buffers]
    data = memoryview(b"".join(buffers))
    return [
        record.value
        for header, batch in batches(data)
        if not header.is_control
        for record in records(batch, header)
    ]


def batch_of(
    *values: bytes | None,
    timestamp: int = 1_704_067_200_000,
    key: bytes | None = b"k",
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    return build_batch(
        [Record(key=key, value=value, timestamp=timestamp) for value in values],
        codec=codec,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


class FakeTransport:
    """The part of an asyncio transport that a channel uses, without a peer until one takes."""

    def __init__(
        self, on_lost: Callable[[], None], local: tuple[str, int], peer: str = "10.0.0.9"
    ) -> None:
        self.unsent = bytearray()
        #: When set, nothing leaves until the test takes it.
        self.is_stuck = False
        self.sent = bytearray()
        self.is_reading = True
        self.is_closed = False
        self.channel: Channel | None = None
        self._high = 64 << 10
        self._is_paused = False
        self._on_lost = on_lost
        self._local = local
        self._peer = peer
        #: The socket below, if there is to be one.
        self.connected: object = None
        self.certificate: object = None

    def get_extra_info(self, name: str, default: object = None) -> object:
        known = {
            "sockname": self._local,
            "peername": (self._peer, 5),
            "socket": self.connected,
            "certificate": self.certificate,
        }
        return known.get(name, default)

    def is_closing(self) -> bool:
        return self.is_closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def write(self, data: Buffer) -> None:
        self.writelines([data])

    def writelines(self, buffers: Sequence[Buffer]) -> None:
        for each in buffers:
            self.unsent += each
        if not self.is_stuck:
            self.take()
        elif len(self.unsent) > self._high and not self._is_paused:
            self._is_paused = True
            assert self.channel is not None
            self.channel.pause_writing()

    def take(self) -> None:
        """The peer reads everything."""
        self.sent += self.unsent
        self.unsent.clear()
        if self._is_paused:
            self._is_paused = False
            assert self.channel is not None
            self.channel.resume_writing()

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def close(self) -> None:
        self.is_closed = True
        if not self.unsent:
            self._on_lost()

    def abort(self) -> None:
        self.unsent.clear()
        self.close()


class Pipe:
    """One connection to a world, whatever the session at its end speaks."""

    def __init__(
        self,
        world: World,
        make_session: Callable[[Channel], Session],
        local: tuple[str, int] = ("127.0.0.1", 9092),
    ) -> None:
        self.world = world
        self.channel = Channel(world.channels, make_session, world.scheduler)  # type: ignore[arg-type]
        self.transport = FakeTransport(self._lost, local)
        self.transport.channel = self.channel
        self.channel.connection_made(self.transport)  # type: ignore[arg-type]
        self.is_lost = False
        self._read = 0

    def _lost(self) -> None:
        self.world.scheduler.call_soon(self.lose)

    def lose(self) -> None:
        """The connection is gone."""
        if not self.is_lost:
            self.is_lost = True
            self.channel.connection_lost(None)

    @property
    def is_closed(self) -> bool:
        return self.transport.is_closed

    def feed(self, data: Buffer) -> None:
        """Bytes arrive, as many at a time as the session has room for."""
        view = memoryview(data)
        while view and not self.is_closed:
            buffer = self.channel.get_buffer(-1)
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            self.channel.buffer_updated(count)
            view = view[count:]

    def received(self) -> bytes:
        """What has come back since the last call."""
        data = bytes(self.transport.sent[self._read :])
        self._read += len(data)
        return data

    def exchange(self, data: Buffer) -> bytes:
        """Send, let the broker work, and take what came back."""
        self.feed(data)
        self.world.settle()
        return self.received()


class Wire(Pipe):
    """One Kafka connection to a world."""

    def __init__(self, world: World, local: tuple[str, int] = ("127.0.0.1", 9092)) -> None:
        super().__init__(world, partial(KafkaSession, service=world.service), local)
        self._client = ClientConnection("test", 100 << 20, Scratch())

    def send(self, request: m.Message, version: int) -> None:
        """Without letting the broker's turn end."""
        _, frame = self._client.send(request, version)
        self.feed(codec.join(frame))

    def replies(self) -> list[Reply]:
        """What has come back since the last call."""
        return self._client.receive_data(self.received())

    def ask(self, request: m.Message, version: int, kind: type[Answer]) -> Answer:
        """Send, let the broker work, and expect exactly one reply."""
        self.send(request, version)
        self.world.settle()
        (reply,) = self.replies()
        assert isinstance(reply.message, kind)
        return reply.message


# ---- requests, short


def produce_request(
    topic: str,
    batch: Buffer | None,
    *,
    partition: int = 0,
    acks: int = -1,
    topic_id: bytes = m.NO_ID,
) -> m.ProduceRequest:
    part = m.ProduceRequestPartition(index=partition, records=batch)
    data = [m.ProduceRequestTopic(name=topic, topic_id=topic_id, partition_data=[part])]
    return m.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data)


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    topic_id: bytes = m.NO_ID,
    epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
) -> m.FetchRequest:
    part = m.FetchRequestPartition(
        partition=partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
    )
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[m.FetchRequestTopic(topic=topic, topic_id=topic_id, partitions=[part])],
    )


def only(response: m.FetchResponse) -> m.FetchResponsePartition:
    ((partition,),) = [topic.partitions for topic in response.responses]
    return partition


def only_produced(response: m.ProduceResponse) -> m.ProduceResponsePartition:
    ((partition,),) = [topic.partition_responses for topic in response.responses]
    return partition


class Follower:
    """Has nothing yet: the role of a leader whose only follower is away."""

    epoch_start = 0

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.is_back = False

    def committed_end(self) -> int:
        return self._replica.log.stable_end if self.is_back else 0

    def is_sure(self, _refused: object) -> bool:
        return True
