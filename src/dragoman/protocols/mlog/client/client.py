"""The mlog client: records, committed offsets and topics.

    async with MlogClient("127.0.0.1:9094") as client:
        await client.create_topic("orders")
        offset = await client.produce("orders", b"3 apples")

`MlogClient` belongs to the event loop on which it was created. Calls may run concurrently; calls to
the same server share a connection and are pipelined. `BlockingMlogClient` is for code without an
event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

from dragoman.client_core.addresses import parse_addresses
from dragoman.client_core.blocking_client import BlockingClient, Face, making, waiting
from dragoman.client_core.errors import ClientError
from dragoman.client_core.retry import Retry
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.client.connection import (
    ClientSettings,
    Leaders,
    NoDataError,
    TopicNotFoundError,
)
from dragoman.protocols.mlog.constants import AckMode
from dragoman.protocols.mlog.messages import Entry

Reply = TypeVar("Reply", bound=m.Message)
_PRODUCING = (m.Produce, m.ProduceBatch)


class MlogClient:
    """A client of mlog servers, including the original ones.

    Failed calls are retried at the current leader for `settings.operation_timeout_s`. After a lost
    connection the outcome of a call is unknown: records are written at least once, and creating a
    topic may fail because an earlier attempt has created it.
    """

    def __init__(self, *addresses: str, settings: ClientSettings | None = None) -> None:
        """Each address is `HOST:PORT`, or several separated by commas. Connects with the
        first call.
        """
        self.settings = settings or ClientSettings()
        self._leaders = Leaders(parse_addresses(addresses), self.settings)
        self._retry = Retry(self.settings.retry_policy)

    async def close(self) -> None:
        """Close the connections. Pending calls raise `ClientClosedError`."""
        self._leaders.close()
        # Sockets are closed in the next loop turn, which must run before the loop may stop.
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- records

    async def produce(self, topic: str, value: bytes, *, acks: int = AckMode.LEADER) -> int:
        """Append a record and return its offset. The server refuses an empty value."""
        request = m.Produce(topic=topic, value=value, acks=acks)
        return (await self._call(topic, request, m.ProduceResp)).offset

    async def produce_batch(
        self, topic: str, values: Sequence[bytes], *, acks: int = AckMode.LEADER
    ) -> range:
        """Append records at consecutive offsets and return these."""
        request = m.ProduceBatch(topic=topic, values=list(values), acks=acks)
        reply = await self._call(topic, request, m.ProduceBatchResp)
        return range(reply.base_offset, reply.last_offset + 1)

    async def fetch(self, topic: str, offset: int = 0, *, id: str = "") -> m.Entry | None:  # noqa: A002
        """The record at an offset; None if there is none yet. Offset 0 means the committed offset
        of `id`, if there is one.
        """
        request = m.Fetch(topic=topic, id=id, offset=offset)
        try:
            return (await self._call(topic, request, m.FetchResp)).entry
        except NoDataError:
            return None

    async def fetch_batch(
        self,
        topic: str,
        offset: int = 0,
        *,
        max_count: int = 100,
        id: str = "",  # noqa: A002
        wait: bool = False,
    ) -> list[m.Entry]:
        """Records from an offset on, as many as the server returns at once.

        With `wait` the server holds the call for up to some seconds until there are records. The
        original server closes the connection instead.
        """
        kind: type[m.FetchBatch] = m.FetchStream if wait else m.FetchBatch
        reply_kind: type[m.FetchBatchResp] = m.FetchStreamResp if wait else m.FetchBatchResp
        request = kind(topic=topic, id=id, offset=offset, max_count=max_count)
        try:
            return (await self._call(topic, request, reply_kind)).entries or []
        except NoDataError:
            return []

    def consume(
        self,
        topic: str,
        *,
        id: str = "",  # noqa: A002
        offset: int | None = None,
        max_count: int = 100,
        wait: bool = False,
    ) -> Consumer:
        """An endless consumer from an offset on, by default from the committed offset of `id`.

        `wait` as in `fetch_batch`; without it, an exhausted topic is polled twice a second.
        """
        return Consumer(self, topic, id=id, offset=offset, max_count=max_count, wait=wait)

    # ---- committed offsets

    async def commit(self, topic: str, offset: int, *, id: str = "") -> None:  # noqa: A002
        """Commit the next offset to read under `id`."""
        request = m.CommitOffset(topic=topic, id=id, offset=offset)
        await self._call(topic, request, m.CommitOffsetResp)

    async def committed(self, topic: str, *, id: str = "") -> int:  # noqa: A002
        """The committed offset of `id`; 0 if none was committed."""
        request = m.FetchOffset(topic=topic, id=id)
        return (await self._call(topic, request, m.FetchOffsetResp)).offset

    # ---- topics

    async def create_topic(self, topic: str, *, replicas: int = 0) -> list[str]:
        """Create a topic with `replicas` besides the leader. Returns their nodes."""
        request = m.CreateTopic(topic=topic, replica_count=replicas)
        return (await self._call(None, request, m.CreateTopicResp)).replica_node_ids or []

    async def delete_topic(self, topic: str) -> None:
        await self._call(None, m.DeleteTopic(topic=topic), m.DeleteTopicResp)
        self._leaders.forget(topic)

    async def topics(self) -> list[m.TopicInfo]:
        return (await self._call(None, m.ListTopics(), m.ListTopicsResp)).topics or []

    async def topic_leader(self, topic: str) -> str:
        """`HOST:PORT` of the server that leads a topic."""
        request = m.FindTopicLeader(topic=topic)
        return (await self._call(None, request, m.FindTopicLeaderResp)).leader_addr

    # ---- retries

    async def _call(self, topic: str | None, request: m.Message, kind: type[Reply]) -> Reply:
        is_repeatable = self.settings.repeats_produce or not isinstance(request, _PRODUCING)
        return await self._retry.call(
            lambda: self._leaders.ask(topic, request, kind),
            may_retry=lambda error: error.retriable and (is_repeatable or not error.is_ambiguous),
            timeout_s=self._timeout_s,
        )

    def _timeout_s(self, error: ClientError) -> float:
        if isinstance(error, TopicNotFoundError):
            return self.settings.missing_topic_timeout_s
        return self.settings.operation_timeout_s


class Consumer:
    """Records in order, from a position that survives lost connections.

    Iterate over it with `async for`, or call `next_entries`. mlog has no pushes: records are
    fetched in batches, and an exhausted topic is polled after a pause, or by a request that the
    server holds. A consumer never returns a record twice.
    """

    def __init__(
        self,
        client: MlogClient,
        topic: str,
        *,
        id: str,  # noqa: A002
        offset: int | None,
        max_count: int,
        wait: bool,
    ) -> None:
        self.topic = topic
        self.id = id
        self._client = client
        self._max_count = max_count
        self._wait = wait
        #: Offset of the next record to fetch; None until the committed offset is known.
        self._next_fetched = offset
        self._fetched: deque[m.Entry] = deque()
        self._handed_out: int | None = None

    @property
    def position(self) -> int | None:
        """The offset after the last returned record; None before the first."""
        return self._handed_out

    async def next_entries(self) -> list[m.Entry]:
        """The records that are available now, in order; empty if there are none."""
        if not self._fetched:
            await self._fetch()
        found = list(self._fetched)
        self._fetched.clear()
        if found:
            self._handed_out = found[-1].offset + 1
        return found

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> m.Entry:
        while not self._fetched:
            await self._fetch()
            if not self._fetched and not self._wait:
                await asyncio.sleep(self._client.settings.poll_interval_s)
        entry = self._fetched.popleft()
        self._handed_out = entry.offset + 1
        return entry

    async def commit(self) -> None:
        """Commit all records that were returned."""
        if self._handed_out is not None:
            await self._client.commit(self.topic, self._handed_out, id=self.id)

    async def _fetch(self) -> None:
        if self._next_fetched is None:
            self._next_fetched = await self._client.committed(self.topic, id=self.id)
        found = await self._client.fetch_batch(
            self.topic,
            self._next_fetched,
            max_count=self._max_count,
            id=self.id,
            wait=self._wait,
        )
        if found:
            self._fetched.extend(found)
            self._next_fetched = found[-1].offset + 1


class BlockingConsumer(Face[Consumer]):
    """A blocking `Consumer`. Iteration waits for the next record without limit."""

    @property
    def position(self) -> int | None:
        return self._owner.position

    next_entries = waiting(Consumer.next_entries)
    commit = waiting(Consumer.commit)

    def __iter__(self) -> Iterator[Entry]:
        while True:
            yield self._thread.run(self._owner.__anext__)


class BlockingMlogClient(BlockingClient[MlogClient]):
    """A blocking `MlogClient`. Calls may be made from any thread."""

    def __init__(self, *addresses: str, settings: ClientSettings | None = None) -> None:
        super().__init__("dragoman-mlog-client", lambda: MlogClient(*addresses, settings=settings))

    produce = waiting(MlogClient.produce)
    produce_batch = waiting(MlogClient.produce_batch)
    fetch = waiting(MlogClient.fetch)
    fetch_batch = waiting(MlogClient.fetch_batch)
    commit = waiting(MlogClient.commit)
    committed = waiting(MlogClient.committed)
    create_topic = waiting(MlogClient.create_topic)
    delete_topic = waiting(MlogClient.delete_topic)
    topics = waiting(MlogClient.topics)
    topic_leader = waiting(MlogClient.topic_leader)
    consume = making(MlogClient.consume, BlockingConsumer)
