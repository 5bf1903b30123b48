"""What a partition consists of, for those who read the directory without asking the broker.

`manifest.json` is one line of JSON and one line with its CRC-32C, replaced atomically. It lists the
rolled segments; a segment is listed only once its file is complete and synced, so everything it
names up to `high_watermark` and `last_stable_offset` is stable: Spark and the offline tools may
read it. The active segment is listed as `clean_end` after a clean stop, and only then.

`sequence` is the journal group up to which the list is true: replay does not touch listed segments
for older entries.
"""

from __future__ import annotations

import msgspec
from crc32c import crc32c

from dragoman.errors import CorruptionError, FormatError

NAME = "manifest.json"
FORMAT = 1


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which partition this is. The log keeps these names for readers; it does not interpret them."""

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
    has_gaps: bool = False
    #: Transactions aborted in this segment: (producer id, first offset, last offset).
    aborted: tuple[tuple[int, int, int], ...] = ()
    #: Unreadable offsets: (first, next good one, byte position).
    damage: tuple[tuple[int, int, int], ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    identity: Identity
    sequence: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    #: One past the last offset when the manifest was written; a floor for the log's end.
    log_end_offset: int
    next_generation: int
    #: (leader epoch, its first offset), ascending.
    epochs: tuple[tuple[int, int], ...]
    segments: tuple[SegmentEntry, ...]
    #: The last segment after a clean stop: whole, synced, indexed.
    clean_end: SegmentEntry | None = None
    #: Offset up to which the producer snapshot is true, -1 when there is no producer state.
    producers_offset: int = -1


def encode_manifest(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    return b"%s\n%08x\n" % (body, crc32c(body))


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Raises `CorruptionError`, or `FormatError` when a newer release wrote it."""
    body, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % crc32c(body):
        raise CorruptionError(path, 0, "manifest fails its checksum")
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except msgspec.DecodeError as error:
        raise FormatError(f"{path}: {error}; written by a newer release?") from None
    if manifest.format > FORMAT:
        raise FormatError(f"{path} has format {manifest.format}, this release reads {FORMAT}")
    return manifest
