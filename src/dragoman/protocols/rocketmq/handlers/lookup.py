"""One record by its physical offset, wherever it is: what message ids and send-backs name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dragoman.broker.delayed import Content, Token
from dragoman.broker.reading import Ends, Reader
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.log.batch import Record
from dragoman.outcome import start
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.names import split_physical
from dragoman.protocols.rocketmq.handlers.refusals import Refused

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker


class Found(NamedTuple):
    topic: str
    queue: int
    record: Record
    partition_id: int


Done = Callable[[Found | DragomanError], None]


def find_record(broker: Broker, physical: int, done: Done) -> None:
    """Also one that is not delivered yet: it waits in a topic of the broker's own."""
    partition_id, offset = split_physical(physical)
    partition = broker.image.partitions.get(partition_id)
    if partition is None:
        done(_missing(physical))
    elif partition.topic.is_internal:
        _find_delayed(broker, Token(partition_id, offset), done)
    else:
        read_one(broker, partition, offset, done)


def _missing(physical: int) -> Refused:
    return Refused(Response.SYSTEM_ERROR, f"can not find message by the offset {physical}")


def _find_delayed(broker: Broker, token: Token, done: Done) -> None:
    def found(content: Content | DragomanError) -> None:
        if isinstance(content, DragomanError):
            done(content)
        else:
            topic, queue = content.target
            done(Found(topic, queue, content.record, token.partition_id))

    start(broker.delayed.read(token)).then(found)


def read_one(broker: Broker, partition: PartitionMetadata, offset: int, done: Done) -> None:
    name, index = partition.topic.name, partition.index

    def missing() -> Refused:
        return Refused(Response.SYSTEM_ERROR, f"there is no message {offset} in {name}-{index}")

    def known(ends: Ends | DragomanError) -> None:
        if isinstance(ends, DragomanError):
            done(ends)
        elif not ends.log_start_offset <= offset < ends.last_stable_offset:
            done(missing())
        else:
            _Reading(broker, partition, offset, done, missing).look()

    start(broker.readers.ends(partition)).then(known)


class _Reading:
    """The record is there, or a later one in its place."""

    def __init__(
        self,
        broker: Broker,
        partition: PartitionMetadata,
        offset: int,
        done: Done,
        missing: Callable[[], Refused],
    ) -> None:
        self._partition = partition
        self._offset = offset
        self._done = done
        self._missing = missing
        self._reader: Reader = broker.readers.open(partition, offset, self.look)

    def look(self) -> None:
        outcome: Found | DragomanError
        try:
            found = self._reader.read(1, 1)
            if not found:
                # Another node has it, or this copy is behind.
                self._reader.wait()
                return
            partition = self._partition
            if found[0].offset == self._offset:
                name, index = partition.topic.name, partition.index
                outcome = Found(name, index, found[0], partition.partition_id)
            else:
                outcome = self._missing()
        except DragomanError as error:
            outcome = error
        self._reader.close()
        self._done(outcome)
