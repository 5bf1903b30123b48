"""The marks and the size of this node's replicas, without opening those that no client has used.

Opening a partition reads its files and keeps them open; a listing of ten thousand partitions must
not. The replica of a node of its own is opened when it is first used. Until then its manifest says
what it has, if the node was stopped cleanly: then the manifest lists the whole log. Replicas with
others are opened when the node starts.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import NamedTuple

from dragoman.broker.context import NodeContext
from dragoman.broker.partitions import Partitions, directory_name
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError, LogError
from dragoman.log.directory import PARTITIONS
from dragoman.log.manifest import NAME, Identity, decode_manifest
from dragoman.log.readable_log import ReadableLog
from dragoman.log.segment import segment_name
from dragoman.log.store import LogStore
from dragoman.world import read_whole


class Marks(NamedTuple):
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size: int


#: A partition without files.
_EMPTY = Marks(0, 0, 0, 0)


def marks_of(log: ReadableLog) -> Marks:
    return Marks(log.log_start_offset, log.high_watermark, log.log_end_offset, log.size)


class ReplicaMarks:
    def __init__(self, context: NodeContext, store: LogStore, partitions: Partitions) -> None:
        self._context = context
        self._store = store
        self._partitions = partitions

    def find(self, metadata: PartitionMetadata) -> Marks | None:
        """The marks of this node's replica; None when it has none, or cannot read it. Reads a
        small file, or opens a partition after a start that followed no clean stop.
        """
        opened = self._partitions.opened(metadata.partition_id)
        if opened is not None:
            return marks_of(opened.log)
        if metadata.replicas != (self._context.node_id,):
            return None
        stored = None
        if self._store.was_clean and self._store.opened(metadata.partition_id) is None:
            with suppress(LogError, OSError):
                stored = self._stored(metadata)
        if stored is not None:
            return stored
        try:
            return marks_of(self._partitions.held(metadata).log)
        except DragomanError:
            return None

    def _stored(self, metadata: PartitionMetadata) -> Marks | None:
        """What a clean stop has left; None when the files must be read. Raises `LogError`."""
        topic = metadata.topic
        identity = Identity(
            partition_id=metadata.partition_id,
            topic=topic.name,
            partition=metadata.index,
            topic_id=topic.topic_id.hex(),
        )
        disk, directory = self._store.disk, f"{PARTITIONS}/{directory_name(identity)}"
        path = f"{directory}/{NAME}"
        names = disk.names(directory)
        if NAME not in names:
            return None if names else _EMPTY
        manifest = decode_manifest(read_whole(disk, path), path)
        end = manifest.clean_end
        if end is None or manifest.identity != identity:
            return None
        segments = (*manifest.segments, end)
        listed = {segment_name(each.base_offset, each.generation) for each in segments}
        if {name.removesuffix(".log") for name in names if name.endswith(".log")} != listed:
            # The stop that wrote the manifest was not the last one.
            return None
        with closing(
            disk.open(f"{directory}/{segment_name(end.base_offset, end.generation)}.log", "read")
        ) as file:
            if file.size() != end.size:
                return None
        return Marks(
            manifest.log_start_offset,
            # The only replica has committed all that is stable.
            manifest.log_end_offset,
            manifest.log_end_offset,
            sum(each.size for each in segments),
        )
