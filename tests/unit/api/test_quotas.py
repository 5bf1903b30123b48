"""Goal: quotas hold callers over HTTP as they hold Kafka's clients, whatever connections they use.

Method: the services of a broker in virtual time, with quotas of two users.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest

from dragoman import limits
from dragoman.api.app import create_app
from dragoman.api.declaration import (
    LastEventId,
    PartitionIndex,
    ReadBytes,
    RecordLimit,
    ValueBytes,
)
from dragoman.api.events import RecordEvents
from dragoman.api.quotas import CallerQuotas, throttled
from dragoman.api.record_values import NewRecord, NewRecords, RecordPage, WrittenRecords
from dragoman.api.values import NewTopic
from dragoman.broker.errors import ThrottlingQuotaExceeded
from dragoman.broker.quotas import entity_key
from dragoman.broker.throttles import Limit
from dragoman.cluster.events import ClientQuotaChanged
from dragoman.security.access import Caller, Principal
from dragoman.security.authorizer import OPERATOR_KIND
from worlds.broker import World
from worlds.http import Services, ask

ALICE, BOB = (Caller(Principal("User", name), "10.0.0.9") for name in ("alice", "bob"))
OPERATOR = Caller(Principal(OPERATOR_KIND, "alice"))


@pytest.fixture
def world() -> World:
    return World()


def limit(world: World, **values: float) -> None:
    world.apply(ClientQuotaChanged(entity=entity_key({"user": "alice"}), quotas=values))


def write(world: World, services: Services, caller: Caller, size: int = 5000) -> WrittenRecords:
    records = NewRecords(records=(NewRecord(value="x" * size),))
    return ask(world, services.records.write_records(caller, "t", records))


def read(world: World, services: Services, caller: Caller) -> RecordPage:
    size = 1 << 20
    page = services.records.read_records(
        caller,
        "t",
        PartitionIndex(0),
        None,
        "",
        None,
        RecordLimit(1000),
        ReadBytes(size),
        ValueBytes(size),
        "text",
    )
    return ask(world, page)


def test_writer_past_its_quota_is_refused_until_its_rate_has_fallen(world: World) -> None:
    services = Services(world)
    world.create("t", 1)
    limit(world, producer_byte_rate=1000)
    write(world, services, ALICE, 50_000)
    with pytest.raises(ThrottlingQuotaExceeded) as refused:
        write(world, services, ALICE)
    write(world, services, BOB)
    write(world, services, OPERATOR)
    assert world.broker.image.topics["t"].partitions
    assert read(world, services, BOB).end_offset == 3
    world.scheduler.advance(refused.value.retry_after_s + limits.QUOTA_SAMPLE_S)
    write(world, services, ALICE)


def test_reader_past_its_quota_is_refused(world: World) -> None:
    services = Services(world)
    (replica,) = world.create("t", 1)
    world.write(replica, b"x" * 50_000)
    limit(world, consumer_byte_rate=1000)
    assert read(world, services, ALICE).items
    with pytest.raises(ThrottlingQuotaExceeded):
        read(world, services, ALICE)
    assert read(world, services, BOB).items


def test_stream_past_its_quota_pauses(world: World) -> None:
    services = Services(world)
    (replica,) = world.create("t", 1)
    world.write(replica, b"x" * 50_000)
    limit(world, consumer_byte_rate=1000)

    async def work() -> None:
        opened = services.records.record_events(
            ALICE, "t", "", "earliest", LastEventId(""), ValueBytes(1 << 20), "text"
        )
        stream = await opened
        assert isinstance(stream, RecordEvents)
        events = stream.events()
        await anext(events)
        while b"data:" not in await anext(events):
            pass
        assert stream._pause_s > 0
        paused = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        assert not paused.done()
        stream.end(throttled(Limit.CONSUMED, 1))
        assert await paused == b":\n\n"
        assert b"event: end" in await anext(events)

    asyncio.run(work())


def test_partitions_that_are_created_and_deleted_count(world: World) -> None:
    services = Services(world)
    limit(world, controller_mutation_rate=1)
    ask(world, services.topics.create_topic(ALICE, NewTopic(name="a", partitions=50), False))
    with pytest.raises(ThrottlingQuotaExceeded):
        ask(world, services.topics.create_topic(ALICE, NewTopic(name="b", partitions=1), False))
    with pytest.raises(ThrottlingQuotaExceeded):
        ask(world, services.topics.delete_topic(ALICE, "a", validate_only=False))
    ask(world, services.topics.delete_topic(BOB, "a", validate_only=False))


async def test_time_on_the_loop_counts_and_waits_do_not(world: World) -> None:
    limit(world, request_percentage=1)
    quotas, scheduler = CallerQuotas(world.broker), world.scheduler

    async def work(busy_s: float) -> int:
        scheduler.advance(busy_s)
        await asyncio.sleep(0)
        return 7

    async def waits() -> None:
        turn = asyncio.ensure_future(asyncio.sleep(0))
        turn.add_done_callback(lambda _: scheduler.advance(100))
        await turn

    await quotas.timed(ALICE, waits)
    assert await quotas.timed(ALICE, lambda: work(0)) == 7
    assert await quotas.timed(ALICE, lambda: work(0.5)) == 7
    with pytest.raises(ThrottlingQuotaExceeded):
        await quotas.timed(ALICE, lambda: work(0))
    assert await quotas.timed(BOB, lambda: work(0)) == 7


async def test_errors_and_cancellation_reach_timed_work(world: World) -> None:
    limit(world, request_percentage=100)
    quotas, seen = CallerQuotas(world.broker), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.ensure_future(quotas.timed(ALICE, work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(KeyError):
        await quotas.timed(ALICE, fails)


async def test_refusal_says_when_to_try_again(node) -> None:
    node.failure = throttled(Limit.PRODUCED, 2.1)
    transport = httpx.ASGITransport(create_app(node))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        response = await client.post("/api/v1/topics", json={"name": "t"})
    assert response.status_code == 429
    assert response.headers["retry-after"] == "3"
    assert response.json()["code"] == "throttling_quota_exceeded"
