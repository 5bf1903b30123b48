"""Goal: whatever bytes arrive, decoders raise nothing but `DecodeError`.

Method: seeded mutations of valid bodies of every API, direction and version, and of whole streams
for the connection. What still decodes must encode again. `DRAGOMAN_FUZZ_ROUNDS` multiplies the
work.
"""

from __future__ import annotations

import os
import random

import pytest

from dragoman.errors import DecodeError, EncodeError
from dragoman.framing import Scratch
from dragoman.protocols.kafka import codec, notation
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import ServerConnection
from protocols.kafka_messages import all_versions, random_message

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
MUTANTS = 60
#: Lengths, counts and their edges.
BYTES = (0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def mutate(rng: random.Random, body: bytes) -> bytearray:
    data = bytearray(body)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        kind = rng.randrange(5)
        at = rng.randrange(len(data) + 1)
        if kind == 0 and data:
            data[at % len(data)] = rng.choice(BYTES)
        elif kind == 1 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            data[at : at + 4] = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\x01"))
    return data


def small_message(rng: random.Random, name: str, version: int) -> m.Message:
    """A message of at most a few hundred bytes, so that mutations hit structure and not payload."""
    for _ in range(20):
        message = random_message(rng, name, version)
        if len(codec.encode_body(message, version)) < 400:
            return message
    made: m.Message = getattr(m, name)()
    return made


@pytest.mark.parametrize("name", notation.message_names())
def test_mutated_bodies_raise_only_decode_errors(name: str) -> None:
    rng = random.Random(f"fuzz {name}")
    kind = getattr(m, name)
    for version in all_versions(name):
        for _ in range(ROUNDS):
            body = codec.encode_body(small_message(rng, name, version), version)
            for _ in range(MUTANTS):
                check(kind, version, mutate(rng, body))


def check(kind: type[m.Message], version: int, data: bytearray) -> None:
    try:
        message = codec.decode(kind, version, data)
    except DecodeError:
        return
    # Floats that are not numbers differ from themselves; everything else must come back.
    again = codec.decode(kind, version, codec.encode_body(message, version))
    assert again == message or "nan" in repr(message)


def test_random_bytes_raise_only_decode_errors() -> None:
    rng = random.Random(7)
    names = notation.message_names()
    for _ in range(3000 * ROUNDS):
        name = rng.choice(names)
        version = rng.choice(all_versions(name))
        check(getattr(m, name), version, bytearray(rng.randbytes(rng.randrange(60))))


def test_mutated_streams_raise_only_decode_errors() -> None:
    rng = random.Random(8)
    scratch = Scratch(256)
    requests = [name for name in notation.message_names() if name.endswith("Request")]
    for _ in range(1500 * ROUNDS):
        stream = b""
        for _ in range(3):
            name = rng.choice(requests)
            version = rng.choice(all_versions(name))
            message = small_message(rng, name, version)
            stream += codec.join(codec.encode_request(message, version, 1, rng.choice((None, "c"))))
        receive(ServerConnection(2000, scratch), mutate(rng, stream))


def receive(connection: ServerConnection, data: bytearray) -> None:
    try:
        for request in connection.receive_data(data):
            request.decode()
    except DecodeError:
        return


def test_mutated_values_raise_only_encode_errors() -> None:
    rng = random.Random(9)
    wrong = (None, "text", b"bytes", -1, 1 << 70, 1.5, [None], object())
    for _ in range(5000 * ROUNDS):
        name = rng.choice(notation.message_names())
        version = rng.choice(all_versions(name))
        message = small_message(rng, name, version)
        field = rng.choice(message.__struct_fields__)
        values = {other: getattr(message, other) for other in message.__struct_fields__}
        broken = type(message)(**(values | {field: rng.choice(wrong)}))
        try:
            codec.encode_body(broken, version)
        except EncodeError:
            continue
