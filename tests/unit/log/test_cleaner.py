"""Goal: retention drops only what it may, compaction keeps what it must, also when interrupted.

Method: small logs with known records; the generator runs to its end or is stopped at any step.
"""

from __future__ import annotations

import pytest

from dragoman.log.batch import (
    DELETE_HORIZON,
    TRANSACTIONAL,
    Marker,
    Record,
    batches,
    build_batch,
    build_marker,
    read_header,
    stamp_max_timestamp,
)
from dragoman.log.cleaner import (
    CompactionPolicy,
    CompactionResult,
    RetentionPolicy,
    cleanable_segments,
    compact,
    dirty_ratio,
    retain,
    roll_due,
)
from worlds.log import World

HOUR = 3_600_000


def put(world: World, key: bytes | None, value: bytes | None, **options: int) -> int:
    record = Record(key=key, value=value, timestamp=world.clock.wall_ms())
    batch = build_batch([record], **options)
    offset = world.log.append(batch, read_header(batch), 0).base_offset
    world.commit()
    return offset


def close_segments(world: World) -> None:
    world.log.roll(world.log.log_end_offset)
    world.store.checkpoint_now()


def run(world: World, policy: CompactionPolicy | None = None, later: int = 0) -> CompactionResult:
    now = world.clock.wall_ms() + later
    work = compact(world.log, policy or CompactionPolicy(), now)
    while True:
        try:
            next(work)
        except StopIteration as end:
            world.store.checkpoint_now()
            # Recent batches are served from memory as they were written; the files count here.
            world.log.clear_tail()
            return end.value
        world.scheduler.run_ready()


def content(world: World) -> list[tuple[int, bytes | None, bytes | None]]:
    log = world.log
    return [
        (r.offset, r.key, r.value) for r in log.iterate(log.log_start_offset, log.high_watermark)
    ]


# ---- rolling and retention


def test_an_old_active_segment_is_rolled(world: World):
    world.fill(1)
    now = world.clock.wall_ms()
    assert not roll_due(world.log, now + world.config.segment_ms - 1)
    assert roll_due(world.log, now + world.config.segment_ms)
    assert not roll_due(world.log, now + 10 * world.config.segment_ms)
    assert len(world.log.segments) == 1


@pytest.mark.parametrize(
    ("policy", "later", "left"),
    [
        (RetentionPolicy(), 99 * HOUR, 5),
        (RetentionPolicy(retention_ms=HOUR), HOUR, 5),
        (RetentionPolicy(retention_ms=HOUR), HOUR + 1, 1),
        (RetentionPolicy(retention_segments=2), 0, 2),
        (RetentionPolicy(retention_bytes=1800), 0, 3),
        (RetentionPolicy(retention_bytes=0), 0, 1),
    ],
)
def test_retention(world: World, policy: RetentionPolicy, later: int, left: int):
    world.fill(25)
    assert len(world.log.all_segments()) == 5
    gone = retain(world.log, policy, world.clock.wall_ms() + later)
    assert gone == 5 - left
    assert world.log.log_start_offset == world.log.all_segments()[0].base_offset
    world.restart(clean=False)
    assert len(world.values()) == world.log.high_watermark - world.log.log_start_offset


def test_a_segment_whose_records_were_deleted_goes_when_there_is_another(world: World):
    world.fill(1)
    world.log.move_log_start(1)
    world.log.roll(1)
    assert [each.next_offset for each in world.log.all_segments()] == [1, 1]
    assert retain(world.log, RetentionPolicy(retention_segments=1), 0) == 1
    assert [each.base_offset for each in world.log.all_segments()] == [1]


def test_retention_stops_at_the_high_watermark(world: World):
    world.store.on_stable = lambda _: None
    world.fill(25)
    assert retain(world.log, RetentionPolicy(retention_bytes=0), 0) == 0
    world.log.advance_high_watermark(7)
    assert retain(world.log, RetentionPolicy(retention_bytes=0), 0) == 1


def put_timeless(world: World) -> None:
    """Write a batch as an earlier release stored and replicated it: base time -1, maximum 0."""
    batch = build_batch(
        [Record(value=b"v", timestamp=-1)], base_offset=world.log.log_end_offset, leader_epoch=0
    )
    stamp_max_timestamp(batch, 0)
    world.log.append_as_is(batch)
    world.commit()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("rolled", [True, False], ids=["rolled", "active"])
def test_records_without_a_time_are_kept_from_the_last_write_on(
    world: World, rolled: bool, clean: bool
):
    put_timeless(world)
    put_timeless(world)
    if rolled:
        close_segments(world)
    world.restart(clean=clean)
    written = world.clock.wall_ms()
    world.log.roll(world.log.log_end_offset)
    assert world.log.latest_timestamp() == -1
    assert world.log.offset_for_time(0, 2) is None
    policy = RetentionPolicy(retention_ms=HOUR)
    assert retain(world.log, policy, written) == 0
    assert retain(world.log, policy, written + HOUR) == 0
    assert retain(world.log, policy, written + HOUR + 1) == 1


def test_a_maximum_of_0_in_an_earlier_manifest_counts_as_no_time(world: World):
    put_timeless(world)
    close_segments(world)
    put_timeless(world)
    (rolled,) = world.log.segments
    # As earlier releases noted it: no time of the last write, the header's maximum.
    rolled.max_timestamp, rolled.written_ms = 0, -1
    world.log.manifest_version += 1
    world.restart()
    now = world.clock.wall_ms()
    assert retain(world.log, RetentionPolicy(retention_ms=HOUR), now + HOUR) == 0
    assert retain(world.log, RetentionPolicy(retention_ms=HOUR), now + HOUR + 1) == 1


def test_records_without_a_time_wait_for_the_compaction_lag(world: World):
    put_timeless(world)
    close_segments(world)
    now = world.clock.wall_ms()
    policy = CompactionPolicy(min_compaction_lag_ms=HOUR)
    assert cleanable_segments(world.log, policy, now + HOUR - 1) == []
    assert cleanable_segments(world.log, policy, now + HOUR) == world.log.segments


def test_a_follower_keeps_the_producer_of_records_without_a_time(world: World):
    batch = build_batch(
        [Record(value=b"v", timestamp=-1)], producer_id=7, producer_epoch=0, base_sequence=0
    )
    world.log.append_as_is(batch)
    world.commit()
    world.log.producers.expire(world.clock.wall_ms() + HOUR - 1, HOUR)
    assert [each.producer_id for each in world.log.producers.describe()] == [7]


# ---- compaction


def test_the_newest_value_of_each_key_stays_at_its_offset(world: World):
    for number in range(30):
        put(world, b"k%d" % (number % 3), b"%030d" % number)
    close_segments(world)
    assert dirty_ratio(world.log) == 1.0
    result = run(world)
    assert result.is_complete
    assert result.records_dropped == 27
    assert result.bytes_after < result.bytes_before
    assert content(world) == [(n, b"k%d" % (n % 3), b"%030d" % n) for n in (27, 28, 29)]
    assert world.log.read(0, 1, 30).next_offset == 28
    assert dirty_ratio(world.log) == 0.0
    for clean in (True, False):
        world.restart(clean=clean)
        assert [offset for offset, _, _ in content(world)] == [27, 28, 29]
        assert (world.log.log_end_offset, world.log.cleaned_offset) == (30, 30)


def test_empty_segments_disappear_with_their_files(world: World):
    for _ in range(40):
        put(world, b"k", bytes(50))
    close_segments(world)
    assert len(world.log.segments) > 3
    run(world)
    assert len(world.log.segments) == 1
    names = [name for name in world.disk.names(world.log.directory) if name.endswith(".log")]
    assert len(names) == 1


def test_active_unstable_and_young_segments_are_left_alone(world: World):
    put(world, b"k", b"1")
    put(world, b"k", b"2")
    assert run(world).bytes_before == 0
    close_segments(world)
    lag = CompactionPolicy(min_compaction_lag_ms=HOUR)
    assert run(world, lag).bytes_before == 0
    assert run(world, lag, later=HOUR).records_dropped == 1


def test_records_without_a_key_go(world: World):
    put(world, None, b"1")
    put(world, b"k", b"2")
    close_segments(world)
    run(world)
    assert content(world) == [(1, b"k", b"2")]


def test_tombstones_stay_until_their_horizon(world: World):
    put(world, b"k", b"1")
    put(world, b"k", None)
    put(world, b"other", b"3")
    close_segments(world)
    policy = CompactionPolicy(delete_retention_ms=HOUR)
    now = world.clock.wall_ms()
    run(world, policy)
    assert content(world) == [(1, b"k", None), (2, b"other", b"3")]
    (buffer,) = world.log.read(1, 1, 3).buffers
    (header, _) = next(iter(batches(memoryview(buffer))))
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == now + HOUR
    assert [r.timestamp for r in world.log.iterate(1, 2)] == [now]
    run(world, policy, later=HOUR - 1)
    assert len(content(world)) == 2
    run(world, policy, later=HOUR)
    assert content(world) == [(2, b"other", b"3")]


def transaction(world: World, producer: int, values: list[bytes], *, commit: bool) -> None:
    for sequence, value in enumerate(values):
        put(
            world,
            value,
            value,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
    marker = Marker(commit, 0)
    batch = build_marker(
        marker, producer_id=producer, producer_epoch=0, timestamp=world.clock.wall_ms()
    )
    world.log.append_marker(batch, read_header(batch), 0, marker)
    world.commit()


def markers(world: World) -> list[int]:
    found = []
    offset = world.log.log_start_offset
    while offset < world.log.high_watermark:
        result = world.log.read(offset, 1, world.log.high_watermark)
        if not result.buffers:
            break
        for header, _ in batches(memoryview(result.buffers[0])):
            if header.is_control:
                found.append(header.base_offset)
        offset = result.next_offset
    return found


def test_aborted_records_go_and_markers_follow_after_the_horizon(world: World):
    transaction(world, 1, [b"a", b"b"], commit=False)
    transaction(world, 2, [b"c"], commit=True)
    put(world, b"z", b"z")
    close_segments(world)
    policy = CompactionPolicy(delete_retention_ms=HOUR)
    run(world, policy)
    assert [key for _, key, _ in content(world)] == [b"c", b"z"]
    assert markers(world) == [2, 4]
    run(world, policy, later=HOUR)
    assert markers(world) == [4]
    world.restart(clean=False)
    assert markers(world) == [4]
    states = {each.producer_id: each.last_sequence for each in world.log.producers.describe()}
    assert states == {1: 1, 2: 0}


def test_open_transactions_hold_compaction_back(world: World):
    put(world, b"k", b"1")
    put(world, b"k", b"2")
    close_segments(world)
    put(
        world,
        b"k",
        b"3",
        producer_id=4,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    put(world, b"k", b"4")
    close_segments(world)
    run(world)
    assert [value for _, _, value in content(world)] == [b"2", b"3", b"4"]


def test_keys_that_do_not_fit_take_several_rounds(world: World):
    for number in range(60):
        put(world, b"key-%d" % (number % 20), b"%030d" % number)
    close_segments(world)
    small = CompactionPolicy(key_map_bytes_max=800)
    cleaned = []
    while dirty_ratio(world.log) > 0:
        cleaned.append(run(world, small).cleaned_offset)
    assert len(cleaned) > 3
    assert cleaned == sorted(set(cleaned))
    assert [offset for offset, _, _ in content(world)] == list(range(40, 60))


@pytest.mark.parametrize("slices", [1, 3, 10, 30, 60])
@pytest.mark.parametrize("event", ["append", "truncate", "retain", "remove", "close"])
def test_anything_may_happen_between_two_slices(world: World, slices: int, event: str):
    for number in range(40):
        put(world, b"k%d" % (number % 4), b"%030d" % number)
    close_segments(world)
    expected = {key: value for _, key, value in content(world)}
    work = compact(world.log, CompactionPolicy(), world.clock.wall_ms())
    for _ in range(slices):
        next(work, None)
        world.scheduler.run_ready()
    if event == "append":
        put(world, b"k0", b"new")
        expected[b"k0"] = b"new"
    elif event == "truncate":
        world.log.truncate(39)
        expected[b"k3"] = b"%030d" % 35
    elif event == "retain":
        retain(world.log, RetentionPolicy(retention_segments=3), world.clock.wall_ms())
    elif event == "remove":
        world.store.remove_partition(world.log)
    else:
        work.close()
    for _ in work:
        world.scheduler.run_ready()
    names = world.disk.names(world.log.directory)
    assert not [name for name in names if name.endswith(".compacting")]
    if event == "remove":
        assert names == []
        return
    if event == "truncate" and slices > 30:
        # What superseded k3's value at 35 had been seen before it was cut.
        expected.pop(b"k3")
    found = {key: value for _, key, value in content(world) if key in expected}
    assert found == expected


def test_damage_ends_the_round_and_is_not_spread(world: World):
    for number in range(40):
        put(world, b"k%d" % (number % 4), b"%030d" % number)
    close_segments(world)
    path = world.log.segments[1].log_path
    file = world.disk.open(path, "write")
    file.write([b"\xff\xff"], 80)
    result = run(world)
    assert not result.is_complete
    assert world.log.cleaned_offset == 0
    assert any("compaction stopped" in problem for problem in world.log.problems)
    assert world.disk.exists(path)


@pytest.mark.parametrize("room", [0, 100, 300, 500, 700])
def test_a_full_disk_ends_the_round_and_keeps_everything(world: World, room: int):
    for number in range(40):
        put(world, b"k%d" % (number % 20), b"%030d" % number)
    close_segments(world)
    tree = world.disk._tree
    tree.capacity_bytes = tree.used_bytes + room
    work = compact(world.log, CompactionPolicy(), world.clock.wall_ms())
    for _ in work:
        world.scheduler.run_ready()
    tree.capacity_bytes = 1 << 30
    names = world.disk.names(world.log.directory)
    assert not [name for name in names if name.endswith(".compacting")]
    assert {value for _, _, value in content(world)} >= {b"%030d" % n for n in range(20, 40)}
    world.scheduler.advance(20)
    assert run(world).is_complete
    assert [offset for offset, _, _ in content(world)] == list(range(20, 40))
