"""The offsets of a group, stored by brokers or, for broadcasting, by each consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dragoman.errors import ConfigError, DecodeError, DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageQueue, ResetOffset
from dragoman.protocols.rocketmq.client.errors import NotFoundError


class QueueOffsets(Protocol):
    """Requests about offsets of queues. All of them raise `ClientError`."""

    async def query_consume_offset(self, queue: MessageQueue, group: str) -> int: ...

    async def update_consume_offset(self, queue: MessageQueue, group: str, offset: int) -> None: ...

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int: ...

    async def max_offset(self, queue: MessageQueue) -> int: ...

    async def min_offset(self, queue: MessageQueue) -> int: ...


class OffsetStore(Protocol):
    async def load(self, queue: MessageQueue) -> int | None:
        """The offset of the next message, or None if none is saved. Raises `DragomanError`."""
        ...

    async def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Raises `DragomanError`."""
        ...


class BrokerOffsets:
    """The committed offsets of a group, stored by brokers."""

    def __init__(self, queue_offsets: QueueOffsets, group: str) -> None:
        self._queue_offsets = queue_offsets
        self._group = group
        self._saved: dict[MessageQueue, int] = {}

    async def load(self, queue: MessageQueue) -> int | None:
        try:
            found = await self._queue_offsets.query_consume_offset(queue, self._group)
        except NotFoundError:
            return None
        self._saved[queue] = found
        return found

    async def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        failure: DragomanError | None = None
        for queue, offset in offsets.items():
            if self._saved.get(queue) == offset:
                continue
            try:
                await self._queue_offsets.update_consume_offset(queue, self._group, offset)
                self._saved[queue] = offset
            except DragomanError as error:
                # Other brokers may still save their queues' offsets.
                failure = error
        if failure is not None:
            raise failure


class LocalOffsets:
    """The offsets of one consumer, in memory and in a file, if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] | None = None
        self._saving = asyncio.Lock()
        #: Whether the last write to the file failed.
        self._is_behind = False

    async def load(self, queue: MessageQueue) -> int | None:
        return (await self._loaded()).get(queue)

    async def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._saving:
            loaded = await self._loaded()
            if offsets.items() <= loaded.items() and not self._is_behind:
                return
            loaded |= offsets
            if self._path is None:
                return
            self._is_behind = True
            data = bodies.encode(ResetOffset(offset_table=bodies.keyed(loaded)))
            try:
                await asyncio.to_thread(_replace, self._path, data)
            except OSError as error:
                raise ConfigError(f"offsets cannot be written to {self._path}: {error}") from None
            self._is_behind = False

    async def _loaded(self) -> dict[MessageQueue, int]:
        if self._offsets is None:
            data = await asyncio.to_thread(_read, self._path) if self._path else b""
            table = bodies.decode(data, ResetOffset).offset_table if data else {}
            self._offsets = bodies.by_queue(table)
        return self._offsets


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DecodeError(f"offsets in {path} cannot be read: {error}") from None


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".new")
    aside.write_bytes(data)
    aside.replace(path)
