"""Goal: operators see how many records wait for their time, and for which topics.

Method: a broker on virtual time with records that are delayed, delivered and dropped.
"""

from __future__ import annotations

from dragoman.api.declaration import PageLimit
from dragoman.api.delayed import DelayedService
from dragoman.security.access import Caller
from worlds.broker import World
from worlds.delayed_records import SETTINGS, TOPIC, delay, drop

_CALLER = Caller()


def _listed(service: DelayedService, after: str = "", limit: int = 10) -> dict[str, int]:
    page = service.list_delayed(_CALLER, after, PageLimit(limit))
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
    page = service.list_delayed(_CALLER, "", PageLimit(1))
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
