"""Operations about what one node alone knows, such as its connections: any node serves them.

Without a number of a node they are about the one that answers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

import msgspec

from dragoman.api.declaration import ApiError
from dragoman.api.node_requests import NodeRequest
from dragoman.api.node_rpc import NodeCalls, in_time
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import DragomanError
from dragoman.net.future import settled
from dragoman.outcome import start
from dragoman.rpc import Node, Rpc
from dragoman.types import NodeId

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R", bound=NodeRequest[msgspec.Struct])


class NodeBroker(Protocol):
    """What these operations use of the broker."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def rpc(self) -> Rpc: ...


class OneNode:
    def __init__(self, broker: NodeBroker) -> None:
        self._broker = broker

    async def ask(
        self,
        node: NodeId | None,
        request: NodeRequest[A],
        own: Callable[[R], Coroutine[object, None, A]],
    ) -> A:
        """The answer of a node; `own` answers for this one. Raises what the node raises, and
        `ClusterError` if it does not answer.
        """
        broker = self._broker
        if node is None or node == broker.node_id:
            return await settled(start(own(request)))  # type: ignore[arg-type]
        if node not in broker.image.nodes:
            raise ApiError(404, "unknown_node", f"there is no node {node}")
        (found,) = await in_time([NodeCalls(broker.rpc).call(request, Node(node))])
        if isinstance(found, DragomanError):
            raise found
        return found
