"""Statistics of what a search finds, through a console in front of a real broker; their bounds."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.client.kafka import KafkaClient, NewRecord, NewTopic
from dragoman.console.records.decoding.decoders import Schemas
from dragoman.console.records.shown import decoders_for
from dragoman.console.records.statistics import Counted
from dragoman.console.records.values import Decoding, Statistics
from dragoman.log.batch import Record
from worlds.console import Browser, write

_BEGIN_MS = 1_700_000_000_000


def _last(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return [each for each in lines if each["type"] == "statistics"][-1]


def _counted(*records: Record) -> Statistics:
    absent = Schemas(reason="none", is_absent=True)
    counted = Counted(decoders_for(Decoding(), absent))
    counted.add((0, each) for each in records)
    return counted.shown()


# ---- of a topic


async def test_statistics_are_of_all_that_the_filter_finds(
    client: KafkaClient, browser: Browser
) -> None:
    await client.create_topic(NewTopic(name="counted", partitions=2))
    for partition in (0, 1):
        records = [
            NewRecord(key=b"k%d" % (n % 3), value=b"x" * n, timestamp=_BEGIN_MS + n)
            for n in range(300)
        ]
        await write(client, "counted", records, partition)
    await write(client, "counted", [NewRecord(key=b"gone", timestamp=_BEGIN_MS)])
    lines = await browser.search("counted", form="statistics", limit=1)
    assert (lines[-1]["type"], lines[-1]["reason"]) == ("end", "end")
    found = _last(lines)
    assert (found["records"], found["without_value"], found["without_key"]) == (601, 1, 0)
    assert (found["distinct_keys"], found["distinct_values"]) == (4, 300)
    assert not found["is_estimate"]
    assert [each["key"]["text"] for each in found["frequent_keys"]][-1] == "gone"
    assert [each["records"] for each in found["frequent_keys"]] == [200, 200, 200, 1]
    assert (found["values"]["least"], found["values"]["most"]) == (0, 299)
    assert found["values"]["total"] == 2 * sum(range(300))
    assert 149 <= found["values"]["median"] <= 160
    assert [each["records"] for each in found["partitions"]] == [301, 300]
    assert found["partitions"][1]["last_offset"] == 299
    lines = await browser.search("counted", form="statistics", filter='key == "k1"')
    assert _last(lines)["records"] == 200


async def test_budget_ends_statistics_and_says_so(client: KafkaClient, browser: Browser) -> None:
    await client.create_topic(NewTopic(name="long", partitions=1))
    await write(client, "long", [NewRecord(value=b"x") for _ in range(1000)])
    lines = await browser.search("long", form="statistics", budget={"records": 400})
    assert (lines[-1]["reason"], lines[-1]["budget"]) == ("budget", "records")
    assert _last(lines)["records"] == 400
    assert _last(lines)["keys"] is None


async def test_statistics_of_nothing(client: KafkaClient, browser: Browser) -> None:
    await client.create_topic(NewTopic(name="bare", partitions=1))
    found = _last(await browser.search("bare", form="statistics"))
    assert (found["records"], found["first_ms"], found["periods"]) == (0, None, [])


# ---- bounds


def test_many_different_keys_are_estimated() -> None:
    found = _counted(*(Record(key=b"%d" % n, value=b"") for n in range(60_000)))
    assert found.is_estimate
    # Six times the standard error.
    assert abs(found.distinct_keys - 60_000) < 6_000
    assert found.distinct_values == 1


def test_frequent_keys_are_found_among_many() -> None:
    records = (
        Record(key=b"hot" if n % 4 == 0 else b"%d" % n, value=None, offset=n) for n in range(40_000)
    )
    found = _counted(*records)
    first = found.frequent_keys[0]
    assert first.key is not None
    assert first.key.text == "hot"
    assert first.records <= 10_000 <= first.records + found.frequent_too_small_by
    assert found.frequent_too_small_by > 0


def test_long_keys_are_told_apart_and_cut() -> None:
    keys = [b"a" * 1000 + each for each in (b"1", b"2", b"2")]
    found = _counted(*(Record(key=each) for each in keys))
    assert [each.records for each in found.frequent_keys] == [2, 1]
    assert found.frequent_keys[0].key is not None
    assert found.frequent_keys[0].key.is_cut


@pytest.mark.parametrize("step_ms", [1, 700, 60_000, 86_400_000, 10**12])
def test_periods_stay_few_however_long_the_time(step_ms: int) -> None:
    found = _counted(*(Record(timestamp=_BEGIN_MS + n * step_ms) for n in range(1000)))
    assert sum(each.records for each in found.periods) == 1000
    span = found.periods[-1].begin_ms - found.periods[0].begin_ms
    assert span // found.period_ms < 240
    assert found.first_ms == _BEGIN_MS
    assert found.last_ms == _BEGIN_MS + 999 * step_ms


def test_records_without_a_time_are_counted_apart() -> None:
    found = _counted(Record(), Record(timestamp=0), Record(timestamp=(1 << 63) - 1))
    assert found.without_time == 1
    assert (found.first_ms, found.last_ms) == (0, (1 << 63) - 1)
    assert found.periods[-1].begin_ms // found.period_ms < 240


def test_sizes_are_at_most_a_sixteenth_too_large() -> None:
    found = _counted(*(Record(value=b"x" * n) for n in range(1, 10_001)))
    assert found.values is not None
    for shown, exact in ((found.values.median, 5_000), (found.values.p99, 9_900)):
        assert exact <= shown <= exact * 17 / 16
    assert found.values.average == 5000.5
