"""Goal: the shop sells what the console needs: records for a filter, dead letters, retries, and
values with a schema.

Method: what it would write, by number, without a broker.
"""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any, cast

import fastavro
import pytest

pytest.importorskip("confluent_kafka")

from demo import shop
from dragoman.client.rocketmq import Later, ReceivedMessage

HOUR = 15_000


def _sales() -> list[tuple[str, bytes]]:
    return [shop._sale(number) for number in range(HOUR)]


def _readable(sales: list[tuple[str, bytes]]) -> list[dict[str, Any]]:
    found = []
    for _, value in sales:
        try:
            found.append(json.loads(value))
        except ValueError:
            continue
    return found


def _outcome(body: bytes, reconsume_times: int = 0) -> Later | None:
    message = SimpleNamespace(body=body, reconsume_times=reconsume_times)
    return shop._shipped(cast(ReceivedMessage, message))


def test_most_sales_are_objects_that_say_who_sold_them() -> None:
    sold = _readable(_sales())
    assert len(sold) > 0.98 * HOUR
    assert [each["till"] for each in sold[:5]] == list(shop.TILLS)
    assert {each["item"] for each in sold} == set(shop._PRICES)
    assert {each["city"] for each in sold} == {*shop._CITIES, None}


def test_filter_of_the_last_lines_divides_the_sales() -> None:
    sold = _readable(_sales())
    large = [each for each in sold if each["amount"] > 200]
    assert 0.1 < len(large) / len(sold) < 0.6


def test_some_sales_are_no_json_and_come_soon() -> None:
    values = [value for _, value in _sales()]
    assert not all(value.endswith(b"}") for value in values[:20])
    assert 0 < HOUR - len(_readable(_sales())) < HOUR / 100


def test_sale_without_a_city_becomes_a_dead_letter_and_comes_soon() -> None:
    outcomes = [_outcome(value) for _, value in _sales()]
    dead = Later(shop._DEAD_LETTER)
    assert dead in outcomes[:20]
    assert 0 < outcomes.count(dead) < HOUR / 50


def test_some_sales_are_delivered_at_the_second_try_only() -> None:
    sent_back = [value for _, value in _sales() if _outcome(value) not in (None, Later(-1))]
    assert 0 < len(sent_back) < HOUR / 10
    assert {_outcome(value, reconsume_times=1) for value in sent_back} == {None}


def test_deliveries_are_avro_of_the_pinned_schema() -> None:
    schema = fastavro.parse_schema(shop._DELIVERY)
    read = [
        fastavro.schemaless_reader(io.BytesIO(shop._delivery(turn)), schema, None)
        for turn in range(100)
    ]
    assert read[0] == {"van": "van 1", "parcels": 3, "km": 12.0}
    assert {each["van"] for each in read} == {"van 1", "van 2", "van 3", "van 4"}
