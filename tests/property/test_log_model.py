"""Goal: whatever is done to a log, in whatever order, it holds what a plain list says.

Method: hypothesis drives one partition through appends, rolls, cuts, cleaning and restarts and
compares it with a list of records; then one finished log is opened again with its last journal
group, and its last segment write, cut off at every byte.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dragoman.log.batch import Record, build_batch, read_header
from dragoman.log.cleaner import CompactionPolicy, RetentionPolicy, compact, retain
from dragoman.log.journal import JournalReader
from dragoman.log.manifest import Identity
from dragoman.log.node import Durability, read_node_state
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.background import ImmediateBackground
from dragoman.testing.sim.scheduler import SimClock, SimScheduler
from dragoman.world import Disk
from power_cuts.scenario import small_bounds

settings.register_profile("log", max_examples=25, stateful_step_count=30, derandomize=True)


class Config(msgspec.Struct, frozen=True):
    segment_bytes: int = 700
    segment_ms: int = 60_000
    index_interval_bytes: int = 200


class Opened:
    """A store with one partition on a disk."""

    def __init__(self, disk: Disk, durability: Durability = Durability.FSYNC) -> None:
        self.scheduler = SimScheduler()
        self.clock = SimClock(self.scheduler)
        background = ImmediateBackground(disk, self.scheduler)
        self.store = LogStore(disk, background, self.scheduler, self.clock, Random(1), durability)
        identity = Identity(partition_id=1, topic="t", partition=0, topic_id="x")
        self.log: PartitionLog = self.store.partition(identity, "t-0", Config())
        self.store.on_stable = self._on_stable
        self.store.finish_recovery()

    def _on_stable(self, partitions: list[PartitionLog]) -> None:
        for partition in partitions:
            partition.advance_high_watermark(partition.stable_end)

    def append(self, records: list[Record]) -> int:
        batch = build_batch(records)
        return self.log.append(batch, read_header(batch), 0).base_offset

    def records(self) -> list[Record]:
        self.scheduler.run_ready()
        return list(self.log.iterate(self.log.log_start_offset, self.log.high_watermark))


RECORDS = st.lists(
    st.builds(
        Record,
        key=st.sampled_from([b"a", b"b", b"c"]),
        value=st.one_of(st.none(), st.binary(max_size=150)),
        timestamp=st.integers(0, 10_000),
    ),
    min_size=1,
    max_size=4,
)


class LogMachine(RuleBasedStateMachine):
    @initialize(durability=st.sampled_from(list(Durability)))
    def start(self, durability: Durability) -> None:
        self.bounds = small_bounds()
        self.bounds.__enter__()
        self.durability = durability
        self.disk = MemoryDisk()
        self.opened = Opened(self.disk, durability)
        #: Batches of records, with offsets.
        self.model: list[list[Record]] = []
        self.log_start = 0
        #: Offsets that compaction may have removed by now.
        self.cleaned = 0

    def teardown(self) -> None:
        if hasattr(self, "bounds"):
            self.bounds.__exit__(None, None, None)

    @rule(records=RECORDS)
    def append(self, records: list[Record]) -> None:
        base = self.opened.append(records)
        numbered = enumerate(records)
        self.model.append([msgspec.structs.replace(r, offset=base + n) for n, r in numbered])

    @rule()
    def roll(self) -> None:
        self.opened.log.roll(self.opened.log.log_end_offset)

    @rule(share=st.floats(0.5, 1.0))
    def truncate(self, share: float) -> None:
        self.opened.scheduler.run_ready()
        log = self.opened.log
        offset = max(int(log.log_end_offset * share), self.log_start, self.cleaned)
        log.truncate(offset)
        self.model = [batch for batch in self.model if batch[-1].offset < offset]

    @rule(share=st.floats(0.0, 1.0))
    def delete_records(self, share: float) -> None:
        self.opened.scheduler.run_ready()
        log = self.opened.log
        offset = int(log.high_watermark * share)
        log.move_log_start(offset)
        self.log_start = max(self.log_start, offset)

    @rule(count=st.integers(1, 6))
    def retain(self, count: int) -> None:
        self.opened.scheduler.run_ready()
        log = self.opened.log
        retain(log, RetentionPolicy(retention_segments=count), 0)
        assert len(log.all_segments()) <= max(count, 1) or log.active is None
        assert log.log_start_offset >= self.log_start
        self.log_start = log.log_start_offset

    @rule(slices=st.integers(0, 400), room=st.sampled_from([200, 100_000]))
    def compact(self, slices: int, room: int) -> None:
        self.opened.scheduler.run_ready()
        self.opened.store.checkpoint_now()
        log = self.opened.log
        self.cleaned = max(self.cleaned, log.saved_live_offset)
        work = compact(log, CompactionPolicy(key_map_bytes_max=room), 1 << 50)
        for _ in range(slices):
            next(work, None)
            self.opened.scheduler.run_ready()
        work.close()

    @rule()
    def let_time_pass(self) -> None:
        self.opened.scheduler.advance(6.0)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.opened.scheduler.run_ready()
        if clean:
            self.opened.store.close()
        else:
            self.opened.store.abandon()
        self.opened = Opened(self.disk, self.durability)

    @invariant()
    def holds_what_the_list_says(self) -> None:
        if not hasattr(self, "opened"):
            return
        found = {record.offset: record for record in self.opened.records()}
        written = {r.offset: r for batch in self.model for r in batch if r.offset >= self.log_start}
        newest = {record.key: offset for offset, record in written.items()}
        assert self.opened.log.log_start_offset == self.log_start
        assert all(written[offset] == record for offset, record in found.items())
        for offset, record in written.items():
            if offset not in found:
                assert offset < self.cleaned
                assert newest[record.key] > offset or record.value is None


LogMachine.TestCase.settings = settings.get_profile("log")
TestLogAgainstList = LogMachine.TestCase


# ---- cut off at every byte


def image_of(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: bytes(node.data) for path, node in disk._tree.files()}


def disk_of(image: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    for path, data in image.items():
        disk.make_directory(path.rpartition("/")[0])
        file = disk.open(path, "create")
        file.write([data], 0)
        file.close()
    return disk


def crashed_image(durability: Durability) -> tuple[dict[str, bytes], int]:
    """A directory after a crash with three groups in the journal; the records before the last."""
    disk = MemoryDisk()
    opened = Opened(disk, durability)
    for number in range(3):
        opened.append([Record(value=b"%d" % number * 40)])
        opened.append([Record(value=b"%d" % number * 20), Record(value=b"x")])
        opened.scheduler.run_ready()
        opened.store.flush(opened.log)
    return image_of(disk), 6


@pytest.fixture
def bounds():
    with small_bounds():
        yield


def test_last_journal_group_cut_off_anywhere(bounds: None):
    image, kept = crashed_image(Durability.FSYNC)
    state = read_node_state(disk_of(image))
    last = JournalReader(disk_of(image), int(state.directory_id[:8], 16), 0).groups[-1]
    whole = [r.value for r in Opened(disk_of(image)).records()]
    for cut in range(last.size):
        changed = dict(image)
        data = bytearray(image[last.path])
        if not any(data[last.position + cut : last.position + last.size]):
            # What follows is zero anyway: the group is whole without it.
            break
        data[last.position + cut :] = bytes(len(data) - last.position - cut)
        changed[last.path] = bytes(data)
        # The segment got these bytes later than the journal: without the group it has none.
        segment = next(path for path in image if path.endswith(".log"))
        changed[segment] = image[segment][: _size_of(whole[:kept])]
        opened = Opened(disk_of(changed))
        assert [r.value for r in opened.records()] == whole[:kept], cut
        assert opened.log.problems == []


def _size_of(values: list[bytes | None]) -> int:
    """Bytes of the batches that hold these values, three values to two batches."""
    size = 0
    for at in range(0, len(values), 3):
        size += len(build_batch([Record(value=values[at])]))
        size += len(build_batch([Record(value=each) for each in values[at + 1 : at + 3]]))
    return size


@pytest.mark.parametrize("durability", list(Durability))
def test_last_segment_write_cut_off_anywhere(bounds: None, durability: Durability):
    image, kept = crashed_image(durability)
    whole = [r.value for r in Opened(disk_of(image), durability).records()]
    segment = next(path for path in image if path.endswith(".log"))
    for size in range(_size_of(whole[:kept]), len(image[segment])):
        opened = Opened(disk_of({**image, segment: image[segment][:size]}), durability)
        found = [r.value for r in opened.records()]
        if durability is Durability.FSYNC:
            assert found == whole, size
        else:
            assert found == whole[: len(found)], size
            assert len(found) >= kept
        assert opened.log.problems == []
