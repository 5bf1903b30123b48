"""Goal: damage is found once, named with file and offset, remembered, and can be repaired.

Method: a log on a disk in memory; bytes of its files are changed, then it is read, started again
and repaired.
"""

from __future__ import annotations

import logging

import msgspec
import pytest

from dragoman.errors import CorruptionError
from dragoman.log.damage import lost_ranges
from dragoman.log.inspect import inspect_disk, verified
from dragoman.log.repair import repair_partition
from dragoman.world import read_whole, replace_file
from worlds.log import World


def flip(world: World, path: str, position: int, count: int = 1) -> None:
    file = world.disk.open(path, "write")
    found = file.read(count, position)
    file.write([bytes(each ^ 0xFF for each in found)], position)
    file.close()


def segments(world: World) -> list[str]:
    names = world.disk.names("partitions/t-0")
    return [f"partitions/t-0/{each}" for each in names if each.endswith(".log")]


def readable(world: World) -> dict[int, bytes | None]:
    """What a reader gets that continues behind every damaged range."""
    log = world.log
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.high_watermark:
        try:
            for record in log.iterate(offset, log.high_watermark):
                found[record.offset] = record.value
                offset = record.offset + 1
            return found
        except CorruptionError:
            offset = next(
                each.next_good for each in lost_ranges(log) if each.first <= offset < each.next_good
            )
    return found


@pytest.fixture
def damaged(world: World, caplog: pytest.LogCaptureFixture) -> World:
    """A log of thirty batches with a wrong byte in the records of one."""
    world.fill(30)
    world.store.close()
    flip(world, segments(world)[1], 500)
    world.open()
    caplog.clear()
    return world


def test_damage_is_reported_once_with_file_byte_and_offsets(
    damaged: World, caplog: pytest.LogCaptureFixture
):
    told: list[str] = []
    damaged.store.on_damage = lambda partition: told.append(partition.describe())
    for _ in range(3):
        with pytest.raises(CorruptionError, match="the next good one is"):
            list(damaged.log.iterate(0, 30))
    lines = [each.message for each in caplog.records if each.levelno == logging.ERROR]
    assert len(lines) == 1
    (lost,) = lost_ranges(damaged.log)
    assert lost.path in lines[0]
    assert f"at byte {lost.position}" in lines[0]
    assert f"offsets {lost.first} to {lost.next_good - 1}" in lines[0]
    assert (lost.next_good - lost.first, told) == (1, ["t-0"])
    assert damaged.store.stats.damage == 1


def test_everything_outside_the_damaged_range_is_served(damaged: World):
    found = readable(damaged)
    (lost,) = lost_ranges(damaged.log)
    assert sorted(found) == [each for each in range(30) if each != lost.first]


@pytest.mark.parametrize("clean", [True, False])
def test_damage_is_known_after_a_start_without_reading(damaged: World, clean: bool):
    readable(damaged)
    before = lost_ranges(damaged.log)
    damaged.store.checkpoint_now()
    damaged.restart(clean=clean)
    assert damaged.store.node.damaged == (1,)
    assert lost_ranges(damaged.log) == before
    assert damaged.log.is_damaged


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", [1, -1])
def test_damage_is_known_at_once_and_until_it_is_repaired(world: World, number: int, clean: bool):
    """In a closed segment and in the active one, without a checkpoint behind it."""
    world.fill(35)
    world.store.checkpoint_now()
    path = segments(world)[number]
    assert (path == world.log.active.log_path) is (number == -1)
    flip(world, path, 300)
    world.restart()
    readable(world)
    before = lost_ranges(world.log)
    assert [each.path for each in before] == [path]
    for _ in range(2):
        world.restart(clean=clean)
        assert lost_ranges(world.log) == before
        assert world.log.is_damaged
        world.fill(1)
    (done,) = repair_partition(world.log, is_dry=False)
    world.store.checkpoint_now()
    world.restart(clean=clean)
    assert lost_ranges(world.log) == []
    assert not world.log.is_damaged
    assert world.store.node.damaged_places is msgspec.UNSET
    assert len(world.values()) == 37 - done.lost_offsets


def test_damage_that_the_journal_mends_is_forgotten(world: World):
    world.fill(2)
    world.store.flush(world.log)
    flip(world, segments(world)[-1], 100)
    world.log.clear_tail()
    readable(world)
    assert world.log.is_damaged
    world.restart(clean=False)
    assert lost_ranges(world.log) == []
    assert not world.log.is_damaged
    assert len(world.values()) == 2


@pytest.mark.parametrize("left", [300, 0, None])
@pytest.mark.parametrize("number", [1, -1])
def test_what_a_start_finds_missing_is_found_again_after_a_kill(
    world: World, number: int, left: int | None
):
    """A partition that is opened while the node runs has no checkpoint behind it yet."""
    for value in range(32):
        world.append(b"%0100d" % value, log=world.partition(1))
        world.commit()
    world.store.close()
    names = [each for each in world.disk.names("partitions/t-1") if each.endswith(".log")]
    path = f"partitions/t-1/{names[number]}"
    if left is None:
        world.disk.remove(path)
    else:
        file = world.disk.open(path, "write")
        file.truncate(left)
        file.close()
    world.open()
    before = lost_offsets(world)
    assert before
    for _ in range(2):
        world.restart(clean=False)
        assert lost_offsets(world) == before
    world.store.checkpoint_now()
    world.restart(clean=False)
    assert lost_offsets(world) == before


def lost_offsets(world: World) -> set[int]:
    lost = lost_ranges(world.partition(1))
    return {offset for each in lost for offset in range(each.first, each.next_good)}


def test_a_partition_without_damage_is_forgotten(damaged: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "dragoman.log")
    readable(damaged)
    damaged.log.restart_at(30)
    damaged.restart()
    assert damaged.store.node.damaged == ()
    (line,) = [vars(each) for each in caplog.records if each.message == "damage repaired"]
    assert (line["topic"], line["partition"]) == ("t", 0)


def test_a_long_stretch_of_damage_is_one_range(world: World):
    world.fill(60)
    world.store.close()
    flip(world, segments(world)[1], 0, 600)
    world.open()
    with pytest.raises(CorruptionError):
        list(world.log.iterate(0, 60))
    assert len(lost_ranges(world.log)) == 1
    assert len(readable(world)) == 60 - sum(e.next_good - e.first for e in lost_ranges(world.log))


def test_a_file_that_is_gone_is_damage_and_no_crash(world: World, caplog: pytest.LogCaptureFixture):
    world.fill(30)
    world.store.files.close()
    world.log.clear_tail()
    path = segments(world)[1]
    world.disk.remove(path)
    with pytest.raises(CorruptionError):
        list(world.log.iterate(0, 30))
    assert "not readable" in caplog.text
    assert lost_ranges(world.log)[0].path == path


def test_a_dry_run_changes_nothing(damaged: World):
    (found,) = repair_partition(damaged.log, is_dry=True)
    assert (found.lost_offsets, found.kept_batches) == (1, 4)
    with pytest.raises(CorruptionError):
        list(damaged.log.iterate(0, 30))
    assert damaged.disk.names("quarantine") == []


def test_a_repaired_log_is_readable_and_keeps_its_offsets(damaged: World):
    expected = readable(damaged)
    (done,) = repair_partition(damaged.log, is_dry=False)
    assert done.quarantine.removeprefix("quarantine/") in damaged.disk.names("quarantine")
    for _ in range(2):
        found = {each.offset: each.value for each in damaged.log.iterate(0, 30)}
        assert found == expected
        gap = done.lost[0][0]
        assert next(damaged.log.iterate(gap, 30)).offset == gap + 1
        assert lost_ranges(damaged.log) == []
        assert damaged.append(b"next").base_offset == damaged.log.log_end_offset - 1 >= 30
        damaged.commit()
        damaged.restart()
    assert verified(inspect_disk(damaged.disk)).is_sound
    assert not damaged.log.is_damaged


def test_damage_in_the_last_segment_is_repaired_and_its_offsets_are_not_given_again(world: World):
    world.fill(10)
    world.store.close()
    flip(world, segments(world)[-1], 100)
    world.open()
    repair_partition(world.log, is_dry=False)
    world.restart()
    assert world.log.log_end_offset == 10
    assert world.append(b"next").base_offset == 10


def test_a_segment_of_which_nothing_is_left_becomes_a_gap(world: World):
    world.fill(30)
    world.store.close()
    path = segments(world)[1]
    flip(world, path, 0, 1000)
    world.open()
    (done,) = repair_partition(world.log, is_dry=False)
    assert done.kept_batches == 0
    world.restart()
    assert path not in segments(world)
    assert len(list(world.log.iterate(0, 30))) == 30 - done.lost_offsets


def test_what_can_be_read_again_is_no_damage_any_more(damaged: World):
    readable(damaged)
    flip(damaged, segments(damaged)[1], 500)
    (done,) = repair_partition(damaged.log, is_dry=False)
    assert done.lost == ()
    damaged.restart()
    assert lost_ranges(damaged.log) == []
    assert len(damaged.values()) == 30


def test_a_shortened_segment_that_replay_extends_is_reported(
    world: World, caplog: pytest.LogCaptureFixture
):
    """What is replayed lies behind the cut: zeros are in between."""
    world.config.segment_bytes = 100_000
    world.fill(10)
    world.store.checkpoint_now()
    world.fill(5)
    world.store.abandon()
    (path,) = segments(world)
    file = world.disk.open(path, "write")
    file.truncate(400)
    file.close()
    world.open()
    assert "400 bytes" in caplog.text
    (lost,) = lost_ranges(world.log)
    # A checkpoint may have come in between, and covers what it covers.
    assert lost.first == 2
    assert 10 <= lost.next_good < 15
    assert sorted(readable(world)) == [0, 1, *range(lost.next_good, 15)]


def test_the_last_segment_is_gone_and_its_offsets_are_not_given_again(
    world: World, caplog: pytest.LogCaptureFixture
):
    world.fill(10)
    world.store.checkpoint_now()
    # A group behind the checkpoint: nothing before it is replayed.
    world.append(b"other", log=world.partition(1))
    world.commit()
    world.store.abandon()
    world.disk.remove(segments(world)[-1])
    world.open()
    assert "are missing" in caplog.text
    assert world.log.log_end_offset == 10
    assert lost_ranges(world.log)[0].next_good == 10
    assert world.append(b"next").base_offset == 10


def test_a_missing_manifest_is_reported(world: World, caplog: pytest.LogCaptureFixture):
    world.fill(30)
    world.store.close()
    world.disk.remove("partitions/t-0/manifest.json")
    world.open()
    assert "manifest.json is missing" in caplog.text
    assert len(world.values()) == 30


def test_another_file_in_the_place_of_a_manifest_is_damage(
    world: World, caplog: pytest.LogCaptureFixture
):
    """The checksum of `node.json` is right wherever the file lies."""
    path = "partitions/t-0/manifest.json"
    world.fill(30)
    world.store.close()
    replace_file(world.disk, path, read_whole(world.disk, "node.json"))
    assert path in [each.path for each in verified(inspect_disk(world.disk)).problems]
    world.open()
    assert f"{path} at byte 0: the file has the contents of another file" in caplog.text
    assert len(world.values()) == 30
