"""Producers of a topic and settings of a node, through a console in front of a real broker."""

from __future__ import annotations

import pytest

from dragoman.client.kafka import (
    KafkaClient,
    NewRecord,
    NewTopic,
    TopicPartition,
    TransactionOptions,
)
from dragoman.log.batch import Record
from worlds.console import Browser, write


async def test_producers_with_open_transactions_come_first(
    client: KafkaClient, browser: Browser
) -> None:
    await client.create_topic(NewTopic(name="written", partitions=2))
    await write(client, "written", [NewRecord(value=b"plain")] * 3, 1)
    producer = client.transactional_producer(TransactionOptions(transactional_id="t"))
    await producer.initialise()
    await producer.write_records({TopicPartition("written", 0): [Record(value=b"open")]})
    status, body = await browser.json("GET", "/kafka/producers?topic=written")
    await producer.abort()
    assert status == 200
    assert [(each["partition"], each["open_offset"]) for each in body["items"]] == [
        (0, 0),
        (1, None),
    ]
    assert body["items"][1]["last_sequence"] == 2
    assert body["items"][1]["last_ms"] > 0
    assert body["left_out"] == 0
    _, body = await browser.json("GET", "/kafka/producers?topic=written")
    assert {each["open_offset"] for each in body["items"]} == {None}


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("producers?topic=missing", 404, "topic_not_found"),
        ("producers", 400, "console"),
        ("settings?node=x", 400, "console"),
    ],
)
async def test_what_is_not_there_is_refused(
    browser: Browser, path: str, status: int, code: str
) -> None:
    got, body = await browser.json("GET", f"/kafka/{path}")
    assert (got, body["code"]) == (status, code)


async def test_settings_have_values_and_meanings(client: KafkaClient, browser: Browser) -> None:
    (node,) = (await client.cluster()).brokers
    status, body = await browser.json("GET", f"/kafka/settings?node={node}")
    assert status == 200
    found = {each["name"]: each for each in body["items"]}
    assert len(found) > 100
    partitions = found["num.partitions"]
    assert partitions["is_live"]
    assert partitions["meaning"]
    assert not found["node.id"]["is_live"]
