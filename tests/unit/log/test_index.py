"""Goal: look-ups by offset and time, blocks in the file, and damage to them."""

from __future__ import annotations

import pytest

from dragoman.log.index import Checkpoint, SparseIndex, load_index


def filled(count: int = 10, size: int = 100, interval: int = 250) -> SparseIndex:
    index = SparseIndex()
    for number in range(count):
        index.add(number * 5, number * size, b"%027d" % number, number * 10, interval)
    return index


def checkpoint(position: int, next_offset: int = 50) -> Checkpoint:
    return Checkpoint(position, next_offset, 7, 90, True, True)


def test_ranges_are_as_long_as_the_interval_and_cover_everything():
    index = filled()
    ranges = [index.range_at(n, 1000) for n in range(index.range_count)]
    assert [(r.first, r.start, r.stop) for r in ranges] == [
        (0, 0, 300),
        (15, 300, 600),
        (30, 600, 900),
        (45, 900, 1000),
    ]


@pytest.mark.parametrize(
    ("offset", "number"), [(0, 0), (14, 0), (15, 1), (44, 2), (45, 3), (999, 3)]
)
def test_look_up_by_offset(offset: int, number: int):
    assert filled().range_holding(offset) == number


@pytest.mark.parametrize(
    ("time", "number"), [(0, 0), (20, 0), (21, 1), (80, 2), (81, 3), (91, None)]
)
def test_look_up_by_time(time: int, number: int | None):
    assert filled().range_for_time(time) == number


def test_look_up_in_an_empty_index():
    index = SparseIndex()
    assert (index.range_holding(5), index.range_for_time(0), index.range_count) == (0, None, 0)


def test_checks_depend_on_every_prefix():
    index, other = filled(), SparseIndex()
    for number in range(10):
        other.add(number * 5, number * 100, b"%027d" % (number + (number == 4)), 0, 250)
    differ = [n for n in range(4) if index.range_at(n, 0).check != other.range_at(n, 0).check]
    assert differ == [1]


def test_blocks_load_as_they_were_saved():
    index = filled(5)
    index.seal()
    data = index.unsaved_block(checkpoint(500, 25), len(index), 7)
    index.saved_entries = len(index)
    for number in range(5, 10):
        index.add(number * 5, number * 100, b"%027d" % number, number * 10, 250)
    index.seal()
    data += index.unsaved_block(checkpoint(1000), len(index), 7)
    loaded, last, good = load_index(data, 7)
    assert (last, good) == (checkpoint(1000), len(data))
    assert [loaded.range_at(n, 1000) for n in range(len(loaded))] == [
        index.range_at(n, 1000) for n in range(len(index))
    ]
    assert loaded.saved_position == 1000


def test_a_damaged_block_ends_the_reading():
    index = filled(5)
    index.seal()
    first = index.unsaved_block(checkpoint(500, 25), len(index), 7)
    index.saved_entries = len(index)
    second = index.unsaved_block(checkpoint(500, 25), len(index), 7)
    for position in range(len(second)):
        damaged = bytearray(first + second)
        damaged[len(first) + position] ^= 1
        loaded, last, good = load_index(bytes(damaged), 7)
        assert (len(loaded), last, good) == (len(index), checkpoint(500, 25), len(first))


@pytest.mark.parametrize("size", [0, 5, 30, 60])
def test_a_cut_off_block_is_ignored(size: int):
    index = filled(5)
    index.seal()
    loaded, last, good = load_index(index.unsaved_block(checkpoint(500), len(index), 7)[:size], 7)
    assert (len(loaded), last, good) == (0, None, 0)


def test_a_block_that_goes_back_is_ignored():
    index = filled(5)
    index.seal()
    data = index.unsaved_block(checkpoint(500), len(index), 7)
    index.saved_entries = len(index)
    loaded, last, _ = load_index(data + index.unsaved_block(checkpoint(400), len(index), 7), 7)
    assert last == checkpoint(500)
    assert len(loaded) == len(index)


def test_cut_forgets_a_range_and_all_behind_it():
    index = filled()
    index.saved_entries = 3
    index.cut_to_range(1)
    assert (index.range_count, index.max_timestamp, index.saved_entries) == (1, 20, 1)
    index.cut_to_range(0)
    assert (index.range_count, index.max_timestamp) == (0, -1)


def test_offsets_may_lie_further_apart_than_32_bits():
    index = SparseIndex()
    index.add(0, 0, bytes(27), 1, 10)
    index.add(1 << 40, 100, bytes(27), 1, 10)
    index.seal()
    loaded, _, _ = load_index(index.unsaved_block(checkpoint(200), len(index), 7), 7)
    assert loaded.range_holding(1 << 40) == 1
