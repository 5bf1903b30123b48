"""Which node is responsible for what: the directory that remote procedure calls look into."""

from __future__ import annotations

from typing import Protocol, assert_never

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import CoordinatorNotAvailable, UnknownTopic
from dragoman.broker.placement import NOBODY
from dragoman.replication.replica import not_leader
from dragoman.rpc import Coordinator, Leader, Node, Where


class KeyedTopic(Protocol):
    """An internal topic: the leaders of its partitions coordinate the names that are kept there."""

    @property
    def name(self) -> str: ...

    def leader_of(self, name: str, /) -> int:
        """The node that coordinates a name, or `NOBODY`. May raise `BrokerError`."""
        ...

    async def ensure(self) -> None:
        """Create the topic unless it exists."""
        ...


class Directory:
    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._internal_topics: dict[str, KeyedTopic] = {}

    def add(self, topic: KeyedTopic) -> None:
        """The leaders of this topic's partitions coordinate the names that are kept there."""
        self._internal_topics[topic.name] = topic

    async def locate(self, where: Where) -> int:
        """The node. Raises `UnknownTopic` or `NotLeader`, or `CoordinatorNotAvailable`."""
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
        if partition.leader == NOBODY:
            raise not_leader(partition)
        return partition.leader

    async def _coordinator_of(self, topic: str, name: str) -> int:
        """The topic is created if need be."""
        internal = self._internal_topics[topic]
        node_id = internal.leader_of(name)
        if node_id == NOBODY:
            await internal.ensure()
            node_id = internal.leader_of(name)
        if node_id == NOBODY:
            raise CoordinatorNotAvailable(f"no node coordinates {name!r}")
        return node_id
