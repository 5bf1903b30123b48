"""A data node of a simulated cluster: a log store on a simulated disk, and its replication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from dragoman.broker.errors import NotEnoughReplicas, NotLeader
from dragoman.broker.produce import check_produced, place
from dragoman.cluster.events import Event, decode_event
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.config.overrides import TopicConfig
from dragoman.config.settings import Settings
from dragoman.errors import CorruptionError, DragomanError, LogError, OffsetOutOfRangeError
from dragoman.log.manifest import Identity
from dragoman.log.partition import PartitionLog
from dragoman.log.producer import ProducerError
from dragoman.log.store import LogStore
from dragoman.outcome import Outcome, start
from dragoman.replication.life import Life
from dragoman.replication.messages import (
    ControlReply,
    ControlRequest,
    FetchReply,
    FetchRequest,
    Progress,
    decode_message,
    encode_message,
)
from dragoman.replication.ports import Timing
from dragoman.replication.replica import Replica, not_leader
from dragoman.replication.replication import Replication
from dragoman.testing.sim.background import SimBackground, SyncDelays
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import PowerCut
from dragoman.testing.sim.scheduler import SimClock
from dragoman.types import Buffer
from simulation.replication.metadata import CONTROLLER, Subscription
from simulation.replication.network import ProcessScheduler

if TYPE_CHECKING:
    from simulation.replication.cluster import Cluster

_REQUEST_S = 1.2
_CONFIG = TopicConfig.build(Settings(), {"segment.bytes": "2500", "index.interval.bytes": "400"})


class Node:
    """Down until `start`."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.random = Random(cluster.random.getrandbits(64))
        self.disk = SimDisk(self.random, trace_operations_max=20)
        self.scheduler: ProcessScheduler | None = None
        self.image = MetadataImage()
        self.is_slow = False
        #: Has been started, and not only begun to.
        self.is_ready = False
        #: Events that this disk has seen.
        self._applied = 0

    @property
    def is_up(self) -> bool:
        return self.scheduler is not None

    # ---- life and death

    def start(self) -> None:
        cluster = self.cluster
        scheduler = ProcessScheduler(cluster.scheduler, self.cut_power)
        scheduler.process = self
        self.scheduler = scheduler
        try:
            self._start(scheduler)
        except PowerCut:
            self.cut_power()
        except OSError:
            # A sync failed: the process ends with a message, and is started again.
            self.kill()

    def _start(self, scheduler: ProcessScheduler) -> None:
        cluster = self.cluster
        self.clock = SimClock(scheduler)
        delays = SyncDelays(usual_seconds_max=0.02, slow_seconds_max=0.8, slow_rate=0.02)
        background = SimBackground(self.disk, scheduler, self.random, delays)
        self.store = LogStore(self.disk, background, scheduler, self.clock, self.random)
        self.image = MetadataImage()
        self.replicas: dict[int, Replica] = {}
        timing = Timing(
            lag_s=1.5,
            wait_s=0.4,
            retry_s=0.1,
            heartbeat_s=0.25,
            fetch_bytes_max=3000,
            moved_bytes_per_s=lambda: cluster.moved_bytes_per_s,
        )
        self.replication = Replication(
            self.node_id,
            self.image,
            scheduler,
            self,
            self,
            self.open_replica,
            self._unshared,
            timing,
        )
        self.subscription = Subscription(
            cluster.metadata, cluster.network, self.node_id, self._apply
        )
        # A node has the metadata log on its own disk: all that it has acted on, and perhaps more.
        events = cluster.metadata.events
        known = max(self._applied, len(events) - self.random.choice((0, 0, 1, 5)))
        for each in events[:known]:
            self.image.apply(decode_event(each))
        self.subscription.applied = known
        for partition_id in self.store.pending_partitions:
            metadata = self.image.partitions.get(partition_id)
            if metadata is not None:
                self.open_replica(metadata)
        self.store.on_written = self.replication.written
        self.store.on_stable = self._stable
        self.store.on_failure = self._failed
        self.store.finish_recovery()
        if self.is_slow:
            self.store.commits.sync_average_s = 1.0
        cluster.network.processes[self.node_id] = scheduler
        self.is_ready = True
        self.replication.start(Life(self.store, {}))
        for replica in self.replicas.values():
            cluster.checker.reopened(self, replica.log)
        self.subscription.push()

    def open_replica(self, metadata: PartitionMetadata) -> Replica:
        found = self.replicas.get(metadata.partition_id)
        if found is None:
            identity = Identity(
                partition_id=metadata.partition_id,
                topic=metadata.topic.name,
                partition=metadata.index,
                topic_id="",
            )
            directory = f"{metadata.partition_id}-t"
            opened = self.store.partition(identity, directory, _CONFIG, is_shared=True)
            found = self.replicas[metadata.partition_id] = Replica(metadata, opened, _CONFIG)
        return found

    def _unshared(self, metadata: PartitionMetadata) -> None:
        if metadata.replicas != (self.node_id,):
            known = self.replicas.get(metadata.partition_id)
            if known is not None:
                with suppress(LogError):
                    known.log.restart_at(0)
                known.fail_waiters(not_leader(metadata))
            return
        replica = self.open_replica(metadata)
        replica.role = None
        replica.is_led = metadata.leader == self.node_id
        if replica.is_led:
            if metadata.leader_epoch > replica.log.epochs.latest:
                replica.log.begin_epoch(metadata.leader_epoch)
            replica.advance()

    def _gone(self) -> None:
        scheduler = self.scheduler
        assert scheduler is not None
        if self.is_ready:
            self.is_ready = False
            self.cluster.checker.died(self)
            self._applied = max(self._applied, self.subscription.applied)
        scheduler.is_dead = True
        self.scheduler = None
        self.cluster.network.processes.pop(self.node_id, None)

    def cut_power(self) -> None:
        self._gone()
        self.disk = self.disk.crash()

    def kill(self) -> None:
        self._gone()
        self.disk = self.disk.kill()

    def stop(self) -> None:
        """A clean stop, after others have taken over."""
        assert self.scheduler is not None
        scheduler = self.scheduler

        async def hand_over() -> None:
            await self.replication.hand_over()
            if scheduler is not self.scheduler:
                return
            self.replication.stop()
            self.store.settle_all()
            self.store.close()
            self.kill()

        start(hand_over())

    def wipe(self) -> None:
        """A new disk, with nothing on it."""
        assert not self.is_up
        self.cluster.checker.wiped(self)
        self.disk = SimDisk(self.random, trace_operations_max=20)
        self._applied = 0

    def _failed(self, _error: OSError) -> None:
        """The process tells everybody who waits, and ends."""
        scheduler = self.scheduler
        if scheduler is not None:
            self.replication.stop()
            scheduler.call_soon(self._die, scheduler)

    def _die(self, scheduler: ProcessScheduler) -> None:
        if scheduler is self.scheduler:
            self.kill()

    # ---- what the world reports

    def _apply(self, encoded: bytes) -> None:
        event: Event = decode_event(encoded)
        removed = self.image.apply(event)
        self.replication.applied(event, removed)

    def _stable(self, partitions: list[PartitionLog]) -> None:
        self.replication.stable(partitions)

    # ---- the ports of replication

    def fetch(
        self,
        node_id: int,
        request: FetchRequest,
        done: Callable[[FetchReply | None, memoryview], None],
    ) -> None:
        encoded = encode_message(request)
        target = self.cluster.nodes[node_id - 1]

        def handle(answer: Callable[[object], None]) -> None:
            decoded = decode_message(encoded)
            assert isinstance(decoded, FetchRequest)

            def reply(header: FetchReply, body: Sequence[Buffer]) -> None:
                answer((encode_message(header), b"".join(body)))

            target.replication.fetch(decoded, reply)

        def replied(answer: object | None) -> None:
            if answer is None:
                done(None, memoryview(b""))
                return
            assert isinstance(answer, tuple)
            header = decode_message(answer[0])
            assert isinstance(header, FetchReply)
            done(header, memoryview(bytearray(answer[1])))

        self.cluster.network.request(self.node_id, node_id, handle, replied, _REQUEST_S)

    def report(self, node_id: int, progress: Progress) -> None:
        encoded = encode_message(progress)
        target = self.cluster.nodes[node_id - 1]

        def deliver() -> None:
            decoded = decode_message(encoded)
            assert isinstance(decoded, Progress)
            target.replication.progress(decoded)

        self.cluster.network.send(self.node_id, node_id, deliver)

    async def ask(self, request: ControlRequest) -> ControlReply | None:
        encoded = encode_message(request)
        controller = self.cluster.metadata.controller

        def handle(answer: Callable[[object], None]) -> None:
            def controlled(reply: ControlReply | DragomanError | None) -> None:
                assert not isinstance(reply, DragomanError)
                answer(None if reply is None else encode_message(reply))

            controller.ask(decode_message(encoded)).then(controlled)  # type: ignore[arg-type]

        replied: Outcome[object] = Outcome()
        self.cluster.network.request(self.node_id, CONTROLLER, handle, replied.succeed, _REQUEST_S)
        answer = await replied
        reply = decode_message(answer) if isinstance(answer, bytes) else None
        assert reply is None or isinstance(reply, ControlReply)
        return reply

    # ---- clients

    def produce(self, partition_id: int, data: bytes, answer: Callable[[object], None]) -> None:
        """Answers ("ok", base offset), ("no", why) when nothing was appended, or ("unknown",)."""
        batch = memoryview(bytearray(data))
        store = self.store
        try:
            leading = self.replication.leading(partition_id)
            replica = leading.replica
            replica.check_in_sync()
            header = check_produced(batch)
            appended = place(replica, batch, header, self.clock.wall_ms())
        except (NotLeader, NotEnoughReplicas) as error:
            answer(("no", error.code))
            return
        except ProducerError as error:
            answer(("producer", error.code))
            return
        except DragomanError as error:
            answer(("no", error.code))
            return

        if header.producer_id >= 0:
            self.cluster.in_doubt[partition_id, header.producer_id] = appended.base_offset

        def committed(error: DragomanError | None) -> None:
            if error is not None:
                answer(("unknown", error.code))
                return
            self.cluster.checker.acknowledged(self, store, leading, appended.next_offset)
            answer(("ok", appended.base_offset))

        replica.when_committed(appended.next_offset, committed)

    def consume(self, partition_id: int, offset: int, answer: Callable[[object], None]) -> None:
        try:
            leading = self.replication.leading(partition_id)
            log = leading.replica.log
            if offset > log.high_watermark:
                answer(("wait",))
                return
            found = log.read(offset, 2000, log.high_watermark)
        except NotLeader:
            answer(("no",))
        except OffsetOutOfRangeError:
            answer(("start", leading.replica.log.log_start_offset))
        except CorruptionError as error:
            self.replication.damaged(leading.replica, error)
            answer(("no",))
        else:
            data = b"".join(found.buffers)
            answer(("records", log.high_watermark, found.next_offset, data))
