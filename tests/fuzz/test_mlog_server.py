"""Goal: whatever bytes mlog clients send, a node stays up and serves the others.

Method: seeded requests of every type in both encodings, whole or mutated, alone or behind one
another, and plain garbage, each on a connection of its own to an in-process node, through the
listeners `mlog` and `any`. A client with manners is asked throughout; nothing may be logged as an
error. `DRAGOMAN_FUZZ_ROUNDS` multiplies the work.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import socket

import msgspec
import pytest

from dragoman.client.mlog import BlockingMlogClient, Entry
from dragoman.protocols.mlog import codec
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.constants import Encoding
from dragoman.protocols.mlog.messages import Field, Kind, fields_of
from dragoman.testing import EphemeralBroker

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
CASES = 3000
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)


def any_message(rng: random.Random, kind: type[m.Message]) -> m.Message:
    values = {
        field.name: [any_value(rng, field) for _ in range(rng.randrange(4))]
        if field.is_list
        else any_value(rng, field)
        for field in fields_of(kind)
    }
    message = kind(**values)
    assert isinstance(message, m.Message)
    return message


def any_value(rng: random.Random, field: Field) -> object:
    match field.kind:
        case Kind.TEXT:
            return rng.choice(("", "t", "t@1", "zz", "__consumer_offsets", "é<", "x" * 300))
        case Kind.BYTES:
            return rng.choice((None, b"", rng.randbytes(rng.randrange(300))))
        case Kind.BOOL:
            return rng.random() < 0.5
        case Kind.INT:
            return rng.choice((0, 1, 2, field.low, field.high, rng.randint(field.low, field.high)))
        case Kind.MESSAGE:
            assert field.message is not None
            assert issubclass(field.message, msgspec.Struct)
            return field.message()


def any_request(rng: random.Random, encoding: Encoding) -> bytes:
    kinds = list(m.REPLIES) if rng.random() < 0.9 else list(m.TYPES)
    # A stream that waits would keep the connection from being seen to its end.
    kinds = [each for each in kinds if each is not m.FetchStream]
    return codec.encode_frame(any_message(rng, rng.choice(kinds)), encoding)


def mutate(rng: random.Random, data: bytes) -> bytearray:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 6))):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(4)
        if kind == 0 and changed:
            changed[at % len(changed)] = rng.choice(EDGES)
        elif kind == 1 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            changed[at:at] = rng.randbytes(rng.randint(1, 9))
        else:
            del changed[at : at + rng.randint(1, 9)]
    return changed


def reframed(data: bytearray) -> bytes:
    """With the size that the bytes really have, so that what is inside gets looked at."""
    return bytes(data[:2]) + max(0, len(data) - 6).to_bytes(4, "big") + bytes(data[6:])


def case(rng: random.Random) -> bytes:
    encoding = rng.choice(list(Encoding))
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.choice((1, 4, 30, 3000)))
    if kind == 1:
        size = rng.choice((0, 1, 2, 4 << 20, (4 << 20) + 1, 1 << 31, (1 << 32) - 1))
        return rng.randrange(32).to_bytes(2, "big") + size.to_bytes(4, "big") + rng.randbytes(20)
    if kind == 2:
        return b"".join(any_request(rng, encoding) for _ in range(4))
    if kind == 3:
        return bytes(mutate(rng, any_request(rng, encoding)))
    return any_request(rng, encoding) + reframed(mutate(rng, any_request(rng, encoding)))


def send(address: str, data: bytes, rng: random.Random) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            if rng.random() < 0.5:
                while peer.recv(1 << 16):
                    pass
        except ConnectionError:
            return
        except OSError as error:
            # The node may hang up between the two calls: then there is nothing left to shut.
            if error.errno != errno.ENOTCONN:
                raise


@pytest.mark.timeout(120 * ROUNDS)
def test_node_survives_malformed_requests(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random("fuzz mlog")
    with (
        caplog.at_level(logging.WARNING),
        EphemeralBroker(listeners=("mlog", "any")) as broker,
        BlockingMlogClient(broker.address("mlog")) as polite,
    ):
        polite.create_topic("canary")
        for number in range(CASES * ROUNDS):
            send(broker.address(rng.choice(("mlog", "mlog", "any"))), case(rng), rng)
            if number % 50 == 0:
                content = b"canary %d" % number
                offset = polite.produce("canary", content)
                assert polite.fetch("canary", offset) == Entry(offset=offset, value=content)
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert not errors, [(each.name, each.getMessage(), each.exc_info) for each in errors[:3]]
