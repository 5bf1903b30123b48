"""The same client for code without an event loop: every call waits for its result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar

from dragoman.dialing.loop_thread import LoopThread
from dragoman.protocols.mlog.client.client import MlogClient
from dragoman.protocols.mlog.client.consumer import Consumer
from dragoman.protocols.mlog.client.settings import ClientSettings
from dragoman.protocols.mlog.messages import Entry

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


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


def _waiting(
    method: Callable[Concatenate[MlogClient, Parameters], Coroutine[None, None, Result]],
) -> Callable[Concatenate[BlockingMlogClient, Parameters], Result]:
    """The method that hands over to this one and waits."""

    @wraps(method)
    def wait(
        self: BlockingMlogClient, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        return self._thread.run(lambda: method(self._client, *args, **kwargs))

    return wait


class BlockingMlogClient:
    """See `MlogClient`. Calls may be made from any thread."""

    def __init__(self, *addresses: str, settings: ClientSettings | None = None) -> None:
        self._thread = LoopThread("dragoman-mlog-client")
        try:
            self._client = self._thread.make(lambda: MlogClient(*addresses, settings=settings))
        except BaseException:
            self._thread.close()
            raise

    produce = _waiting(MlogClient.produce)
    produce_batch = _waiting(MlogClient.produce_batch)
    fetch = _waiting(MlogClient.fetch)
    fetch_batch = _waiting(MlogClient.fetch_batch)
    commit = _waiting(MlogClient.commit)
    committed = _waiting(MlogClient.committed)
    create_topic = _waiting(MlogClient.create_topic)
    delete_topic = _waiting(MlogClient.delete_topic)
    topics = _waiting(MlogClient.topics)
    topic_leader = _waiting(MlogClient.topic_leader)

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

    def close(self) -> None:
        try:
            self._thread.run(self._client.close)
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
