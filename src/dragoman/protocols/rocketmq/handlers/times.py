"""Offsets by time and times by offset, asked of a copy here or of the partition's leader."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.broker import Broker
from dragoman.broker.errors import NotLeader
from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq.handlers.node import node_of
from dragoman.protocols.rocketmq.handlers.relayed import FindOffset, Number

Found = Callable[[int | DragomanError], None]


def offset_at(
    broker: Broker,
    partition: PartitionMetadata,
    timestamp: int,
    done: Found,
    *,
    is_upper: bool = False,
) -> None:
    """The first record stored at or after a time, or, as the upper bound, the first after it; the
    end when there is none.
    """
    # The upper bound of a time is what follows the last record of that time.
    wanted = timestamp + 1 if is_upper else timestamp
    _find(
        broker, partition, FindOffset(partition_id=partition.partition_id, timestamp=wanted), done
    )


def store_time_of(broker: Broker, partition: PartitionMetadata, offset: int, done: Found) -> None:
    """When the record at an offset, or the first after it, was stored; -1 when there is none."""
    _find(broker, partition, FindOffset(partition_id=partition.partition_id, offset=offset), done)


def _find(broker: Broker, partition: PartitionMetadata, request: FindOffset, done: Found) -> None:
    try:
        done(look_up(broker.replica(partition), request))
    except NotLeader as error:
        node_of(broker).ask_node(error.leader, request, Number, lambda each: done(_value(each)))
    except DragomanError as error:
        done(error)


def _value(outcome: Number | DragomanError) -> int | DragomanError:
    return outcome if isinstance(outcome, DragomanError) else outcome.value


def look_up(replica: Replica, request: FindOffset) -> int:
    """On the partition's leader."""
    log = replica.log
    end = log.last_stable_offset
    if request.timestamp is not None:
        found = log.offset_for_time(request.timestamp, end)
        return end if found is None else found[0]
    first = next(log.iterate(max(request.offset, log.log_start_offset), end), None)
    return -1 if first is None else first.timestamp
