"""Goal: group commit, slow disks, full disks, failed syncs, locks, clean and unclean starts.

Method: a store on a disk in memory or a simulated one, driven by a simulated loop.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from dragoman.errors import (
    CorruptionError,
    DirectoryInUseError,
    DiskFullError,
    FormatError,
    LogStoppedError,
    OffsetGapError,
    OffsetOutOfRangeError,
)
from dragoman.limits import WRITE_OUT_BYTES_MIN
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.log.index import load_index
from dragoman.log.node import Ballot, Durability, read_node_state, write_node_state
from dragoman.log.partition import PartitionLog
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskFaults
from dragoman.world import BackgroundJob, read_whole
from worlds.log import Config, World, make_batch

MakeWorld = Callable[..., World]


def test_one_turn_of_the_loop_is_one_group(world: World):
    other = world.partition(1)
    world.append(b"a")
    world.append(b"b", log=other)
    world.append(b"c")
    assert world.stable == []
    assert world.log.log_end_offset == 2
    world.commit()
    assert world.store.stats.groups == 1
    assert world.stable == [("t-0", 2), ("t-1", 1)]


def test_readers_never_see_what_is_not_stable(world: World):
    world.append(b"a")
    assert world.log.read(0, 1000, world.log.high_watermark).buffers == []
    world.commit()
    assert world.values() == [b"a"]


def test_the_slow_path_gathers_the_next_group_while_one_is_in_flight(world: World):
    world.store.commits.sync_average_s = 1.0
    world.append(b"a")
    world.store.commits.commit_scheduled()
    assert world.stable == []
    world.append(b"b")
    world.append(b"c")
    world.commit()
    assert world.stable == [("t-0", 1), ("t-0", 3)]
    assert world.store.stats.groups == 2


def test_a_group_that_is_being_synced_can_be_copied_but_not_read(world: World):
    world.store.commits.sync_average_s = 1.0
    told: list[list[str]] = []
    world.store.on_written = lambda those: told.append([each.describe() for each in those])
    world.append(b"a")
    assert world.log.copy_end(0) == 0, "staged only: no follower has it yet"
    world.store.commits.commit_scheduled()
    log = world.log
    assert told == [["t-0"]]
    assert (log.copy_end(0), log.stable_end, log.high_watermark) == (1, 0, 0)
    assert log.read(0, 100, log.copy_end(0)).next_offset == 1
    assert log.read(0, 100, log.high_watermark).buffers == []
    log.clear_tail()
    assert log.copy_end(0) == 0, "not in memory any more, and not in a file yet"
    world.commit()
    assert (log.copy_end(0), log.stable_end) == (1, 1)
    assert world.values() == [b"a"]


def test_a_slow_clock_moves_the_sync_off_the_loop(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dragoman.log.group_commit.GROUP_BYTES_MAX", 1 << 20)
    times = iter(range(1000))
    monkeypatch.setattr(world.clock, "monotonic", lambda: float(next(times)))
    submitted = []
    submit = world.store.directory.background.submit
    monkeypatch.setattr(
        world.store.directory.background,
        "submit",
        lambda job, done: (submitted.append(job), submit(job, done)),
    )
    # One slow write is not a slow disk.
    world.fill(1)
    assert not any(path.endswith(".jnl") for job in submitted for path in job.sync)
    world.fill(40)
    assert any(path.endswith(".jnl") for job in submitted for path in job.sync)
    assert len(world.values()) == 41


@pytest.fixture
def large_part_bytes(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("dragoman.log.group_commit.LARGE_PART_BYTES_MIN", 500)
    return 500


def test_small_parts_of_a_turn_are_committed_before_large_ones(world: World, large_part_bytes: int):
    world.config = Config(segment_bytes=1 << 30)
    large, small = world.partition(3), world.partition(4)
    told: list[list[str]] = []
    world.store.on_stable = lambda those: told.append([each.describe() for each in those])
    world.append(bytes(large_part_bytes), log=large)
    world.append(b"a", log=small)
    world.append(b"b")
    world.commit()
    assert told == [["t-4", "t-0"], ["t-3"]]
    # Without anything large, or with nothing else, a turn is one group.
    world.append(b"a", log=small)
    world.append(b"b")
    world.commit()
    world.append(bytes(large_part_bytes), log=large)
    world.commit()
    assert told[2:] == [["t-4", "t-0"], ["t-3"]]
    assert world.store.commits.staged_bytes == 0


def test_small_parts_go_first_on_a_slow_disk_too(world: World, large_part_bytes: int):
    world.config = Config(segment_bytes=1 << 30)
    large = world.partition(3)
    world.store.commits.sync_average_s = 1.0
    world.append(bytes(large_part_bytes), log=large)
    world.append(b"a")
    world.store.commits.commit_scheduled()
    assert world.stable == []
    world.commit()
    assert world.stable == [("t-0", 1), ("t-3", 1)]


@pytest.mark.parametrize("durability", list(Durability))
def test_the_disk_begins_with_large_writes_before_they_are_synced(
    new_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, durability: Durability
):
    world = new_world(durability=durability)
    world.config = Config(segment_bytes=1 << 30)
    log = world.partition(7)
    advice: list[tuple[str, int, int]] = []
    submit = world.store.directory.background.submit
    monkeypatch.setattr(
        world.store.directory.background,
        "submit",
        lambda job, done: (advice.extend(job.write_out), submit(job, done)),
    )
    for _ in range(20):
        world.append(bytes(WRITE_OUT_BYTES_MIN // 4), log=log)
        world.commit()
    # Every byte once, in order, but for what is not yet enough.
    ends = [position + size for _, position, size in advice]
    assert [position for _, position, _ in advice] == [0, *ends[:-1]]
    assert len(advice) == 5
    assert log.size - ends[-1] < WRITE_OUT_BYTES_MIN
    # At a stop there is no advice left to give.
    world.append(bytes(2 * WRITE_OUT_BYTES_MIN), log=log)
    world.store.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("durability", list(Durability))
def test_everything_is_there_after_a_restart(
    new_world: MakeWorld, clean: bool, durability: Durability
):
    world = new_world(durability=durability)
    world.fill(40)
    world.log.begin_epoch(3)
    world.fill(2)
    world.restart(clean=clean)
    assert len(world.values()) == 42
    assert world.log.epochs.entries() == [(0, 0), (3, 40)]
    assert world.store.was_clean is clean
    world.fill(5)
    assert world.log.log_end_offset == 47


@pytest.mark.parametrize("is_disk_full", [False, True])
def test_indexes_are_written_though_a_checkpoint_ended_before_them(
    new_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, is_disk_full: bool
):
    """Only the index reveals a wrong header once the journal no longer has the batch."""
    world = new_world()
    world.append(b"a")
    world.commit()
    submit = world.store.directory.background.submit

    def only_syncs(job: BackgroundJob, done: Callable[[OSError | None], None]) -> None:
        if not job.replace:
            submit(job, done)
        elif is_disk_full:
            done(OSError(errno.ENOSPC, "full"))

    monkeypatch.setattr(world.store.directory.background, "submit", only_syncs)
    world.log.manifest_version += 1
    world.store.start_checkpoint()
    world.commit()
    segment = world.log.active
    assert segment is not None
    assert not world.disk.exists(segment.index_path)
    monkeypatch.undo()
    if is_disk_full:
        world.store.retry_full_disk()
        world.store.start_checkpoint()
        world.commit()
    else:
        world.store.close()
    index = read_whole(world.disk, segment.index_path)
    _, checkpoint, _ = load_index(index, segment.tag)
    assert checkpoint is not None
    assert checkpoint.position == segment.size


def test_a_clean_start_replays_nothing(world: World):
    world.fill(20)
    world.store.close()
    world.open()
    assert world.store.pending_partitions == []
    assert world.log.clean_size == world.log.active.size


def test_an_empty_partition_has_no_files(world: World):
    world.partition(5)
    world.store.checkpoint_now()
    assert world.disk.names("partitions") == []


@pytest.mark.parametrize("durability", list(Durability))
def test_a_failed_sync_stops_everything(new_world: MakeWorld, durability: Durability):
    world = new_world(SimDisk(Random(1)), durability)
    world.fill(2)
    world.disk.faults = DiskFaults(sync_error_rate=1.0)
    world.append(b"lost")
    world.commit()
    if durability is Durability.OS:
        with pytest.raises(LogStoppedError):
            world.log.begin_epoch(9)
    stable = list(world.stable)
    assert len(world.failures) == 1
    world.disk.faults = DiskFaults()
    for refused in (
        lambda: world.append(b"later"),
        lambda: world.log.truncate(1),
        lambda: world.log.move_log_start(1),
        lambda: world.log.begin_epoch(10),
    ):
        with pytest.raises(LogStoppedError):
            refused()
    world.scheduler.advance(60)
    assert world.stable == stable
    world.store.close()
    assert not read_node_state(world.disk).is_clean


def test_a_failed_sync_beside_the_loop_is_not_acknowledged(new_world: MakeWorld):
    world = new_world(SimDisk(Random(1)))
    world.store.commits.sync_average_s = 1.0
    world.append(b"x")
    world.store.commits.commit_scheduled()
    world.disk.faults = DiskFaults(sync_error_rate=1.0)
    world.commit()
    assert (world.stable, len(world.failures)) == ([], 1)


def test_a_full_disk_refuses_appends_and_serves_reads(new_world: MakeWorld):
    disk = MemoryDisk(capacity_bytes=120_000)
    world = new_world(disk)
    with pytest.raises(DiskFullError):
        world.fill(2000)
    count = world.log.high_watermark
    assert len(world.values()) == count > 50
    with pytest.raises(DiskFullError):
        world.append(b"more")
    disk._tree.capacity_bytes = 1 << 30
    world.scheduler.advance(20)
    world.fill(3)
    assert len(world.values()) == count + 3
    world.restart(clean=False)
    assert len(world.values()) == count + 3


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_checkpoint_on_a_full_disk_speaks_for_no_half_of_a_range(
    new_world: MakeWorld, is_indexed: bool
):
    """Some batches of a range of the index are in the file already, some in the journal only."""
    disk = MemoryDisk(capacity_bytes=1 << 30)
    world = new_world(disk)
    world.append(b"a" * 100)
    world.commit()
    if is_indexed:
        world.store.start_checkpoint()
        world.commit()
    world.append(b"b" * 100)
    world.commit()
    world.store.flush(world.log)
    # Room for a block of the index, not for a batch.
    disk._tree.capacity_bytes = disk._tree.used_bytes + 100
    world.append(b"c" * 100)
    world.commit()
    world.store.start_checkpoint()
    world.commit()
    assert world.log.dirty
    segment = world.log.active
    assert segment is not None
    assert 0 < segment.written < segment.size
    disk._tree.capacity_bytes = 1 << 30
    world.restart(clean=False)
    world.store.checkpoint_now()
    world.log.clear_tail()
    assert [each[:1] for each in world.values()] == [b"a", b"b", b"c"]


def test_a_full_disk_without_journal_takes_the_group_back(new_world: MakeWorld):
    disk = MemoryDisk(capacity_bytes=20_000)
    world = new_world(disk, Durability.OS)
    with pytest.raises(DiskFullError):
        world.fill(2000)
    assert world.refused == ["t-0"]
    values = world.values()
    assert world.log.log_end_offset == len(values)
    disk._tree.capacity_bytes = 1 << 30
    world.scheduler.advance(20)
    world.append(b"after")
    world.commit()
    world.restart(clean=False)
    assert world.values() == [*values, b"after"]


def test_the_directory_is_locked(world: World):
    with pytest.raises(DirectoryInUseError):
        World.open(world)
    world.restart()


def test_a_directory_from_the_future_is_refused_and_left_alone(world: World):
    world.fill(3)
    world.store.close()
    state = read_node_state(world.disk)
    state.format = 99
    write_node_state(world.disk, state)
    with pytest.raises(FormatError, match="format 99"):
        world.open()
    state.format = 1
    write_node_state(world.disk, state)
    world.open()
    assert len(world.values()) == 3


def test_truncation_falls_on_a_batch_border_and_survives(world: World):
    for _ in range(10):
        world.append(b"x", b"y", b"z")
        world.commit()
    world.log.truncate(16)
    assert world.log.log_end_offset == 15
    world.append(b"new")
    world.commit()
    world.restart(clean=False)
    assert world.values()[-1] == b"new"
    assert world.log.log_end_offset == 16


def test_log_start_never_goes_back(world: World):
    world.fill(40)
    world.log.move_log_start(25)
    world.log.move_log_start(10)
    world.restart(clean=False)
    assert world.log.log_start_offset == 25
    with pytest.raises(OffsetOutOfRangeError):
        world.log.read(24, 1, 40)
    world.store.checkpoint_now()
    bases = [int(name[:20]) for name in world.disk.names(world.log.directory) if "log" in name]
    assert min(bases) > 8


@pytest.mark.parametrize("time", [-5, 0, 7, 15, 39, 40])
def test_offset_for_time(world: World, time: int):
    for number in range(40):
        batch = build_batch([Record(value=bytes(90), timestamp=1000 + number)])
        world.log.append(batch, read_header(batch), 0)
        world.commit()
    world.store.checkpoint_now()
    found = world.log.offset_for_time(1000 + time, 40)
    expected = None if time >= 40 else (max(time, 0), 1000 + max(time, 0))
    assert found == expected


def test_append_as_is_takes_gaps_and_refuses_going_back(world: World):
    data = build_batch([Record(value=b"a")], base_offset=5, leader_epoch=2)
    data += build_batch([Record(value=b"b")], base_offset=1 << 40, leader_epoch=3)
    world.log.append_as_is(data)
    world.commit()
    for base, epoch in ((7, 3), ((1 << 40) + 1, 2)):
        with pytest.raises(OffsetGapError):
            world.log.append_as_is(build_batch([Record()], base_offset=base, leader_epoch=epoch))
    world.restart(clean=False)
    assert world.values() == [b"a", b"b"]
    assert world.log.epochs.entries() == [(2, 5), (3, 1 << 40)]
    assert world.log.read(6, 1, world.log.high_watermark).next_offset == (1 << 40) + 1


def test_batches_that_come_together_leave_the_same_log_as_one_by_one(new_world: MakeWorld):
    together, apart = new_world(), new_world()
    found = [
        build_batch(
            [Record(value=bytes([number]) * size, timestamp=1000 + number % 7)],
            base_offset=number,
            leader_epoch=number // 40,
        )
        for number, size in enumerate([20, 700, 3] * 40)
    ]
    for first in range(0, len(found), 8):
        together.log.append_as_is(b"".join(found[first : first + 8]))
        together.commit()
        for each in found[first : first + 8]:
            apart.log.append_as_is(each)
        apart.commit()
    for world in (together, apart):
        assert world.log.append_as_is(b"") == len(found)
        world.store.checkpoint_now()
    assert together.log.epochs.entries() == apart.log.epochs.entries()
    assert len(together.log.all_segments()) > 1
    assert [
        (each.base_offset, each.size, each.checksum, each.max_timestamp, each.next_offset)
        for each in together.log.all_segments()
    ] == [
        (each.base_offset, each.size, each.checksum, each.max_timestamp, each.next_offset)
        for each in apart.log.all_segments()
    ]
    for path in [each.log_path for each in apart.log.all_segments()]:
        assert read_whole(together.disk, path) == read_whole(apart.disk, path), path
    for world in (together, apart):
        world.restart(clean=False)
    assert together.values() == apart.values()
    for time in range(1000, 1007):
        found = together.log.offset_for_time(time, 120)
        assert found == apart.log.offset_for_time(time, 120)


def test_damage_at_rest_is_refused_and_the_rest_served(world: World):
    world.fill(40)
    world.restart()
    segment = world.log.segments[1]
    file = world.disk.open(segment.log_path, "write")
    file.write([b"\xff"], 100)
    refused = []
    for offset in range(40):
        try:
            assert world.log.read(offset, 1, 40).next_offset == offset + 1
        except CorruptionError:
            refused.append(offset)
    assert refused == [segment.base_offset]


def test_a_lost_index_is_built_again(world: World):
    world.fill(40)
    world.restart()
    segment = world.log.segments[0]
    world.disk.remove(segment.index_path)
    assert len(world.values()) == 40
    assert world.disk.exists(segment.index_path)


def test_removed_partitions_leave_nothing_behind(world: World):
    other = world.partition(1)
    for _ in range(30):
        world.append(b"x" * 100, log=other)
    world.store.remove_partition(other)
    world.commit()
    world.scheduler.advance(10)
    assert world.disk.names("partitions/t-1") == []
    world.fill(3)
    world.restart(clean=False)
    assert len(world.values()) == 3


def test_more_partitions_in_one_group_than_fit_the_slack(world: World):
    logs = [world.partition(number) for number in range(1, 300)]
    for log in logs:
        world.append(b"x", log=log)
    world.commit()
    assert all(log.stable_end == 1 for log in logs)


def test_journal_files_are_recycled(world: World):
    world.fill(400)
    world.scheduler.advance(20)
    assert len(world.disk.names("journal")) <= 4
    assert world.store.stats.checkpoints > 1
    assert make_batch(b"x")


# ---- term and vote


@pytest.mark.parametrize("durability", list(Durability))
def test_a_ballot_is_stable_after_its_group_and_survives_a_kill(
    new_world: MakeWorld, durability: Durability
):
    world = new_world(durability=durability)
    world.store.stage_ballot(Ballot(3, 1))
    world.commit()
    assert world.store.ballot == Ballot(3, 1)
    world.restart(clean=False)
    assert world.store.ballot == Ballot(3, 1)
    world.restart()
    assert world.store.ballot == Ballot(3, 1)


def test_a_ballot_and_the_appends_of_its_turn_are_one_group(world: World):
    groups = world.store.stats.groups
    world.append(b"x")
    world.store.stage_ballot(Ballot(1, 2))
    assert world.store.ballot == Ballot()
    world.commit()
    assert world.store.ballot == Ballot(1, 2)
    assert world.store.stats.groups == groups + 1


def test_a_ballot_outlives_the_journal_group_that_held_it(world: World):
    world.store.stage_ballot(Ballot(1, 2))
    world.commit()
    world.store.checkpoint_now()
    # The next group says that replay starts behind the ballot's.
    world.append(b"x")
    world.commit()
    world.restart(clean=False)
    assert world.store.ballot == Ballot(1, 2)


def test_a_ballot_that_is_replaced_before_it_is_written_is_never_seen(world: World):
    world.store.stage_ballot(Ballot(1, 2))
    world.store.stage_ballot(Ballot(2))
    world.commit()
    world.restart(clean=False)
    assert world.store.ballot == Ballot(2, -1)


def test_a_ballot_alone_is_reported_as_stable(world: World):
    told: list[list[PartitionLog]] = []
    world.store.on_stable = told.append
    world.store.stage_ballot(Ballot(1, 2))
    world.commit()
    assert told == [[]]


def test_no_room_for_a_directory_puts_a_checkpoint_off_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill(1)
    other = world.partition(1)
    with monkeypatch.context() as patch:
        patch.setattr(world.disk, "make_directory", _no_room)
        other.begin_epoch(1)
        world.scheduler.advance(20)
        assert world.store.is_disk_full
    world.scheduler.advance(20)
    assert not world.store.is_disk_full
    assert not other.is_manifest_due
    assert not world.failures


def _no_room(path: str) -> None:
    raise OSError(errno.ENOSPC, "no space", path)
