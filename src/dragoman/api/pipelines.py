"""The pipelines that have reported to this node, kept in memory for a while."""

from __future__ import annotations

import msgspec

from dragoman import limits
from dragoman.api.values import PipelineList, PipelineStatus
from dragoman.world import Clock

_ALIVE = frozenset(("starting", "running", "stopping"))


class PipelineReports:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: When each report came, and the report; the newest last.
        self._reports: dict[str, tuple[float, PipelineStatus]] = {}

    def report_pipeline(self, status: PipelineStatus) -> None:
        self._reports.pop(status.name, None)
        self._reports[status.name] = (self._clock.monotonic(), status)
        if len(self._reports) > limits.PIPELINES_REPORTED_MAX:
            del self._reports[next(iter(self._reports))]

    def list_pipelines(self) -> PipelineList:
        now = self._clock.monotonic()
        found = []
        for name, (at, status) in sorted(self._reports.items()):
            if now - at > limits.PIPELINE_MEMORY_S:
                del self._reports[name]
                continue
            if status.state in _ALIVE and now - at > limits.PIPELINE_SILENCE_S:
                problem = f"nothing was heard of it for {now - at:.0f} s"
                status = msgspec.structs.replace(status, state="died", problem=problem)
            found.append(status)
        return PipelineList(items=tuple(found))
