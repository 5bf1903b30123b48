"""Live tails through a console in front of a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest

from dragoman.client.kafka import Fetched, KafkaClient, NewRecord, NewTopic, TopicPartition
from dragoman.console.records.decoding.decoders import Schemas
from dragoman.console.records.filters.matching import compiled
from dragoman.console.records.scan import Turns
from dragoman.console.records.shown import decoders_for
from dragoman.console.records.tail import RunningTail
from dragoman.console.records.values import Decoding, Tail
from dragoman.limits import CONSOLE_SLICE_BYTES
from dragoman.log.batch import Record, build_batch
from worlds.console import RunningConsole, write, write_batch


async def _records(events: AsyncIterator[Any], count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            name, data = await anext(events)
            if name == "records":
                found += data
    return found


async def _progress(events: AsyncIterator[Any], **expected: int) -> dict[str, Any]:
    """The first progress with these counters."""
    async with asyncio.timeout(60):
        while True:
            name, data = await anext(events)
            if name == "progress" and expected.items() <= data.items():
                return dict(data)


async def test_tail_shows_new_records_of_all_partitions(
    client: KafkaClient, served: RunningConsole
) -> None:
    await client.create_topic(NewTopic(name="news", partitions=2))
    await write(client, "news", [NewRecord(value=b"old")])
    async with served.browser().tail("news") as events:
        await anext(events)
        for partition in (0, 1):
            await write(client, "news", [NewRecord(value=b"new %d" % partition)], partition)
        shown = await _records(events, 2)
    assert sorted(each["value"]["text"] for each in shown) == ["new 0", "new 1"]


async def test_tail_shows_what_the_filter_says_and_counts_the_rest(
    client: KafkaClient, served: RunningConsole
) -> None:
    await client.create_topic(NewTopic(name="filtered", partitions=1))
    async with served.browser().tail("filtered", filter="value.n > 1") as events:
        await anext(events)
        values = (b'{"n": 1}', b'{"n": 2}', b"x", b'{"n": 3}')
        await write(client, "filtered", [NewRecord(value=each) for each in values])
        shown = await _records(events, 2)
        counted = await _progress(events, scanned=4)
    assert [each["offset"] for each in shown] == [1, 3]
    assert (counted["matched"], counted["unknown"], counted["shown"]) == (2, 1, 2)


@pytest.mark.parametrize("filter_", ["", 'value startswith "x"'])
async def test_records_over_the_rate_are_counted(
    client: KafkaClient, served: RunningConsole, filter_: str
) -> None:
    name = f"busy{len(filter_)}"
    await client.create_topic(NewTopic(name=name, partitions=1))
    async with served.browser().tail(name, filter=filter_, rate=3) as events:
        await anext(events)
        batch = [Record(value=b"x%d" % n) for n in range(1000)]
        await write_batch(client, TopicPartition(name, 0), batch)
        counted = await _progress(events, scanned=1000)
        assert counted["matched"] == 1000
        assert counted["shown"] + counted["dropped"] == 1000
        # A second or two may begin while so many are looked at.
        assert 3 <= counted["shown"] <= 30


async def test_tail_of_a_missing_topic_says_so(served: RunningConsole) -> None:
    browser = served.browser()
    status, body = await browser.json("GET", '/records/tail?request={"topics":["missing"]}')
    assert (status, body["code"]) == (404, "topic_not_found")
    status, body = await browser.json("GET", "/records/tail")
    assert status == 400


async def test_tail_says_when_its_topic_is_deleted(
    client: KafkaClient, served: RunningConsole
) -> None:
    await client.create_topic(NewTopic(name="deleted", partitions=1))
    async with served.browser().tail("deleted") as events:
        await anext(events)
        await client.delete_topic("deleted")
        async with asyncio.timeout(120):
            names = [name async for name, _ in events]
    assert names[-1] == "problem"


# ---- several topics


async def test_tail_follows_named_topics_and_those_that_match(
    client: KafkaClient, served: RunningConsole
) -> None:
    for name, partitions in (("shop.orders", 2), ("shop.refunds", 1), ("else", 1), ("other", 1)):
        await client.create_topic(NewTopic(name=name, partitions=partitions))
    async with served.browser().tail("else", pattern="^shop[.]") as events:
        name, start = await anext(events)
        assert name == "start"
        assert start == {"topics": ["else", "shop.orders", "shop.refunds"], "partitions": 4}
        for topic in ("other", "shop.refunds", "shop.orders", "else"):
            await write(client, topic, [NewRecord(value=topic.encode())])
        shown = await _records(events, 3)
    assert sorted(each["topic"] for each in shown) == start["topics"]
    assert all(each["value"]["text"] == each["topic"] for each in shown)


@pytest.mark.parametrize(
    ("request_", "status", "detail"),
    [
        ({"pattern": "^nothing"}, 404, "no topic matches '^nothing'"),
        ({}, 404, "name a topic to follow"),
        ({"pattern": "("}, 400, "is no pattern of RE2"),
        ({"pattern": "(?:ab?c?d?e?f?){500}"}, 400, "the patterns are too large"),
        ({"topics": ["one", "two"], "partitions": [0]}, 400, "of a single topic only"),
        ({"topics": [str(n) for n in range(201)]}, 400, "length <= 200"),
    ],
)
async def test_tails_that_cannot_be_say_why(
    served: RunningConsole, request_: dict[str, Any], status: int, detail: str
) -> None:
    path = f"/records/tail?{urlencode({'request': json.dumps(request_)})}"
    got, body = await served.browser().json("GET", path)
    assert got == status
    assert detail in body["detail"]


async def test_pattern_does_not_follow_internal_topics(
    client: KafkaClient, served: RunningConsole
) -> None:
    await client.create_topic(NewTopic(name="plain", partitions=1))
    async with served.browser().tail(pattern=".") as events:
        _, start = await anext(events)
    assert "plain" in start["topics"]
    assert not any(each.startswith("__") for each in start["topics"])


async def test_large_records_are_looked_at_in_turns_of_their_own() -> None:
    class CountedTurns(Turns):
        count = 0

        async def next(self) -> None:
            self.count += 1
            await super().next()

    turns = CountedTurns()
    decoders = decoders_for(Decoding(), Schemas())
    matches = compiled('value contains "y"', 0)
    tail = RunningTail(
        KafkaClient("127.0.0.1:1"),
        Tail(topics=("large",)),
        {"large": decoders},
        matches,
        turns,
        lambda: 0.0,
        lambda: None,
    )
    where = TopicPartition("large", 0)
    tail._positions = {where: 0}
    batch = build_batch([Record(value=b"x" * CONSOLE_SLICE_BYTES)] * 10)
    await tail._examine(
        where,
        Fetched(
            records=memoryview(batch),
            high_watermark=10,
            last_stable_offset=10,
            log_start_offset=0,
            aborted=(),
        ),
    )
    assert tail.scanned == 10
    assert turns.count >= 10


# ---- interruptions


async def test_interrupted_tail_continues_where_it_was(
    client: KafkaClient, served: RunningConsole
) -> None:
    await client.create_topic(NewTopic(name="interrupted", partitions=2))
    await client.create_topic(NewTopic(name="beside", partitions=1))
    topics = ("interrupted", "beside")
    async with served.browser().tail(*topics) as events:
        began = await _progress(events)
    await write(client, "interrupted", [NewRecord(value=b"missed")], 1)
    await write(client, "beside", [NewRecord(value=b"missed, too")])
    positions = began["positions"]
    assert positions == {"interrupted": {"0": 0, "1": 0}, "beside": {"0": 0}}
    async with served.browser().tail(*topics, positions=positions) as events:
        shown = await _records(events, 2)
        counted = await _progress(events, scanned=2)
    assert {each["value"]["text"] for each in shown} == {"missed", "missed, too"}
    assert counted["positions"] == {"interrupted": {"0": 0, "1": 1}, "beside": {"0": 1}}


async def test_tail_that_was_interrupted_for_too_long_says_what_it_passed_over(
    client: KafkaClient, served: RunningConsole
) -> None:
    await client.create_topic(NewTopic(name="long", partitions=1))
    batch = [Record(value=b"x")] * 10_001
    for _ in range(2):
        await write_batch(client, TopicPartition("long", 0), batch)
    async with served.browser().tail("long", positions={"long": {"0": 0}}) as events:
        passed = await _progress(events)
    assert (passed["skipped"], passed["positions"]) == (20_002, {"long": {"0": 20_002}})


async def test_positions_behind_the_end_are_the_end(
    client: KafkaClient, served: RunningConsole
) -> None:
    await client.create_topic(NewTopic(name="shrunk", partitions=1))
    positions = {"shrunk": {"0": 7, "9": 1}, "unknown": {"0": 1}}
    async with served.browser().tail("shrunk", positions=positions) as events:
        assert (await _progress(events))["positions"] == {"shrunk": {"0": 0}}
