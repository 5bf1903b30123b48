"""What pipelines have reported to this node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from dragoman.telemetry.catalogue import Stats

if TYPE_CHECKING:
    from dragoman.api.values import PipelineStatus


class Pipelines(Protocol):
    def statuses(self) -> Iterable[PipelineStatus]:
        """The last report of each pipeline."""
        ...


def pipeline_stats(pipelines: Pipelines) -> Stats:
    states: Counter[tuple[str, ...]] = Counter()
    rows: dict[tuple[str, ...], int] = {}
    lags: dict[tuple[str, ...], int] = {}
    for each in pipelines.statuses():
        states[(each.state,)] += 1
        for part in each.parts:
            labels = (each.name, part.part)
            rows[labels] = part.rows
            if part.lag_records >= 0:
                lags[labels] = part.lag_records
    return {
        "pipelines": states,
        "pipeline_rows_total": rows,
        "pipeline_lag_records": lags,
    }
