"""The connections of a node, by listener, and their end at an operator's request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from dragoman.api.access import Access, Rights
from dragoman.api.connection_values import ConnectionPage, ConnectionStatus
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.node_requests import CloseConnection, ClosedConnection, ListConnections
from dragoman.api.one_node import NodeBroker, OneNode
from dragoman.api.pages import page_of
from dragoman.broker.administration import Actor, note
from dragoman.config.listeners import base_name
from dragoman.net.channel import Channel, Channels
from dragoman.security.access import Caller, Operation
from dragoman.security.audit import AuditLog
from dragoman.types import NodeId
from dragoman.world import Clock

if TYPE_CHECKING:
    from dragoman.api.connection import HttpConnection

    _Connection: TypeAlias = Channel | HttpConnection


class ConnectionListeners(Protocol):
    @property
    def channels(self) -> Mapping[str, Channels]: ...

    def http_connections(self) -> Iterator[HttpConnection]: ...


class ConnectionBroker(Rights, NodeBroker, Protocol):
    @property
    def audit(self) -> AuditLog: ...


class ConnectionService:
    def __init__(
        self, broker: ConnectionBroker, listeners: ConnectionListeners, clock: Clock
    ) -> None:
        self._broker = broker
        self._listeners = listeners
        self._clock = clock
        self._access = Access(broker)
        self._nodes = OneNode(broker)

    async def list_connections(
        self, caller: Caller, listener: str, node: NodeId | None, after: str, limit: PageLimit
    ) -> ConnectionPage:
        request = ListConnections(caller=caller, listener=listener, after=after, limit=limit)
        return await self._nodes.ask(node, request, self.listed)

    async def listed(self, request: ListConnections) -> ConnectionPage:
        self._access.require_cluster(request.caller, Operation.DESCRIBE)
        listener = request.listener
        found = {
            name: each
            for name, each in self._all()
            if not listener or name.rpartition("-")[0] == listener
        }
        names, following = page_of(found, request.after, request.limit)
        return ConnectionPage(
            node_id=self._broker.node_id,
            items=tuple(self._status(name, found[name]) for name in names),
            next=following,
        )

    async def close_connection(self, caller: Caller, name: str, node: NodeId | None) -> None:
        request = CloseConnection(caller=caller, name=name)
        answer = await self._nodes.ask(node, request, self.closed)
        if not answer.is_found:
            where = self._broker.node_id if node is None else node
            raise ApiError(404, "unknown_connection", f"node {where} has no connection {name!r}")

    async def closed(self, request: CloseConnection) -> ClosedConnection:
        caller, name = request.caller, request.name
        self._access.require_cluster(caller, Operation.ALTER)
        found = dict(self._all()).get(name)
        if found is None:
            return ClosedConnection(is_found=False)
        if isinstance(found, Channel):
            found.end_reason = "an operator closed it"
            found.abort()
        else:
            found.cut()
        note(self._broker.audit, "connection.close", Actor(caller, "http"), f"connection:{name}")
        return ClosedConnection()

    def _all(self) -> Iterator[tuple[str, _Connection]]:
        for channels in self._listeners.channels.values():
            for channel in channels.open:
                yield channel.name, channel
        for each in self._listeners.http_connections():
            yield each.name, each

    def _status(self, name: str, found: _Connection) -> ConnectionStatus:
        now = self._clock.monotonic()
        if isinstance(found, Channel):
            session = found.session
            # Sessions of nodes, and those that detect a protocol, have none.
            caller: Caller | None = getattr(session, "caller", None)
            protocol: str = getattr(session, "protocol", "")
            return ConnectionStatus(
                id=name,
                listener=found.listener,
                protocol=protocol or _protocol_of(found.listener),
                peer=_text(found.peer_address),
                user="" if caller is None else str(caller.principal),
                client_id=found.client_id,
                encrypted=found.is_encrypted,
                age_ms=int((now - found.opened_at) * 1000),
                idle_ms=int((now - found.last_active) * 1000),
                bytes=found.moved_bytes,
                in_flight_bytes=found.held_bytes,
            )
        return ConnectionStatus(
            id=name,
            listener=name.rpartition("-")[0],
            protocol="http",
            peer="" if found.client is None else _text(found.client),
            user=found.user,
            client_id="",
            encrypted=found.is_encrypted,
            age_ms=int((now - found.opened_at) * 1000),
            idle_ms=None,
            bytes=None,
            in_flight_bytes=found.unsent_bytes,
        )


def _protocol_of(listener: str) -> str:
    base = base_name(listener)
    return "" if base == "any" else base.partition("-")[0]


def _text(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
