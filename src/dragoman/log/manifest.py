"""What a partition consists of, for those who read the directory without asking the broker.

`manifest.json` is one line of JSON and one line with its CRC-32C, replaced atomically. It lists the
rolled segments; a segment is listed only once its file is complete and synced, so everything it
names up to `high_watermark` and `last_stable_offset` is stable: Spark and the offline tools may
read it. The active segment is listed as `clean_end` after a clean stop, and only then.

`sequence` is the journal group up to which the list is true: replay cuts listed segments only for
newer truncations. `live_offset` is where the list stops speaking: a file with a lower base that is
not listed is left over from retention, compaction or truncation; one at or above it is the live end
of the log, and each live segment begins at the offset where the one before ends.
"""

from __future__ import annotations

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, FormatError

NAME = "manifest.json"
FORMAT = 1


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which partition this is. The log keeps these names for readers, no more."""

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
    #: When bytes were last written to the file; -1 in manifests of earlier releases.
    written_ms: int = -1
    has_gaps: bool = False
    #: Transactions aborted in this segment: (producer id, first offset, last offset).
    aborted: tuple[tuple[int, int, int], ...] = ()
    #: Unreadable offsets: (first, next good one, byte position).
    damage: tuple[tuple[int, int, int], ...] = ()
    #: The same, found by readers after the index was written.
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
    #: The last segment after a clean stop: whole, synced, indexed.
    clean_end: SegmentEntry | None = None
    #: Base of the first segment that is not listed and may still be written to.
    live_offset: int
    #: Whether any producer is known; if not, none wrote below `log_end_offset`.
    has_producers: bool = False
    #: Compaction has seen everything below; what lies behind is dirty.
    cleaned_offset: int = 0
    #: Files of earlier generations are from before the log began anew.
    first_generation: int = 0


class _Kind(msgspec.Struct):
    """What every manifest has, which tells it from another file that was put in its place."""

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
    except msgspec.DecodeError:
        raise CorruptionError(path, 0, "what is in it is no manifest") from None
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except msgspec.DecodeError as error:
        raise FormatError(f"{path}: {error}; written by a newer release?") from None
    if manifest.format > FORMAT:
        raise FormatError(f"{path} has format {manifest.format}, this release reads {FORMAT}")
    return manifest
