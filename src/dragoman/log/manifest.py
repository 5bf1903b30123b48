"""The manifest of a partition: its segments and marks, also for readers without a broker.

`manifest.json` has one line of JSON and one line with its CRC-32C, and is replaced atomically. It
lists the rolled segments. A segment is listed only once its file is complete and synced, so all
listed records below `high_watermark` and `last_stable_offset` are stable: Spark and the offline
tools may read them. The active segment is listed as `clean_end`, and only after a clean stop.

`sequence` is the journal group up to which the list is valid: replay cuts listed segments only for
newer truncations. Below `live_offset` the list is complete: a file with a lower base that is not
listed is left over from retention, compaction or truncation. Files at or above it are the live end
of the log, and each live segment begins at the offset where the one before ends.
"""

from __future__ import annotations

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import MALFORMED, CorruptionError, FormatError

NAME = "manifest.json"
FORMAT = 1


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a partition. The log stores the names for readers and does not use them."""

    partition_id: int
    topic: str
    partition: int
    topic_id: str


class SegmentEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    base_offset: int
    next_offset: int
    generation: int
    #: Bytes of the file.
    size: int
    #: CRC-32C of the whole file.
    checksum: int
    max_timestamp: int
    created_ms: int
    #: Wall-clock time of the last write to the file; -1 in manifests of earlier releases.
    written_ms: int = -1
    has_gaps: bool = False
    #: Transactions aborted in this segment: (producer id, first offset, last offset).
    aborted: tuple[tuple[int, int, int], ...] = ()
    #: Unreadable offsets that the index leaves out: (first, next good one, byte position).
    damage: tuple[tuple[int, int, int], ...] = ()
    #: Unreadable offsets, in the same form, that readers found after the index was written.
    unreadable: tuple[tuple[int, int, int], ...] = ()

    @property
    def is_damaged(self) -> bool:
        return bool(self.damage or self.unreadable)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    identity: Identity
    sequence: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    #: The stable end when the manifest was written.
    log_end_offset: int
    next_generation: int
    #: (leader epoch, its first offset), ascending.
    epochs: tuple[tuple[int, int], ...]
    segments: tuple[SegmentEntry, ...]
    #: The active segment at a clean stop: complete, synced and indexed.
    clean_end: SegmentEntry | None = None
    #: Base of the first segment that is not listed because it may still be written.
    live_offset: int
    #: Whether any producer is known. If not, none wrote below `log_end_offset`.
    has_producers: bool = False
    #: Offset below which compaction has read everything.
    cleaned_offset: int = 0
    #: Files of earlier generations are from before the last restart of the log.
    first_generation: int = 0


class _Kind(msgspec.Struct):
    """Fields of every manifest: another kind of file in its place is recognised by them."""

    format: int
    identity: msgspec.Raw


def encode_manifest(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    return b"%s\n%08x\n" % (body, crc32c(body))


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Raises `CorruptionError`, or `FormatError` when a newer release wrote it."""
    body, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % crc32c(body):
        raise CorruptionError(path, 0, "manifest fails its checksum")
    try:
        msgspec.json.decode(body, type=_Kind)
    except MALFORMED:
        raise CorruptionError(path, 0, "the file has the contents of another file") from None
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except MALFORMED as error:
        raise FormatError(f"{path}: {error}; written by a newer release?") from None
    if manifest.format > FORMAT:
        raise FormatError(f"{path} has format {manifest.format}, this release reads {FORMAT}")
    return manifest
