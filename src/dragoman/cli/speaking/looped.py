"""Clients of asyncio behind commands that wait: they live on a loop in a thread of its own.

There, heartbeats of group members go on while the command waits for its output to be taken. A
protocol opens what it needs as an asynchronous context: a `Talk` to read, a `Publisher` to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from dragoman.cli.failures import told_in_a_line
from dragoman.cli.speaking.interface import IncomingRecord, OutgoingRecord
from dragoman.client_core.blocking import LoopThread

#: For the first thing that a broker is asked: one that does not speak the protocol may answer
#: nonsense, close the connection or say nothing.
HELLO_TRIES_S: Final = 1.0
HELLO_ANSWER_S: Final = 10.0

Opened = TypeVar("Opened")
Batches: TypeAlias = AsyncGenerator[Sequence[IncomingRecord], None]
#: Takes the next offset of each partition.
Commit: TypeAlias = Callable[[Mapping[int, int]], Awaitable[None]]


@contextmanager
def _running(
    protocol: str, opening: AbstractAsyncContextManager[Opened]
) -> Iterator[tuple[LoopThread, Opened]]:
    with told_in_a_line(protocol):
        thread = LoopThread(f"dragoman-{protocol}")
        try:
            opened = thread.run(lambda: _enter(opening))
            try:
                yield thread, opened
            finally:
                thread.run(lambda: _leave(opening))
        finally:
            thread.close()


async def _enter(opening: AbstractAsyncContextManager[Opened]) -> Opened:
    return await opening.__aenter__()


async def _leave(opening: AbstractAsyncContextManager[Opened]) -> None:
    await opening.__aexit__(None, None, None)


# ---- writing


class Publisher(Protocol):
    written_records: int

    async def write(self, records: Sequence[OutgoingRecord]) -> None: ...


class _Writer:
    def __init__(self, thread: LoopThread, publisher: Publisher) -> None:
        self._thread = thread
        self._publisher = publisher

    @property
    def written_records(self) -> int:
        return self._publisher.written_records

    def write(self, records: Sequence[OutgoingRecord]) -> None:
        future = self._thread.begin(lambda: self._publisher.write(records))
        try:
            future.result()
        except KeyboardInterrupt:
            # What was read is written; who is in a hurry interrupts twice.
            future.result()
            raise


@contextmanager
def writing(protocol: str, opening: AbstractAsyncContextManager[Publisher]) -> Iterator[_Writer]:
    with _running(protocol, opening) as (thread, publisher):
        yield _Writer(thread, publisher)


# ---- reading


class Talk(msgspec.Struct, frozen=True):
    """Records as they come from each source, and how they are committed, for a group."""

    sources: Sequence[Batches]
    commit: Commit | None = None


class Merged:
    """The batches of several sources, as they come. One of each waits until it is taken."""

    def __init__(self, sources: Sequence[Batches]) -> None:
        #: Batches with whoever waits for them to be taken, and sources that have ended.
        self._found: asyncio.Queue[
            tuple[Sequence[IncomingRecord], asyncio.Future[None]] | asyncio.Task[None]
        ] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._pump(source)) for source in sources]
        for task in self._tasks:
            task.add_done_callback(self._found.put_nowait)
        self._open = len(self._tasks)

    async def _pump(self, source: Batches) -> None:
        async with aclosing(source):
            async for batch in source:
                taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._found.put_nowait((batch, taken))
                await taken

    async def next_batch(self) -> Sequence[IncomingRecord]:
        """Empty when every source is at its end. Raises the first failure."""
        while self._open:
            found = await self._found.get()
            if isinstance(found, tuple):
                batch, taken = found
                taken.set_result(None)
                return batch
            found.result()
            self._open -= 1
        return []

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Reader:
    def __init__(self, thread: LoopThread, talk: Talk) -> None:
        self._thread = thread
        self._commit = talk.commit
        self._merged = thread.make(lambda: Merged(talk.sources))
        self._given: Sequence[IncomingRecord] = ()
        #: Printed and not committed: the next offset of each partition.
        self._printed: dict[int, int] = {}

    def next_records(self) -> Sequence[IncomingRecord]:
        self._given = self._thread.run(self._merged.next_batch)
        return self._given

    def printed(self, count: int) -> None:
        if self._commit is not None:
            for record in self._given[:count]:
                self._printed[record.partition] = record.offset + 1
        self.commit()

    def commit(self) -> None:
        if self._commit is not None and self._printed:
            commit, offsets = self._commit, dict(self._printed)

            async def work() -> None:
                await commit(offsets)

            self._thread.run(work)
            self._printed.clear()

    def close(self) -> None:
        self._thread.run(self._merged.close)


@contextmanager
def reading(protocol: str, opening: AbstractAsyncContextManager[Talk]) -> Iterator[_Reader]:
    with _running(protocol, opening) as (thread, talk):
        reader = _Reader(thread, talk)
        try:
            yield reader
        finally:
            try:
                # Also when interrupted: what was printed was read.
                reader.commit()
            finally:
                reader.close()
