"""Reports of pipelines, which run outside the node. They are kept in memory for a while."""

from __future__ import annotations

from typing import Protocol

import msgspec

from dragoman import limits
from dragoman.api.access import Access, Rights
from dragoman.api.node_requests import ListPipelines
from dragoman.api.one_node import NodeBroker, OneNode
from dragoman.api.values import PipelineList, PipelineStatus
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import NodeId
from dragoman.world import Clock

_ALIVE = frozenset(("starting", "running", "stopping"))


class PipelineBroker(Rights, NodeBroker, Protocol): ...


class PipelineReports:
    def __init__(self, clock: Clock, broker: PipelineBroker) -> None:
        self._clock = clock
        self._access = Access(broker)
        self._nodes = OneNode(broker)
        #: The last report of each pipeline and when it arrived; the newest last.
        self._reports: dict[str, tuple[float, PipelineStatus]] = {}

    def report_pipeline(self, caller: Caller, status: PipelineStatus) -> None:
        self._access.require(caller, Operation.WRITE, Resource.PIPELINE, status.name)
        self._reports.pop(status.name, None)
        self._reports[status.name] = (self._clock.monotonic(), status)
        if len(self._reports) > limits.PIPELINES_REPORTED_MAX:
            del self._reports[next(iter(self._reports))]

    async def list_pipelines(self, caller: Caller, node: NodeId | None) -> PipelineList:
        return await self._nodes.ask(node, ListPipelines(caller=caller), self.listed)

    async def listed(self, request: ListPipelines) -> PipelineList:
        is_shown = self._access.sees(request.caller, Resource.PIPELINE)
        return PipelineList(items=tuple(each for each in self.statuses() if is_shown(each.name)))

    def statuses(self) -> list[PipelineStatus]:
        """The last report of each pipeline, in order of name."""
        now = self._clock.monotonic()
        found = []
        for name, (at, status) in sorted(self._reports.items()):
            if now - at > limits.PIPELINE_MEMORY_S:
                del self._reports[name]
                continue
            if status.state in _ALIVE and now - at > limits.PIPELINE_SILENCE_S:
                problem = f"no report for {now - at:.0f} s"
                status = msgspec.structs.replace(status, state="died", problem=problem)
            found.append(status)
        return found
