"""A whole log store under power cuts: random work on several partitions, and the check afterwards.

Bounds that are megabytes in production are a few kilobytes here (`small_bounds`), so that a run of
a hundred operations rolls segments, fills journal files, runs checkpoints and evicts everything
that can be evicted. One step is one operation of a client or of the node itself; in between the
simulated loop runs for a while, with background syncs that take their time.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from unittest import mock

import msgspec

from dragoman import world
from dragoman.errors import DiskFullError, LogStoppedError
from dragoman.log import (
    checkpoint,
    cleaner,
    group_commit,
    index_cache,
    journal,
    salvage,
    store,
    tail,
    write_behind,
)
from dragoman.log.batch import (
    TRANSACTIONAL,
    Marker,
    Record,
    build_batch,
    build_marker,
    read_header,
)
from dragoman.log.compression import Codec
from dragoman.log.manifest import Identity
from dragoman.log.node import Ballot
from dragoman.log.partition import PartitionLog
from dragoman.log.store import Durability, LogStore
from dragoman.testing.sim.background import SimBackground, SyncDelays
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import PowerCut
from dragoman.testing.sim.scheduler import SimClock, SimScheduler
from power_cuts.model import MismatchError, ModelLog, expect

_KIB = 1 << 10


@contextmanager
def small_bounds() -> Iterator[None]:
    """Run with bounds so small that all of them are reached."""
    bounds = (
        (journal, "JOURNAL_FIRST_FILE_BYTES", 16 * _KIB),
        (journal, "JOURNAL_FILE_BYTES", 24 * _KIB),
        (store, "JOURNAL_FILE_BYTES", 24 * _KIB),
        (group_commit, "JOURNAL_FILE_BYTES", 24 * _KIB),
        (journal, "JOURNAL_FILES_MAX", 4),
        (group_commit, "_GROUP_SLACK_BYTES", 4 * _KIB),
        (group_commit, "GROUP_BYTES_MAX", 2 * _KIB),
        (group_commit, "LARGE_PART_BYTES_MIN", 800),
        (write_behind, "TAIL_BYTES_MAX", 4 * _KIB),
        (tail, "TAIL_CHUNK_BYTES_MAX", 600),
        (write_behind, "DIRTY_BYTES_MAX", 3 * _KIB),
        (write_behind, "DIRTY_PARTITION_BYTES_MAX", 1 * _KIB),
        (store, "OPEN_SEGMENTS_MAX", 4),
        (index_cache, "CACHED_INDEXES_MAX", 2),
        (checkpoint, "CHECKPOINT_FILES_PER_JOB", 2),
        (world, "BULK_SYNC_FILES_MIN", 3),
        (checkpoint, "CHECKPOINT_PARTITIONS_AT_ONCE", 3),
        (salvage, "SCAN_CHUNK_BYTES", 700),
        # Yields after every record.
        (cleaner, "COMPACTION_SLICE_S", 0.0),
        (cleaner, "COMPACTION_WRITE_BYTES", 500),
    )
    with ExitStack() as stack:
        for module, name, value in bounds:
            stack.enter_context(mock.patch.object(module, name, value))
        yield


@contextmanager
def quiet_small_world() -> Iterator[None]:
    """Small bounds, and no log lines about damage that is made on purpose."""
    logger = logging.getLogger("dragoman")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with small_bounds():
            yield
    finally:
        logger.setLevel(before)


class SmallConfig(msgspec.Struct, frozen=True):
    segment_bytes: int = 1500
    segment_ms: int = 3_600_000
    index_interval_bytes: int = 300


class ProducerModel:
    """A client with a producer id: what it sends next."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequences: dict[str, int] = {}
        self.open_on: set[str] = set()


class StoreOptions(msgspec.Struct, frozen=True):
    durability: Durability = Durability.FSYNC
    partition_count: int = 3
    #: Share of lives in which every journal sync goes through the background.
    slow_rate: float = 0.4
    make_store: Callable[..., LogStore] = LogStore
    #: Whether retention and compaction run. The latter changes batches, records it keeps.
    cleans: bool = True
    #: Called with the log after each restart, before it is checked.
    after_open: Callable[[LogStore], None] | None = None


class LogScenario:
    def __init__(self, options: StoreOptions | None = None) -> None:
        self.options = options if options is not None else StoreOptions()
        self.models: dict[str, ModelLog] = {}
        self.partitions: dict[str, PartitionLog] = {}
        self.producers: list[ProducerModel] = []
        self.is_acknowledging = True
        #: Term and vote as last staged, and as last known to be stable.
        self.staged_ballot = self.stable_ballot = Ballot()
        self._power_cuts = 0
        self._compaction: Generator[None, None, cleaner.CompactionResult] | None = None
        self._next_producer_id = 1

    # ---- the three methods of a scenario

    def start(self, disk: SimDisk, random: Random) -> None:
        self.random = random
        for number in range(self.options.partition_count):
            name = f"t-{number}"
            self.models[name] = ModelLog(name, is_compacted=number == 2)
        self._open_until_it_works(disk)

    def step(self) -> None:
        if self.store.has_failed():
            return
        try:
            self._choose()()
        except (LogStoppedError, DiskFullError):
            return
        self._let_time_pass()

    def verify_after_crash(self, disk: SimDisk) -> None:
        self._open_until_it_works(disk)
        is_exact = self.options.durability is Durability.FSYNC
        is_exact = is_exact or disk.counters.crashes == self._power_cuts
        expect(not self.store.journal_damage, f"journal damage: {self.store.journal_damage}")
        for name, model in self.models.items():
            partition = self.partitions[name]
            expect(not partition.problems, f"{name}: {partition.problems}")
            model.adopt(partition, may_lose_acknowledged=not is_exact)
        self._check_ballot()
        self._power_cuts = disk.counters.crashes
        self._forget_lost_producers()

    def _check_ballot(self) -> None:
        """Journalled in every mode: it is never older than what was acknowledged."""
        found = self.store.ballot
        expect(
            self.stable_ballot <= found <= self.staged_ballot,
            f"ballot {found}, acknowledged {self.stable_ballot}, staged {self.staged_ballot}",
        )
        self.stable_ballot = self.staged_ballot = found

    # ---- starting

    def _open_until_it_works(self, disk: SimDisk) -> None:
        """Start again after a start that a faulty or full disk has stopped."""
        for _ in range(20):
            try:
                self._open(disk)
                return
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    disk.capacity_bytes += 64 * _KIB
                elif error.errno != errno.EIO:
                    raise
                disk.release_locks()
        raise MismatchError("the log does not start")

    def _open(self, disk: SimDisk) -> None:
        self.disk = disk
        if self._compaction is not None:
            # What was under way died with the process; it must not clean up on the new disk.
            with suppress(PowerCut):
                self._compaction.close()
            self._compaction = None
        options = self.options
        self.scheduler = SimScheduler(Random(self.random.getrandbits(32)))
        self.clock = SimClock(self.scheduler)
        background = SimBackground(
            disk, self.scheduler, Random(self.random.getrandbits(32)), SyncDelays(slow_rate=0.2)
        )
        self.store = options.make_store(
            disk,
            background,
            self.scheduler,
            self.clock,
            Random(self.random.getrandbits(32)),
            options.durability,
        )
        self.partitions = {name: self._partition(name) for name in self.models}
        self.store.on_stable = self._on_stable
        self.store.on_refused = self._on_refused
        self.store.finish_recovery()
        if options.after_open is not None:
            options.after_open(self.store)
        if self.random.random() < options.slow_rate:
            self.store.commits.sync_average_s = 1.0

    def _partition(self, name: str) -> PartitionLog:
        number = int(name.rpartition("-")[2])
        identity = Identity(partition_id=number + 1, topic="t", partition=number, topic_id="0")
        return self.store.partition(identity, name, SmallConfig())

    def _on_stable(self, partitions: list[PartitionLog]) -> None:
        expect(not self.store.has_failed(), "acknowledged after a failed sync")
        self.stable_ballot = self.store.ballot
        for partition in partitions:
            expect(not self.store.has_failed(), "acknowledged after a failed sync")
            partition.advance_high_watermark(partition.stable_end)
            if self.is_acknowledging:
                self.models[_name(partition)].acknowledge(partition.stable_end)

    def _on_refused(self, partition: PartitionLog) -> None:
        model = self.models[_name(partition)]
        model.cut(partition.log_end_offset)
        model.epochs.truncate_above(partition.log_end_offset)
        self._forget_lost_producers()

    def _forget_lost_producers(self) -> None:
        """Clients whose last batches are gone start again under a new id, as real ones do."""
        self.producers = []

    # ---- steps

    def _choose(self) -> Callable[[], None]:
        steps: list[tuple[int, Callable[[], None]]] = [
            (30, self._append),
            (12, self._append_several),
            (16, self._append_as_producer),
            (8, self._end_transaction),
            (4, self._truncate),
            (3, self._delete_records),
            (3, self._begin_epoch),
            (4, self._vote),
            (4, self._append_as_is),
            (6, self._read_somewhere),
            (4, self._checkpoint),
            (2, self._reopen),
        ]
        if self.options.cleans:
            steps += [(3, self._retain), (2, self._start_compaction), (8, self._go_on_compacting)]
        return self.random.choices([s for _, s in steps], [w for w, _ in steps])[0]

    def _let_time_pass(self) -> None:
        draw = self.random.random()
        if draw < 0.5:
            self.scheduler.run_ready()
        elif draw < 0.7:
            self.scheduler.advance(self.random.choice((0.001, 0.01, 0.1, 6.0)))

    def _any(self) -> tuple[ModelLog, PartitionLog]:
        name = self.random.choice(list(self.models))
        return self.models[name], self.partitions[name]

    def _records(self) -> list[Record]:
        random = self.random
        count = random.choice((1, 1, 1, 2, 5))
        now = self.clock.wall_ms()
        return [
            Record(
                key=random.choice((b"a", b"b", b"c", b"dd", random.randbytes(2))),
                value=None if random.random() < 0.1 else self._value(),
                headers=(("h", b"1"),) if random.random() < 0.1 else (),
                timestamp=now + random.randint(-1000, 1000),
            )
            for _ in range(count)
        ]

    def _value(self) -> bytes:
        random = self.random
        size = random.choice((0, 10, 60, 200, 200, 900))
        if random.random() < 0.05:
            # What looks like a frame of ours must never be taken for one.
            return b"DGJ1" + random.randbytes(max(size - 4, 0))
        return random.randbytes(size)

    def _append(self) -> None:
        model, partition = self._any()
        self._send(model, partition, self._plain_batch())

    def _plain_batch(self) -> bytearray:
        codec = self.random.choice((Codec.NONE, Codec.NONE, Codec.LZ4))
        return build_batch(self._records(), codec=codec)

    def _append_several(self) -> None:
        for _ in range(self.random.randint(2, 8)):
            self._append()

    def _send(self, model: ModelLog, partition: PartitionLog, batch: bytearray) -> int:
        epoch = max(partition.epochs.latest, 0)
        done = partition.append(batch, read_header(batch), epoch)
        if not done.is_duplicate:
            model.append(done.base_offset, done.next_offset, bytes(batch), epoch)
        return done.base_offset

    def _append_as_producer(self) -> None:
        random = self.random
        model, partition = self._any()
        if model.is_compacted:
            return
        if not self.producers or random.random() < 0.2:
            self.producers.append(ProducerModel(self._next_producer_id))
            self._next_producer_id += 1
        producer = random.choice(self.producers)
        is_transactional = producer.producer_id % 2 == 0
        records = self._records()
        sequence = producer.sequences.get(model.name, 0)
        batch = build_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL if is_transactional else 0,
        )
        repeat = bytearray(batch)
        base = self._send(model, partition, batch)
        producer.sequences[model.name] = sequence + len(records)
        if is_transactional:
            producer.open_on.add(model.name)
        if random.random() < 0.2:
            again = partition.append(repeat, read_header(repeat), max(partition.epochs.latest, 0))
            expect(again.is_duplicate and again.base_offset == base, "a repeat was appended")

    def _end_transaction(self) -> None:
        opened = [each for each in self.producers if each.open_on]
        if not opened:
            return
        producer = self.random.choice(opened)
        name = self.random.choice(sorted(producer.open_on))
        partition = self.partitions[name]
        marker = Marker(self.random.random() < 0.5, 0)
        batch = build_marker(
            marker,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp=self.clock.wall_ms(),
        )
        epoch = max(partition.epochs.latest, 0)
        done = partition.append_marker(batch, read_header(batch), epoch, marker)
        self.models[name].append(done.base_offset, done.next_offset, bytes(batch), epoch)
        producer.open_on.discard(name)

    def _append_as_is(self) -> None:
        """What a follower does: batches with their offsets, now and then behind a gap."""
        model, partition = self._any()
        random = self.random
        data = bytearray()
        offset, epoch = partition.log_end_offset, max(partition.epochs.latest, 0)
        parts: list[tuple[int, int, bytes, int]] = []
        for _ in range(random.randint(1, 3)):
            offset += random.choice((0, 0, 0, 0, 3))
            epoch += random.choice((0, 0, 0, 1))
            records = self._records()
            batch = build_batch(records, base_offset=offset, leader_epoch=epoch)
            parts.append((offset, offset + len(records), bytes(batch), epoch))
            offset += len(records)
            data += batch
        partition.append_as_is(data)
        for part in parts:
            model.append(*part)

    def _truncate(self) -> None:
        model, partition = self._any()
        if self.random.random() < 0.5:
            return
        self._settle()
        span = min(partition.log_end_offset - partition.log_start_offset, 20)
        offset = partition.log_end_offset - self.random.randint(0, span)
        if model.is_compacted:
            # Compaction never looks above the watermark of a cluster; neither may a truncation.
            offset = max(offset, partition.saved_live_offset)
        lowest, highest = model.truncated_ends(offset)
        if offset >= partition.log_end_offset:
            return
        model.truncating_to = highest
        partition.truncate(offset)
        model.truncating_to = None
        end = partition.log_end_offset
        expect(
            lowest <= end <= highest,
            f"{model.name}: truncated to {end}, expected {lowest} to {highest}",
        )
        model.cut(end)
        model.epochs.truncate(end)
        self._forget_lost_producers()

    def _settle(self) -> None:
        self.store.settle_all()
        if self.store.has_failed():
            raise LogStoppedError("a sync failed")

    def _delete_records(self) -> None:
        model, partition = self._any()
        span = partition.high_watermark - partition.log_start_offset
        if span <= 0:
            return
        offset = partition.log_start_offset + self.random.randint(1, span)
        if self.random.random() < 0.5:
            offset = partition.log_start_offset + max(1, span // 3)
        model.moving_start_to = offset
        partition.move_log_start(offset)
        model.log_start, model.moving_start_to = offset, None

    def _begin_epoch(self) -> None:
        model, partition = self._any()
        epoch = partition.epochs.latest + self.random.choice((1, 1, 3))
        self._settle()
        model.beginning_epoch = epoch
        partition.begin_epoch(epoch)
        model.beginning_epoch = None
        model.epochs.assign(epoch, partition.log_end_offset)

    def _vote(self) -> None:
        term, vote = self.staged_ballot
        is_same_term = vote < 0 and term > 0
        ballot = Ballot(term, 2) if is_same_term else Ballot(term + 1, self.random.choice((-1, 1)))
        before, self.staged_ballot = self.staged_ballot, ballot
        try:
            self.store.stage_ballot(ballot)
        except DiskFullError:
            self.staged_ballot = before
            raise

    def _read_somewhere(self) -> None:
        model, partition = self._any()
        model_end = partition.high_watermark
        kept = [
            each
            for each in model.batches
            if each.base_offset >= partition.log_start_offset and each.next_offset <= model_end
        ]
        if not kept or model.is_compacted:
            return
        wanted = self.random.choice(kept)
        result = partition.read(wanted.base_offset, 1, model_end)
        found = bytes(result.buffers[0]) if result.buffers else b""
        expect(found == wanted.data, f"{model.name}: wrong bytes at {wanted.base_offset}")

    def _retain(self) -> None:
        model, partition = self._any()
        rolled = [s for s in partition.segments if s.next_offset <= partition.high_watermark]
        if not rolled or self.random.random() < 0.5:
            return
        count = self.random.randint(1, len(rolled))
        offset = rolled[count - 1].next_offset
        left = len(partition.all_segments()) - count
        model.moving_start_to = max(offset, model.log_start)
        now = self.clock.wall_ms()
        cleaner.retain(partition, cleaner.RetentionPolicy(retention_segments=left), now)
        model.log_start, model.moving_start_to = max(offset, model.log_start), None
        expect(
            partition.log_start_offset == model.log_start,
            f"{model.name}: retained from {partition.log_start_offset}, not {model.log_start}",
        )

    def _start_compaction(self) -> None:
        if self._compaction is not None:
            self._compaction.close()
        policy = cleaner.CompactionPolicy(
            delete_retention_ms=self.random.choice((0, 0, 100_000)),
            key_map_bytes_max=self.random.choice((300, 2000, 1 << 20)),
        )
        now = self.clock.wall_ms() + 10_000
        self._compaction = cleaner.compact(self.partitions["t-2"], policy, now)

    def _go_on_compacting(self) -> None:
        for _ in range(self.random.choice((5, 50, 500))):
            if self._compaction is None:
                return
            try:
                next(self._compaction)
            except StopIteration:
                self._compaction = None
            self.scheduler.run_ready()

    def _checkpoint(self) -> None:
        self.store.start_checkpoint()

    def _reopen(self) -> None:
        """A clean stop and a start."""
        if self._compaction is not None:
            self._compaction.close()
        self.store.close()
        if self.store.has_failed():
            raise LogStoppedError("a sync failed")
        for model in self.models.values():
            model.acknowledge(model.end)
        self.stable_ballot = self.staged_ballot
        self.verify_after_crash(self.disk)


def _name(partition: PartitionLog) -> str:
    return f"t-{partition.identity.partition}"
