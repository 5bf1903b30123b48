"""Rows on disk: what a node reads back after a restart.

    history/15s-00000007, history/5m-00000003

A file is a sequence of records and has no header; it begins with the series of its columns. Numbers
are little-endian:

    marker  4    D7 48 52 1E; never part of a name, since D7 48 is not UTF-8
    size    4    of the body
    crc     4    CRC-32C of position, size and body
    body         kind (1 byte), then by kind
        1 series   first column (4), msgpack of a list of keys
        2 row      time (8), first column (4), float32 for each column

In a file a column means one series: new ones are appended, and a file ends with the `Columns` that
it was begun for. A row of many columns is several records, so that damage costs little. Records of
other kinds are skipped.

What cannot be read is skipped up to the next marker. A lost series record leaves its columns
without a meaning, and their values are left out: no value goes to another series. The files are
never synced or rewritten: after a power cut the last minutes may be missing. Whole files are
removed when the others have enough rows, whatever their times, as the clock may have been wrong.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from math import nan
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import MALFORMED
from dragoman.limits import (
    HISTORY_FILE_BYTES_MAX,
    HISTORY_FILE_ROWS_MAX,
    HISTORY_FILES_MAX,
    HISTORY_RECORD_BYTES_MAX,
)
from dragoman.telemetry.history.figures import Key
from dragoman.telemetry.history.ring import UNKNOWN, Columns, Row, Steps
from dragoman.world import Disk, File

DIRECTORY: Final = "history"
_MARKER: Final = b"\xd7\x48\x52\x1e"
_HEAD: Final = Struct("<4sII")
_POSITION: Final = Struct("<QI")
_SERIES, _ROW = 1, 2
_SERIES_HEAD: Final = Struct("<BI")
_ROW_HEAD: Final = Struct("<BQI")
#: Columns of one row record, and keys of one series record.
_COLUMNS_AT_ONCE: Final = 1024
_KEYS_AT_ONCE: Final = 100
_COLUMN_MAX: Final = 1 << 16
_READ_BYTES: Final = 64 << 10
#: Records that are read between two pauses.
_RECORDS_AT_ONCE: Final = 20
_keys: Final[msgspec.msgpack.Decoder[list[Key]]] = msgspec.msgpack.Decoder(list[Key])


# ---- records


def _record(position: int, body: bytes) -> bytes:
    crc = crc32c(body, crc32c(_POSITION.pack(position, len(body))))
    return _HEAD.pack(_MARKER, len(body), crc) + body


class SeriesRecord(NamedTuple):
    first: int
    keys: list[Key]


class RowRecord(NamedTuple):
    at: int
    first: int
    values: array[float]


def _floats(data: bytearray) -> array[float]:
    values = array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _bytes(values: array[float]) -> bytes:
    if sys.byteorder == "big":
        values = array("f", values)
        values.byteswap()
    return values.tobytes()


def _decoded(body: bytearray) -> SeriesRecord | RowRecord | None:
    """None for a record of another kind, or without sense."""
    try:
        if body[0] == _SERIES:
            _, first = _SERIES_HEAD.unpack_from(body)
            keys = _keys.decode(body[_SERIES_HEAD.size :])
            return SeriesRecord(first, keys) if first + len(keys) <= _COLUMN_MAX else None
        if body[0] == _ROW:
            _, at, first = _ROW_HEAD.unpack_from(body)
            values = _floats(body[_ROW_HEAD.size :])
            return RowRecord(at, first, values) if first + len(values) <= _COLUMN_MAX else None
    except (*MALFORMED, struct.error, ValueError):
        pass
    return None


class Records:
    """The records of a file, and how many of its bytes are none."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self.damaged_bytes = 0

    def __iter__(self) -> Iterator[SeriesRecord | RowRecord | None]:
        """None after bytes that are no record, so that a reader can pause."""
        data, position = self._data, 0
        while position < len(data):
            body = self._body(position)
            if body is None:
                found = data.find(_MARKER, position + 1)
                end = found if found >= 0 else len(data)
                self.damaged_bytes += end - position
                position = end
                yield None
            else:
                position += _HEAD.size + len(body)
                yield _decoded(body)

    def _body(self, position: int) -> bytearray | None:
        data = self._data
        if len(data) - position < _HEAD.size:
            return None
        marker, size, crc = _HEAD.unpack_from(data, position)
        start = position + _HEAD.size
        if marker != _MARKER or not 0 < size <= HISTORY_RECORD_BYTES_MAX:
            return None
        body = data[start : start + size]
        if len(body) < size or crc != crc32c(body, crc32c(_POSITION.pack(position, size))):
            return None
        return body


# ---- reading


class Loaded(NamedTuple):
    """What the files of one step have."""

    rows: list[Row]
    #: Numbers of the files, with the number of their rows, the oldest first.
    files: dict[int, int]
    #: Columns of the last file if it may be continued, how many the file names, and its size.
    columns: Columns | None
    named: int
    size: int
    damaged_bytes: int


def _number(name: str, prefix: str) -> int | None:
    digits = name.removeprefix(prefix)
    is_ours = name.startswith(prefix) and len(digits) == 8
    return int(digits) if is_ours and digits.isascii() and digits.isdigit() else None


def path_of(prefix: str, number: int) -> str:
    return f"{DIRECTORY}/{prefix}{number:08}"


def load(disk: Disk, prefix: str, rows_max: int, shared: Columns | None = None) -> Steps[Loaded]:
    """Read all files of a step. Files whose columns begin like `shared` use these.

    Raises `OSError` if the directory cannot be listed.
    """
    numbers = [_number(name, prefix) for name in disk.names(DIRECTORY)]
    rows: list[Row] = []
    files: dict[int, int] = {}
    columns: Columns | None = None
    named = size = damaged = 0
    for number in sorted(each for each in numbers if each is not None):
        files[number] = 0
        try:
            data = yield from _read(disk, path_of(prefix, number))
        except OSError:
            # It stays as it is; the node has other work than to examine why.
            columns = None
            continue
        content = yield from _content(data)
        found = _columns(content, [each for each in (columns, shared) if each is not None])
        rows += [
            Row(at, found, values) for at, values in zip(content.times, content.values, strict=True)
        ]
        del rows[:-rows_max]
        files[number] = len(content.times)
        damaged += content.damaged_bytes
        columns = None if content.damaged_bytes else found
        named, size = content.width, len(data)
    return Loaded(rows, files, columns, named, size, damaged)


def _read(disk: Disk, path: str) -> Steps[bytearray]:
    file = disk.open(path, "read")
    try:
        data = bytearray()
        while len(data) < HISTORY_FILE_BYTES_MAX:
            piece = file.read(_READ_BYTES, len(data))
            if not piece:
                break
            data += piece
            yield
        return data
    finally:
        file.close()


class _Content(NamedTuple):
    #: Series by column.
    keys: dict[int, Key]
    times: list[int]
    values: list[array[float]]
    damaged_bytes: int

    @property
    def width(self) -> int:
        """How many columns have a name."""
        return max(self.keys, default=-1) + 1


def _content(data: bytearray) -> Steps[_Content]:
    records = Records(data)
    keys: dict[int, Key] = {}
    times: list[int] = []
    values: list[array[float]] = []
    for number, record in enumerate(records, 1):
        match record:
            case SeriesRecord(first, named):
                keys |= enumerate(named, first)
            case RowRecord(at, first, some):
                # The first record of a row may be lost.
                if not times or times[-1] != at or len(values[-1]) > first:
                    times.append(at)
                    values.append(array("f"))
                row = values[-1]
                # A new array, without room for more.
                values[-1] = row + array("f", [nan]) * (first - len(row)) + some
        if number % _RECORDS_AT_ONCE == 0:
            yield
    return _Content(keys, times, values, records.damaged_bytes)


def _columns(content: _Content, others: Sequence[Columns]) -> Columns:
    """The columns of a file: of others, if these begin like them, which saves memory."""
    keys = [content.keys.get(index, UNKNOWN) for index in range(content.width)]
    if not content.damaged_bytes and max(map(len, content.values), default=0) <= len(keys):
        for each in others:
            common = min(len(keys), len(each))
            if keys[:common] == each.keys[:common]:
                for key in keys[common:]:
                    each.add(key)
                return each
    return Columns(keys)


# ---- writing


class Writer:
    """Appends rows of one step. Raises `OSError`, after which the same position is tried again."""

    def __init__(self, disk: Disk, prefix: str, rows_max: int) -> None:
        self._disk = disk
        self._prefix = prefix
        self._rows_max = rows_max
        self._files: dict[int, int] = {}
        self._file: File | None = None
        self._size = 0
        self._columns: Columns | None = None
        #: Columns whose series are in the file.
        self._named = 0

    def resume(self, loaded: Loaded) -> None:
        """Append to what was read."""
        self._files = dict(loaded.files)
        self._columns, self._named = loaded.columns, loaded.named
        self._size = loaded.size

    def append(self, row: Row) -> Steps[None]:
        if self._columns is not row.columns or self.is_full:
            self._begin(row.columns)
        file = self._opened()
        self._files[self._last] += 1
        for body in chain(self._series(row), _values(row)):
            record = _record(self._size, body)
            file.write([record], self._size)
            self._size += len(record)
            yield

    @property
    def _last(self) -> int:
        return max(self._files, default=0)

    @property
    def is_full(self) -> bool:
        """Whether the next row begins a new file."""
        rows = self._files.get(self._last, 0)
        return rows >= HISTORY_FILE_ROWS_MAX or self._size >= HISTORY_FILE_BYTES_MAX // 2

    def _begin(self, columns: Columns) -> None:
        self.close()
        self._remove_oldest()
        self._disk.make_directory(DIRECTORY)
        number = self._last + 1
        self._disk.remove(path_of(self._prefix, number))
        self._file = self._disk.open(path_of(self._prefix, number), "create")
        self._files[number] = 0
        self._columns, self._named, self._size = columns, 0, 0

    def _remove_oldest(self) -> None:
        while self._files:
            oldest = min(self._files)
            rest = sum(self._files.values()) - self._files[oldest]
            if rest < self._rows_max and len(self._files) < HISTORY_FILES_MAX:
                return
            self._disk.remove(path_of(self._prefix, oldest))
            del self._files[oldest]

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._disk.open(path_of(self._prefix, self._last), "write")
        return self._file

    def _series(self, row: Row) -> Iterator[bytes]:
        keys = row.columns.keys
        for first in range(self._named, len(keys), _KEYS_AT_ONCE):
            some = keys[first : first + _KEYS_AT_ONCE]
            yield _SERIES_HEAD.pack(_SERIES, first) + msgspec.msgpack.encode(some)
            self._named = first + len(some)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _values(row: Row) -> Iterator[bytes]:
    for first in range(0, len(row.values), _COLUMNS_AT_ONCE):
        some = row.values[first : first + _COLUMNS_AT_ONCE]
        yield _ROW_HEAD.pack(_ROW, row.at, first) + _bytes(some)
