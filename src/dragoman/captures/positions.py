"""The internal topic of positions, with a record of the progress of each capture.

The name of a capture maps to a partition, and the leader of the partition runs the capture. The
process that captures writes the records, in one transaction with the rows; the broker only removes
the record of a capture that was removed.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from dragoman.broker.context import NodeContext
from dragoman.broker.directory import NO_NODE, coordinator_partition
from dragoman.broker.partitions import Partitions
from dragoman.broker.topics import NewTopic, Topics
from dragoman.captures.definition import POSITIONS_TOPIC, TRANSACTIONAL_PREFIX
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.outcome import acknowledged

_PARTITIONS: Final = 8
#: Only the last record of each capture matters, and the active segment is never compacted, so
#: segments are small. Transaction markers, one for each transaction, are removed after a minute
#: instead of a day, because a process reads its position right at its start.
_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "delete.retention.ms": "60000",
}


class Positions:
    def __init__(self, context: NodeContext, partitions: Partitions, topics: Topics) -> None:
        self._context = context
        self._partitions = partitions
        self._topics = topics
        #: Partitions that this node leads.
        self.led: set[int] = set()
        topics.reserve(POSITIONS_TOPIC, template=self._template, writers=TRANSACTIONAL_PREFIX)

    # ---- the topic

    def _template(self) -> NewTopic:
        factor = self._context.settings.transaction_state_log_replication_factor
        return NewTopic(
            name=POSITIONS_TOPIC,
            partition_count=_PARTITIONS,
            replication_factor=self._context.internal_factor(factor),
            config=dict(_CONFIG),
            is_internal=True,
        )

    async def ensure(self) -> None:
        """Create the topic unless it exists."""
        await self._topics.ensure(self._template())

    @property
    def partition_count(self) -> int:
        """The partitions that the topic has, or will have once it is created."""
        topic = self._context.image.topics.get(POSITIONS_TOPIC)
        return len(topic.partitions) if topic is not None else _PARTITIONS

    def partition_of(self, name: str) -> int:
        return coordinator_partition(name, self.partition_count)

    # ---- leaders

    def is_led(self, name: str) -> bool:
        """Whether this node leads the partition of a capture."""
        return self.partition_of(name) in self.led

    def leader_of(self, name: str) -> int:
        """The node that leads the partition of a capture, or `NO_NODE`.

        Before the topic exists, only a single node leads its partitions.
        """
        topic = self._context.image.topics.get(POSITIONS_TOPIC)
        if topic is not None:
            return topic.partitions[self.partition_of(name)].leader
        return self._context.node_id if self.is_led(name) else NO_NODE

    # ---- records

    async def forget(self, name: str) -> None:
        """Remove the position of a capture, so that a new capture of this name starts over."""
        if POSITIONS_TOPIC not in self._context.image.topics:
            return
        now_ms = self._context.clock.wall_ms()
        batch = build_batch([Record(key=name.encode(), value=None, timestamp=now_ms)])
        replica = self._partitions.find(POSITIONS_TOPIC, self.partition_of(name))
        replica.check_in_sync()
        appended = replica.log.append(batch, read_header(batch), replica.leader_epoch)
        await acknowledged(partial(replica.when_committed, appended.next_offset))
