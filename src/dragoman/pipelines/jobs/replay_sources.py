"""Sources of a replay: a log, its Parquet twin, or a table.

The driver determines the offsets or files; executors read them and stage the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dragoman.client.kafka import TopicPartition
from dragoman.errors import ConfigError
from dragoman.pipelines.jobs.delta import KEY
from dragoman.pipelines.jobs.replay import Batches, Options, Plan, TableBatches, TopicBatches
from dragoman.pipelines.jobs.row_merge import MARKS, RANGES
from dragoman.pipelines.jobs.tier import source_options
from dragoman.pipelines.jobs.tier_files import read_file
from dragoman.pipelines.jobs.tier_manifest import Manifest, TierFile, Twin
from dragoman.spark import planner
from dragoman.spark.logs import AnyLog, open_logs
from dragoman.spark.offsets import Offsets
from dragoman.spark.options import SinkOptions, SourceOptions, Topics
from dragoman.spark.planner import Lease, OffsetRange, RangePartition
from dragoman.spark.writer import Staged

_COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")


# ---- planning


def batches_of(options: Options) -> Batches:
    """The batches of everything that exists now. Raises `ConfigError`."""
    return _table_batches(options) if options.table else _topic_batches(options)


def source_of(options: Options) -> SourceOptions:
    bootstrap = options.source_bootstrap or options.bootstrap
    return source_options(options.topic, bootstrap, options.path, options.source)


def _topic_batches(options: Options) -> TopicBatches:
    log, _ = open_logs(source_of(options))
    with closing(log):
        known = _KnownOffsets(log, options)
        starts = known.offsets(options.starting, known.first)
        ends = known.offsets(options.ending, known.latest)
    return TopicBatches(
        topic_id=known.topic_id,
        ranges={each.partition: (starts[each], max(starts[each], ends[each])) for each in starts},
        records=options.batch_records,
        tiered=known.manifest.ends,
    )


class _KnownOffsets:
    """The offsets that exist, in the log and in its twin."""

    def __init__(self, log: AnyLog, options: Options) -> None:
        self._log = log
        topics = planner.chosen_topics(log, Topics(names=(options.topic,)))
        self.topic_id = topics[options.topic].topic_id
        partitions = planner.partitions_of(topics)
        self._earliest = log.earliest(partitions)
        self.latest = log.latest(partitions)
        self.manifest = Manifest(topic=options.topic, topic_id=self.topic_id)
        if options.tier:
            self.manifest = Twin(options.tier, options.topic).manifest(self.topic_id)
        starts = self.manifest.starts
        self.first = {
            where: min(starts.get(where.partition, at), at) for where, at in self._earliest.items()
        }

    def offsets(self, text: str, otherwise: Offsets) -> Offsets:
        """Offsets by a word, a time or JSON; `otherwise` for partitions that JSON leaves out."""
        if text in ("earliest", "latest"):
            return self.first if text == "earliest" else self.latest
        if text.startswith("{"):
            return otherwise | self._by_number(text)
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise ConfigError(
                f"{text!r} is not an offset: expected earliest, latest, a time such as "
                '2026-11-16T08:00:00Z, or offsets such as {"0": 23}'
            ) from None
        if at.tzinfo is None:
            raise ConfigError(f"{text!r} has no time zone: add Z or +01:00")
        at_ms = round(at.timestamp() * 1000)
        found = self.latest | self._log.at_times(dict.fromkeys(self.latest, at_ms))
        return {where: self._earlier(where, at_ms, offset) for where, offset in found.items()}

    def _by_number(self, text: str) -> Offsets:
        try:
            given = msgspec.json.decode(text, type=dict[int, int])
        except msgspec.DecodeError as error:
            raise ConfigError(f"{text!r} is not a map of offsets: {error}") from None
        known = {where.partition: where for where in self.first}
        for partition, offset in given.items():
            where = known.get(partition)
            if where is None or not self.first[where] <= offset <= self.latest[where]:
                if where is None:
                    raise ConfigError(f"there is no partition {partition}")
                raise ConfigError(
                    f"partition {partition} has no offset {offset}; "
                    f"its offsets are {self.first[where]} to {self.latest[where]}"
                )
        return {known[partition]: offset for partition, offset in given.items()}

    def _earlier(self, where: TopicPartition, at_ms: int, offset: int) -> int:
        """The twin's offset for a time, where the log begins at or after that time."""
        if offset > self._earliest[where]:
            return offset
        files = (
            file
            for each in self.manifest.ranges
            if each.partition == where.partition
            for file in each.files
        )
        return min([offset, *(file.first_offset for file in files if file.last_timestamp >= at_ms)])


def _table_batches(options: Options) -> TableBatches:
    files, key = _files_of(options.table)
    groups = [
        (path, group, described.metadata.row_group(group).num_rows)
        for path in files
        for described in [pq.ParquetFile(path)]
        for group in range(described.metadata.num_row_groups)
    ]
    return TableBatches(groups=groups, key=options.key or key)


def _files_of(table: str) -> tuple[list[str], str]:
    """The files of a table's current version, and the key column of a materialized table."""
    from deltalake import DeltaTable

    path = Path(table)
    if not path.is_file() and DeltaTable.is_deltatable(table):
        found = DeltaTable(table)
        if found.deletion_vectors().read_all().num_rows:
            raise ConfigError(
                f"{table} has deletion vectors, which a replay does not support; purge it"
            )
        _refuse_folders(table, found.metadata().partition_columns)
        key = KEY if KEY in pa.schema(found.schema()).names else ""
        return sorted(found.file_uris()), key
    files = [path] if path.is_file() else _committed(path)
    if not files:
        raise ConfigError(f"there is no table at {table}")
    inside = [each.relative_to(path).parent.parts for each in files if path in each.parents]
    _refuse_folders(
        table, sorted({part.split("=")[0] for parts in inside for part in parts if "=" in part})
    )
    return [str(each.absolute()) for each in files], ""


def _refuse_folders(table: str, columns: list[str]) -> None:
    """Raises `ConfigError` for columns whose values are not in the files."""
    if columns:
        raise ConfigError(
            f"{table} has {', '.join(columns)} only as names of folders, which a replay does not "
            "read: write it without partition_by, or use a pipeline's source of type table"
        )


def _committed(folder: Path) -> list[Path]:
    """All files; in a folder that a stream writes to, only those of committed batches."""
    log = folder / "_spark_metadata"
    if not log.is_dir():
        return sorted(folder.rglob("*.parquet"))
    batches = {int(each.stem): each for each in log.iterdir() if each.stem.isdigit()}
    # A compacted file contains all earlier batches as well.
    whole = max((n for n, each in batches.items() if each.suffix == ".compact"), default=0)
    return sorted(
        Path(unquote(urlsplit(msgspec.json.decode(line)["path"]).path))
        for number, each in batches.items()
        if number >= whole
        for line in each.read_text().splitlines()[1:]
    )


# ---- tasks


class ReplayTask(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a batch that one executor stages."""

    sink: SinkOptions
    writer_id: str
    options: Options
    partition: int = 0
    #: For the twin: files, and the range of offsets to read of them.
    files: tuple[str, ...] = ()
    start: int = 0
    end: int = 0
    planned: RangePartition | None = None
    #: For a table: a file, its row group, and the column of keys.
    path: str = ""
    group: int = 0
    key: str = ""


class Tasks:
    """The tasks of one batch; files of a log are kept from deletion until `close`."""

    def __init__(self, each: list[ReplayTask], lease: Lease | None = None) -> None:
        self.each = each
        self._lease = lease

    def close(self) -> None:
        if self._lease is not None:
            self._lease.release()


def tasks_of(plan: Plan, number: int, sink: SinkOptions) -> Tasks:
    batches, options = plan.batches, plan.options
    common: dict[str, Any] = {"sink": sink, "writer_id": plan.writer_id, "options": options}
    if isinstance(batches, TableBatches):
        path, group, _ = batches.groups[number]
        return Tasks([ReplayTask(**common, path=path, group=group, key=batches.key)])
    tasks: list[ReplayTask] = []
    ranges: list[OffsetRange] = []
    twin = Twin(options.tier, options.topic)
    for partition, (start, end) in sorted(batches.pieces(number).items()):
        border = max(start, min(end, batches.tiered.get(partition, start)))
        if start < border:
            files = _overlapping(twin, partition, start, border)
            tasks.append(
                ReplayTask(**common, partition=partition, files=files, start=start, end=border)
            )
        if border < end:
            where = TopicPartition(options.topic, partition)
            ranges.append(OffsetRange(where, batches.topic_id, border, end))
    lease = None
    if ranges:
        source = source_of(options)
        log, stored = open_logs(source)
        with closing(log):
            planned, lease = planner.plan(ranges, source, stored)
        tasks += [
            ReplayTask(**common, partition=each.offsets.where.partition, planned=each)
            for each in planned
        ]
    # Within a partition, older records come first.
    tasks.sort(key=lambda each: (each.partition, each.planned is not None))
    return Tasks(tasks, lease)


def _overlapping(twin: Twin, partition: int, start: int, end: int) -> tuple[str, ...]:
    files: list[TierFile] = [
        file
        for each in twin.manifest().ranges
        if each.partition == partition and each.start < end and start < each.end
        for file in each.files
    ]
    return tuple(str(twin.directory / each.path) for each in files)


# ---- on executors


class Sent(msgspec.Struct, frozen=True):
    staged: Staged
    rows: int


def stage(task: ReplayTask) -> Sent:
    from dragoman.spark.attempt import Attempt
    from dragoman.spark.writer import shared_client

    attempt = Attempt(
        shared_client(task.sink), task.sink, task.writer_id, keep_times=task.options.keep_times
    )
    rows = 0
    for batch in _records(task):
        attempt.add(batch)
        rows += len(batch)
    return Sent(Staged(task.writer_id, task.writer_id, attempt.finish()), rows)


def _records(task: ReplayTask) -> Iterator[pa.RecordBatch]:
    if task.path:
        yield from _table_records(task)
        return
    found = _log_records(task) if task.planned is not None else _twin_records(task)
    for batch in found:
        if task.options.partitions == "keep":
            yield batch
        else:
            yield batch.drop_columns(["partition"])


def _log_records(task: ReplayTask) -> Iterator[pa.RecordBatch]:
    from dragoman.spark.reader import read_range

    assert task.planned is not None
    yield from read_range(task.planned, source_of(task.options), _COLUMNS)


def _twin_records(task: ReplayTask) -> Iterator[pa.RecordBatch]:
    """Records of the twin, sorted by offset: files are cut by day, and days may overlap."""
    parts = [
        pa.Table.from_batches([batch]).filter(
            (pc.field("offset") >= task.start) & (pc.field("offset") < task.end)
        )
        for path in task.files
        for batch in read_file(Path(path))
    ]
    if not parts:
        return
    whole = pa.concat_tables(parts).sort_by("offset")
    partitions = pa.array([task.partition] * len(whole), pa.int32())
    yield from whole.append_column("partition", partitions).to_batches()


def _table_records(task: ReplayTask) -> Iterator[pa.RecordBatch]:
    """Rows as records: unchanged when they have the columns of records, else as JSON objects."""
    rows = pq.ParquetFile(task.path).read_row_group(task.group)
    if "value" in rows.schema.names and pa.types.is_binary(rows.schema.field("value").type):
        names = [name for name in _COLUMNS if name in rows.schema.names and name != "partition"]
        yield from rows.select(names).to_batches()
        return
    if is_materialized := {KEY, "_deleted"} <= set(rows.schema.names):
        is_row = ~pc.field("_deleted") & pc.field(KEY).is_valid()
        if "_is_current" in rows.schema.names:
            is_row &= pc.field("_is_current")
        rows = rows.filter(is_row)
    if task.key and task.key not in rows.schema.names:
        raise ConfigError(f"{task.path} has no column {task.key!r}")
    keys = rows.column(task.key).to_pylist() if task.key else [None] * len(rows)
    if is_materialized:
        hidden = {*MARKS.names, *RANGES.names}
        rows = rows.drop_columns([name for name in rows.schema.names if name in hidden])
    values = [msgspec.json.encode(row) for row in rows.to_pylist()]
    yield pa.record_batch(
        {
            "key": pa.array(
                [None if key is None else _key_bytes(key) for key in keys], pa.binary()
            ),
            "value": pa.array(values, pa.binary()),
        }
    )


def _key_bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value).strip(b'"')
