"""Files of the history: what was written is read back; damage costs what it hits, and invents
nothing.

Method: rows on a disk in memory, cut and flipped at every byte, and compared with what was written.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Iterable, Sequence
from math import nan
from typing import cast

import pytest

from dragoman import limits
from dragoman.telemetry.history import files
from dragoman.telemetry.history.files import DIRECTORY, Loaded, Writer, load, path_of
from dragoman.telemetry.history.ring import Columns, Row, Steps
from dragoman.testing.memory import MemoryDisk, MemoryFile
from dragoman.types import Buffer
from dragoman.world import Disk

PREFIX = "15s-"
A, B, C = ("a",), ("topic", "orders", "kafka"), ("c",)


def result(steps: Steps[files.Loaded]) -> Loaded:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return cast(Loaded, stop.value)


def finish(steps: Iterable[None]) -> None:
    for _ in steps:
        pass


def rows_of(columns: Columns, times: Iterable[int]) -> list[Row]:
    """Rows in which every value says when it is of, and of which column."""
    return [
        Row(at, columns, array("f", [at * 100 + index for index in range(len(columns))]))
        for at in times
    ]


def write(disk: Disk, rows: Sequence[Row], rows_max: int = 1000) -> Writer:
    writer = Writer(disk, PREFIX, rows_max)
    for each in rows:
        finish(writer.append(each))
    return writer


def read(disk: Disk) -> Loaded:
    return result(load(disk, PREFIX, 1000))


def points(rows: Iterable[Row]) -> set[tuple[int, tuple[str, ...], float]]:
    return {
        (row.at, key, row.value(key))
        for row in rows
        for key in row.columns.keys
        if key and row.value(key) == row.value(key)
    }


def contents(disk: Disk, path: str) -> bytes:
    file = disk.open(path, "read")
    data = file.read(file.size(), 0)
    file.close()
    return data


def replace(disk: Disk, path: str, data: bytes) -> None:
    disk.make_directory(DIRECTORY)
    disk.remove(path)
    file = disk.open(path, "create")
    file.write([data], 0)
    file.close()


def test_rows_are_read_back() -> None:
    disk, columns = MemoryDisk(), Columns([A, B])
    rows = rows_of(columns, (15, 30))
    writer = write(disk, rows)
    columns.add(C)
    later = rows_of(columns, (45,))
    finish(writer.append(later[0]))
    found = read(disk)
    assert points(found.rows) == points([*rows, *later])
    assert [row.at for row in found.rows] == [15, 30, 45]
    assert found.damaged_bytes == 0


def test_a_wide_row_is_several_records() -> None:
    disk, columns = MemoryDisk(), Columns([("f", str(index)) for index in range(2500)])
    rows = rows_of(columns, (15, 30))
    write(disk, rows)
    assert points(read(disk).rows) == points(rows)


def test_no_value_and_zero_stay_apart() -> None:
    disk = MemoryDisk()
    write(disk, [Row(15, Columns([A, B]), array("f", [nan, 0.0]))])
    assert points(read(disk).rows) == {(15, B, 0.0)}


def test_a_file_is_continued_after_a_restart() -> None:
    disk, columns = MemoryDisk(), Columns([A])
    write(disk, rows_of(columns, (15,))).close()
    found = read(disk)
    assert found.columns is not None
    writer = Writer(disk, PREFIX, 1000)
    writer.resume(found)
    found.columns.add(B)
    finish(writer.append(rows_of(found.columns, (30,))[0]))
    assert disk.names(DIRECTORY) == ["15s-00000001"]
    assert points(read(disk).rows) == {(15, A, 1500.0), (30, A, 3000.0), (30, B, 3001.0)}


def test_other_columns_begin_another_file() -> None:
    disk = MemoryDisk()
    writer = write(disk, rows_of(Columns([A, B]), (15,)))
    finish(writer.append(rows_of(Columns([C]), (30,))[0]))
    assert disk.names(DIRECTORY) == ["15s-00000001", "15s-00000002"]
    assert points(read(disk).rows) == {(15, A, 1500.0), (15, B, 1501.0), (30, C, 3000.0)}


def test_old_files_are_removed_when_the_others_have_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "HISTORY_FILE_ROWS_MAX", 4)
    disk, columns = MemoryDisk(), Columns([A])
    writer = write(disk, rows_of(columns, range(15, 15 * 41, 15)), rows_max=8)
    assert len(disk.names(DIRECTORY)) == 3
    assert [row.at for row in read(disk).rows][-8:] == [15 * each for each in range(33, 41)]
    assert writer.is_full


def test_the_number_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "HISTORY_FILES_MAX", 5)
    disk = MemoryDisk()
    writer = Writer(disk, PREFIX, 1000)
    for number in range(20):
        finish(writer.append(rows_of(Columns([A]), (15 * number,))[0]))
    assert len(disk.names(DIRECTORY)) == 5


@pytest.fixture(scope="module")
def whole() -> tuple[bytes, set[tuple[int, tuple[str, ...], float]]]:
    disk, columns = MemoryDisk(), Columns([A, B])
    rows = rows_of(columns, (15, 30))
    writer = write(disk, rows)
    columns.add(C)
    rows += rows_of(columns, (45, 60))
    for each in rows[2:]:
        finish(writer.append(each))
    return contents(disk, path_of(PREFIX, 1)), points(rows)


def test_a_file_that_is_cut_anywhere_loses_its_end(
    whole: tuple[bytes, set[tuple[int, tuple[str, ...], float]]],
) -> None:
    data, expected = whole
    for end in range(len(data)):
        disk = MemoryDisk()
        replace(disk, path_of(PREFIX, 1), data[:end])
        found = read(disk)
        assert points(found.rows) <= expected
        # What is appended afterwards is read, and nothing else changes.
        writer = Writer(disk, PREFIX, 1000)
        writer.resume(found)
        columns = found.columns or Columns()
        key = ("later",)
        columns.add(key)
        row = Row(75, columns, array("f", [nan] * (len(columns) - 1) + [7.0]))
        finish(writer.append(row))
        assert points(read(disk).rows) == points(found.rows) | {(75, key, 7.0)}


def test_a_flipped_byte_loses_at_most_one_record(
    whole: tuple[bytes, set[tuple[int, tuple[str, ...], float]]],
) -> None:
    data, expected = whole
    for position in range(len(data)):
        for bits in (0x01, 0x80, 0xFF):
            disk = MemoryDisk()
            damaged = bytearray(data)
            damaged[position] ^= bits
            replace(disk, path_of(PREFIX, 1), bytes(damaged))
            found = read(disk)
            assert points(found.rows) < expected
            assert len(found.rows) >= 3
            assert found.damaged_bytes > 0
            assert found.columns is None, "a damaged file is not continued"


def test_columns_without_a_name_do_not_take_that_of_the_file_before(
    whole: tuple[bytes, set[tuple[int, tuple[str, ...], float]]],
) -> None:
    """A lost series record must not give the values of its columns to other series."""
    data, _ = whole
    disk = MemoryDisk()
    write(disk, rows_of(Columns([("x",), ("y",), ("z",)]), (1,))).close()
    damaged = bytearray(data)
    damaged[14] ^= 1
    replace(disk, path_of(PREFIX, 2), bytes(damaged))
    assert {key for at, key, _ in points(read(disk).rows) if at > 1} == {C}


@pytest.mark.parametrize(
    "data", [b"", b"something else\n" * 1000, b"\xd7HR\x1e" * 1000, bytes(5000)]
)
def test_a_foreign_file_is_left_out(data: bytes) -> None:
    disk = MemoryDisk()
    replace(disk, path_of(PREFIX, 3), data)
    replace(disk, f"{DIRECTORY}/notes.txt", b"mine")
    found = read(disk)
    assert found.rows == []
    assert found.damaged_bytes == len(data)
    finish(_resumed(disk, found).append(rows_of(Columns([A]), (15,))[0]))
    assert points(read(disk).rows) == {(15, A, 1500.0)}
    assert contents(disk, f"{DIRECTORY}/notes.txt") == b"mine"


def _resumed(disk: Disk, found: Loaded) -> Writer:
    writer = Writer(disk, PREFIX, 1000)
    writer.resume(found)
    return writer


def test_records_of_a_later_release_are_skipped() -> None:
    disk = MemoryDisk()
    write(disk, rows_of(Columns([A]), (15,))).close()
    data = contents(disk, path_of(PREFIX, 1))
    replace(disk, path_of(PREFIX, 1), data + files._record(len(data), b"\x09later"))
    found = read(disk)
    assert points(found.rows) == {(15, A, 1500.0)}
    assert found.damaged_bytes == 0


def test_a_write_that_failed_is_tried_again_at_the_same_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, columns = MemoryDisk(), Columns([A])
    writer = write(disk, rows_of(columns, (15,)))
    columns.add(B)
    whole = MemoryFile.write

    def partly(file: MemoryFile, buffers: Sequence[Buffer], position: int) -> None:
        whole(file, [bytes(buffers[0])[:10]], position)
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(MemoryFile, "write", partly)
    with pytest.raises(OSError, match="no space"):
        finish(writer.append(rows_of(columns, (30,))[0]))
    monkeypatch.undo()
    finish(writer.append(rows_of(columns, (45,))[0]))
    found = read(disk)
    assert points(found.rows) == {(15, A, 1500.0), (45, A, 4500.0), (45, B, 4501.0)}
    assert found.damaged_bytes == 0


def test_a_week_of_all_series_takes_no_more_than_stated() -> None:
    series = (
        limits.HISTORY_TOPIC_TRAFFIC_SERIES_MAX
        + limits.HISTORY_TOPIC_SIZE_SERIES_MAX
        + limits.HISTORY_GROUP_SERIES_MAX
        + limits.HISTORY_NODE_SERIES_MAX
    )
    rows = limits.HISTORY_FINE_ROWS + limits.HISTORY_COARSE_ROWS
    assert series * rows * 4 <= 29 << 20
