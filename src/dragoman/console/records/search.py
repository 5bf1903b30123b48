"""A search: what it has found so far, how far it is, and why it has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from dragoman.console.errors import ConsoleError
from dragoman.console.records.failures import failure_of
from dragoman.console.records.files import header, writer
from dragoman.console.records.filters.matching import Matches
from dragoman.console.records.places import Range, resumed_at
from dragoman.console.records.scan import Scan, Slice
from dragoman.console.records.shown import LISTED, Decoders, ExaminedRecord, show_record
from dragoman.console.records.statistics import Counted
from dragoman.console.records.values import (
    Continue,
    End,
    Failure,
    Lines,
    Progress,
    Search,
    ShownRecord,
    Start,
    Statistics,
)
from dragoman.errors import DragomanError
from dragoman.log.batch import Record

#: Seconds between lines of progress.
PROGRESS_S: Final = 0.25

Line: TypeAlias = Start | Progress | ShownRecord | Lines | Statistics | End | Failure
_BudgetPart: TypeAlias = Literal["records", "bytes", "seconds"]
_encode: Final = msgspec.json.Encoder().encode


class Question(NamedTuple):
    """What is searched for, and how it is shown."""

    search: Search
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
        scan: Scan,
        monotonic: Callable[[], float],
        check: Callable[[], None],
    ) -> None:
        """`check` raises a `ConsoleError` when the search has to stop."""
        self._question = question
        self._scan = scan
        self._monotonic = monotonic
        self._check = check
        self._began = monotonic()
        self._reported = self._began
        starts, ends = question.range
        self._total = sum(max(ends[each] - starts[each], 0) for each in ends)
        is_counted = question.search.form == "statistics"
        self._counted = Counted(question.decoders) if is_counted else None
        #: Statistics hold no records, so only the budget limits them.
        self._limit = None if is_counted else question.search.limit
        self._show = self._shower()
        self.scanned = 0
        self.matched = 0
        self.unknown = 0

    def _shower(self) -> Callable[[list[tuple[int, Record]]], Iterable[Line]]:
        search, decoders = self._question.search, self._question.decoders
        form, counted = search.form, self._counted
        if counted is not None:

            def count(found: list[tuple[int, Record]]) -> Iterable[Line]:
                counted.add(found)
                return ()

            return count
        if form == "jsonl" or form == "csv":
            write = writer(form, search.topic, decoders)
            return lambda found: (Lines(text=write(found)),)
        return lambda found: (show_record(*each, decoders, LISTED) for each in found)

    async def lines(self) -> AsyncGenerator[bytes]:
        """Lines of JSON, several at a time. A failure is the last one."""
        starts, ends = self._question.range
        first: list[Line] = [Start(starts=starts, ends=ends, notes=self._question.notes)]
        if self._question.search.form == "csv":
            first.append(Lines(text=header("csv")))
        yield _encoded(first)
        try:
            async for found in self._scan.slices():
                lines, end = self._examine(found)
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

    def _examine(self, found: Slice) -> tuple[list[Line], End | None]:
        """What a slice gives, and whether the search ends in it."""
        search, partition = self._question.search, found.partition
        left = search.budget.records - self.scanned
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
                if self.matched == self._limit:
                    end = self._ended("limit", "", partition, record.offset + 1)
                    break
        lines = list(self._show(matched)) if matched else []
        return lines, end or self._used_up(partition)

    def _fits(self, partition: int, record: Record) -> bool:
        matches = self._question.matches
        if matches is None:
            return True
        answer = matches(ExaminedRecord(partition, record, self._question.decoders))
        if answer is None:
            self.unknown += 1
        return bool(answer)

    def _used_up(self, partition: int) -> End | None:
        budget = self._question.search.budget
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
        counted = self._counted
        return [self._progress()] if counted is None else [counted.shown(), self._progress()]

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
