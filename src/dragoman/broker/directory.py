"""The directory of remote procedure calls: which node leads a partition or coordinates a name.

A name maps to a partition of an internal topic, whose leader coordinates it.
"""

from __future__ import annotations

from typing import Final, Protocol, assert_never

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import CoordinatorNotAvailable, UnknownTopic
from dragoman.limits import GROUP_ID_BYTES_MAX, TRANSACTIONAL_ID_BYTES_MAX
from dragoman.replication.replica import not_leader
from dragoman.rpc import Coordinator, Leader, Node, Where
from dragoman.text_cache import cached_by_text

#: In place of a node id.
NO_NODE: Final = -1
_NAME_CHARACTERS_MAX: Final = max(GROUP_ID_BYTES_MAX, TRANSACTIONAL_ID_BYTES_MAX)


class KeyedTopic(Protocol):
    """An internal topic whose partition leaders coordinate the names that map to them."""

    @property
    def name(self) -> str: ...

    @property
    def partition_count(self) -> int:
        """The number of partitions that the topic has, or will be created with."""
        ...

    def lead(self, index: int, leader_epoch: int, /) -> None:
        """This node leads a partition: coordinate its names. A single node leads all partitions,
        even before the topic is created.
        """
        ...

    def resign(self, index: int, /) -> None:
        """This node no longer leads a partition: refuse requests that wait for it."""
        ...

    def leader_of(self, name: str, /) -> int:
        """The node that coordinates a name, or `NO_NODE`. May raise `BrokerError`."""
        ...

    async def ensure(self) -> None:
        """Create the topic unless it exists."""
        ...


class Directory:
    def __init__(self, context: NodeContext) -> None:
        self._context = context
        #: By name.
        self.internal_topics: dict[str, KeyedTopic] = {}

    def add(self, topic: KeyedTopic) -> None:
        """Register an internal topic with its coordinators."""
        self.internal_topics[topic.name] = topic

    async def locate(self, where: Where) -> int:
        """The responsible node. Raises `UnknownTopic`, `NotLeader` or `CoordinatorNotAvailable`."""
        match where:
            case Node(node_id):
                return node_id
            case Leader(partition_id):
                return self._leader_of(partition_id)
            case Coordinator(topic, name):
                return await self._coordinator_of(topic, name)
            case _:
                assert_never(where)

    def _leader_of(self, partition_id: int) -> int:
        partition = self._context.image.partitions.get(partition_id)
        if partition is None:
            raise UnknownTopic(f"partition {partition_id} was deleted")
        if partition.leader == NO_NODE:
            raise not_leader(partition)
        return partition.leader

    async def _coordinator_of(self, topic: str, name: str) -> int:
        """Creates the internal topic if it does not exist."""
        internal = self.internal_topics[topic]
        node_id = internal.leader_of(name)
        if node_id == NO_NODE:
            await internal.ensure()
            node_id = internal.leader_of(name)
        if node_id == NO_NODE:
            raise CoordinatorNotAvailable(f"no node coordinates {name!r}")
        return node_id


# ---- partitions of internal topics


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, signed 32 bits."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@cached_by_text(16384)
def _coordinating_hash(name: str) -> int:
    """The hash of a group or transactional id. No id is longer than these, and the hash of a text
    that a client makes up would hold up the loop.
    """
    value = java_string_hash(name) if len(name) <= _NAME_CHARACTERS_MAX else 0
    # Java has no absolute value for the lowest integer; Kafka uses 0 for it.
    return 0 if value == -(1 << 31) else abs(value)


def coordinator_partition(name: str, count: int) -> int:
    """The partition, of `count`, that coordinates `name`, as in Kafka."""
    return _coordinating_hash(name) % count


def only_partition(_name: str) -> int:
    """Maps every name to one partition."""
    return 0
