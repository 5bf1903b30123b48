"""A piece of a partition's records, as its leader has them, here or elsewhere.

Whoever looks for certain bytes has only those batches decoded that have them: in batches that are
not compressed, whatever a record has is there as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dragoman.broker.broker import Broker
from dragoman.broker.errors import NotLeader
from dragoman.broker.fetch import FetchLimits, Wanted, read_all
from dragoman.broker.reading import Batches, ReadBatches
from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.limits import EXPANDED_BATCH_BYTES_MAX, ROCKETMQ_LOOK_UP_BYTES_MAX
from dragoman.log.batch import CODEC_MASK, Record, iterate_records
from dragoman.log.isolation import Aborted, VisibleBatches
from dragoman.rpc import Node, Reply


class Slice(NamedTuple):
    """Records that are committed, in order."""

    records: list[Record]
    #: When the oldest of its batches begins; None: there is none.
    oldest_ms: int | None
    #: Where to read on, and where there is no more.
    next_offset: int
    end_offset: int
    log_start_offset: int


def read_slice(
    broker: Broker,
    partition: PartitionMetadata,
    offset: int,
    done: Callable[[Slice | DragomanError], None],
    having: bytes = b"",
) -> None:
    """From an offset on, or, when that was deleted, from the oldest; batches without certain bytes
    are left out. There may be none in it although there are more behind it.
    """
    try:
        done(_read_here(broker.replica(partition), offset, having))
        return
    except NotLeader as error:
        leader = error.leader
    except DragomanError as error:
        done(error)
        return

    def answered(reply: Reply[Batches] | DragomanError) -> None:
        if isinstance(reply, DragomanError):
            done(reply)
            return
        batches = reply.answer
        try:
            found = _visible(
                reply.body,
                batches.aborted,
                batches.offset,
                batches.last_stable_offset,
                batches.log_start_offset,
                having,
            )
        except DragomanError as error:
            done(error)
        else:
            done(found)

    request = ReadBatches(
        topic=partition.topic.name,
        partition=partition.index,
        offset=offset,
        bytes_max=ROCKETMQ_LOOK_UP_BYTES_MAX,
        is_from_oldest=True,
    )
    broker.rpc.begin(request, Node(leader)).then(answered)


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
