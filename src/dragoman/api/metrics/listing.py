"""The snapshot of `/metrics` as JSON, for programs that are no scrapers.

A page holds whole metrics, in order of their names, and few enough series that it stays small: a
metric with more series than that has a page of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from dragoman import limits
from dragoman.api.access import Access, Rights
from dragoman.api.declaration import PageLimit
from dragoman.api.values import MetricDescription, MetricHistogram, MetricPage, MetricSeries
from dragoman.security.access import Caller, Operation
from dragoman.telemetry.catalogue import Distribution, Number, Stats
from dragoman.telemetry.snapshot import Family, families

#: Series that are read between two pauses.
_AT_ONCE = 500


class MetricService:
    def __init__(self, snapshot: Callable[[], Iterator[Stats]], rights: Rights) -> None:
        self._snapshot = snapshot
        self._access = Access(rights)
        #: One snapshot is read at a time: each takes its part of many turns of the loop.
        self._turn = asyncio.Lock()

    async def list_metrics(
        self, caller: Caller, prefix: str, after: str, limit: PageLimit
    ) -> MetricPage:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        async with self._turn:
            return await self._page(prefix, after, limit)

    async def _page(self, prefix: str, after: str, limit: PageLimit) -> MetricPage:
        found: dict[str, Family] = {}
        read = 0
        for family in families(self._snapshot()):
            read += _AT_ONCE if family is None else len(family.series)
            if read >= _AT_ONCE:
                # Other clients are served meanwhile.
                read = 0
                await asyncio.sleep(0)
            if family is None:
                continue
            name = family.metric.full_name
            if name > after and name.startswith(prefix):
                found[name] = family
        items: list[MetricDescription] = []
        series = 0
        for name in sorted(found):
            series += len(found[name].series)
            if items and (len(items) == limit or series > limits.HTTP_PAGE_ITEMS_MAX):
                return MetricPage(items=tuple(items), next=items[-1].name)
            items.append(_described(found[name]))
            await asyncio.sleep(0)
        return MetricPage(items=tuple(items))


def _described(family: Family) -> MetricDescription:
    metric = family.metric
    return MetricDescription(
        name=metric.full_name,
        kind=metric.kind,
        help=metric.help,
        series=tuple(
            _series(dict(zip(metric.labels, values, strict=True)), number)
            for values, number in family.series.items()
        ),
    )


def _series(labels: dict[str, str], number: Number) -> MetricSeries:
    if not isinstance(number, Distribution):
        return MetricSeries(labels=labels, value=number)
    histogram = MetricHistogram(bounds=number.bounds, counts=number.counts, total=number.total)
    return MetricSeries(labels=labels, histogram=histogram)
