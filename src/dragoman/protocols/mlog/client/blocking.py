"""The same client for code without an event loop: every call waits for its result."""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.client_core.blocking import BlockingClient, LoopThread, waiting
from dragoman.protocols.mlog.client.client import MlogClient
from dragoman.protocols.mlog.client.consumer import Consumer
from dragoman.protocols.mlog.client.settings import ClientSettings
from dragoman.protocols.mlog.messages import Entry


class BlockingConsumer:
    """See `Consumer`; iteration waits for the next record, for ever."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    @property
    def position(self) -> int | None:
        return self._consumer.position

    def next_entries(self) -> list[Entry]:
        return self._thread.run(self._consumer.next_entries)

    def __iter__(self) -> Iterator[Entry]:
        while True:
            yield self._thread.run(self._consumer.__anext__)

    def commit(self) -> None:
        self._thread.run(self._consumer.commit)


class BlockingMlogClient(BlockingClient[MlogClient]):
    """See `MlogClient`. Calls may be made from any thread."""

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

    def consume(
        self,
        topic: str,
        *,
        id: str = "",  # noqa: A002
        offset: int | None = None,
        max_count: int = 100,
        wait: bool = False,
    ) -> BlockingConsumer:
        consumer = self._client.consume(topic, id=id, offset=offset, max_count=max_count, wait=wait)
        return BlockingConsumer(self._thread, consumer)
