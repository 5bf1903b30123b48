"""Goal: whatever bytes clients send, a node stays up, serves the others and keeps its log whole.

Method: seeded requests of every API and version that is served, whole or mutated, alone or behind
one another, and plain garbage, each on a connection of its own to an in-process node. A client with
manners is asked throughout; nothing may be logged as an error; at the end the directory is
verified. `DRAGOMAN_FUZZ_ROUNDS` multiplies the work.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import socket
import struct
from pathlib import Path

import pytest

from dragoman.log.batch import batches
from dragoman.log.compression import Codec
from dragoman.protocols.kafka import codec, notation
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ACCEPTED_VERSIONS, ApiKey
from dragoman.protocols.kafka.handlers.session import HANDLERS
from dragoman.testing import EphemeralBroker
from protocols.kafka_messages import random_message
from protocols.kafka_socket import KafkaSocket
from worlds.broker import batch_of, values_in

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
CASES = 6000
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)


def any_request(rng: random.Random) -> bytes:
    """A request that decodes, with any values the schema allows."""
    key = ApiKey(rng.choice(sorted(HANDLERS)))
    versions = ACCEPTED_VERSIONS[key]
    version = rng.randint(versions.low, versions.high)
    name = notation.name_of(key, "Request")
    assert name is not None
    message = random_message(rng, name, version)
    return codec.join(codec.encode_request(message, version, rng.randrange(1 << 31), "fuzz"))


def produce_request(rng: random.Random) -> bytes:
    """A produce to a topic that exists; its batch is damaged more often than not."""
    batch = batch_of(
        *(rng.randbytes(rng.randrange(200)) for _ in range(rng.randint(1, 4))),
        codec=rng.choice(list(Codec)),
        key=None if rng.random() < 0.2 else b"k",
        timestamp=rng.choice((-1, 0, 1_700_000_000_000, (1 << 62))),
        producer_id=rng.choice((-1, -1, 0, 5, 1 << 40)),
        producer_epoch=rng.choice((-1, 0, 3, 32767)),
        base_sequence=rng.choice((-1, 0, 1, (1 << 31) - 1)),
    )
    if rng.random() < 0.7:
        batch = mutate(rng, batch)
    part = m.ProduceRequestPartition(rng.choice((0, 0, 1, -1)), batch)
    topic = m.ProduceRequestTopic(name=rng.choice(("plain", "compact")), partition_data=[part])
    request = m.ProduceRequest(acks=rng.choice((-1, 0, 1, 7)), topic_data=[topic])
    return codec.join(codec.encode_request(request, rng.randint(3, 12), 1, "fuzz"))


def mutate(rng: random.Random, data: bytes | bytearray) -> bytearray:
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


def reframed(data: bytes | bytearray) -> bytes:
    """With the size that the bytes really have, so that what is inside gets looked at."""
    return struct.pack(">i", len(data) - 4) + bytes(data[4:])


def case(rng: random.Random) -> bytes:
    kind = rng.randrange(10)
    if kind == 0:
        return rng.randbytes(rng.choice((1, 4, 30, 3000)))
    if kind == 1:
        return struct.pack(
            ">i", rng.choice((0, -1, 1, 7, 8, 13, 1 << 20, 1 << 30))
        ) + rng.randbytes(20)
    if kind == 2:
        return any_request(rng) + any_request(rng) + any_request(rng)
    if kind == 3:
        return bytes(mutate(rng, any_request(rng)))
    if kind in (4, 5):
        return produce_request(rng)
    if kind == 6:
        return any_request(rng) + reframed(mutate(rng, any_request(rng))) + any_request(rng)
    return reframed(mutate(rng, any_request(rng)))


def send(address: str, data: bytes, rng: random.Random) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            if rng.random() < 0.5:
                # Some wait for what comes; the node closes once it has seen the end.
                while peer.recv(1 << 16):
                    pass
        except ConnectionError:
            return
        except OSError as error:
            # The node may hang up between the two calls: then there is nothing left to shut.
            if error.errno != errno.ENOTCONN:
                raise


@pytest.mark.timeout(300 * ROUNDS)
def test_node_survives_malformed_requests(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random("fuzz the server")
    data = str(tmp_path / "data")
    with (
        caplog.at_level(logging.WARNING),
        EphemeralBroker(storage="directory", directory=data, listeners=("kafka",)) as broker,
        KafkaSocket(broker.bootstrap_servers) as polite,
    ):
        for topic, policy in (("canary", "delete"), ("plain", "delete"), ("compact", "compact")):
            polite.create_topic(topic, cleanup_policy=policy)
        for number in range(CASES * ROUNDS):
            send(broker.bootstrap_servers, case(rng), rng)
            if number % 50 == 0:
                content = b"canary %d" % number
                answer = polite.produce("canary", batch_of(content))
                assert answer.error_code == 0
                found = polite.fetch("canary", answer.base_offset).records
                assert values_in(found) == [content]
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert not errors, [(each.name, each.getMessage(), each.exc_info) for each in errors[:3]]
    assert verified(tmp_path / "data") > 100


def verified(directory: Path) -> int:
    """Batches in the directory's segments, every one checked, after a clean stop."""
    count = 0
    for partition in sorted((directory / "partitions").iterdir()):
        expected = 0
        for segment in sorted(partition.glob("*.log")):
            # Raises for a batch that is cut off, fails its checksum or has impossible counts.
            for header, batch in batches(memoryview(segment.read_bytes())):
                assert header.base_offset == expected, (segment, header)
                assert header.is_control or header.record_count == header.last_offset_delta + 1
                expected = header.last_offset + 1
                count += 1
                assert len(batch) == header.size
    return count
