"""Goal: what one Cursus request may hold is bounded. Method: a broker on virtual time."""

from __future__ import annotations

import pytest

from dragoman.protocols.cursus import codec
from worlds.broker import World
from worlds.cursus import CursusPipe, batch


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> CursusPipe:
    return CursusPipe(world)


def test_batch_of_more_messages_than_one_may_have_is_refused(
    world: World, pipe: CursusPipe
) -> None:
    world.create("orders", 1)
    many = batch(*["v"] * 20_001)
    reply = pipe.ask_raw(codec.encode_batch(many)).decode()
    assert "batch_decode_failed" in reply
    assert world.broker.partitions.find("orders", 0).log.log_end_offset == 0


def test_command_that_is_longer_than_any_is_refused_before_it_is_taken_apart(
    world: World, pipe: CursusPipe
) -> None:
    reply = pipe.ask_raw(b"BATCH_COMMIT " + b"a=b " * (1 << 17))
    assert b"command_too_large" in reply
    world.create("orders", 1)
    large = "PUBLISH topic=orders acks=1 producerId=p message=" + "v" * (300 << 10)
    assert "OK" in pipe.ask(large)
