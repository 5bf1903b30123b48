"""Looking through the records of a log without holding up the node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from dragoman.broker.global_table import Refuse, Then
from dragoman.errors import DragomanError
from dragoman.limits import INTERNAL_RECORDS_PER_SLICE
from dragoman.log.batch import Record
from dragoman.world import Scheduler


class Scan:
    """`look` is given each record, a slice of them per loop turn."""

    def __init__(self, scheduler: Scheduler, look: Callable[[Record], None]) -> None:
        self._scheduler = scheduler
        self._look = look
        self._waiting: list[tuple[Then, Refuse]] = []

    def start(self, records: Callable[[], Iterator[Record]], then: Then, refuse: Refuse) -> None:
        """Call `then` when all were looked at, or `refuse`: when one cannot be read, or `then`
        raises. While a scan is under way, others that are asked for share it."""
        self._waiting.append((then, refuse))
        if len(self._waiting) == 1:
            self._go_on(records())

    def _go_on(self, records: Iterator[Record]) -> None:
        count = 0
        try:
            for record in islice(records, INTERNAL_RECORDS_PER_SLICE):
                self._look(record)
                count += 1
        except DragomanError as error:
            self._end(error)
            return
        if count == INTERNAL_RECORDS_PER_SLICE:
            self._scheduler.call_soon(self._go_on, records)
        else:
            self._end(None)

    def _end(self, error: DragomanError | None) -> None:
        waiting, self._waiting = self._waiting, []
        for then, refuse in waiting:
            if error is not None:
                refuse(error)
                continue
            try:
                then()
            except DragomanError as raised:
                refuse(raised)
