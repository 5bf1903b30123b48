"""Metrics as JSON: what `/metrics` shows, by name, in pages of bounded size."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from dragoman import limits
from dragoman.api.declaration import PageLimit
from dragoman.api.metrics.listing import MetricService
from dragoman.api.values import MetricPage
from dragoman.security.access import Caller
from dragoman.security.authorizer import AllowAll
from dragoman.telemetry.catalogue import Distribution, Stats

MANY = limits.HTTP_PAGE_ITEMS_MAX


class Open:
    authorizer = AllowAll()


def service(*parts: Stats) -> MetricService:
    def snapshot() -> Iterator[Stats]:
        yield from parts

    return MetricService(snapshot, Open())


async def page(service: MetricService, prefix: str = "", after: str = "") -> MetricPage:
    return await service.list_metrics(Caller(), prefix, after, PageLimit(MANY))


async def test_numbers_have_their_labels() -> None:
    found = await page(service({"connections": {("kafka",): 2}, "topics": 3}), "dragoman_c")
    (metric,) = found.items
    assert (metric.name, metric.kind) == ("dragoman_connections", "gauge")
    assert [(each.labels, each.value) for each in metric.series] == [({"listener": "kafka"}, 2)]


async def test_histograms_have_their_buckets() -> None:
    given = Distribution((0.5,), (3, 1), 2.5)
    found = await page(service({"journal_sync_seconds": given}), "dragoman_journal")
    histogram = found.items[0].series[0].histogram
    assert histogram is not None
    assert (histogram.bounds, histogram.counts, histogram.total) == ((0.5,), (3, 1), 2.5)


async def test_pages_are_in_order_of_name() -> None:
    metrics = service({"topics": 1}, {}, {"partitions": 2, "groups": {}})
    first = await metrics.list_metrics(Caller(), "", "", PageLimit(3))
    assert [each.name for each in first.items] == [
        "dragoman_groups",
        "dragoman_metric_series_left_out",
        "dragoman_partitions",
    ]
    rest = await page(metrics, after=first.next or "")
    assert [each.name for each in rest.items] == ["dragoman_topics"]
    assert rest.next is None


async def test_page_ends_before_it_has_too_many_series() -> None:
    series = {(str(n),): n for n in range(MANY - 1)}
    metrics = service({"groups": series, "captures": series, "pipelines": series})
    names, after = [], ""
    while True:
        found = await page(metrics, after=after)
        names.append([each.name.removeprefix("dragoman_") for each in found.items])
        if found.next is None:
            break
        after = found.next
    assert names == [["captures"], ["groups", "metric_series_left_out"], ["pipelines"]]


async def test_pages_are_made_one_at_a_time_with_pauses() -> None:
    running, most, turns = 0, 0, 0

    def snapshot() -> Iterator[Stats]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for name in ("topic_log_bytes", "topic_log_records"):
            yield {name: {(f"t{number}",): 1 for number in range(limits.METRIC_SERIES_MAX)}}
        running -= 1

    metrics = MetricService(snapshot, Open())

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await asyncio.gather(*(page(metrics, "dragoman_topic_log") for _ in range(4)))
    counting.cancel()
    assert most == 1
    # Those between the two metrics, and after each.
    assert turns > 4 * 3
