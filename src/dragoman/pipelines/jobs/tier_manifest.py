"""The content of a topic's Parquet twin: consecutive ranges of offsets, and their files.

    ROOT/topic=orders/manifest.json
                     /date=2026-11-16/partition=3/00000000000000020000-9f3c1c7e.parquet

The ranges of a partition are contiguous: every offset from the start of the first to the end of the
last belongs to exactly one range. A record is in exactly one file of its range, which are cut by
day. Files that the manifest does not name are left over from a killed job, and are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec

from dragoman.errors import ConfigError, LogError
from dragoman.limits import TIER_MANIFEST_BYTES_MAX
from dragoman.operating_system import platforms

_NAME = "manifest.json"
_LOCK = ".lock"
_FORMAT = 1


class TierError(LogError):
    """A twin that does not match its manifest or its log."""


class TierFile(msgspec.Struct, frozen=True, kw_only=True):
    #: Relative to the topic's folder.
    path: str
    rows: int
    size: int
    first_offset: int
    last_offset: int
    #: Milliseconds since 1970.
    first_timestamp: int
    last_timestamp: int
    #: Hash of the records, independent of their encoding (`tier_files.ContentHash`).
    content: str


class TierRange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Offsets from `start` up to but not including `end`, with or without a record for each."""

    partition: int
    start: int
    end: int
    files: tuple[TierFile, ...] = ()
    #: The log had deleted them before they could be copied.
    lost: bool = False

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = _FORMAT
    topic: str
    #: A topic that was deleted and created again has another id.
    topic_id: str
    ranges: tuple[TierRange, ...] = ()

    def __post_init__(self) -> None:
        ends: dict[int, int] = {}
        for each in self.ranges:
            known = ends.get(each.partition, each.start)
            if each.start != known or each.end < each.start:
                raise TierError(
                    f"{self.topic}-{each.partition}: offsets {each.start} to {each.end - 1} follow "
                    f"{known - 1} in the manifest: there is a gap or an overlap"
                )
            ends[each.partition] = each.end

    @property
    def starts(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for each in self.ranges:
            found.setdefault(each.partition, each.start)
        return found

    @property
    def ends(self) -> dict[int, int]:
        """Partition → the offset at which history ends and the tail begins."""
        return {each.partition: each.end for each in self.ranges}

    @property
    def files(self) -> list[TierFile]:
        return [file for each in self.ranges for file in each.files]

    def with_ranges(self, ranges: Sequence[TierRange]) -> Manifest:
        """The manifest with further ranges. Raises `TierError` when they leave a gap or overlap."""
        whole = (*self.ranges, *sorted(ranges, key=lambda each: (each.partition, each.start)))
        return msgspec.structs.replace(self, ranges=whole)


class Twin:
    """The folder of one topic's Parquet files."""

    def __init__(self, root: str, topic: str) -> None:
        if "://" in root:
            raise ConfigError(f"expected a folder that is mounted here for twins, got {root}")
        self.topic = topic
        self.directory = Path(root).absolute() / f"topic={quote(topic, safe='')}"

    @property
    def _path(self) -> Path:
        return self.directory / _NAME

    def manifest(self, topic_id: str = "") -> Manifest:
        """The manifest, empty when there is none.

        Raises `TierError` when it is damaged, or belongs to another topic of the same name.
        """
        try:
            with self._path.open("rb") as file:
                content = file.read(TIER_MANIFEST_BYTES_MAX + 1)
        except FileNotFoundError:
            return Manifest(topic=self.topic, topic_id=topic_id)
        if len(content) > TIER_MANIFEST_BYTES_MAX:
            raise TierError(f"{self._path} is larger than {TIER_MANIFEST_BYTES_MAX} bytes")
        try:
            found = msgspec.json.decode(content, type=Manifest)
        except msgspec.DecodeError as error:
            raise TierError(f"{self._path} is damaged: {error}") from None
        if found.format != _FORMAT:
            raise TierError(f"{self._path} is of format {found.format}; known is {_FORMAT}")
        if topic_id and found.topic_id and found.topic_id != topic_id:
            raise TierError(
                f"topic {self.topic!r} was deleted and created again: {self.directory} is of id "
                f"{found.topic_id}, the topic now has id {topic_id}; move the folder away to start "
                "over"
            )
        return found

    def save(self, manifest: Manifest) -> None:
        """Replace the manifest atomically; the files that it names must be synced already."""
        content = msgspec.json.encode(manifest)
        if len(content) > TIER_MANIFEST_BYTES_MAX:
            raise TierError(f"{self._path} would be larger than {TIER_MANIFEST_BYTES_MAX} bytes")
        aside = self._path.with_suffix(".new")
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            platforms.sync_file(file.fileno())
        aside.replace(self._path)
        sync_directory(self.directory)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of the one job that writes. Raises `ConfigError` when another holds it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / _LOCK).open("wb") as file:
            if not platforms.lock(file.fileno()):
                raise ConfigError(f"another job is writing to {self.directory}")
            yield

    def sweep(self, manifest: Manifest) -> int:
        """Delete files that the manifest does not name. Returns their number."""
        named = {each.path for each in manifest.files}
        found = 0
        for path in self.directory.glob("date=*/partition=*/*.parquet"):
            if str(path.relative_to(self.directory)) not in named:
                path.unlink()
                found += 1
        return found


def sync_directory(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        platforms.sync_directory(number)
    finally:
        os.close(number)


# ---- ranges to copy


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets to copy from the log; those before `start` were lost."""

    partition: int
    start: int
    end: int
    lost_from: int | None = None


def wanted_ranges(
    manifest: Manifest,
    earliest: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    is_loss_allowed: bool,
) -> list[Wanted]:
    """The ranges that the twin lacks. Raises `TierError` when the log has lost some of them."""
    known = manifest.ends
    found = []
    for partition, end in sorted(ends.items()):
        first = earliest[partition]
        reached = known.get(partition, first)
        lost_from = None
        if reached < first:
            if not is_loss_allowed:
                raise TierError(
                    f"{manifest.topic}-{partition}: offsets {reached} to {first - 1} were deleted "
                    "before they were copied: run this job more often than retention deletes. "
                    "on_loss = 'record' records the gap and continues"
                )
            reached, lost_from = first, reached
        if end > reached or lost_from is not None:
            wanted = Wanted(
                partition=partition, start=reached, end=max(end, reached), lost_from=lost_from
            )
            found.append(wanted)
    return found
