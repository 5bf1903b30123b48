"""What a node has found damaged on its disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Protocol

from dragoman.api.access import Access, Rights
from dragoman.api.connection_values import DamagePage, QuarantinedFile
from dragoman.api.damaged_ranges import damaged_ranges
from dragoman.api.declaration import ApiError, PageLimit
from dragoman.api.node_requests import ListDamage
from dragoman.api.one_node import NodeBroker, OneNode
from dragoman.limits import HTTP_PAGE_ITEMS_MAX
from dragoman.log.directory import QUARANTINE
from dragoman.log.store import LogStore
from dragoman.security.access import Caller, Operation
from dragoman.types import NodeId


class DamageBroker(Rights, NodeBroker, Protocol):
    @property
    def store(self) -> LogStore: ...


class DamageService:
    def __init__(self, broker: DamageBroker) -> None:
        self._broker = broker
        self._access = Access(broker)
        self._nodes = OneNode(broker)

    async def list_damage(
        self, caller: Caller, node: NodeId | None, after: str, limit: PageLimit
    ) -> DamagePage:
        if after and not (after.isascii() and after.isdigit() and len(after) <= 9):
            text = f"after: expected `next` of the page before, got {after[:100]!r}"
            raise ApiError(400, "invalid_request", text)
        request = ListDamage(caller=caller, skipped=int(after or 0), limit=limit)
        return await self._nodes.ask(node, request, self.listed)

    async def listed(self, request: ListDamage) -> DamagePage:
        self._access.require_cluster(request.caller, Operation.DESCRIBE)
        begin, end = request.skipped, request.skipped + request.limit
        store = self._broker.store
        ranges = sorted(
            damaged_ranges(store),
            key=lambda each: (each.topic, each.partition, each.first_offset),
        )
        files = list(_quarantined(store))
        return DamagePage(
            node_id=self._broker.node_id,
            items=tuple(ranges[begin:end]),
            next=str(end) if len(ranges) > end else None,
            journal=tuple(map(str, islice(store.journal_damage, HTTP_PAGE_ITEMS_MAX))),
            quarantine=tuple(files[:HTTP_PAGE_ITEMS_MAX]),
            quarantined_bytes=sum(each.size_bytes for each in files),
        )


def _quarantined(store: LogStore) -> Iterator[QuarantinedFile]:
    for name in store.disk.names(QUARANTINE):
        path = f"{QUARANTINE}/{name}"
        size = 0
        with suppress(OSError), closing(store.disk.open(path, "read")) as file:
            size = file.size()
        yield QuarantinedFile(path=path, size_bytes=size)
