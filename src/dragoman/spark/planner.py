"""Plans Spark partitions from offsets: the topics, their ranges, and how the ranges are split.

The driver plans once per read or micro-batch. An executor gets offsets and the files with their
stable part, and needs no further metadata.

Hard links under a lease that the scan renews keep planned files from deletion; log/pins.py has the
layout. If links cannot be created (another owner, a read-only or remote file system), the scan
continues without them, and reads a file that was deleted in the meantime from the broker.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
from pyspark.sql.datasource import InputPartition

from dragoman.client.kafka import TopicPartition
from dragoman.errors import ConfigError, LogError
from dragoman.limits import SPARK_PARTITIONS_MAX
from dragoman.log.pins import EXPIRES, PINS, remove_lease, sweep_pins
from dragoman.operating_system import RealDisk
from dragoman.spark.offsets import Log, Offsets, Topic
from dragoman.spark.options import SourceOptions, Topics
from dragoman.spark.storage import StoredLog, StoredPartition, StoredPiece

log = logging.getLogger("dragoman.spark")


class DataLossError(LogError):
    """Records that should have been read were deleted."""


class OffsetRange(msgspec.Struct, frozen=True):
    where: TopicPartition
    topic_id: str
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class RangePartition(InputPartition):
    """One Spark partition: a range of offsets, and the files of its stable part."""

    def __init__(
        self,
        offsets: OffsetRange,
        pieces: tuple[StoredPiece, ...] = (),
        lease: Lease | None = None,
    ) -> None:
        self.offsets = offsets
        self.pieces = pieces
        self.lease = lease


# ---- topics


def chosen_topics(log_: Log, topics: Topics) -> dict[str, Topic]:
    """The topics to read. Raises `ConfigError` if a named topic or partition does not exist."""
    if topics.pattern:
        # As in Spark's Kafka source, which searches for the pattern anywhere in the name.
        pattern = re.compile(topics.pattern)
        return {name: topic for name, topic in log_.topics().items() if pattern.search(name)}
    names = topics.names or tuple(topics.partitions)
    known = log_.topics(names)
    if missing := [name for name in names if name not in known]:
        raise ConfigError(f"there is no topic {', '.join(map(repr, missing))}")
    chosen = {name: known[name] for name in names}
    for name, wanted in topics.partitions.items():
        if unknown := set(wanted) - set(known[name].partitions):
            raise ConfigError(f"topic {name!r} has no partition {min(unknown)}")
        chosen[name] = msgspec.structs.replace(chosen[name], partitions=wanted)
    return chosen


def partitions_of(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index) for topic in topics.values() for index in topic.partitions
    ]


# ---- ranges


def ranges_between(
    topics: Mapping[str, Topic], starts: Offsets, ends: Offsets
) -> list[OffsetRange]:
    """The ranges that are not empty, in order of topic and partition."""
    return [
        OffsetRange(where, topics[where.topic].topic_id, starts[where], ends[where])
        for where in sorted(ends)
        if starts[where] < ends[where]
    ]


def without_lost(
    starts: Offsets, earliest: Offsets, latest: Offsets, *, fail_on_data_loss: bool
) -> Offsets:
    """Starting offsets that still exist.

    If the records at a start were deleted, raises `DataLossError` or, without `fail_on_data_loss`,
    logs a warning and moves the start to the nearest existing offset.
    """
    found = {}
    for where, start in starts.items():
        found[where] = start
        first, last = earliest.get(where, start), latest.get(where, start)
        if start < first:
            problem = (
                f"{where}: offsets {start} to {first - 1} were deleted; the log starts at {first}"
            )
        elif start > last:
            problem = f"{where}: offset {start} is past the end of the log at {last}"
        else:
            continue
        if fail_on_data_loss:
            raise DataLossError(f"{problem} (failOnDataLoss=false continues)")
        log.warning("%s; continuing", problem)
        found[where] = first if start < first else last
    return found


def split(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """The ranges, split as `maxRecordsPerPartition` and `minPartitions` require."""
    parts = list(ranges)
    if options.max_records is not None:
        most = options.max_records
        parts = [part for each in parts for part in _in_parts(each, -(-len(each) // most))]
    if options.min_partitions is not None and len(parts) < options.min_partitions:
        total = sum(map(len, parts))
        wanted = options.min_partitions
        parts = [
            part
            for each in parts
            for part in _in_parts(each, max(1, -(-len(each) * wanted // total)))
        ]
    if len(parts) > SPARK_PARTITIONS_MAX:
        raise ConfigError(
            f"{len(parts)} Spark partitions are too many: at most {SPARK_PARTITIONS_MAX}"
        )
    return parts


def _in_parts(each: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, len(each))
    borders = [each.start + len(each) * part // count for part in range(count + 1)]
    return [OffsetRange(each.where, each.topic_id, start, end) for start, end in pairwise(borders)]


# ---- files


def plan(
    ranges: Sequence[OffsetRange], options: SourceOptions, stored: StoredLog | None
) -> tuple[list[RangePartition], Lease | None]:
    """Spark partitions, and the lease that pins the files of their stable parts."""
    parts = split(ranges, options)
    if stored is None:
        return [RangePartition(part) for part in parts], None
    lookups = {each.where: each.topic_id for each in parts}
    held = {
        where: _stored_partition(stored, where, topic_id, options)
        for where, topic_id in lookups.items()
    }
    pieces = []
    for part in parts:
        partition = held[part.where]
        found = (
            partition.pieces(part.start, part.end, committed_only=options.committed_only)
            if partition is not None
            else []
        )
        pieces.append(found)
    flat = [piece for found in pieces for piece in found]
    if not flat:
        return [RangePartition(part) for part in parts], None
    lease, linked = pin(stored.root, flat, options.pin_s)
    links = iter(linked)
    return [
        RangePartition(part, tuple(next(links) for _ in found), lease)
        for part, found in zip(parts, pieces, strict=True)
    ], lease


def _stored_partition(
    stored: StoredLog, where: TopicPartition, topic_id: str, options: SourceOptions
) -> StoredPartition | None:
    try:
        return stored.partition(where, topic_id)
    except (OSError, LogError) as error:
        if not options.bootstrap:
            raise
        log.warning("%s is read from the broker only: %s", where, error)
        return None


log = logging.getLogger("dragoman.spark")


class Lease(msgspec.Struct, frozen=True):
    root: str
    name: str
    seconds: int

    def renew(self) -> None:
        """Extend the lease; called while the files are in use. A removed lease stays removed."""
        path = f"{self.root}/{PINS}/{self.name}/{EXPIRES}"
        aside = f"{path}.{os.getpid()}"
        try:
            with open(aside, "w") as file:
                file.write(str(_now_ms() + self.seconds * 1000))
            os.replace(aside, path)
        except OSError:
            return

    def release(self) -> None:
        try:
            remove_lease(RealDisk(self.root), self.name)
        except OSError as error:
            log.debug("lease %s is left for the next sweep: %s", self.name, error)


def pin(
    root: str, pieces: Sequence[StoredPiece], seconds: int
) -> tuple[Lease | None, list[StoredPiece]]:
    """The pieces with the paths of their links, or unchanged if no link can be created."""
    lease = Lease(root, secrets.token_hex(8), seconds)
    directory = f"{root}/{PINS}/{lease.name}"
    try:
        sweep_pins(RealDisk(root), _now_ms())
        os.makedirs(directory)
        _open_to_node(directory)
    except OSError as error:
        log.debug("files in %s are read without pins: %s", root, error)
        return None, list(pieces)
    lease.renew()
    return lease, [_linked(piece, directory) for piece in pieces]


def _linked(piece: StoredPiece, lease: str) -> StoredPiece:
    directory = f"{lease}/{os.path.basename(piece.directory)}"
    linked = msgspec.structs.replace(piece, directory=directory)
    try:
        os.makedirs(directory, exist_ok=True)
        _open_to_node(directory)
        for old, new in (
            (piece.log_path, linked.log_path),
            (piece.index_path, linked.index_path),
        ):
            if not os.path.exists(new):
                os.link(old, new)
    except OSError as error:
        log.debug("%s is read without a pin: %s", piece.log_path, error)
        return piece
    return linked


def _open_to_node(directory: str) -> None:
    """Let a node of another user remove a lease that has expired, if it shares its directory with
    a group (data.group).
    """
    mode = os.stat(directory).st_mode
    if mode & stat.S_ISGID:
        os.chmod(directory, stat.S_IMODE(mode) | stat.S_IRWXG)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
