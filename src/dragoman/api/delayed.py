"""Delayed and held records that a node stores: how many for which topics, and which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias

from dragoman.api.access import Access, Rights
from dragoman.api.declaration import (
    ApiError,
    PageLimit,
    ReadBytes,
    RecordLimit,
    ValueBytes,
    ValueForm,
)
from dragoman.api.delayed_values import (
    DelayedPage,
    DelayedRecord,
    DelayedRecordPage,
    DelayedTopic,
)
from dragoman.api.node_requests import CountDelayed, FoundDelayed, ListDelayed, StoredDelayed
from dragoman.api.one_node import NodeBroker, OneNode
from dragoman.api.pages import page_of
from dragoman.broker.delayed import FIRST, DelayedRecords, Phase, Place, Stored
from dragoman.broker.errors import UnknownTopic
from dragoman.broker.work_queue import WorkQueue
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import NodeId

_State: TypeAlias = Literal["delayed", "held", "deciding", "due"]
_STATES: Final[Mapping[Phase, _State]] = {
    Phase.WAITING: "delayed",
    Phase.HELD: "held",
    Phase.DECIDING: "deciding",
    Phase.DUE: "due",
}


class DelayedBroker(Rights, NodeBroker, Protocol):
    @property
    def delayed(self) -> DelayedRecords: ...

    @property
    def work(self) -> WorkQueue: ...


class DelayedService:
    def __init__(self, broker: DelayedBroker) -> None:
        self._broker = broker
        self._access = Access(broker)
        self._nodes = OneNode(broker)

    # ---- how many

    async def list_delayed(
        self, caller: Caller, node: NodeId | None, after: str, limit: PageLimit
    ) -> DelayedPage:
        request = CountDelayed(caller=caller, after=after, limit=limit)
        return await self._nodes.ask(node, request, self.counted)

    async def counted(self, request: CountDelayed) -> DelayedPage:
        self._access.require_cluster(request.caller, Operation.DESCRIBE)
        store = self._broker.delayed.store
        counts: dict[str, int] = {}
        for partition_id, count in store.counts().items():
            # Records for a topic that was just deleted are about to be dropped.
            partition = self._broker.image.partitions.get(partition_id)
            if partition is not None:
                name = partition.topic.name
                counts[name] = counts.get(name, 0) + count
        names, following = page_of(counts, request.after, request.limit)
        return DelayedPage(
            node_id=self._broker.node_id,
            items=tuple(DelayedTopic(topic=name, records=counts[name]) for name in names),
            next=following,
            records=store.record_count,
        )

    # ---- which

    async def delayed_records(
        self,
        caller: Caller,
        name: str,
        node: NodeId | None,
        after: str,
        limit: RecordLimit,
        bytes: ReadBytes,  # noqa: A002 # the name of the parameter in the query
        max_value_bytes: ValueBytes,
        values: ValueForm,
    ) -> DelayedRecordPage:
        request = ListDelayed(
            caller=caller, topic=name, after=_place_of(after), limit=limit, bytes_max=bytes
        )
        found = await self._nodes.ask(node, request, self.listed)
        return DelayedRecordPage(
            node_id=self._broker.node_id if node is None else node,
            topic=name,
            items=tuple(_shown(each, values, max_value_bytes) for each in found.items),
            next=None if found.next is None else "-".join(map(str, found.next)),
        )

    async def listed(self, request: ListDelayed) -> FoundDelayed:
        self._access.require(request.caller, Operation.READ, Resource.TOPIC, request.topic)
        topic = self._broker.image.topics.get(request.topic)
        if topic is None:
            raise UnknownTopic(f"there is no topic {request.topic!r}")
        indexes = {each.partition_id: each.index for each in topic.partitions}
        steps = self._broker.delayed.store.listed(
            indexes.keys(), Place(*request.after), request.limit + 1, request.bytes_max
        )
        found, is_whole = await self._broker.work.run(steps)
        is_whole = is_whole and len(found) <= request.limit
        page = found[: request.limit]
        return FoundDelayed(
            items=tuple(
                _stored(indexes[stored.target_id], phase, place, stored)
                for place, phase, stored in page
            ),
            next=None if is_whole else page[-1][0],
        )


def _place_of(after: str) -> Place:
    """Raises `ApiError`."""
    if not after:
        return FIRST
    numbers = after.split("-")
    if len(numbers) != 3 or not all(each.isascii() and each.isdigit() for each in numbers):
        raise ApiError(400, "invalid_request", f"after: expected `next` of a page, got {after!r}")
    return Place(*(int(each[:20]) for each in numbers))


def _stored(index: int, phase: Phase, place: Place, stored: Stored) -> StoredDelayed:
    headers = sum(len(name) + len(value or b"") for name, value in stored.headers)
    return StoredDelayed(
        partition=index,
        state=_STATES[phase],
        due_ms=place.when_ms,
        size_bytes=len(stored.key or b"") + len(stored.value or b"") + headers,
        key=stored.key,
        value=stored.value,
        headers=stored.headers,
    )


def _shown(found: StoredDelayed, form: ValueForm, bytes_max: int) -> DelayedRecord:
    # Imported here: other nodes are answered without it.
    from dragoman.api.payloads import headers_of, payload_of

    return DelayedRecord(
        partition=found.partition,
        state=found.state,
        due_ms=found.due_ms,
        size_bytes=found.size_bytes,
        key=payload_of(found.key, form, bytes_max),
        value=payload_of(found.value, form, bytes_max),
        headers=headers_of(found.headers, form, bytes_max),
        header_count=len(found.headers),
    )
