"""Goal: streams push what comes, stop for slow readers, and say why they end.

Method: streams on a world's pipes; a peer that takes nothing is a stuck transport.
"""

from __future__ import annotations

import pytest

from dragoman.config.settings import Settings
from dragoman.protocols.cursus import codec
from worlds.broker import World
from worlds.cursus import CursusPipe, batch, framed, payloads


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> CursusPipe:
    opened = CursusPipe(world)
    opened.ask("CREATE topic=orders partitions=2")
    return opened


def stream(world: World, more: str = "", group: str = "g") -> CursusPipe:
    opened = CursusPipe(world)
    opened.feed(framed(f"STREAM topic=orders partition=0 group={group} {more}"))
    world.settle()
    return opened


def pushed(opened: CursusPipe) -> list[str]:
    return [
        payload
        for each in opened.frames()
        if each[:2] == b"\xba\x7c"
        for payload in payloads(codec.decode_batch(each))
    ]


def test_what_is_there_and_what_comes_is_pushed(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch("a", "b"))
    opened = stream(world, "batch=1")
    assert len(opened.frames()) == 2
    pipe.publish(batch("c"))
    assert pushed(opened) == ["c"]
    opened.feed(framed("LIST"))
    world.settle()
    assert opened.frames() == [], "a stream answers nothing"


def test_the_form_of_the_first_page(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch("a", "b"))
    opened = CursusPipe(world)
    opened.feed(framed("STREAM orders 0 1"))
    world.settle()
    assert pushed(opened) == ["b"]


def test_a_stream_begins_at_the_committed_offset(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch("a", "b", "c"))
    pipe.ask("COMMIT orders g 0 2")
    assert pushed(stream(world, "offset=0")) == ["c"]
    assert pushed(stream(world, "offset=1", group="other")) == ["b", "c"]


def test_streams_of_other_groups_live_beside_each_other(pipe: CursusPipe, world: World) -> None:
    first, second = stream(world), stream(world, group="other")
    pipe.publish(batch("a"))
    assert (pushed(first), pushed(second)) == (["a"], ["a"])


def test_a_reader_that_takes_nothing_holds_bounded_memory(pipe: CursusPipe, world: World) -> None:
    opened = stream(world)
    opened.transport.is_stuck = True
    for _ in range(40):
        pipe.publish(batch("x" * 200_000))
    held = len(opened.transport.unsent)
    assert held < 2 << 20
    world.advance(20.0)
    assert len(opened.transport.unsent) == held, "not even keep-alives"
    opened.transport.is_stuck = False
    opened.transport.take()
    world.settle()
    assert len(pushed(opened)) == 40


def test_other_connections_have_their_turn_during_a_long_push(
    pipe: CursusPipe, world: World
) -> None:
    for _ in range(12):
        pipe.publish(batch("x" * 500_000))
    opened = stream(world)
    assert len(pushed(opened)) == 12


def test_a_stream_ends_when_its_topic_goes(pipe: CursusPipe, world: World) -> None:
    opened = stream(world)
    pipe.ask("DELETE topic=orders")
    assert opened.frames() == [b"STREAM_CONTROL type=CLOSE reason=removed offset=0"]
    assert opened.is_closed


def test_a_stream_ends_when_the_node_stops(pipe: CursusPipe, world: World) -> None:
    opened = stream(world)
    world.broker.stop()
    world.settle()
    assert opened.frames() == [b"STREAM_CONTROL type=CLOSE reason=stopped offset=0"]


def test_an_offset_that_was_deleted_ends_a_stream(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch("a", "b"))
    text = "STREAM_CONTROL type=CLOSE reason=offset_out_of_range offset={0} requested={0} "
    world.broker.partitions.find("orders", 0).delete_below(1)
    early = stream(world, "offset=0")
    assert early.frames() == [(text.format(0) + "earliest=1 latest=2").encode()]
    assert early.is_closed


def test_a_stream_past_the_end_waits_for_it(pipe: CursusPipe, world: World) -> None:
    pipe.publish(batch("a"))
    late = stream(world, "offset=2")
    assert (late.frames(), late.is_closed) == ([], False)
    pipe.publish(batch("b", first=2))
    assert late.frames() == []
    pipe.publish(batch("c", first=3))
    (found,) = late.frames()
    assert payloads(codec.decode_batch(found)) == ["c"]


def test_a_stream_without_data_ends_after_its_time(world: World) -> None:
    world = World(Settings(cursus_stream_timeout_ms=12_000))
    CursusPipe(world).ask("CREATE topic=orders partitions=1")
    opened = stream(world)
    world.advance(14.9)
    assert opened.frames() == [b"", b""]
    world.advance(0.2)
    assert opened.frames() == [b"STREAM_CONTROL type=CLOSE reason=timeout offset=0"]


def test_too_many_streams_are_refused(world: World) -> None:
    world = World(Settings(cursus_streams_max=1))
    CursusPipe(world).ask("CREATE topic=orders partitions=1")
    stream(world)
    assert stream(world, group="h").frames() == [b'ERROR: command_failed reason="too many streams"']


def test_what_cannot_be_sent_ends_the_stream_before_it(pipe: CursusPipe, world: World) -> None:
    from dragoman.log.batch import Record

    pipe.publish(batch("a"))
    opened = stream(world)
    assert pushed(opened) == ["a"]
    replica = world.broker.partitions.find("orders", 0)
    record = Record(key=b"k" * 70_000, value=b"v", timestamp=1)
    world.broker.accumulator.add(replica, record, lambda _offset, _error: None)
    world.settle()
    assert opened.frames() == [b"STREAM_CONTROL type=CLOSE reason=error offset=1"]


def test_a_stream_is_not_idle_and_a_gone_peer_is_forgotten(pipe: CursusPipe, world: World) -> None:
    opened = stream(world)
    world.advance(300.0)
    assert not opened.is_closed
    service = opened.channel._session.service
    assert len(service.streams) == 1
    opened.lose()
    assert len(service.streams) == 0
    pipe = CursusPipe(world)
    pipe.publish(batch("a"))
