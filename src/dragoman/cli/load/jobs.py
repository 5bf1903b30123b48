"""What a worker does once it has connected: produce, produce and read, or consume."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from dragoman.cli.load.batches import Prepared
from dragoman.cli.load.fetcher import Fetcher, Piece
from dragoman.cli.load.measurement import Measurement
from dragoman.cli.load.plan import GRACE_S, Plan
from dragoman.cli.load.schedule import Schedule
from dragoman.cli.load.sender import OnWritten, Sender
from dragoman.cli.load.traces import Sent, Traces
from dragoman.client.kafka import KafkaClient, TopicPartition


class Consume:
    """Read partitions from their starts to their ends, again and again."""

    def __init__(
        self,
        plan: Plan,
        clients: Sequence[KafkaClient],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._plan = plan
        self._clients = clients
        self._starts = starts
        self._ends = ends

    async def run(self, measurement: Measurement) -> None:
        plan = self._plan
        limit = None if plan.records is None else plan.records / plan.processes

        def on_read(piece: Piece) -> None:
            measurement.add(
                began=piece.asked_at, done=piece.read_at, records=piece.records, size=piece.size
            )
            if limit is not None and measurement.tally.records >= limit:
                measurement.stopped.set()

        filled = [where for where, start in self._starts.items() if self._ends[where] > start]
        if not filled:
            return
        async with asyncio.TaskGroup() as tasks:
            fetching = []
            for number, client in enumerate(self._clients):
                own = {where: self._starts[where] for where in filled[number :: len(self._clients)]}
                fetcher = Fetcher(
                    client,
                    own,
                    measurement.tally,
                    on_read,
                    partition_bytes=plan.fetch_bytes,
                    ends=self._ends,
                )
                fetching.append(tasks.create_task(fetcher.run()))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(_loop_time(measurement.end)):
                    await measurement.stopped.wait()
            for task in fetching:
                task.cancel()


class Produce:
    """Send batches, and read them for the latency end to end."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        clients: Sequence[KafkaClient],
        prepared: Sequence[Prepared],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._plan = plan
        self._number = number
        self._clients = clients
        self._prepared = prepared
        self._ends = ends

    async def run(self, measurement: Measurement) -> None:
        if self._plan.mode == "latency":
            await self._run_traced(measurement)
            return

        def on_written(prepared: Prepared, due: float, _base: int, now: float) -> None:
            measurement.add(began=due, done=now, records=prepared.records, size=len(prepared.data))

        await self._send(measurement, on_written)

    async def _run_traced(self, measurement: Measurement) -> None:
        traces = Traces()
        all_read = asyncio.Event()

        def count(sent: Sent, read_at: float) -> None:
            measurement.add(began=sent.due, done=read_at, records=sent.records, size=sent.size)

        def on_written(prepared: Prepared, due: float, base_offset: int, _now: float) -> None:
            sent = Sent(base_offset + prepared.records, due, prepared.records, len(prepared.data))
            read_at = traces.sent(prepared.where, sent)
            if read_at is not None:
                count(sent, read_at)

        def on_read(piece: Piece) -> None:
            for sent in traces.read(piece.where, piece.end, piece.read_at):
                count(sent, piece.read_at)
            if not traces.has_unread:
                all_read.set()

        # Of its own: a client's requests would wait behind its fetches.
        async with KafkaClient(self._plan.brokers, self._plan.client_settings()) as reader:
            fetcher = Fetcher(
                reader,
                self._ends,
                measurement.tally,
                on_read,
                partition_bytes=self._plan.fetch_bytes,
            )
            fetching = asyncio.create_task(fetcher.run())
            try:
                await self._send(measurement, on_written)
                all_read.clear()
                if traces.has_unread:
                    await asyncio.wait_for(all_read.wait(), GRACE_S / 2)
            except TimeoutError:
                pass
            finally:
                unread = sum(sent.due >= measurement.counts_from for sent in traces.unread)
                measurement.tally.count_error("NotReadAtTheEnd", unread)
                fetching.cancel()
                with suppress(asyncio.CancelledError):
                    await fetching

    async def _send(self, measurement: Measurement, on_written: OnWritten) -> None:
        if not self._prepared:
            return
        schedule = self._schedule(measurement)
        stopping = asyncio.create_task(_stop(schedule, measurement))
        try:
            await Sender(
                self._plan, self._clients, self._prepared, measurement, schedule, on_written
            ).run()
        finally:
            stopping.cancel()

    def _schedule(self, measurement: Measurement) -> Schedule:
        plan = self._plan
        share = plan.batch_records * plan.processes
        interval = None if plan.rate is None else share / plan.rate
        return Schedule(
            start=measurement.start,
            counts_from=measurement.counts_from,
            end=measurement.end,
            interval=interval,
            phase=0.0 if interval is None else interval * self._number / plan.processes,
            batches_max=None if plan.records is None else -(-plan.records // share),
        )


async def _stop(schedule: Schedule, measurement: Measurement) -> None:
    await measurement.stopped.wait()
    schedule.stop(time.monotonic())


def _loop_time(at: float) -> float | None:
    """A monotonic time as a time of the event loop; None for never."""
    if at == math.inf:
        return None
    return asyncio.get_running_loop().time() + at - time.monotonic()
