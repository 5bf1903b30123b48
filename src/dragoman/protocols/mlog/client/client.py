"""`MlogClient`: everything the mlog client does, behind one object.

    async with MlogClient("127.0.0.1:9094") as client:
        await client.create_topic("orders")
        offset = await client.produce("orders", b"3 apples")

It belongs to the event loop it was made on. Calls may run side by side; those to one server share a
connection and are pipelined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self, TypeVar

from dragoman.client_core.errors import ClientError
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.client.consumer import Consumer
from dragoman.protocols.mlog.client.errors import NoDataError, TopicNotFoundError
from dragoman.protocols.mlog.client.leaders import Leaders
from dragoman.protocols.mlog.client.settings import ClientSettings, parse_addresses
from dragoman.protocols.mlog.constants import AckMode

Reply = TypeVar("Reply", bound=m.Message)
_PRODUCING = (m.Produce, m.ProduceBatch)


class MlogClient:
    """A client of servers that speak mlog, the original ones included.

    Calls are repeated, at the leader that is found anew, for `settings.operation_timeout_s`. After
    a lost connection nobody knows whether the server had acted: records are written at least once,
    and a topic that is being created may turn out to exist.
    """

    def __init__(self, *addresses: str, settings: ClientSettings | None = None) -> None:
        """Each address is `HOST:PORT`, or several with commas. Nothing is connected yet."""
        self.settings = settings or ClientSettings()
        self._leaders = Leaders(parse_addresses(addresses), self.settings)

    async def close(self) -> None:
        """What waits for a reply gets `ClientClosedError`."""
        self._leaders.close()
        # Sockets are closed in the loop's next turn; afterwards the loop may end.
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- records

    async def produce(self, topic: str, value: bytes, *, acks: int = AckMode.LEADER) -> int:
        """Append a record; its offset. An empty value is refused by the server."""
        request = m.Produce(topic=topic, value=value, acks=acks)
        return (await self._call(topic, request, m.ProduceResp)).offset

    async def produce_batch(
        self, topic: str, values: Sequence[bytes], *, acks: int = AckMode.LEADER
    ) -> range:
        """Append records one behind another; their offsets."""
        request = m.ProduceBatch(topic=topic, values=list(values), acks=acks)
        reply = await self._call(topic, request, m.ProduceBatchResp)
        return range(reply.base_offset, reply.last_offset + 1)

    async def fetch(self, topic: str, offset: int = 0, *, id: str = "") -> m.Entry | None:  # noqa: A002
        """The record at an offset; None when there is none yet. Offset 0 stands for what was
        committed under `id`, when something was.
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
        """Records from an offset on, as many as the server gives at once.

        With `wait` the server holds the call until there is one, or some seconds; servers other
        than Dragoman close the connection instead.
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
        """Records from an offset on, for ever: from the committed one of `id` unless told.

        `wait` as in `fetch_batch`; without it an exhausted topic is looked at twice a second.
        """
        return Consumer(self, topic, id=id, offset=offset, max_count=max_count, wait=wait)

    # ---- committed offsets

    async def commit(self, topic: str, offset: int, *, id: str = "") -> None:  # noqa: A002
        """Remember the next offset to be read under `id`."""
        request = m.CommitOffset(topic=topic, id=id, offset=offset)
        await self._call(topic, request, m.CommitOffsetResp)

    async def committed(self, topic: str, *, id: str = "") -> int:  # noqa: A002
        """0 also when nothing was committed."""
        request = m.FetchOffset(topic=topic, id=id)
        return (await self._call(topic, request, m.FetchOffsetResp)).offset

    # ---- topics

    async def create_topic(self, topic: str, *, replicas: int = 0) -> list[str]:
        """`replicas` are those besides the leader; the nodes that have them."""
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

    # ---- asking again

    async def _call(self, topic: str | None, request: m.Message, kind: type[Reply]) -> Reply:
        loop = asyncio.get_running_loop()
        started = loop.time()
        is_repeatable = self.settings.repeats_produce or not isinstance(request, _PRODUCING)
        failures = 0
        while True:
            try:
                return await self._leaders.ask(topic, request, kind)
            except ClientError as error:
                self._leaders.forget(topic)
                failures += 1
                pause = self.settings.backoff_s(failures)
                is_late = loop.time() + pause > started + self._patience_s(error)
                may_repeat = error.retriable and (is_repeatable or not error.is_ambiguous)
                if is_late or not may_repeat:
                    raise
            await asyncio.sleep(pause)

    def _patience_s(self, error: ClientError) -> float:
        if isinstance(error, TopicNotFoundError):
            return self.settings.missing_topic_timeout_s
        return self.settings.operation_timeout_s
