"""A process of a benchmark. It does its share of the plan, and reports.

    connected ──► Ready ──► Start, at one time for all ──► Progress, twice a second ──► the last one
                                                      └───────── Stop ─────────┘

Batches are counted and their checksums verified, but their records are not decoded, so that the
client is not the limit. Its processor time is part of the tally and shows when it is.
"""

from __future__ import annotations

import asyncio
import selectors
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from multiprocessing.connection import Connection
from typing import Final, TypeAlias

import msgspec

from dragoman.cli.load.batches import prepare
from dragoman.cli.load.jobs import Consume, Produce
from dragoman.cli.load.measurement import Measurement
from dragoman.cli.load.plan import GRACE_S, Plan
from dragoman.cli.load.tally import Tally
from dragoman.client.kafka import EARLIEST, LATEST, KafkaClient, TopicPartition
from dragoman.errors import DragomanError

#: Signals that end a benchmark early.
ENDS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_REPORT_S: Final = 0.5
#: For replies to what was sent before the user stopped the benchmark.
_STOP_S: Final = 1.0


class Ready(msgspec.Struct):
    """The worker has connected and prepared its batches."""


class Start(msgspec.Struct):
    at: float


class Stop(msgspec.Struct):
    """End now, and report."""


class Progress(msgspec.Struct):
    tally: Tally
    is_last: bool = False


class Failed(msgspec.Struct):
    message: str


Message: TypeAlias = Ready | Progress | Failed
#: What a worker does once it has connected.
_Job: TypeAlias = Callable[[Measurement], Awaitable[None]]


def run(control: Connection, plan: Plan, number: int) -> None:
    """The main function of the process."""
    # These may reach all processes of a terminal or a service; the first one stops the others.
    for each in ENDS:
        signal.signal(each, signal.SIG_IGN)
    try:
        with asyncio.Runner(loop_factory=_loop_factory(plan)) as runner:
            runner.run(_Worker(control, plan, number).run())
    except DragomanError as error:
        control.send(Failed(str(error)))
    except (EOFError, BrokenPipeError):
        # The first process is gone.
        return


def _loop_factory(plan: Plan) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """A rate needs exact timers; those of epoll and of uvloop count milliseconds."""
    if plan.rate is not None:
        return lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())
    try:
        import uvloop
    except ImportError:
        # Windows has none.
        return None
    return uvloop.new_event_loop


class _Worker:
    def __init__(self, control: Connection, plan: Plan, number: int) -> None:
        self._control = control
        self._plan = plan
        self._number = number

    async def run(self) -> None:
        plan = self._plan
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(KafkaClient(plan.brokers, plan.client_settings()))
                for _ in range(plan.clients)
            ]
            job = await self._job(clients)
            self._control.send(Ready())
            start = await asyncio.to_thread(self._control.recv)
            if isinstance(start, Start):
                await self._measured(job, Measurement(plan, start.at))

    async def _job(self, clients: Sequence[KafkaClient]) -> _Job:
        plan = self._plan
        counts = {topic: len((await clients[0].topic(topic)).partitions) for topic in plan.topics}
        targets = [
            TopicPartition(topic, index)
            for topic, count in counts.items()
            for index in range(count)
        ]
        if plan.mode != "produce":
            targets = targets[self._number :: plan.processes]
        # Each client connects to all leaders before anything is measured.
        for client in clients:
            ends = await _offsets(client, targets, LATEST)
        if plan.mode == "consume":
            return Consume(plan, clients, await _offsets(clients[0], targets, EARLIEST), ends).run
        prepared = prepare(plan, targets, counts, f"{plan.seed}-{self._number}")
        return Produce(plan, self._number, clients, prepared, ends).run

    async def _measured(self, job: _Job, measurement: Measurement) -> None:
        watch = asyncio.create_task(self._watch(measurement))
        await asyncio.sleep(max(0.0, measurement.start - time.monotonic()))
        loop = asyncio.get_running_loop()
        warm_up = measurement.counts_from - time.monotonic()
        loop.call_later(max(0.0, warm_up), measurement.begin_counting)
        work = asyncio.ensure_future(job(measurement))
        stopped = asyncio.create_task(measurement.stopped.wait())
        left = measurement.end - time.monotonic() + GRACE_S
        await asyncio.wait(
            (work, stopped),
            timeout=left if left < float("inf") else None,
            return_when=asyncio.FIRST_COMPLETED,
        )
        measurement.note_end(time.monotonic())
        if stopped.done():
            await asyncio.wait((work,), timeout=_STOP_S)
        stopped.cancel()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        watch.cancel()
        measurement.note_cpu()
        self._control.send(Progress(measurement.tally, is_last=True))

    async def _watch(self, measurement: Measurement) -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            measurement.note_cpu()
            try:
                self._control.send(Progress(measurement.tally))
                if not measurement.stopped.is_set() and self._control.poll():
                    self._control.recv()
                    measurement.stopped.set()
            except (EOFError, OSError):
                # The first process is gone.
                measurement.stopped.set()
                return


async def _offsets(
    client: KafkaClient, targets: Sequence[TopicPartition], when: int
) -> dict[TopicPartition, int]:
    if not targets:
        return {}
    found = await client.list_offsets(dict.fromkeys(targets, when))
    return {where: each.offset for where, each in found.items()}
