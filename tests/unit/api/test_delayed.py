"""Goal: operators see which records wait for their time, and how many for which topics.

Method: a broker on virtual time with records that are delayed, delivered and dropped.
"""

from __future__ import annotations

import msgspec
import pytest

from dragoman.api.declaration import ApiError, ReadBytes, RecordLimit, ValueBytes
from dragoman.api.delayed import DelayedService
from dragoman.api.delayed_values import DelayedPage, DelayedRecordPage
from dragoman.api.node_requests import CountDelayed
from dragoman.broker.errors import UnknownTopic
from dragoman.outcome import start
from dragoman.security.access import Caller
from worlds.broker import World
from worlds.delayed_records import SETTINGS, TOPIC, delay, drop, hold
from worlds.http import ask

_CALLER = Caller()


def _page(service: DelayedService, after: str = "", limit: int = 10) -> DelayedPage:
    return start(service.counted(CountDelayed(caller=_CALLER, after=after, limit=limit))).result()


def _listed(service: DelayedService, after: str = "", limit: int = 10) -> dict[str, int]:
    page = _page(service, after, limit)
    return {each.topic: each.records for each in page.items}


def test_records_that_wait_are_counted_by_their_topic() -> None:
    world = World(SETTINGS)
    world.create(TOPIC, 2)
    service = DelayedService(world.broker)
    assert _listed(service) == {}
    due = world.clock.wall_ms() + 5000
    delay(world, b"a", due)
    delay(world, b"b", due, partition=1)
    later = delay(world, b"c", due + 60_000)
    assert _listed(service) == {TOPIC: 3}
    page = _page(service, limit=1)
    assert (page.node_id, page.records, page.next) == (world.broker.node_id, 3, None)
    world.advance(10)
    assert _listed(service) == {TOPIC: 1}
    assert _listed(service, after=TOPIC) == {}
    assert drop(world, later.token, {}) is None
    assert _listed(service) == {}


def test_counts_are_the_same_after_a_restart() -> None:
    world = World(SETTINGS)
    world.create(TOPIC, 2)
    for number in range(4):
        delay(world, b"%d" % number, world.clock.wall_ms() + 5000 * (1 + number))
    world.advance(6)
    again = world.reopened()
    assert _listed(DelayedService(again.broker)) == {TOPIC: 3}


def _records(
    world: World, after: str = "", limit: int = 10, bytes_max: int = 1 << 20, topic: str = TOPIC
) -> DelayedRecordPage:
    page = DelayedService(world.broker).delayed_records(
        _CALLER, topic, None, after, RecordLimit(limit), ReadBytes(bytes_max), ValueBytes(3), "text"
    )
    return ask(world, page)


def _values(page: DelayedRecordPage) -> list[str]:
    return [msgspec.json.decode(each.value.data) for each in page.items if each.value is not None]


def test_records_that_wait_are_listed_in_order_of_time() -> None:
    world = World(SETTINGS)
    world.create(TOPIC, 2)
    assert _records(world).items == ()
    now = world.clock.wall_ms()
    delay(world, b"second", now + 5000)
    delay(world, b"first", now + 3000, partition=1)
    hold(world, b"third", check_after_ms=9000)
    first, second, third = _records(world).items
    assert (first.partition, first.due_ms, first.state) == (1, now + 3000, "delayed")
    assert first.size_bytes == len(b"k" + b"first" + b"h1")
    assert first.value is not None
    assert (bytes(first.value.data), first.value.is_cut) == (b'"fir"', True)
    assert [each.name for each in first.headers] == ["h"]
    assert (second.state, third.state) == ("delayed", "held")
    world.advance(4)
    assert _values(_records(world)) == ["sec", "thi"]


def test_records_that_wait_come_a_page_at_a_time() -> None:
    world = World(SETTINGS)
    world.create(TOPIC, 2)
    world.create("other", 1)
    due = world.clock.wall_ms() + 5000
    for number in range(7):
        delay(world, b"%d" % number, due + number % 2, partition=number % 2)
    for bounds in ({"limit": 3}, {"bytes_max": 1}):
        found, after = [], ""
        while True:
            page = _records(world, after, **bounds)
            found += _values(page)
            if page.next is None:
                break
            after = page.next
        assert found == ["0", "2", "4", "6", "1", "3", "5"]
    assert _records(world, topic="other").items == ()
    with pytest.raises(UnknownTopic):
        _records(world, topic="none")
    for bad in ("x", "1-2", "1-2-", "-1-2-3"):
        with pytest.raises(ApiError):
            _records(world, bad)
