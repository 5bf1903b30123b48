"""Goal: whatever bytes minibroker clients send, a node stays up, serves the others, and answers
every whole frame.

Method: seeded requests, whole, mutated or cut, alone or behind one another, and plain garbage, each
on a connection of its own to an in-process node. A client with manners is asked throughout; nothing
may be logged as an error, and all memory is given back. `DRAGOMAN_FUZZ_ROUNDS` multiplies the work.
"""

from __future__ import annotations

import logging
import os
import random
import struct

import pytest

from dragoman.protocols.minibroker import codec
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.constants import Op
from worlds.broker import World
from worlds.minibroker import Peer, service_of

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
CASES = 3000
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
NAMES = ("t", "u", "a.b", "", "..", "x y", "\udcff", "z" * 300)
NUMBERS = (0, 1, 3, 4, 1000, (1 << 31) - 1, (1 << 32) - 1)


def any_request(rng: random.Random) -> bytes:
    topic, group = rng.choice(NAMES), rng.choice(("g", "h", "", "\udcfe"))
    partition = rng.choice(NUMBERS)
    offset = rng.choice((*NUMBERS, (1 << 63) - 1, 1 << 63, (1 << 64) - 1))
    payload, key = rng.randbytes(rng.randrange(300)), rng.choice((b"", b"k", rng.randbytes(9)))
    return codec.encode(
        rng.choice(
            (
                m.Publish(topic=topic, payload=payload, key=key),
                m.SubscribeHead(topic=topic, partition=partition),
                m.SubscribeOffset(topic=topic, partition=partition, offset=offset),
                m.SubscribeGroup(topic=topic, group=group),
                m.Unsubscribe(topic=topic),
                m.Commit(topic=topic, group=group, partition=partition, offset=offset),
                m.Heartbeat(topic=topic, group=group),
                m.Quit(),
            )
        )
    )


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 6))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(3):
            case 0 if changed:
                changed[at % len(changed)] = rng.choice(EDGES)
            case 1:
                changed[at:at] = rng.randbytes(rng.randint(1, 9))
            case _:
                del changed[at : at + rng.randint(1, 9)]
    return bytes(changed)


def reframed(data: bytes) -> bytes:
    return struct.pack(">I", max(1, len(data) - 4)) + (data[4:] or b"\x00")


def case(rng: random.Random) -> bytes:
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.choice((1, 4, 30, 3000)))
        case 1:
            size = rng.choice((0, 1, 2, 1 << 20, 100 << 20, (100 << 20) + 1, (1 << 32) - 1))
            return struct.pack(">I", size) + rng.randbytes(20)
        case 2:
            return b"".join(any_request(rng) for _ in range(rng.randint(1, 30)))
        case 3:
            return mutated(rng, any_request(rng) + any_request(rng))
        case _:
            return b"".join(reframed(mutated(rng, any_request(rng))) for _ in range(3))


def answers(data: bytes) -> int:
    """Replies among the frames, every one of them whole."""
    count = position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">I", data, position)
        assert position + 4 + size <= len(data)
        op = data[position + 4]
        assert op in (Op.OK, Op.ERR, Op.MSG, Op.REBALANCE)
        count += op in (Op.OK, Op.ERR)
        position += 4 + size
    return count


@pytest.mark.timeout(300 * ROUNDS)
def test_node_survives_anything(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random("fuzz minibroker")
    world = World()
    service = service_of(world)
    polite = Peer(world, service)
    peers: list[Peer] = []
    with caplog.at_level(logging.WARNING):
        for number in range(CASES * ROUNDS):
            peer = Peer(world, service)
            data = case(rng)
            for start in range(0, len(data), step := rng.choice((1, 7, 10_000))):
                peer.feed(data[start : start + step])
            world.settle()
            answers(peer.received())
            peers.append(peer)
            if len(peers) > 20:
                peers.pop(rng.randrange(20)).lose()
            if number % 50 == 0:
                assert len(polite.publish("canary", b"%d" % number)) == 1
                world.advance(1)
    for peer in peers:
        peer.lose()
    world.settle()
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert world.budget.used == 0
    assert not polite.is_closed


def test_every_whole_frame_is_answered() -> None:
    rng = random.Random("answer all")
    world = World()
    service = service_of(world)
    for _ in range(300):
        peer = Peer(world, service)
        frames = [reframed(mutated(rng, any_request(rng))) for _ in range(20)]
        frames = [each for each in frames if each[4] != Op.QUIT]
        peer.feed(b"".join(frames))
        world.settle()
        assert answers(peer.received()) == len(frames)
        peer.lose()
