"""Requests of other nodes about what this node alone knows: its connections, what is
damaged on its disk, the delayed records that it stores, and the reports that pipelines send it.

The services behind them are made when they are first needed, by the HTTP API or by another node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dragoman.api.connection_values import ConnectionPage, DamagePage
from dragoman.api.delayed_values import DelayedPage
from dragoman.api.node_requests import (
    CloseConnection,
    ClosedConnection,
    CountDelayed,
    FoundDelayed,
    ListConnections,
    ListDamage,
    ListDelayed,
    ListPipelines,
)
from dragoman.api.node_rpc import NodeHandlers
from dragoman.api.values import PipelineList

if TYPE_CHECKING:
    from dragoman.api.connections import ConnectionService
    from dragoman.api.damage import DamageService
    from dragoman.api.delayed import DelayedService
    from dragoman.api.pipelines import PipelineReports


class OwnLists(NamedTuple):
    connections: ConnectionService
    damage: DamageService
    delayed: DelayedService
    pipelines: PipelineReports


class NodeLists:
    def __init__(self, own: Callable[[], OwnLists]) -> None:
        self._own = own

    def serve(self, handlers: NodeHandlers) -> None:
        handlers.serve(ListConnections, self._connections)
        handlers.serve(CloseConnection, self._close)
        handlers.serve(ListDamage, self._damage)
        handlers.serve(ListPipelines, self._pipelines)
        handlers.serve(CountDelayed, self._count_delayed)
        handlers.serve(ListDelayed, self._delayed)

    async def _connections(self, request: ListConnections) -> ConnectionPage:
        return await self._own().connections.listed(request)

    async def _close(self, request: CloseConnection) -> ClosedConnection:
        return await self._own().connections.closed(request)

    async def _damage(self, request: ListDamage) -> DamagePage:
        return await self._own().damage.listed(request)

    async def _pipelines(self, request: ListPipelines) -> PipelineList:
        return await self._own().pipelines.listed(request)

    async def _count_delayed(self, request: CountDelayed) -> DelayedPage:
        return await self._own().delayed.counted(request)

    async def _delayed(self, request: ListDelayed) -> FoundDelayed:
        return await self._own().delayed.listed(request)
