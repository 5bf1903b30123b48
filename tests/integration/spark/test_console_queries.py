"""Goal: a query of the console and the same one of Spark have the same values.

Method: one topic with texts, bytes, tombstones, headers and times, read by both.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.client.kafka import BlockingKafkaClient, NewRecord, NewTopic
from dragoman.console.sql.process import answer_of
from dragoman.console.sql.values import QueryJob, QueryRequest
from dragoman.spark.sql import Query
from dragoman.testing import EphemeralBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RECORDS = [
    NewRecord(
        key=None if number % 5 == 0 else f"key-{number % 3}".encode(),
        value=None
        if number % 7 == 0
        else json.dumps({"id": number, "amount": number / 8, "name": "Ä<b>"}).encode(),
        partition=number % 2,
        timestamp=1_769_860_800_123 + number * 60_000,
    )
    for number in range(40)
]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EphemeralBroker() as broker:
        with BlockingKafkaClient(broker.bootstrap_servers) as client:
            client.create_topic(NewTopic(name="orders", partitions=2))
            client.produce_records("orders", _RECORDS)
        yield broker.bootstrap_servers


async def _of_console(bootstrap: str, query: str) -> list[list[Any]]:
    job = QueryJob(request=QueryRequest(query=query), bootstrap=bootstrap)
    lines: AsyncIterator[bytes] = answer_of(job)
    async with aclosing(lines) as answer:  # type: ignore[type-var]
        found = [json.loads(line) async for line in answer]
    assert found[-1]["type"] == "end", found
    return [row for line in found if line["type"] == "rows" for row in line["rows"]]


#: The same expressions in the dialects of the console and of Spark.
_SAME = {
    "columns": (
        'key, value, topic, partition, "offset", timestampType',
        "key, value, topic, partition, `offset`, timestampType",
    ),
    "times": ("epoch_ms(timestamp)", "unix_millis(timestamp)"),
    "characters": ("length(key), length(value)", "length(key), length(value)"),
    "doubles": ("(value->>'$.amount')::double", "double(get_json_object(value, '$.amount'))"),
    "integers": ("(value->>'$.id')::bigint", "bigint(get_json_object(value, '$.id'))"),
    "texts": ("value->>'$.name'", "get_json_object(value, '$.name')"),
    "arithmetic": ("partition * 3 / 2.0::double", "partition * 3 / 2.0d"),
}


@pytest.mark.parametrize("name", _SAME)
async def test_columns_have_the_same_values(spark: SparkSession, bootstrap: str, name: str) -> None:
    console, theirs = _SAME[name]
    query = f"select {theirs} from orders order by partition, `offset`"
    expected = [list(row) for row in Query(query, bootstrap=bootstrap).rows()]
    found = await _of_console(
        bootstrap, f'select {console} from orders order by partition, "offset"'
    )
    assert len(found) == len(_RECORDS)
    assert found == expected


async def test_aggregates_have_the_same_values(spark: SparkSession, bootstrap: str) -> None:
    query = "select key, count(*), count(value), min(partition) from orders group by key"
    expected = [list(row) for row in Query(query, bootstrap=bootstrap).rows()]
    found = await _of_console(bootstrap, query)
    assert sorted(found, key=str) == sorted(expected, key=str)
