"""The same client for code without an event loop: every call waits for its result."""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.client_core.blocking import BlockingClient, Face, making, waiting
from dragoman.protocols.mlog.client.client import Consumer, MlogClient
from dragoman.protocols.mlog.client.settings import ClientSettings
from dragoman.protocols.mlog.messages import Entry


class BlockingConsumer(Face[Consumer]):
    """See `Consumer`; iteration waits for the next record, for ever."""

    @property
    def position(self) -> int | None:
        return self._owner.position

    next_entries = waiting(Consumer.next_entries)
    commit = waiting(Consumer.commit)

    def __iter__(self) -> Iterator[Entry]:
        while True:
            yield self._thread.run(self._owner.__anext__)


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
    consume = making(MlogClient.consume, BlockingConsumer)
