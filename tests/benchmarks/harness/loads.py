"""Clients that keep a broker busy, or follow it, from processes of their own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Protocol, Self

from harness.broker import BenchmarkError
from harness.wire import (
    Address,
    FetchReader,
    Pipeline,
    batch_of,
    check_produce_replies,
    produce_frame,
    produce_reply_bytes,
)

_SLICE_SECONDS = 0.1
_SECONDS_MAX = 120.0
_BEGUN = "begun"


class Progress(Protocol):
    """An integer that two processes share."""

    value: int


class Load:
    """Runs `step` over and over in another process until stopped; adds up what it returns."""

    def __init__(self, make_step: Callable[..., Callable[[], int]], *arguments: object) -> None:
        # Not forked: librdkafka's threads may hold locks in this process.
        start_method = multiprocessing.get_context("spawn")
        self._here, there = start_method.Pipe()
        self._progress = start_method.Value("q", 0, lock=False)
        self._process = start_method.Process(
            target=_repeat, args=(there, self._progress, make_step, arguments), daemon=True
        )
        self._total: int | None = None

    def __enter__(self) -> Self:
        self._process.start()
        if not self._here.poll(30) or self._here.recv() != _BEGUN:
            self._process.kill()
            raise BenchmarkError("the load did not begin")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()

    def wait_for(self, total: int, seconds_max: float) -> None:
        """Until its steps have returned so much together; looks every millisecond."""
        deadline = time.monotonic() + seconds_max
        while self._progress.value < total:
            if time.monotonic() > deadline or not self._process.is_alive():
                raise BenchmarkError(f"the load reached {self._progress.value} of {total}")
            time.sleep(0.001)

    def finish(self) -> int:
        """Stop it; the sum of what its steps returned."""
        if self._total is None:
            self._here.send("stop")
            self._total = self._here.recv() if self._here.poll(60) else -1
            self._process.join(10)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        if self._total < 0:
            raise BenchmarkError("the load failed; its error is above")
        return self._total


def _repeat(
    control: Connection,
    progress: Progress,
    make_step: Callable[..., Callable[[], int]],
    arguments: tuple[object, ...],
) -> None:
    total = 0
    try:
        step = make_step(*arguments)
        progress.value = total = step()
        control.send(_BEGUN)
        deadline = time.monotonic() + _SECONDS_MAX
        while not control.poll() and time.monotonic() < deadline:
            total += step()
            progress.value = total
    except BaseException:
        control.send(-1)
        raise
    control.send(total)


# ---- steps


def produce(
    address: Address, topic: str, in_flight: int, connections: int, records: int, value_bytes: int
) -> Callable[[], int]:
    """Batches kept in flight for a while; returns how many were acknowledged."""
    frame = produce_frame(topic, [0], batch_of(records, value_bytes))
    pipeline = Pipeline(address, [frame], produce_reply_bytes(topic))
    pipeline.open(connections, in_flight)

    def step() -> int:
        done, _ = pipeline.run(1 << 30, _SLICE_SECONDS)
        check_produce_replies(pipeline.take_replies(), topic)
        return done

    return step


def catch_up(
    address: Address, topic: str, batch_bytes: int, batch_records: int, end: int
) -> Callable[[], int]:
    """Read the topic from its start again and again; returns bytes."""
    reader = FetchReader(
        address, topic, batch_bytes=batch_bytes, batch_records=batch_records, bytes_max=1 << 20
    )

    def step() -> int:
        total = 0
        until = time.monotonic() + _SLICE_SECONDS
        while time.monotonic() < until:
            if reader.offset >= end:
                reader.offset = 0
            total += reader.fetch()
        return total

    return step


def follow(address: Address, topic: str, batch_bytes: int, batch_records: int) -> Callable[[], int]:
    """Read at the head of the topic as it grows; returns bytes."""
    reader = FetchReader(
        address,
        topic,
        batch_bytes=batch_bytes,
        batch_records=batch_records,
        bytes_max=1 << 20,
        wait_ms=100,
    )
    return reader.fetch


def idle_consumers(address: Address, topic: str, count: int, wait_ms: int) -> Callable[[], int]:
    """Consumers with nothing to read: each asks again when its fetch has waited in vain."""
    import select

    readers = [
        FetchReader(
            address, topic, batch_bytes=1, batch_records=1, bytes_max=1 << 16, wait_ms=wait_ms
        )
        for _ in range(count)
    ]
    poller = select.epoll()
    by_descriptor = {reader.connection.fileno(): reader for reader in readers}
    for descriptor, reader in by_descriptor.items():
        poller.register(descriptor, select.EPOLLIN)
        reader.ask()

    def step() -> int:
        ready = poller.poll(_SLICE_SECONDS)
        for descriptor, _ in ready:
            by_descriptor[descriptor].answer()
            by_descriptor[descriptor].ask()
        return len(ready)

    return step
