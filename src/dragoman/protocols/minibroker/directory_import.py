"""Import of the original's data directories: records with keys and offsets, and commits.

    DIR/TOPIC/part-N/BASE.log            segments, in order of their base offsets (20 digits)
    DIR/TOPIC/offsets/GROUP/N.off        committed offsets, as decimal text; each slash in a group's
                                         name adds a folder
    DIR/raft                             not read: the records it agreed on are in the segments

Records keep their offsets, so committed offsets keep their meaning. The original stores no
timestamps: records get the modification time of their segment.

An import may be killed and repeated. Records that exist already are compared with those to be
imported: equal ones are skipped, and a difference ends the import of that topic. A commit is
imported only where the group has none, so that a group that has made progress is not moved back.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.coordination import Coordination, CoordinatorKind
from dragoman.broker.errors import CoordinatorLoading
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.broker.local_reader import LocalReader
from dragoman.broker.partitions import Partitions
from dragoman.broker.topics import NewTopic, Topics
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import DragomanError
from dragoman.limits import (
    GROUPS_LOADING_PAUSE_S,
    IMPORT_BATCH_BYTES,
    IMPORT_BATCH_OFFSETS_MAX,
    TAIL_CHUNK_BYTES_MAX,
    TOPIC_PARTITIONS_MAX,
)
from dragoman.log.batch import Record, build_batch
from dragoman.outcome import acknowledged, pause
from dragoman.plural import plural
from dragoman.protocols.minibroker.constants import OFFSET_MAX, TOPIC_CONFIG
from dragoman.protocols.minibroker.storage import Damage, Source, StoredRecord, scan
from dragoman.replication.replica import Replica
from dragoman.types import GroupId, Offset, Partition, TopicName
from dragoman.world import Scheduler

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION: Final = re.compile(r"part-(\d{1,9})")
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_COMMIT: Final = re.compile(r"(\d{1,9})\.off")
#: The original deletes by number of segments, not by age: imported records must not expire.
_CONFIG: Final = {"retention.ms": "-1", **TOPIC_CONFIG}


class SourceError(DragomanError):
    """Something could not be imported. The message names the file and the position in it."""


class Segment(msgspec.Struct, frozen=True):
    path: Path
    size: int
    modified_ms: int


class SourceCommit(msgspec.Struct, frozen=True):
    path: Path
    group: str
    partition: int


class SourceTopic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    #: Segments by partition, in order.
    segments: dict[int, list[Segment]]
    commits: list[SourceCommit]

    @property
    def partition_count(self) -> int:
        return max(self.segments) + 1


class Imported(msgspec.Struct, kw_only=True):
    """The result of an import. `problems` are for people; damage makes an import incomplete."""

    topics: int = 0
    records: int = 0
    records_present: int = 0
    commits: int = 0
    commits_present: int = 0
    problems: list[str] = []
    is_complete: bool = True


def find_topics(directory: Path) -> list[SourceTopic]:
    """The topics in a directory. Raises `SourceError` when it is not one of the original's."""
    if not directory.is_dir():
        raise SourceError(f"{directory} is not a directory")
    found = []
    for folder in sorted(each for each in directory.iterdir() if each.is_dir()):
        segments = {
            int(match[1]): _segments(part)
            for part in folder.iterdir()
            if (match := _PARTITION.fullmatch(part.name)) and part.is_dir()
        }
        if segments and _TOPIC.fullmatch(folder.name):
            if max(segments) >= TOPIC_PARTITIONS_MAX:
                raise SourceError(f"{folder}: more than {TOPIC_PARTITIONS_MAX} partitions")
            commits = list(_commits(folder / "offsets"))
            found.append(SourceTopic(name=folder.name, segments=segments, commits=commits))
    if not found:
        raise SourceError(f"{directory} holds no topics of minibroker (TOPIC/part-N)")
    return found


def _segments(part: Path) -> list[Segment]:
    files = sorted(each for each in part.iterdir() if _SEGMENT.fullmatch(each.name))
    return [
        Segment(each, (state := each.stat()).st_size, state.st_mtime_ns // 1_000_000)
        for each in files
    ]


def _commits(folder: Path) -> Iterator[SourceCommit]:
    """The original uses a group's name as a path: `team/billing` is a folder inside another one,
    which may belong to a group `team`.
    """
    waiting = [folder] if folder.is_dir() else []
    while waiting:
        path = waiting.pop()
        group = "" if path == folder else path.relative_to(folder).as_posix()
        inside = sorted(path.iterdir())
        for each in inside:
            if (match := _COMMIT.fullmatch(each.name)) and each.is_file():
                yield SourceCommit(each, group, int(match[1]))
        waiting += [each for each in reversed(inside) if each.is_dir() and not each.is_symlink()]


class Core(Protocol):
    """The part of the node that the import uses."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def coordination(self) -> Coordination: ...

    @property
    def topics(self) -> Topics: ...

    @property
    def partitions(self) -> Partitions: ...


class Importer:
    """Imports topics."""

    def __init__(
        self,
        broker: Core,
        topics: list[SourceTopic],
        imported: Imported,
        *,
        skips_damaged: bool = False,
        progress: Callable[[int], None] = lambda _bytes: None,
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._skips_damaged = skips_damaged
        self._progress = progress
        self.imported = imported

    async def run(self) -> None:
        """Import all topics. Raises the error that ends the import early."""
        try:
            while not self._are_groups_loaded():
                await pause(self._broker.scheduler, GROUPS_LOADING_PAUSE_S)
            for topic in self._topics:
                await self._import_topic(topic)
        except OSError as error:
            raise SourceError(str(error)) from None

    def _are_groups_loaded(self) -> bool:
        try:
            self._broker.coordination.require_loaded(CoordinatorKind.GROUP)
        except CoordinatorLoading:
            return False
        return True

    async def _import_topic(self, topic: SourceTopic) -> None:
        try:
            await self._create(topic)
            for index, segments in sorted(topic.segments.items()):
                await self._import_partition(topic, index, segments)
            for commit in topic.commits:
                await self._import_commit(topic, commit)
        except SourceError as fault:
            self._report(fault)
        else:
            self.imported.topics += 1

    def _report(self, fault: SourceError) -> None:
        self.imported.is_complete = False
        self.imported.problems.append(str(fault))

    async def _create(self, topic: SourceTopic) -> None:
        count = topic.partition_count
        new = NewTopic(name=topic.name, partition_count=count, config=_CONFIG)
        await self._broker.topics.ensure(new)
        found = len(self._broker.image.topics[topic.name].partitions)
        if found != count:
            raise SourceError(
                f"topic {topic.name!r} has {plural(found, 'partition')} here and {count} there:"
                " keys would map to other partitions"
            )

    async def _import_partition(
        self, topic: SourceTopic, index: int, segments: list[Segment]
    ) -> None:
        replica = self._broker.partitions.find(topic.name, index)
        present = _Present(replica, f"{topic.name}/{index}")
        first: int | None = None
        gathered: list[Record] = []
        size = 0
        for record in self._records(segments):
            first = record.offset if first is None else first
            if present.has(record):
                self.imported.records_present += 1
                continue
            base = gathered[0].offset if gathered else record.offset
            if size >= IMPORT_BATCH_BYTES or record.offset - base > IMPORT_BATCH_OFFSETS_MAX:
                await self._append(replica, gathered)
                gathered, size = [], 0
            gathered.append(record)
            size += len(record.key or b"") + len(record.value or b"")
        await self._append(replica, gathered)
        if first is not None:
            # Records that the original had deleted are deleted here, too.
            replica.log.move_log_start(first)

    async def _append(self, replica: Replica, records: list[Record]) -> None:
        if not records:
            return
        base, last = records[0].offset, records[-1].offset
        batch = build_batch(
            [msgspec.structs.replace(each, offset=each.offset - base) for each in records],
            base_offset=base,
            leader_epoch=replica.leader_epoch,
            last_offset_delta=last - base,
        )
        end = replica.log.append_as_is(batch)
        await acknowledged(partial(replica.when_committed, end))
        self.imported.records += len(records)

    def _records(self, segments: list[Segment]) -> Iterator[Record]:
        """The records of one partition, up to the first damage unless damage is skipped."""
        offset = 0
        for number, segment in enumerate(segments):
            is_last = number == len(segments) - 1
            done = 0
            with _mapped(segment.path) as data:
                for found in scan(data, offset):
                    if isinstance(found, Damage):
                        if not self._continues(segment, found, is_last=is_last):
                            return
                        continue
                    yield _record(found, segment)
                    offset = found.offset + 1
                    self._progress(found.end - done)
                    done = found.end
            self._progress(segment.size - done)

    def _continues(self, segment: Segment, damage: Damage, *, is_last: bool) -> bool:
        """Whether the records after the damage are imported."""
        where = f"{segment.path} at byte {damage.position}: {damage.reason}"
        if damage.is_torn and is_last:
            self.imported.problems.append(f"{where}; an incomplete last write is skipped")
            return True
        self.imported.is_complete = False
        if self._skips_damaged:
            self.imported.problems.append(f"{where}; skipped")
            return True
        self.imported.problems.append(f"{where}; nothing after it was imported")
        return False

    async def _import_commit(self, topic: SourceTopic, commit: SourceCommit) -> None:
        try:
            group, offset = _checked(topic, commit)
        except SourceError as fault:
            self._report(fault)
            return
        name, partition = TopicName(topic.name), Partition(commit.partition)
        coordination = self._broker.coordination
        if coordination.groups.offsets.committed(group, name, partition) is not None:
            self.imported.commits_present += 1
            return
        request = CommitRequest(
            group_id=group,
            offsets=(OffsetCommit(topic=name, partition=partition, offset=Offset(offset)),),
            owner="minibroker",
        )
        begin = partial(coordination.groups.commit_anywhere, request, caller=NODE_ITSELF)
        await acknowledged(begin)
        self.imported.commits += 1


class _Present:
    """The records that a partition already has, read in parallel with those to be imported."""

    def __init__(self, replica: Replica, name: str) -> None:
        self._name = name
        self._tail = LocalReader(replica, replica.log.log_start_offset, lambda: None)
        self._end = replica.log.log_end_offset
        self._next: Record | None = self._read()

    def _read(self) -> Record | None:
        return next(iter(self._tail.read(TAIL_CHUNK_BYTES_MAX, 1)), None)

    def has(self, record: Record) -> bool:
        """Whether the record need not be appended. Raises `SourceError` if another record has its
        offset.
        """
        present = self._next
        if present is not None and present.offset <= record.offset:
            if (present.offset, present.key, present.value) != (
                record.offset,
                record.key,
                record.value,
            ):
                raise SourceError(
                    f"{self._name} holds another record at offset {present.offset}: the topic has "
                    "records from elsewhere"
                )
            self._next = self._read()
        # A record that was deleted or compacted since an earlier import is not restored.
        return record.offset < self._end


def _record(stored: StoredRecord, segment: Segment) -> Record:
    return Record(
        key=stored.key or None,
        value=stored.payload,
        timestamp=segment.modified_ms,
        offset=stored.offset,
    )


def _checked(topic: SourceTopic, commit: SourceCommit) -> tuple[GroupId, int]:
    """Group and offset of a commit. Raises `SourceError`."""
    text = commit.path.read_bytes()[:100].strip()
    if not text.isdigit() or int(text) > OFFSET_MAX:
        raise SourceError(f"{commit.path}: {text!r} is not an offset")
    if commit.partition >= topic.partition_count:
        raise SourceError(
            f"{commit.path}: topic {topic.name!r} has {plural(topic.partition_count, 'partition')}"
        )
    if not commit.group:
        raise SourceError(f"{commit.path}: committed by a group without a name")
    try:
        commit.group.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{commit.path}: the name of the group is not UTF-8") from None
    return GroupId(commit.group), int(text)


@contextmanager
def _mapped(path: Path) -> Iterator[Source]:
    """A file's bytes, mapped because segments may be larger than memory."""
    with path.open("rb") as file:
        if not file.seek(0, 2):
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
