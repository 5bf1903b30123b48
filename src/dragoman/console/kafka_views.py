"""What pages show by Kafka's protocol beside records: producers of a topic, settings of a node.

GET /kafka/producers?topic=NAME   those that partitions remember, with their open transactions
GET /kafka/settings?node=ID       every setting, with its meaning
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman.client.kafka import ResourceType
from dragoman.config.settings import NODE_KEYS
from dragoman.console.errors import ConsoleError
from dragoman.console.records.clients import Clients
from dragoman.console.records.failures import refused
from dragoman.console.sessions import Session
from dragoman.limits import CONSOLE_PRODUCERS_MAX


class ShownProducer(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    producer_id: int
    epoch: int
    last_sequence: int
    #: Of its last batch, in ms; -1: none.
    last_ms: int
    #: The first offset of its open transaction; null: none is open.
    open_offset: int | None


class Producers(msgspec.Struct, frozen=True, kw_only=True):
    #: Those with open transactions come first, then the latest ones.
    items: tuple[ShownProducer, ...]
    #: How many were left out.
    left_out: int


class NodeSetting(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    #: Null: it is secret.
    value: str | None
    #: Whether it is as the node was started.
    is_default: bool
    #: Whether it can be changed while the node runs.
    is_live: bool
    #: Empty for settings that this release does not know.
    meaning: str


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[NodeSetting, ...]


class KafkaViews:
    """`allowed` gives the session of a reader, or refuses it."""

    def __init__(self, clients: Clients, allowed: Callable[[Request], Session | None]) -> None:
        self._clients = clients
        self._allowed = allowed

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/kafka/producers", self.producers),
            Route("/kafka/settings", self.settings),
        ]

    async def producers(self, request: Request) -> Response:
        session = self._allowed(request)
        name = request.query_params.get("topic", "")
        if not name:
            raise ConsoleError("topic: name one")
        async with self._clients.use(session) as client:
            with refused(has_session=session is not None):
                topic = await client.topic(name)
                found = await client.describe_producers(topic.all_partitions())
        shown = [
            ShownProducer(
                partition=where.partition,
                producer_id=each.producer_id,
                epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_ms=each.last_timestamp,
                open_offset=each.open_offset,
            )
            for where, producers in found.items()
            for each in producers
        ]
        shown.sort(key=lambda each: (each.open_offset is None, -each.last_ms))
        kept = tuple(shown[:CONSOLE_PRODUCERS_MAX])
        return _json(Producers(items=kept, left_out=len(shown) - len(kept)))

    async def settings(self, request: Request) -> Response:
        session = self._allowed(request)
        node = request.query_params.get("node", "")
        if not node.isascii() or not node.isdigit():
            raise ConsoleError("node: give the number of one")
        async with self._clients.use(session) as client:
            with refused(has_session=session is not None):
                entries = await client.describe_configs(ResourceType.BROKER, node)
        shown = (
            NodeSetting(
                name=each.name,
                value=None if each.is_sensitive else each.value,
                is_default=each.is_default,
                is_live=not each.is_read_only,
                meaning=NODE_KEYS[each.name].doc if each.name in NODE_KEYS else "",
            )
            for each in entries
        )
        return _json(NodeSettings(items=tuple(shown)))


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
