"""Progress of a running pipeline, collected from Spark's listener and from jobs.

Spark calls the listener from a separate thread. The thread that runs the pipeline publishes the
progress to the status file and to the watcher.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from dragoman.pipelines.state import PartState, PipelineState, Progress, StateFolder, Status, now_ms

#: Seconds between two versions of the status file.
_WRITE_S = 1.0
#: Batches kept for a query whose part is not known yet; older ones are dropped.
_EARLY_MAX = 100
#: Characters of an error that the status keeps; the terminal shows all.
_PROBLEM_MAX = 2000


class _StateOperator(msgspec.Struct, rename="camel"):
    num_rows_total: int = 0
    memory_used_bytes: int = 0


class _Source(msgspec.Struct, rename="camel"):
    end_offset: Any = None
    latest_offset: Any = None


class _Batch(msgspec.Struct, rename="camel"):
    """The fields of Spark's progress report that are used here."""

    batch_id: int = -1
    batch_duration: int = 0
    num_input_rows: int = 0
    processed_rows_per_second: float | str = 0.0
    state_operators: list[_StateOperator] = []
    sources: list[_Source] = []


class Reporter:
    def __init__(
        self, folder: StateFolder, status: Status, watch: Callable[[Status], object]
    ) -> None:
        self._folder = folder
        self._status = status
        self._watch = watch
        #: Reentrant, since methods that hold it call each other.
        self._lock = threading.RLock()
        self._parts: dict[str, Progress] = {}
        #: Query id → part.
        self._names: dict[str, str] = {}
        self._early: dict[str, deque[str]] = {}
        self._ended: set[str] = set()
        self._written_at = 0.0
        self._is_new = True

    def part(self, progress: Progress) -> None:
        """Replace the progress of a part. May be called from any thread."""
        with self._lock:
            self._parts[progress.part] = msgspec.structs.replace(progress, at_ms=now_ms())
            self._is_new = True

    def part_state(self, part: str, state: PartState, problem: str = "") -> None:
        with self._lock:
            before = self._parts.get(part, Progress(part=part))
            self.part(msgspec.structs.replace(before, state=state, problem=problem[:_PROBLEM_MAX]))

    def note(self, part: str, note: str) -> None:
        with self._lock:
            before = self._parts.get(part, Progress(part=part))
            self.part(msgspec.structs.replace(before, note=note))

    def bind(self, query_id: str, part: str) -> None:
        """Assign a query to a part, and apply the reports that Spark sent before."""
        with self._lock:
            self._names[query_id] = part
            for report in self._early.pop(query_id, []):
                self.batch(query_id, report)

    def batch(self, query_id: str, report: str) -> None:
        """Add a finished micro-batch of a query, as Spark reports it."""
        found = msgspec.json.decode(report, type=_Batch)
        pace = found.processed_rows_per_second
        with self._lock:
            part = self._names.get(query_id)
            if part is None:
                self._early.setdefault(query_id, deque(maxlen=_EARLY_MAX)).append(report)
                return
            before = self._parts.get(part, Progress(part=part))
            self.part(
                msgspec.structs.replace(
                    before,
                    state="running" if before.state == "starting" else before.state,
                    batches=before.batches + 1,
                    rows=before.rows + found.num_input_rows,
                    # Spark writes NaN as text.
                    rows_per_s=float(pace) if isinstance(pace, float | int) else 0.0,
                    lag_records=_lag(found.sources),
                    batch_id=found.batch_id,
                    batch_ms=found.batch_duration,
                    state_rows=sum(each.num_rows_total for each in found.state_operators),
                    state_bytes=sum(each.memory_used_bytes for each in found.state_operators),
                )
            )

    def ended(self, query_id: str) -> None:
        with self._lock:
            self._ended.add(query_id)

    def has_all(self) -> bool:
        """Whether Spark has reported the end of all queries, which it does with a delay."""
        with self._lock:
            return self._ended.issuperset(self._names)

    def batches(self, part: str) -> int:
        return self._parts[part].batches if part in self._parts else 0

    def publish(self, state: PipelineState | None = None, problem: str = "") -> None:
        """Publish new progress; a change of the pipeline's own state is published at once."""
        with self._lock:
            is_due = time.monotonic() - self._written_at >= _WRITE_S
            if state is None and not (self._is_new or is_due):
                return
            parts = tuple(self._parts.values())
            self._is_new = False
        self._status = msgspec.structs.replace(
            self._status,
            state=state or self._status.state,
            problem=problem[:_PROBLEM_MAX] or self._status.problem,
            updated_ms=now_ms(),
            parts=parts,
        )
        if state is not None or is_due:
            self._folder.write(self._status)
            self._written_at = time.monotonic()
        self._watch(self._status)


def _lag(sources: list[_Source]) -> int:
    """Records between the end of a batch and the ends of its topics; -1 if unknown."""
    known = [
        _distance(each.end_offset, each.latest_offset)
        for each in sources
        if isinstance(each.end_offset, Mapping) and isinstance(each.latest_offset, Mapping)
    ]
    return sum(known) if known else -1


def _distance(end: Mapping[str, Any], latest: Mapping[str, Any]) -> int:
    # The entry of topic ids is not a topic.
    return sum(
        max(0, offset - end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        if not topic.startswith("$")
        for partition, offset in partitions.items()
    )


class Listener(StreamingQueryListener):
    """Passes Spark's events about queries to the reporter."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._reporter.batch(str(event.progress.id), event.progress.json)

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._reporter.ended(str(event.id))
