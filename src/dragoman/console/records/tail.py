"""New records of topics as they come, at most so many a second.

Each leader of partitions is asked by a task of its own, so that an idle one does not delay the
others. Records over the rate are counted and not decoded, unless a filter has to see them. A tail
that cannot keep up continues at the end, and counts the offsets that it has skipped. So does one
that was interrupted and continues from positions that are too far from the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final

import msgspec

from dragoman.client.kafka import (
    LATEST,
    Fetched,
    FetchFrom,
    Isolation,
    KafkaClient,
    OffsetRangeError,
    TopicPartition,
    VisibleBatches,
)
from dragoman.console.errors import ConsoleError
from dragoman.console.records.failures import failure_of
from dragoman.console.records.filters.matching import Matches
from dragoman.console.records.followed import TooManyTopicsError
from dragoman.console.records.places import partitions_of
from dragoman.console.records.scan import Slicing, Turns
from dragoman.console.records.shown import LISTED, Decoders, ExaminedRecord, show_record
from dragoman.console.records.values import (
    Failure,
    ShownRecord,
    Tail,
    TailProgress,
    TailStart,
)
from dragoman.errors import DragomanError, OversizedBatchError
from dragoman.limits import (
    CONSOLE_FETCH_BYTES,
    CONSOLE_FETCH_PARTITION_BYTES,
    CONSOLE_TAIL_LAG_MAX,
    CONSOLE_TAIL_PARTITIONS_MAX,
    CONSOLE_TAIL_POSITIONS_MAX,
    EXPANDED_BATCH_BYTES_MAX,
)
from dragoman.log.batch import Record, iterate_records

PROGRESS_S: Final = 1.0
_WAIT_MS: Final = 500
#: Between fetches at the end of a topic. A screen does not show the delay, and each fetch costs
#: the node.
_PACE_S: Final = 0.05
_encode: Final = msgspec.json.Encoder().encode


class RunningTail:
    def __init__(
        self,
        client: KafkaClient,
        tail: Tail,
        decoders: Mapping[str, Decoders],
        matches: Matches | None,
        turns: Turns,
        monotonic: Callable[[], float],
        check: Callable[[], None],
    ) -> None:
        """`decoders` are those of each topic that is followed; `check` raises a `ConsoleError` when
        the tail has to stop.
        """
        self._client = client
        self._tail = tail
        self._decoders = decoders
        self._matches = matches
        self._turns = turns
        self._monotonic = monotonic
        self._check = check
        self._positions: dict[TopicPartition, int] = {}
        #: Records to show; never more than the rate allows.
        self._found: list[ShownRecord] = []
        self._news = asyncio.Event()
        self._second = monotonic()
        self._room = tail.rate
        self.scanned = 0
        self.matched = 0
        self.shown = 0
        self.dropped = 0
        self.unknown = 0
        self.skipped = 0

    async def events(self) -> AsyncGenerator[bytes]:
        """Server-sent events: `start`, `records`, `progress`, and at last `problem`."""
        tasks: list[asyncio.Task[None]] = []
        try:
            groups = await self._begin()
            topics = tuple(sorted(self._decoders))
            yield _event("start", TailStart(topics=topics, partitions=len(self._positions)))
            yield _event("progress", self._progress())
            tasks = [asyncio.create_task(self._follow(group)) for group in groups]
            waiting = asyncio.ensure_future(asyncio.wait(tasks, return_when="FIRST_COMPLETED"))
            tasks.append(waiting)  # type: ignore[arg-type]
            reported = self._monotonic()
            while True:
                await self._wait(reported)
                if waiting.done():
                    for each in waiting.result()[0]:
                        each.result()
                if self._found:
                    found, self._found = self._found, []
                    self.shown += len(found)
                    yield _event("records", found)
                if self._monotonic() - reported >= PROGRESS_S:
                    self._check()
                    reported = self._monotonic()
                    yield _event("progress", self._progress())
        except (DragomanError, OSError) as error:
            failure: ConsoleError = failure_of(error, has_session=True)
            yield _event("problem", Failure(code=failure.code, detail=str(failure)))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, reported: float) -> None:
        """Until there are records to show, or progress is due."""
        left = max(reported + PROGRESS_S - self._monotonic(), 0.0)
        try:
            async with asyncio.timeout(left):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    async def _begin(self) -> list[list[TopicPartition]]:
        """Start at the ends, or where it was interrupted. Gives the partitions of each leader."""
        groups: dict[int, list[TopicPartition]] = {}
        wanted: list[TopicPartition] = []
        for topic in self._decoders:
            chosen = await partitions_of(self._client, topic, self._tail.partitions)
            known = (await self._client.topic(topic)).partitions
            for index in chosen:
                where = TopicPartition(topic, index)
                wanted.append(where)
                groups.setdefault(known[index].leader_id, []).append(where)
        if len(wanted) > CONSOLE_TAIL_PARTITIONS_MAX:
            raise TooManyTopicsError(
                f"a tail follows at most {CONSOLE_TAIL_PARTITIONS_MAX} partitions; "
                f"these topics have {len(wanted)}"
            )
        for where, end in (await self._ends(wanted)).items():
            start = min(self._position(where, end), end)
            if end - start > CONSOLE_TAIL_LAG_MAX:
                self.skipped += end - start
                start = end
            self._positions[where] = start
        return list(groups.values())

    def _position(self, where: TopicPartition, default: int) -> int:
        return self._tail.positions.get(where.topic, {}).get(str(where.partition), default)

    async def _ends(self, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
        found = await self._client.list_offsets(
            dict.fromkeys(wanted, LATEST), isolation=Isolation.READ_COMMITTED
        )
        return {where: each.offset for where, each in found.items()}

    # ---- one leader

    async def _follow(self, group: list[TopicPartition]) -> None:
        order = list(group)
        while True:
            wanted = {
                each: FetchFrom(self._positions[each], CONSOLE_FETCH_PARTITION_BYTES)
                for each in order
            }
            try:
                fetched = await self._client.fetch(
                    wanted, max_wait_ms=_WAIT_MS, max_bytes=CONSOLE_FETCH_BYTES
                )
            except OffsetRangeError:
                self._pass_over(await self._ends(order))
                continue
            is_behind = False
            for where, each in fetched.items():
                if len(each.records):
                    # A node fills its reply in the order of the request.
                    order.remove(where)
                    order.append(where)
                    await self._examine(where, each)
                    is_behind |= self._positions[where] < each.last_stable_offset
            if not is_behind:
                await asyncio.sleep(_PACE_S)

    def _pass_over(self, ends: Mapping[TopicPartition, int]) -> None:
        for where, end in ends.items():
            self.skipped += max(end - self._positions[where], 0)
            self._positions[where] = end

    async def _examine(self, where: TopicPartition, fetched: Fetched) -> None:
        start = self._positions[where]
        walk = VisibleBatches(fetched.records, fetched.aborted, start)
        await self._turns.next()
        slicing = Slicing()
        for header, batch in walk:
            self._renew()
            if self._matches is None and not self._room:
                # Offsets before the start are of a batch that was seen in part.
                count = min(header.record_count, header.last_offset + 1 - start)
                self.scanned += count
                self.matched += count
                self.dropped += count
                continue
            try:
                for record in iterate_records(batch, header, EXPANDED_BATCH_BYTES_MAX):
                    if record.offset >= start:
                        self._take(where, record)
                    if slicing.ends_with(record):
                        await self._turns.next()
            except OversizedBatchError:
                self.skipped += header.last_offset + 1 - max(start, header.base_offset)
        self._positions[where] = walk.next_offset
        if fetched.last_stable_offset - walk.next_offset > CONSOLE_TAIL_LAG_MAX:
            self._pass_over({where: fetched.last_stable_offset})

    def _renew(self) -> None:
        now = self._monotonic()
        if now - self._second >= 1.0:
            self._second = now
            self._room = self._tail.rate

    def _take(self, where: TopicPartition, record: Record) -> None:
        decoders = self._decoders[where.topic]
        self.scanned += 1
        if self._matches is not None:
            answer = self._matches(ExaminedRecord(where.partition, record, decoders))
            if answer is None:
                self.unknown += 1
            if not answer:
                return
        self.matched += 1
        if not self._room:
            self.dropped += 1
            return
        self._room -= 1
        shown = show_record(where.partition, record, decoders, LISTED, topic=where.topic)
        self._found.append(shown)
        # A browser that does not read: the oldest go.
        if len(self._found) > self._tail.rate:
            del self._found[0]
            self.dropped += 1
        self._news.set()

    def _progress(self) -> TailProgress:
        return TailProgress(
            scanned=self.scanned,
            matched=self.matched,
            shown=self.shown,
            dropped=self.dropped,
            unknown=self.unknown,
            skipped=self.skipped,
            positions=self._places(),
        )

    def _places(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        if len(self._positions) <= CONSOLE_TAIL_POSITIONS_MAX:
            for where, offset in self._positions.items():
                found.setdefault(where.topic, {})[where.partition] = offset
        return found


def _event(name: str, value: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _encode(value))
