"""Goal: whatever Cursus clients send, a node stays up, serves the others and keeps its log whole.

Method: seeded commands with any arguments, batches whole or mutated, compressed or not, alone or
behind one another, and plain garbage, each on a connection of its own to a world. A client with
manners is asked throughout; nothing may be logged as an error and no memory may stay taken.
`DRAGOMAN_FUZZ_ROUNDS` multiplies the work.
"""

from __future__ import annotations

import logging
import os
import random
import struct

import pytest

from dragoman.protocols.cursus import codec, compression
from dragoman.protocols.cursus.constants import COMMANDS, INTERNAL_COMMANDS
from worlds.broker import World
from worlds.cursus import CursusPipe, batch, framed, payloads

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
CASES = 2500
NAMES = """
    topic partition partitions group member generation offset offsets producerId epoch seqNum key
    acks version features transactional_id result wait_ms batch isolation autoOffsetReset
    event_type schema_version metadata from_version auth_policy cleanup_policy retention_hours
    event_sourcing idempotent principal token isIdempotent
""".split()  # noqa: SIM905
VALUES = """
    orders es nope * o?ders g m p t1 0 1 2 -1 99999999999999999999 18446744073709551615 x =
    commit abort true false all acl open P0:1 P0:1,P1:2 P0:1,P0:1 txn-0000000000000000 ü
    earliest read_uncommitted compact %
""".split()  # noqa: SIM905


def any_command(rng: random.Random) -> bytes:
    word = rng.choice([*COMMANDS, *INTERNAL_COMMANDS, "BOGUS"])
    parts = [word]
    for _ in range(rng.randrange(7)):
        value = rng.choice(VALUES)
        parts.append(f"{rng.choice(NAMES)}={value}" if rng.random() < 0.9 else value)
    if rng.random() < 0.8:
        parts.insert(1, f"topic={rng.choice(('orders', 'es', 'nope'))}")
        parts.insert(2, "partition=0")
    text = " ".join(parts).encode()
    if rng.random() < 0.4:
        text += b" message=" + rng.randbytes(rng.randrange(30))
    return text if rng.random() < 0.5 else b"\0\0" + text


def any_batch(rng: random.Random) -> bytes:
    sent = batch(
        *("x" * rng.randrange(50) for _ in range(rng.randrange(4))),
        topic=rng.choice(("orders", "orders", "es", "nope")),
        partition=rng.choice((0, 0, 1, 77824, -1)),
        acks=rng.choice(("0", "1", "all", "7")),
        idempotent=rng.random() < 0.5,
        epoch=rng.randrange(3),
        first=rng.choice((0, 1, 2, (1 << 63))),
    )
    return codec.encode_batch(sent)


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(3):
            case 0 if changed:
                changed[at % len(changed)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 1:
                changed[at:at] = rng.randbytes(rng.randint(1, 5))
            case _:
                del changed[at : at + rng.randint(1, 5)]
    return bytes(changed)


def case(rng: random.Random) -> bytes:
    payload = rng.choice((any_command, any_batch))(rng)
    match rng.randrange(8):
        case 0:
            return rng.randbytes(rng.choice((1, 4, 30, 3000)))
        case 1:
            size = rng.choice((0, 1, 7, 1 << 20, 1 << 30, 0xFFFFFFFF))
            return struct.pack(">I", size) + rng.randbytes(20)
        case 2:
            return framed(mutated(rng, payload))
        case 3:
            name = rng.choice(("gzip", "snappy", "lz4", "zstd"))
            packed = compression.compress(name, payload)
            return framed(packed if rng.random() < 0.5 else mutated(rng, packed))
        case 4:
            return b"".join(framed(any_command(rng)) for _ in range(5)) + framed(payload)
        case _:
            return framed(payload)


@pytest.mark.timeout(120 * ROUNDS)
def test_node_survives_malformed_requests(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random("fuzz cursus")
    world = World()
    polite = CursusPipe(world)
    with caplog.at_level(logging.WARNING):
        polite.ask("CREATE topic=canary partitions=1")
        for number in range(CASES * ROUNDS):
            for made in ("orders partitions=2", "es partitions=1 event_sourcing=true"):
                if made.split()[0] not in world.broker.image.topics:
                    polite.ask(f"CREATE topic={made}")
            pipe = CursusPipe(world)
            pipe.feed(case(rng))
            world.settle()
            if rng.random() < 0.9:
                pipe.lose()
            if number % 50 == 0:
                polite.publish(batch(f"canary {number}", topic="canary"))
                read = polite.ask_batch("CONSUME canary 0 0")
                assert payloads(read) == [f"canary {number}"]
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert not errors, [(each.name, each.getMessage(), each.exc_info) for each in errors[:3]]
    for channel in list(world.channels.open):
        channel.connection_lost(None)
    world.advance(400.0)
    assert world.budget.used == 0
    assert CursusPipe(world.reopened(kill=True)).ask("LIST_OFFSETS topic=canary").startswith("OK")
