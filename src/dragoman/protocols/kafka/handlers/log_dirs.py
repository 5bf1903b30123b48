"""DescribeLogDirs (35), versions 1 to 5, and AlterReplicaLogDirs (34), versions 1 and 2.

A node has one data directory. Partitions that nobody used since the start are opened to learn their
size, a few per loop turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.broker.errors import LogDirectoryNotFound, UnknownTopic
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.limits import LOG_SIZES_PER_SLICE
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.access import authorize_cluster
from dragoman.protocols.kafka.handlers.metadata import is_visible
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponseDir,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseTopic,
)
from dragoman.security.authorizer import Operation


def handle_describe(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, DescribeLogDirsRequest)
    try:
        authorize_cluster(call, Operation.DESCRIBE)
    except DragomanError as error:
        call.reply(DescribeLogDirsResponse(error_code=wire_code(error)))
        return
    _Sizes(call, _wanted(call, request)).take_some()


def _wanted(call: Call, request: DescribeLogDirsRequest) -> Iterator[PartitionMetadata]:
    """All partitions, or those named that exist; each once."""
    image = call.service.broker.image
    if request.topics is None:
        for topic in list(image.topics.values()):
            if is_visible(topic):
                yield from list(topic.partitions)
        return
    for asked in request.topics:
        known = image.topics.get(asked.topic)
        for index in dict.fromkeys(asked.partitions):
            if known is not None and 0 <= index < len(known.partitions):
                yield known.partitions[index]


class _Sizes:
    """Gathers the sizes of partitions over as many loop turns as it takes."""

    def __init__(self, call: Call, wanted: Iterator[PartitionMetadata]) -> None:
        self._call = call
        self._wanted = wanted
        self._found: dict[str, list[DescribeLogDirsResponsePartition]] = {}

    def take_some(self) -> None:
        broker = self._call.service.broker
        for _ in range(LOG_SIZES_PER_SLICE):
            if self._call.is_done:
                return
            metadata = next(self._wanted, None)
            if metadata is None:
                self._reply()
                return
            # A topic may have been deleted since the turn before.
            if metadata.partition_id in broker.image.partitions:
                self._take(metadata)
        broker.scheduler.call_soon(self.take_some)

    def _take(self, metadata: PartitionMetadata) -> None:
        try:
            size = self._call.service.broker.replica(metadata).log.size
        except DragomanError:
            # Led by another node: its log is not in this directory.
            return
        self._found.setdefault(metadata.topic.name, []).append(
            DescribeLogDirsResponsePartition(partition_index=metadata.index, partition_size=size)
        )

    def _reply(self) -> None:
        broker = self._call.service.broker
        directory = DescribeLogDirsResponseDir(
            log_dir=broker.settings.data,
            topics=[
                DescribeLogDirsResponseTopic(name=name, partitions=partitions)
                for name, partitions in self._found.items()
            ],
            usable_bytes=broker.store.disk.free_bytes(),
        )
        self._call.reply(DescribeLogDirsResponse(results=[directory]))


# ---- moving between directories


def handle_alter(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, AlterReplicaLogDirsRequest)
    codes: dict[str, dict[int, int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = _move(call, directory.path, topic.name, index)
                codes.setdefault(topic.name, {})[index] = code
    call.reply(
        AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirsResponseTopic(
                    topic_name=name,
                    partitions=[
                        AlterReplicaLogDirsResponsePartition(partition_index=index, error_code=code)
                        for index, code in found.items()
                    ],
                )
                for name, found in codes.items()
            ]
        )
    )


def _move(call: Call, path: str, topic: str, index: int) -> int:
    """There is nowhere to move to: a partition that is to stay where it is, does."""
    broker = call.service.broker
    try:
        authorize_cluster(call, Operation.ALTER)
        known = broker.image.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            raise UnknownTopic(f"there is no partition {index} of topic {topic!r}")
        if path != broker.settings.data:
            raise LogDirectoryNotFound(f"the only data directory is {broker.settings.data!r}")
    except DragomanError as error:
        return wire_code(error)
    return ErrorCode.NONE
