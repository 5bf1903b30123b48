"""DescribeLogDirs (35), versions 1 to 5, and AlterReplicaLogDirs (34), versions 1 and 2.

A node has one data directory. Partitions not used since the start are opened to get their size, a
few per loop turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.broker.errors import LogDirectoryNotFound
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.limits import LOG_SIZES_PER_SLICE
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.resources import exists, is_visible, partition_of
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.access import Operation


def handle_describe(call: Call) -> None:
    request = call.decode(m.DescribeLogDirsRequest)
    try:
        call.authorize_cluster(Operation.DESCRIBE)
    except DragomanError as error:
        call.reply(m.DescribeLogDirsResponse(error_code=wire_code(error)))
        return
    _Sizes(call, _wanted(call, request)).take_some()


def _wanted(call: Call, request: m.DescribeLogDirsRequest) -> Iterator[PartitionMetadata]:
    """All partitions, or the existing ones that the request names, without duplicates."""
    image = call.service.broker.image
    if request.topics is None:
        for topic in list(image.topics.values()):
            if is_visible(topic.name):
                yield from list(topic.partitions)
        return
    for requested in request.topics:
        for index in dict.fromkeys(requested.partitions):
            if exists(call, requested.topic, index):
                yield partition_of(call, requested.topic, index)


class _Sizes:
    """Reads the sizes of partitions over several loop turns, and replies."""

    def __init__(self, call: Call, wanted: Iterator[PartitionMetadata]) -> None:
        self._call = call
        self._wanted = wanted
        self._found: dict[str, list[m.DescribeLogDirsResponsePartition]] = {}

    def take_some(self) -> None:
        broker = self._call.service.broker
        for _ in range(LOG_SIZES_PER_SLICE):
            if self._call.is_done:
                return
            metadata = next(self._wanted, None)
            if metadata is None:
                self._reply()
                return
            # The topic may have been deleted since the previous turn.
            if metadata.partition_id in broker.image.partitions:
                self._take(metadata)
        broker.scheduler.call_soon(self.take_some)

    def _take(self, metadata: PartitionMetadata) -> None:
        try:
            size = self._call.service.broker.partitions.replica(metadata).log.size
        except DragomanError:
            # Another node leads the partition, so its log is not in this directory.
            return
        self._found.setdefault(metadata.topic.name, []).append(
            m.DescribeLogDirsResponsePartition(partition_index=metadata.index, partition_size=size)
        )

    def _reply(self) -> None:
        broker = self._call.service.broker
        directory = m.DescribeLogDirsResponseDir(
            log_dir=broker.settings.data,
            topics=[
                m.DescribeLogDirsResponseTopic(name=name, partitions=partitions)
                for name, partitions in self._found.items()
            ],
            usable_bytes=broker.store.disk.free_bytes(),
        )
        self._call.reply(m.DescribeLogDirsResponse(results=[directory]))


# ---- moving between directories


def handle_alter(call: Call) -> None:
    request = call.decode(m.AlterReplicaLogDirsRequest)
    codes: dict[str, dict[int, int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = _move(call, directory.path, topic.name, index)
                codes.setdefault(topic.name, {})[index] = code
    call.reply(
        m.AlterReplicaLogDirsResponse(
            results=[
                m.AlterReplicaLogDirsResponseTopic(
                    topic_name=name,
                    partitions=[
                        m.AlterReplicaLogDirsResponsePartition(
                            partition_index=index, error_code=code
                        )
                        for index, code in found.items()
                    ],
                )
                for name, found in codes.items()
            ]
        )
    )


def _move(call: Call, path: str, topic: str, index: int) -> int:
    """Move a partition. A move to the only directory succeeds; any other fails."""
    broker = call.service.broker
    try:
        call.authorize_cluster(Operation.ALTER)
        partition_of(call, topic, index)
        if path != broker.settings.data:
            raise LogDirectoryNotFound(f"the only data directory is {broker.settings.data!r}")
    except DragomanError as error:
        return wire_code(error)
    return ErrorCode.NONE
