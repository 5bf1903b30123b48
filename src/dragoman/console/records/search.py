"""A search: what it has found so far, how far it is, and why it has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from dragoman.console.errors import ConsoleError
from dragoman.console.records.failures import failure_of
from dragoman.console.records.filters.matching import Matches
from dragoman.console.records.places import Range, resumed_at
from dragoman.console.records.scan import Scan, Slice
from dragoman.console.records.shown import Decoders, ExaminedRecord
from dragoman.console.records.values import (
    Budget,
    Continue,
    Copied,
    End,
    Failure,
    Lines,
    Progress,
    ShownRecord,
    Start,
    Statistics,
)
from dragoman.errors import DragomanError
from dragoman.log.batch import Record

#: Seconds between lines of progress.
PROGRESS_S: Final = 0.25

Line: TypeAlias = Start | Progress | ShownRecord | Lines | Statistics | Copied | End | Failure
_BudgetPart: TypeAlias = Literal["records", "bytes", "seconds"]
_encode: Final = msgspec.json.Encoder().encode


class Result(Protocol):
    """What becomes of the records that are found."""

    #: How many are wanted; None: all.
    limit: int | None

    async def add(self, found: list[tuple[int, Record]]) -> Iterable[Line]:
        """Take records with their partitions. Gives lines for the browser."""

    def first(self) -> Iterable[Line]:
        """Lines before all others."""

    def so_far(self) -> Iterable[Line]:
        """Lines that go with the progress."""


class Question(NamedTuple):
    """What is searched for."""

    budget: Budget
    range: Range
    decoders: Decoders
    #: None: every record matches.
    matches: Matches | None
    notes: tuple[str, ...] = ()


class Running:
    """One search that runs."""

    def __init__(
        self,
        question: Question,
        result: Result,
        scan: Scan,
        monotonic: Callable[[], float],
        check: Callable[[], None],
    ) -> None:
        """`check` raises a `ConsoleError` when the search has to stop."""
        self._question = question
        self._result = result
        self._scan = scan
        self._monotonic = monotonic
        self._check = check
        self._began = monotonic()
        self._reported = self._began
        starts, ends = question.range
        self._total = sum(max(ends[each] - starts[each], 0) for each in ends)
        self.scanned = 0
        self.matched = 0
        self.unknown = 0

    async def lines(self) -> AsyncGenerator[bytes]:
        """Lines of JSON, several at a time. A failure is the last one."""
        starts, ends = self._question.range
        start = Start(starts=starts, ends=ends, notes=self._question.notes)
        yield _encoded([start, *self._result.first()])
        try:
            async for found in self._scan.slices():
                matched, end = self._examine(found)
                lines = await self._made(found, matched)
                now = self._monotonic()
                if now - self._reported >= PROGRESS_S and end is None:
                    self._check()
                    self._reported = now
                    lines += self._progress_lines()
                if lines:
                    yield _encoded(lines)
                if end is not None:
                    yield _encoded([*self._progress_lines(), end])
                    return
        except (DragomanError, OSError) as error:
            failure = failure_of(error, has_session=True)
            yield _encoded([*self._progress_lines(), self._failed(failure)])
            return
        yield _encoded([*self._progress_lines(), End(reason="end")])

    def _examine(self, found: Slice) -> tuple[list[tuple[int, Record]], End | None]:
        """What a slice gives, and whether the search ends in it."""
        partition = found.partition
        left = self._question.budget.records - self.scanned
        matched: list[tuple[int, Record]] = []
        end = None
        for index, record in enumerate(found.records):
            if index == left:
                end = self._ended("budget", "records", partition, record.offset)
                break
            self.scanned += 1
            if self._fits(partition, record):
                matched.append((partition, record))
                self.matched += 1
                if self.matched == self._result.limit:
                    end = self._ended("limit", "", partition, record.offset + 1)
                    break
        return matched, end or self._used_up(partition)

    async def _made(self, found: Slice, matched: list[tuple[int, Record]]) -> list[Line]:
        if not matched:
            return []
        try:
            return list(await self._result.add(matched))
        except BaseException:
            # Who goes on after a failure begins with this slice.
            self._scan.positions[found.partition] = found.records[0].offset
            raise

    def _fits(self, partition: int, record: Record) -> bool:
        matches = self._question.matches
        if matches is None:
            return True
        answer = matches(ExaminedRecord(partition, record, self._question.decoders))
        if answer is None:
            self.unknown += 1
        return bool(answer)

    def _used_up(self, partition: int) -> End | None:
        budget = self._question.budget
        part: _BudgetPart
        if self._scan.is_done:
            return None
        if self.scanned >= budget.records:
            part = "records"
        elif self._scan.bytes >= budget.bytes:
            part = "bytes"
        elif self._monotonic() - self._began >= budget.seconds:
            part = "seconds"
        else:
            return None
        return self._ended("budget", part, partition, self._scan.positions[partition])

    def _ended(
        self,
        reason: Literal["limit", "budget"],
        part: Literal["", "records", "bytes", "seconds"],
        partition: int,
        position: int,
    ) -> End:
        self._scan.positions[partition] = position
        resume = None if self._scan.is_done else self._resume()
        return End(reason=reason, budget=part, resume=resume)

    def _resume(self) -> Continue:
        return resumed_at(self._scan.positions, self._question.range.ends)

    def _failed(self, error: ConsoleError) -> Failure:
        return Failure(code=error.code, detail=str(error), resume=self._resume())

    def _progress_lines(self) -> list[Line]:
        return [*self._result.so_far(), self._progress()]

    def _progress(self) -> Progress:
        starts, ends = self._question.range
        positions = self._scan.positions
        return Progress(
            scanned=self.scanned,
            bytes=self._scan.bytes,
            matched=self.matched,
            unknown=self.unknown,
            skipped=self._scan.skipped,
            done=sum(
                min(positions[each], end) - min(starts[each], end) for each, end in ends.items()
            ),
            total=self._total,
            at=dict(positions),
            elapsed_s=round(self._monotonic() - self._began, 3),
        )


def _encoded(lines: list[Line]) -> bytes:
    return b"".join(_encode(each) + b"\n" for each in lines)
