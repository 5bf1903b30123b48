"""Goal: a signed request that was damaged on its way does nothing in another's name, and stores
nothing else. (The protocol does not protect from deliberate changes: neither the code of a request
nor the names and boundaries of its fields are signed.)

Method: seeded mutations of signed sends, in both serializations, each on a connection of its own to
a world that demands signatures. Whatever comes of them: only the signer is ever authorized, and no
message is stored but the one that was signed. `DRAGOMAN_FUZZ_ROUNDS` multiplies the work.
"""

from __future__ import annotations

import logging
import os
import random

import pytest

from dragoman.protocols.rocketmq.codec import Command, encode
from dragoman.protocols.rocketmq.constants import Request, Serialization
from dragoman.protocols.rocketmq.signatures import signed
from worlds.access import Denies
from worlds.broker import World
from worlds.rocketmq import RocketmqPipe, send_fields
from worlds.users import add_user, demand

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
CASES = 1500
BODY = b"as it was signed"


def request(serialization: Serialization) -> bytes:
    fields = {name: str(value) for name, value in send_fields("T").items()}
    fields = signed(fields, BODY, access_key="alice", secret_key="12345678", version=413)
    command = Command(
        code=Request.SEND_MESSAGE,
        opaque=1,
        version=413,
        fields=fields,
        body=BODY,
        serialization=serialization,
    )
    return encode(command)


def changed(data: bytes, generator: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(generator.choice((1, 1, 2, 5))):
        place = generator.randrange(8, len(found))
        match generator.randrange(4):
            case 0:
                found[place] ^= 1 << generator.randrange(8)
            case 1:
                found[place] = generator.randrange(256)
            case 2:
                # Swap two parts of the same size.
                size = generator.randrange(1, 12)
                other = generator.randrange(8, len(found) - size)
                place = min(place, len(found) - size)
                first, second = found[place : place + size], found[other : other + size]
                found[place : place + size], found[other : other + size] = second, first
            case _:
                found[place:place] = b""
                found[-1] = generator.randrange(256)
    return bytes(found)


@pytest.mark.parametrize("serialization", list(Serialization))
def test_changed_requests_do_nothing_else(
    serialization: Serialization, caplog: pytest.LogCaptureFixture
) -> None:
    authorizer = Denies()
    world = World(authorizer=authorizer)
    world.create("T", 1)
    add_user(world, "alice", secret="12345678")
    demand(world)
    data = request(serialization)
    generator = random.Random(17)
    used = world.budget.used
    for _ in range(CASES * ROUNDS):
        pipe = RocketmqPipe(world)
        pipe.feed(changed(data, generator))
        world.settle()
        pipe.lose()
        world.settle()
    assert {each.name for each in authorizer.callers} <= {"alice"}
    demand(world, "off")
    stored = RocketmqPipe(world).messages("T")
    assert {each.body for each in stored} <= {BODY}
    assert world.budget.used == used
    assert world.broker.logins.admission.in_all == 0
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
