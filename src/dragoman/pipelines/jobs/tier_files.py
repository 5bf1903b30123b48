"""Copies ranges of a log to Parquet files and back, on executors, in Arrow, without rows in the
JVM.

Files have the columns of the source `dragoman` except topic and partition, which are in their
paths. Records are in the order of their offsets.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dragoman.limits import TIER_OPEN_FILES_MAX, TIER_ROW_GROUP_BYTES
from dragoman.operating_system import platforms
from dragoman.pipelines.jobs.tier_manifest import TierFile, TierRange, sync_directory
from dragoman.spark.batches.layout import COLUMN_TYPES

if TYPE_CHECKING:
    from dragoman.spark.options import SourceOptions
    from dragoman.spark.planner import RangePartition

COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
SCHEMA = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in COLUMNS])
#: Keys, values and offsets rarely repeat: a dictionary of them costs readers more than it saves.
_ENCODING: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["timestamp", "timestampType", "headers.list.element.key"],
    "column_encoding": {"offset": "DELTA_BINARY_PACKED"},
}
_DAY_US = 86_400_000_000


class ContentHash:
    """A hash of records in the order of their offsets, the same for a log and for its files.

    Every column has separate hashes of lengths (-1: null) and of bytes, so the division of the
    records into batches does not matter.
    """

    def __init__(self) -> None:
        self._parts = {
            name: hashlib.sha256()
            for name in (
                "offset", "timestamp", "timestampType", "key.size", "key", "value.size", "value",
                "headers.count", "header.size", "header", "header.value.size", "header.value",
            )
        }  # fmt: skip

    def add(self, batch: pa.RecordBatch) -> None:
        for name in ("offset", "timestamp", "timestampType"):
            numbers = batch.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False)
            self._parts[name].update(np.ascontiguousarray(numbers).data)
        for name in ("key", "value"):
            self._add_bytes(name, batch.column(name))
        headers = batch.column("headers")
        counts = np.diff(headers.offsets.to_numpy()).astype(np.int32)
        self._parts["headers.count"].update(counts.data)
        fields = headers.flatten()
        self._add_bytes("header", fields.field("key").cast(pa.binary()))
        self._add_bytes("header.value", fields.field("value"))

    def _add_bytes(self, name: str, array: pa.BinaryArray) -> None:
        if not len(array):
            return
        _, ends, data = array.buffers()
        offsets = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
        sizes = np.diff(offsets)
        if array.null_count:
            sizes = np.where(array.is_valid().to_numpy(zero_copy_only=False), sizes, -1)
        self._parts[f"{name}.size"].update(np.ascontiguousarray(sizes, np.int32).data)
        if data is not None and offsets[-1] > offsets[0]:
            self._parts[name].update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])

    def hexdigest(self) -> str:
        whole = hashlib.sha256()
        for part in self._parts.values():
            whole.update(part.digest())
        return whole.hexdigest()


class TierTask(msgspec.Struct, frozen=True):
    """The range that one executor copies."""

    planned: RangePartition
    options: SourceOptions
    directory: str


def copy_range(task: TierTask) -> TierRange:
    """Copy the records of a range to files and sync them.

    No reader sees the files before the manifest names them. Raises the errors of the source.
    """
    from dragoman.spark.reader import read_range

    offsets = task.planned.offsets
    writer = _RangeWriter(Path(task.directory), offsets.where.partition, offsets.start)
    for batch in read_range(task.planned, task.options, COLUMNS):
        writer.add(batch)
    files = writer.finish()
    return TierRange(
        partition=offsets.where.partition, start=offsets.start, end=offsets.end, files=files
    )


class _RangeWriter:
    """Writes one file per day; the least recently used is closed when too many are open."""

    def __init__(self, directory: Path, partition: int, start: int) -> None:
        self._directory = directory
        self._partition = partition
        self._start = start
        self._open: dict[int, _FileWriter] = {}
        self._files: list[TierFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        days = batch.column("timestamp").cast(pa.int64()).to_numpy() // _DAY_US
        for day in np.unique(days).tolist():
            is_of_day = days == day
            part = batch if is_of_day.all() else batch.filter(pa.array(is_of_day))
            self._writer(day).add(part)

    def finish(self) -> tuple[TierFile, ...]:
        for day in list(self._open):
            self._files.append(self._open.pop(day).finish())
        return tuple(sorted(self._files, key=lambda each: (each.first_offset, each.path)))

    def _writer(self, day: int) -> _FileWriter:
        writer = self._open.pop(day, None)
        if writer is None:
            if len(self._open) >= TIER_OPEN_FILES_MAX:
                self._files.append(self._open.pop(next(iter(self._open))).finish())
            date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
            folder = f"date={date:%Y-%m-%d}/partition={self._partition}"
            name = f"{folder}/{self._start:020d}-{secrets.token_hex(4)}.parquet"
            writer = _FileWriter(self._directory, name)
        self._open[day] = writer
        return writer


class _FileWriter:
    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / name
        self._name = name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._path, SCHEMA, **_ENCODING)
        self._hash = ContentHash()
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._pending = 0
        self._offsets: list[int] = []
        self._times: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._hash.add(batch)
        offsets = batch.column("offset")
        self._offsets += [offsets[0].as_py(), offsets[-1].as_py()]
        times = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
        self._times += [int(times.min()), int(times.max())]
        self._rows += len(batch)
        self._pending += batch.nbytes
        self._gathered.append(batch)
        if self._pending >= TIER_ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            whole = pa.Table.from_batches(self._gathered).cast(SCHEMA)
            self._writer.write_table(whole, row_group_size=len(whole))
            self._gathered.clear()
            self._pending = 0

    def finish(self) -> TierFile:
        self._flush()
        self._writer.close()
        with self._path.open("rb") as file:
            platforms.sync_file(file.fileno())
            size = os.fstat(file.fileno()).st_size
        for folder in (self._path.parent, self._path.parent.parent, self._path.parents[2]):
            sync_directory(folder)
        return TierFile(
            path=self._name,
            rows=self._rows,
            size=size,
            first_offset=self._offsets[0],
            last_offset=self._offsets[-1],
            first_timestamp=min(self._times),
            last_timestamp=max(self._times),
            content=self._hash.hexdigest(),
        )


def read_file(path: Path, rows: int = 64 << 10) -> Iterator[pa.RecordBatch]:
    yield from pq.ParquetFile(path).iter_batches(batch_size=rows, columns=list(COLUMNS))


def problem_in(directory: str, file: TierFile) -> str:
    """The problem of a file that is missing, damaged, or has other content; else empty."""
    path = Path(directory) / file.path
    content, rows = ContentHash(), 0
    try:
        for batch in read_file(path):
            content.add(batch)
            rows += len(batch)
    except (OSError, pa.ArrowException) as error:
        return f"{path}: {error}"
    is_same = rows == file.rows and content.hexdigest() == file.content
    return "" if is_same else f"{path}: its records are not those that were written"
