"""The metadata as it lies in a data directory, read without a quorum and without changing anything.

Damage does not end it: what is readable before and behind it is taken in. So the image is what the
node knew at least, good for finding out which partition a directory belongs to and who holds it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from dragoman.cluster.events import NodeRegistered, TopicDeleted
from dragoman.cluster.metadata import METADATA_PARTITION_ID, MetadataImage
from dragoman.cluster.raft.entries import events_in
from dragoman.cluster.raft.snapshots import decode_snapshot
from dragoman.cluster.raft.state import restore_image
from dragoman.cluster.raft.storage import SNAPSHOT_FILE
from dragoman.errors import CorruptionError, DecodeError, DragomanError
from dragoman.log.batch import batches
from dragoman.log.journal import EntryKind, JournalReader, read_entry
from dragoman.log.salvage import Bad, read_batches
from dragoman.log.segment import parse_segment_name
from dragoman.world import Disk, read_whole


class StoredImage(NamedTuple):
    image: MetadataImage
    #: Nothing was found to be unreadable, or to be missing at the beginning.
    is_whole: bool
    #: Ids of topics that were deleted; the image has them still.
    deleted: set[bytes]


def check_snapshot(disk: Disk) -> None:
    """Raises `CorruptionError` for a snapshot that cannot be read."""
    if disk.exists(SNAPSHOT_FILE):
        try:
            decode_snapshot(read_whole(disk, SNAPSHOT_FILE))
        except DecodeError as error:
            raise CorruptionError(SNAPSHOT_FILE, 0, str(error)) from None


def read_stored_image(disk: Disk, directory: str) -> StoredImage:
    """From the snapshot and the segments of the metadata log in `directory`."""
    image = MetadataImage()
    deleted: set[bytes] = set()
    end, is_whole = 0, True
    if disk.exists(SNAPSHOT_FILE):
        try:
            snapshot = decode_snapshot(read_whole(disk, SNAPSHOT_FILE))
            restore_image(image, snapshot.state)
            end = snapshot.end
        except DragomanError:
            is_whole = False
    names = disk.names(directory) if directory else []
    found = sorted((key[0], name) for name in names if (key := parse_segment_name(name)))
    if found and found[0][0] > end:
        is_whole = False
    for base, name in found:
        is_whole &= _take_in(image, deleted, disk, f"{directory}/{name}", base, end)
    return StoredImage(image, is_whole, deleted)


def _take_in(
    image: MetadataImage, deleted: set[bytes], disk: Disk, path: str, base: int, end: int
) -> bool:
    """Apply the events of one segment that lie at or behind `end`; False when some are lost."""
    is_whole = True
    file = disk.open(path, "read")
    try:
        for found in read_batches(file, 0, file.size(), base):
            if isinstance(found, Bad):
                is_whole = False
            elif found.header.base_offset >= end:
                is_whole &= _apply(image, deleted, found.batch)
    finally:
        file.close()
    return is_whole


def _apply(image: MetadataImage, deleted: set[bytes], batch: memoryview) -> bool:
    try:
        for event in events_in(batch):
            if isinstance(event, TopicDeleted):
                deleted.add(event.topic_id)
            else:
                image.apply(event)
    except (DragomanError, KeyError):
        # An event about something whose creation is lost.
        return False
    return True


def journalled_registrations(disk: Disk, seed: int) -> dict[int, NodeRegistered]:
    """Nodes whose registration is in a journal with this seed, and perhaps in no file yet."""
    found: dict[int, NodeRegistered] = {}
    for entry in JournalReader(disk, seed).entries():
        if entry.kind is EntryKind.APPEND and entry.partition_id == METADATA_PARTITION_ID:
            with suppress(DragomanError):
                for _, batch in batches(memoryview(read_entry(disk, entry))):
                    for event in events_in(batch):
                        if isinstance(event, NodeRegistered):
                            found[event.node_id] = event
    return found
