"""Reads of partitions, wherever they are led: records by physical offset or in slices, offsets by
time, and times by offset.

A slice that is to contain certain bytes has only those batches decoded that have them: in a batch
that is not compressed, whatever a record has is there as it is.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.broker.delayed import Token
from dragoman.broker.errors import NotLeader
from dragoman.broker.fetch import FetchLimits, Wanted, read_all
from dragoman.broker.readers import ReadBatches
from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.limits import EXPANDED_BATCH_BYTES_MAX, ROCKETMQ_LOOK_UP_BYTES_MAX
from dragoman.log.batch import CODEC_MASK, Record, iterate_records
from dragoman.log.isolation import Aborted, VisibleBatches
from dragoman.outcome import Outcome
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.names import split_physical
from dragoman.protocols.rocketmq.handlers.node import RocketmqNode
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import FindOffset
from dragoman.rpc import Node

# ---- records by physical offset


class Found(NamedTuple):
    topic: str
    queue: int
    record: Record
    partition_id: int


async def find_record(broker: Core, physical: int) -> Found:
    """The record that a message id or a send-back names. One that is not delivered yet waits in a
    topic of the broker's own. Raises `DragomanError`.
    """
    partition_id, offset = split_physical(physical)
    partition = broker.image.partitions.get(partition_id)
    if partition is None:
        text = f"can not find message by the offset {physical}"
        raise Refused(Response.SYSTEM_ERROR, text)
    if partition.topic.is_internal:
        token = Token(partition_id, offset)
        content = await broker.delayed.read(token)
        topic, queue = content.target
        return Found(topic, queue, content.record, partition_id)
    record = await _read_record(broker, partition, offset)
    return Found(partition.topic.name, partition.index, record, partition_id)


async def _read_record(broker: Core, partition: PartitionMetadata, offset: int) -> Record:
    ends = await broker.readers.ends(partition)
    if ends.log_start_offset <= offset < ends.last_stable_offset:
        record = await _next_record(broker, partition, offset)
        if record.offset == offset:
            return record
    where = f"{partition.topic.name}-{partition.index}"
    raise Refused(Response.SYSTEM_ERROR, f"there is no message {offset} in {where}")


async def _next_record(broker: Core, partition: PartitionMetadata, offset: int) -> Record:
    """The record at an offset or, when there is none, the next one."""
    changed: Outcome[None] = Outcome()
    reader = broker.readers.open(partition, offset, lambda: changed.succeed(None))
    try:
        # Nothing is there while another node has it, or while the replica here is behind.
        while not (records := reader.read(1, 1)):
            changed = Outcome()
            reader.wait()
            await changed
        return records[0]
    finally:
        reader.close()


# ---- offsets by time, times by offset


async def offset_at(
    node: RocketmqNode, partition: PartitionMetadata, timestamp: int, *, is_upper: bool = False
) -> int:
    """The first record stored at or after a time, or, as the upper bound, the first after it; the
    end when there is none.
    """
    # The upper bound of a time is what follows the last record of that time.
    wanted = timestamp + 1 if is_upper else timestamp
    request = FindOffset(partition_id=partition.partition_id, timestamp=wanted)
    return await _find(node, partition, request)


async def store_time_of(node: RocketmqNode, partition: PartitionMetadata, offset: int) -> int:
    """When the record at an offset, or the first after it, was stored; -1 when there is none."""
    request = FindOffset(partition_id=partition.partition_id, offset=offset)
    return await _find(node, partition, request)


async def _find(node: RocketmqNode, partition: PartitionMetadata, request: FindOffset) -> int:
    try:
        node.broker.partitions.replica(partition)
    except NotLeader as error:
        return await node.find_offset(request, error.leader)
    return await node.find_offset(request, node.broker.node_id)


# ---- slices


class Slice(NamedTuple):
    """Records that are committed, in order."""

    records: list[Record]
    #: When the oldest of its batches begins; None: there is none.
    oldest_ms: int | None
    #: Where to read on, and where there is no more.
    next_offset: int
    end_offset: int
    log_start_offset: int


async def read_slice(
    broker: Core, partition: PartitionMetadata, offset: int, having: bytes = b""
) -> Slice:
    """Records from an offset on, or, when that was deleted, from the oldest; batches without
    certain bytes are left out. A slice may be empty although there are more records behind it.
    """
    try:
        replica = broker.partitions.replica(partition)
    except NotLeader as error:
        leader = error.leader
    else:
        return _read_here(replica, offset, having)
    request = ReadBatches(
        topic=partition.topic.name,
        partition=partition.index,
        offset=offset,
        bytes_max=ROCKETMQ_LOOK_UP_BYTES_MAX,
        is_from_oldest=True,
    )
    reply = await broker.rpc.exchange(request, Node(leader))
    batches = reply.answer
    return _visible(
        reply.body,
        batches.aborted,
        batches.offset,
        batches.last_stable_offset,
        batches.log_start_offset,
        having,
    )


def _read_here(replica: Replica, offset: int, having: bytes) -> Slice:
    log = replica.log
    offset = max(offset, log.log_start_offset)
    end = log.last_stable_offset
    if offset >= end:
        return Slice([], None, end, end, log.log_start_offset)
    wanted = Wanted(replica, offset, ROCKETMQ_LOOK_UP_BYTES_MAX)
    limits = FetchLimits(0, ROCKETMQ_LOOK_UP_BYTES_MAX, 0, True)
    (found,), _, _ = read_all([wanted], limits)
    if found.error is not None:
        raise found.error
    data = memoryview(b"".join(found.buffers))
    return _visible(data, found.aborted or (), offset, end, log.log_start_offset, having)


def _visible(
    data: memoryview, aborted: Aborted, offset: int, end: int, start: int, having: bytes
) -> Slice:
    """Raises `DecodeError`."""
    walk = VisibleBatches(data, aborted, offset)
    found: list[Record] = []
    oldest_ms: int | None = None
    for header, batch in walk:
        begins = header.base_timestamp
        oldest_ms = begins if oldest_ms is None else min(begins, oldest_ms)
        if header.attributes & CODEC_MASK or having in bytes(batch):
            decoded = iterate_records(batch, header, EXPANDED_BATCH_BYTES_MAX)
            found += (each for each in decoded if each.offset >= offset)
    # A gap that compaction left at the end reads as nothing.
    return Slice(found, oldest_ms, walk.next_offset if len(data) else end, end, start)
