"""Goal: chosen dead letters are sent as they were, each with an outcome, and none twice by mistake.

Method: a real broker in memory, and the API that the console uses.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dragoman.client.rocketmq import (
    ConsumeFrom,
    Later,
    Message,
    ReceivedMessage,
    RocketmqClient,
)
from dragoman.console.dead_letters.letters import MARK
from dragoman.console.dead_letters.resend import Place, Resender, ResendRequest, Sent
from dragoman.console.upstream import Upstream
from dragoman.protocols.rocketmq.handlers.records import as_first_try
from dragoman.testing import EphemeralBroker

_DEAD, _RETRY = "%DLQ%billing", "%RETRY%billing"
_META = struct.Struct(">iiq8siq")


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def topics(broker: EphemeralBroker) -> Iterator[None]:
    names = (_DEAD, _RETRY, "orders", "dead")
    for name in names:
        _ask(broker, "POST", "/api/v1/topics", {"name": name, "partitions": 2})
    yield
    for name in names:
        _ask(broker, "DELETE", f"/api/v1/topics/{_quoted(name)}")


@pytest.fixture
async def resender(broker: EphemeralBroker) -> AsyncIterator[Resender]:
    upstream = Upstream(broker.http_url)
    yield Resender(upstream)
    upstream.close()


def _quoted(name: str) -> str:
    return urllib.request.quote(name, safe="")


def _ask(broker: EphemeralBroker, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(broker.http_url + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def _write(broker: EphemeralBroker, topic: str, *records: dict[str, Any]) -> None:
    body = {"records": [{"partition": 0, **each} for each in records]}
    _ask(broker, "POST", f"/api/v1/topics/{_quoted(topic)}/records", body)


def _read(broker: EphemeralBroker, topic: str) -> list[dict[str, Any]]:
    path = f"/api/v1/topics/{_quoted(topic)}/partitions"
    pages = [_ask(broker, "GET", f"{path}/{index}/records") for index in range(2)]
    return [item for page in pages for item in page["items"]]


def _headers(record: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"]["data"] for each in record["headers"]}


def _letter(number: int = 0) -> dict[str, Any]:
    meta = _META.pack(7, 0, 1000, b"12345678", 16, 0)
    return {
        "key": f"order-{number}",
        "value": {"base64": base64.b64encode(b"\xff\x00").decode()},
        "headers": [
            {"name": "rocketmq", "value": {"base64": base64.b64encode(meta).decode()}},
            {"name": "rocketmq.RETRY_TOPIC", "value": "orders"},
            {"name": "rocketmq.ORIGIN_MESSAGE_ID", "value": "AC11"},
            {"name": "rocketmq.DELAY", "value": "3"},
            {"name": "rocketmq.TAGS", "value": "unpaid"},
        ],
    }


async def _resend(
    resender: Resender, topic: str, *offsets: int, **more: Any
) -> tuple[list[Sent], dict[str, str]]:
    places = tuple(Place(partition=0, offset=each) for each in offsets)
    found = await resender.resend(ResendRequest(topic=topic, records=places, **more), ())
    return list(found.items), found.unsearched


async def test_a_dead_letter_of_a_group_goes_to_its_retry_topic(
    broker: EphemeralBroker, resender: Resender
) -> None:
    _write(broker, _DEAD, _letter())
    (sent,), unsearched = await _resend(resender, _DEAD, 0)
    assert (sent.outcome, sent.to, unsearched) == ("sent", _RETRY, {})
    (copy,) = _read(broker, _RETRY)
    assert (copy["partition"], copy["offset"]) == (sent.to_partition, sent.to_offset)
    assert copy["key"]["data"] == "order-0"
    assert base64.b64decode(copy["value"]["data"]) == b"\xff\x00"
    headers = _headers(copy)
    assert headers["rocketmq.TAGS"] == "unpaid"
    assert headers["rocketmq.RETRY_TOPIC"] == "orders"
    assert headers["rocketmq.ORIGIN_MESSAGE_ID"] == "AC11"
    assert "rocketmq.DELAY" not in headers
    assert headers[MARK] == f"{_DEAD}/0/0"
    # It was given up after 16 deliveries, and begins anew.
    meta = headers["rocketmq"].encode("latin-1")
    decoded = meta if len(meta) == _META.size else base64.b64decode(meta)
    assert _META.unpack(decoded) == (7, 0, 1000, b"12345678", 0, 0)


async def test_to_the_original_topic_it_goes_without_what_its_deliveries_left(
    broker: EphemeralBroker, resender: Resender
) -> None:
    _write(broker, _DEAD, _letter())
    (sent,), _ = await _resend(resender, _DEAD, 0, to="orders")
    assert (sent.outcome, sent.to) == ("sent", "orders")
    (copy,) = _read(broker, "orders")
    assert set(_headers(copy)) == {"rocketmq", "rocketmq.TAGS", MARK}


async def test_a_dead_letter_of_spark_goes_to_the_topic_that_it_names(
    broker: EphemeralBroker, resender: Resender
) -> None:
    names = ("dragoman.topic", "dragoman.partition", "dragoman.offset", "dragoman.error", "trace")
    headers = [{"name": name, "value": "orders"} for name in names]
    _write(broker, "dead", {"key": None, "value": None, "headers": headers})
    (sent,), _ = await _resend(resender, "dead", 0)
    assert (sent.outcome, sent.to) == ("sent", "orders")
    (copy,) = _read(broker, "orders")
    assert (copy["key"], copy["value"]) == (None, None)
    assert _headers(copy) == {"trace": "orders", MARK: "dead/0/0"}


async def test_a_dry_run_sends_nothing_and_says_what_would_be_sent(
    broker: EphemeralBroker, resender: Resender
) -> None:
    _write(broker, _DEAD, _letter())
    found, _ = await _resend(resender, _DEAD, 0, 5, validate_only=True)
    assert [(each.outcome, each.to) for each in found] == [("ready", _RETRY), ("gone", "")]
    assert _read(broker, _RETRY) == []


async def test_what_was_sent_is_not_sent_again_unless_on_purpose(
    broker: EphemeralBroker, resender: Resender
) -> None:
    _write(broker, _DEAD, _letter(0), _letter(1))
    await _resend(resender, _DEAD, 0)
    found, _ = await _resend(resender, _DEAD, 0, 1)
    assert [each.outcome for each in found] == ["sent_before", "sent"]
    assert found[0].to_offset is not None
    assert len(_read(broker, _RETRY)) == 2
    repeated, _ = await _resend(resender, _DEAD, 0, repeat=True)
    assert [each.outcome for each in repeated] == ["sent"]
    assert len(_read(broker, _RETRY)) == 3


async def test_a_record_that_is_chosen_twice_is_sent_once(
    broker: EphemeralBroker, resender: Resender
) -> None:
    _write(broker, _DEAD, _letter())
    found, _ = await _resend(resender, _DEAD, 0, 0)
    assert len(found) == len(_read(broker, _RETRY)) == 1


async def test_each_has_its_own_outcome(broker: EphemeralBroker, resender: Resender) -> None:
    nameless = {"value": "x"}
    missing = {"value": "x", "headers": [{"name": "dragoman.topic", "value": "nowhere"}]}
    back = {"value": "x", "headers": [{"name": "dragoman.topic", "value": "dead"}]}
    good = {"value": "x", "headers": [{"name": "dragoman.topic", "value": "orders"}]}
    _write(broker, "dead", nameless, missing, back, good)
    found, _ = await _resend(resender, "dead", 0, 1, 2, 3)
    outcomes = [each.outcome for each in found]
    assert outcomes == ["no_target", "failed", "no_target", "sent"]
    assert all(each.detail for each in found[:3])
    tried, _ = await _resend(resender, "dead", 1, validate_only=True)
    assert tried[0].outcome == "failed"


async def test_a_record_that_is_too_large_for_http_is_not_cut(
    broker: EphemeralBroker, resender: Resender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.console.dead_letters.resend.HTTP_BODY_BYTES_MAX", 1000)
    _write(
        broker,
        "dead",
        *({"value": "x" * each, "headers": _from_orders()} for each in (9, 990, 2000)),
    )
    found, _ = await _resend(resender, "dead", 0, 1, 2)
    assert [each.outcome for each in found] == ["sent", "too_large", "too_large"]
    (copy,) = _read(broker, "orders")
    assert copy["value"]["size"] == 9


def _from_orders() -> list[dict[str, str]]:
    return [{"name": "dragoman.topic", "value": "orders"}]


async def test_a_target_that_is_searched_in_part_is_named(
    broker: EphemeralBroker, resender: Resender, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "dragoman.console.dead_letters.resend"
    monkeypatch.setattr(f"{module}.CONSOLE_RESENT_SEARCHED_MAX", 10)
    monkeypatch.setattr(f"{module}._MARKS_ONLY", {"limit": 10})
    _write(broker, "dead", {"value": "x", "headers": _from_orders()})
    _write(broker, "orders", *({"value": str(each)} for each in range(25)))
    _, unsearched = await _resend(resender, "dead", 0, validate_only=True)
    assert "only 10 records" in unsearched["orders"]


def test_a_header_of_another_length_is_left_alone() -> None:
    assert as_first_try(b"short") == b"short"


# ---- RocketMQ's own consumers


async def test_a_consumer_of_the_group_gets_the_copy_as_a_new_message() -> None:
    verdicts = [Later(-1), None]
    seen: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    def listener(message: ReceivedMessage) -> Later | None:
        seen.put_nowait(message)
        return verdicts.pop(0)

    async with (
        EphemeralBroker(listeners=("http", "rocketmq", "rocketmq-broker")) as broker,
        RocketmqClient(broker.address("rocketmq")) as client,
    ):
        async with client.producer("p") as producer:
            await producer.send(Message(topic="T", body=b"x", tags="a", properties={"b": "1"}))
        start = ConsumeFrom.FIRST_OFFSET
        async with client.push_consumer("g", {"T": "*"}, listener, start=start):
            first = await seen.get()
            while not (letters := await client.admin.list_dead_letters("g")):
                await asyncio.sleep(0)
            upstream = Upstream(broker.http_url)
            queue = letters[0].message
            place = Place(partition=queue.queue_id, offset=queue.queue_offset)
            request = ResendRequest(topic="%DLQ%g", records=(place,))
            (sent,) = (await Resender(upstream).resend(request, ())).items
            upstream.close()
            assert sent.outcome == "sent"
            again = await seen.get()
    assert (again.topic, again.body, again.tags) == ("T", b"x", "a")
    assert again.properties["b"] == "1"
    assert again.properties[MARK] == "%DLQ%g/0/0"
    assert (first.reconsume_times, again.reconsume_times) == (0, 0)
