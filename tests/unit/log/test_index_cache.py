"""Goal: an index that is built again hides nothing that was found while building it.

Method: a segment and its index are damaged on a simulated disk; the process is killed right after
the damage was found, before anything could be noted.
"""

from __future__ import annotations

from random import Random

import pytest

from dragoman.errors import CorruptionError
from dragoman.log import index_cache
from dragoman.log.index import Checkpoint, SparseIndex
from dragoman.testing.sim.disk import SimDisk
from worlds.log import World


def test_damage_found_with_a_lost_index_is_found_again_after_a_kill() -> None:
    disk = SimDisk(Random(1))
    world = World(disk)
    world.fill(30)
    world.store.close()
    first = min(each.log_path for each in world.log.segments)
    disk.flip(first, 70, 3)
    disk.flip(first.removesuffix(".log") + ".idx", 6, 2)
    for _ in range(3):
        world.disk = world.disk.kill()
        world.open()
        with pytest.raises(CorruptionError, match="damaged"):
            world.log.read(0, 1, world.log.high_watermark)
        assert world.log.is_damaged
        assert world.log.read(1, 1, world.log.high_watermark).next_offset == 2


def test_damage_without_a_sound_batch_is_found_again_after_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_cache, "CACHED_INDEXES_MAX", 1)
    disk = SimDisk(Random(1))
    world = World(disk)
    world.fill(6, size=900)
    world.store.close()
    first = min(each.log_path for each in world.log.segments)
    disk.flip(first, 70, 3)
    disk.flip(first.removesuffix(".log") + ".idx", 6, 2)
    for _ in range(2):
        world.disk = world.disk.kill()
        world.open()
        for _ in range(3):
            with pytest.raises(CorruptionError, match="damaged"):
                world.log.read(0, 1, world.log.high_watermark)
            # Makes the cache forget the index, which has no entries and is in no file.
            assert world.log.read(2, 1, world.log.high_watermark).next_offset == 3


def test_index_that_does_not_begin_with_its_segment_is_not_believed() -> None:
    world = World()
    world.fill(6, size=900)
    world.restart()
    segment = world.log.segments[0]
    checkpoint = Checkpoint(segment.size, segment.next_offset, segment.checksum, -1, False)
    world.store._indexes.replace(segment, SparseIndex().unsaved_block(checkpoint, 0, segment.tag))
    assert world.log.read(0, 1, world.log.high_watermark).next_offset == 1


def test_what_only_the_journal_led_to_is_refused_when_the_index_is_lost_later() -> None:
    disk = SimDisk(Random(1))
    world = World(disk)
    world.fill(1)
    world.store.checkpoint_now()
    world.fill(10)
    first = min(each.log_path for each in world.log.segments)
    index = first.removesuffix(".log") + ".idx"
    disk.flip(first, 26, 3)
    disk.flip(index, 6, 2)
    world.disk = disk.kill()
    world.open()
    with pytest.raises(CorruptionError, match="offsets 0 to 0 are damaged"):
        world.log.read(0, 1, world.log.high_watermark)
    assert world.log.read(1, 1, world.log.high_watermark).next_offset == 2
    world.store.close()
    world.disk.flip(index, 6, 2)
    world.disk = world.disk.kill()
    world.open()
    with pytest.raises(CorruptionError, match="damaged"):
        world.log.read(1, 1, world.log.high_watermark)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_a_log_is_not_truncated_where_damage_hides_the_border(offset: int) -> None:
    """The search for the border finds the damage; the records before it must stay."""
    disk = SimDisk(Random(1))
    world = World(disk)
    world.fill(30)
    world.store.close()
    first = min(each.log_path for each in world.log.segments)
    disk.flip(first, 70, 3)
    disk.flip(first.removesuffix(".log") + ".idx", 6, 2)
    world.disk = disk.kill()
    world.open()
    end = world.log.log_end_offset
    if offset == 1:
        with pytest.raises(CorruptionError, match="not truncated to 1"):
            world.log.truncate(offset)
        assert world.log.log_end_offset == end
    else:
        world.log.truncate(offset)
        assert world.log.log_end_offset == offset
    assert world.log.is_damaged
