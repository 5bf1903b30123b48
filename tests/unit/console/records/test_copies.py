"""Copies of records to another topic, through a console in front of a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from dragoman.client.kafka import (
    ClientSettings,
    FetchFrom,
    KafkaClient,
    NewRecord,
    NewTopic,
    SaslLogin,
    TopicPartition,
    visible_records,
)
from dragoman.testing import EphemeralBroker
from worlds.console import Browser, RunningConsole, console, write

_USER, _PASSWORD = "alice", "correct horse"


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(
        users={_USER: _PASSWORD, "reader": _PASSWORD},
        listeners=("kafka", "http"),
        settings={"super.users": f"User:{_USER}"},
    ) as running:
        yield running


@pytest.fixture
async def served(broker: EphemeralBroker) -> AsyncIterator[RunningConsole]:
    async with console(broker) as running:
        yield running


@pytest.fixture
async def client(broker: EphemeralBroker) -> AsyncIterator[KafkaClient]:
    login = SaslLogin(mechanism="SCRAM-SHA-256", name=_USER, password=_PASSWORD)
    settings = ClientSettings(login=login)
    async with KafkaClient(broker.bootstrap_servers, settings) as opened:
        yield opened


@pytest.fixture
async def browser(served: RunningConsole) -> Browser:
    made = served.browser()
    await made.log_in(_USER, _PASSWORD)
    return made


async def _copied(browser: Browser, topic: str, **request: Any) -> list[dict[str, Any]]:
    async with browser.ask("POST", "/records/copy", {"topic": topic, **request}) as answer:
        body = await answer.body(1 << 20)
    if answer.status != 200:
        return [{**msgspec.json.decode(body), "type": "refusal"}]
    return [msgspec.json.decode(each) for each in body.splitlines()]


def _last(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return [each for each in lines if each["type"] == "copied"][-1]


async def _read(client: KafkaClient, topic: str, partition: int = 0) -> list[tuple[Any, ...]]:
    where = TopicPartition(topic, partition)
    (fetched,) = (await client.fetch({where: FetchFrom(0, 1 << 20)}, max_wait_ms=0)).values()
    records, _ = visible_records(fetched.records, fetched.aborted, 0)
    return [(each.key, each.value, each.headers, each.timestamp) for each in records]


async def _topics(client: KafkaClient, *names: str, partitions: int = 2) -> None:
    for name in names:
        await client.create_topic(NewTopic(name=name, partitions=partitions))


async def test_copy_keeps_records_whole_and_where_they_were(
    client: KafkaClient, browser: Browser
) -> None:
    await _topics(client, "from", "to")
    records = [
        NewRecord(key=b"k", value=b'{"n": 1}', headers=(("h", b"\x00"),), timestamp=7),
        NewRecord(key=None, value=b'{"n": 2}', timestamp=8),
        NewRecord(key=b"gone", value=None, timestamp=9),
    ]
    await write(client, "from", records, 1)
    tried = await _copied(browser, "from", to="to", validate_only=True)
    assert _last(tried)["partitions"] == {"1": 3}
    assert await _read(client, "to", 1) == []
    lines = await _copied(browser, "from", to="to")
    assert (lines[-1]["type"], lines[-1]["reason"]) == ("end", "end")
    assert (_last(lines)["records"], _last(lines)["partitions"]) == (3, {"1": 3})
    assert _last(lines)["bytes"] == _last(tried)["bytes"] == 1 + 8 + 2 + 8 + 4
    assert await _read(client, "to", 1) == [
        (b"k", b'{"n": 1}', (("h", b"\x00"),), 7),
        (None, b'{"n": 2}', (), 8),
        (b"gone", None, (), 9),
    ]


async def test_copy_has_what_the_filter_finds_and_goes_on_where_it_ended(
    client: KafkaClient, browser: Browser
) -> None:
    await _topics(client, "many", "few", partitions=1)
    await write(client, "many", [NewRecord(value=b'{"n": %d}' % n) for n in range(1000)])
    lines = await _copied(browser, "many", to="few", filter="value.n >= 990", limit=4)
    assert lines[-1]["reason"] == "limit"
    rest = lines[-1]["continue"]
    lines = await _copied(browser, "many", to="few", filter="value.n >= 990", **{"continue": rest})
    assert _last(lines)["records"] == 6
    values = [value for _, value, _, _ in await _read(client, "few")]
    assert values == [b'{"n": %d}' % n for n in range(990, 1000)]


async def test_keys_choose_the_partitions_of_a_target_with_fewer(
    client: KafkaClient, browser: Browser
) -> None:
    await _topics(client, "wide", partitions=3)
    await _topics(client, "narrow", partitions=1)
    await write(client, "wide", [NewRecord(key=b"k", value=b"v")], 2)
    (refusal,) = await _copied(browser, "wide", to="narrow", validate_only=True)
    assert (refusal["code"], refusal["status"]) == ("copy_target", 400)
    assert "let the keys choose" in refusal["detail"]
    lines = await _copied(browser, "wide", to="narrow", partition="key")
    assert _last(lines)["partitions"] == {"0": 1}


@pytest.mark.parametrize(
    ("to", "status", "code"),
    [
        ("source", 400, "copy_target"),
        ("missing", 404, "topic_not_found"),
        ("__consumer_offsets", 400, "copy_target"),
    ],
)
async def test_targets_that_cannot_be_are_refused(
    client: KafkaClient, browser: Browser, to: str, status: int, code: str
) -> None:
    if "source" not in (await client.cluster()).topics:
        await _topics(client, "source")
        # The first commit makes the internal topic.
        await client.commit_offsets("group", {TopicPartition("source", 0): 0})
    (refusal,) = await _copied(browser, "source", to=to)
    assert (refusal["status"], refusal["code"]) == (status, code)


async def test_copy_that_the_target_refuses_says_so_and_where(
    client: KafkaClient, browser: Browser
) -> None:
    await _topics(client, "plain", partitions=1)
    await client.create_topic(
        NewTopic(name="compacted", partitions=1, config={"cleanup.policy": "compact"})
    )
    await write(client, "plain", [NewRecord(value=b"no key")])
    lines = await _copied(browser, "plain", to="compacted")
    assert lines[-1]["type"] == "problem"
    assert lines[-1]["continue"]["positions"] == {"0": 0}
    assert _last(lines)["records"] == 0


async def test_copy_is_done_with_the_rights_of_its_user(
    client: KafkaClient, served: RunningConsole, browser: Browser
) -> None:
    await _topics(client, "guarded", "target", partitions=1)
    await write(client, "guarded", [NewRecord(value=b"v")])
    other = served.browser()
    (refusal,) = await _copied(other, "guarded", to="target")
    assert refusal["status"] in (401, 403)
    await other.log_in("reader", _PASSWORD)
    (refusal,) = await _copied(other, "guarded", to="target")
    assert refusal["status"] in (403, 404)
    assert await _read(client, "target") == []
