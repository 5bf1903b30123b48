"""How administration reaches those it asks: name servers, one broker, or all masters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

import msgspec

from dragoman.dialing.errors import ConnectionLostError, UnreachableError
from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.bodies import ClusterInfo
from dragoman.protocols.rocketmq.client.errors import TopicNotFoundError
from dragoman.protocols.rocketmq.client.producer import Producer
from dragoman.protocols.rocketmq.client.remoting import Fields, Remoting
from dragoman.protocols.rocketmq.client.routes import MASTER_ID, Routes
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import RETRY_PREFIX, Request
from dragoman.types import Buffer

Kind = TypeVar("Kind", bound=msgspec.Struct)
Result = TypeVar("Result")


class Administered(Protocol):
    """What administration uses of a client."""

    @property
    def remoting(self) -> Remoting: ...

    @property
    def routes(self) -> Routes: ...

    @property
    def own_producer(self) -> Producer: ...

    async def close(self) -> None: ...


class Reaching:
    def __init__(self, client: Administered) -> None:
        self._client = client

    # ---- asking

    async def _ask_name_server(
        self, code: int, fields: Fields | None = None, body: Buffer = b""
    ) -> Command:
        return await self._client.routes.name_servers.call(code, fields, body)

    async def _ask(
        self,
        broker: str,
        code: int,
        fields: Fields | None = None,
        body: Buffer = b"",
        *,
        timeout_s: float | None = None,
    ) -> Command:
        """Asked again when the connection was lost, as idle ones are: all of it may be repeated."""
        remoting = self._client.remoting
        address = remoting.broker(broker)
        try:
            return await remoting.call(address, code, fields, body, timeout_s=timeout_s)
        except ConnectionLostError:
            return await remoting.call(address, code, fields, body, timeout_s=timeout_s)

    async def _read(
        self, broker: str, kind: type[Kind], code: int, fields: Fields | None = None
    ) -> Kind:
        return bodies.decode((await self._ask(broker, code, fields)).body, kind)

    # ---- whom

    async def _cluster(self) -> ClusterInfo:
        answer = await self._ask_name_server(Request.GET_BROKER_CLUSTER_INFO)
        return bodies.decode(answer.body, ClusterInfo)

    async def _masters(self, cluster: str | None = None) -> list[str]:
        """Of a cluster, or of all. Raises `UnreachableError` when there is none."""
        info = await self._cluster()
        names = set(info.cluster_addr_table.get(cluster, ())) if cluster is not None else None
        found = [
            each.broker_addrs[MASTER_ID]
            for name, each in sorted(info.broker_addr_table.items())
            if MASTER_ID in each.broker_addrs and (names is None or name in names)
        ]
        if not found:
            raise UnreachableError(
                f"no broker of cluster {cluster} is known" if cluster else "no broker is known"
            )
        return found

    async def _chosen(self, broker: str | None, cluster: str | None = None) -> list[str]:
        return [broker] if broker is not None else await self._masters(cluster)

    async def _topic_brokers(self, topic: str) -> list[str]:
        """Raises `TopicNotFoundError`."""
        route = await self._client.routes.refreshed(topic)
        return [
            self._client.routes.any_of(name)
            for name in dict.fromkeys(each.broker_name for each in route.data.queue_datas)
        ]

    async def _group_brokers(self, group: str) -> list[str]:
        """Those with the group's retry topic; all when it has none yet."""
        try:
            return await self._topic_brokers(RETRY_PREFIX + group)
        except TopicNotFoundError:
            return await self._masters()


async def gathered(ask: Callable[[str], Awaitable[Result]], brokers: Iterable[str]) -> list[Result]:
    """What all of them answer, asked at the same time."""
    return list(await asyncio.gather(*(ask(each) for each in brokers)))


def table(data: Buffer, member: str) -> dict[str, json.Json]:
    """An object, or the one inside it under this name: servers differ."""
    found = json.read(data, dict)
    inner = found.get(member, found)
    return inner if isinstance(inner, dict) else {}
