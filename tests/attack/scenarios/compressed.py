"""Batches that are small until their records are needed."""

from __future__ import annotations

import struct
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from attack.scenarios.requests import Client
from attack.target import Target, settle
from dragoman.log.batch import Record, build_batch
from dragoman.log.compression import Codec
from dragoman.protocols.kafka import messages as m

_TOPIC = "bombs"
_READS = 20
#: Of a produce reply in version 9: header, topics, name, partitions and index come before the code.
_ERROR_AT = 5 + 1 + 1 + len(_TOPIC) + 1 + 4


def _create(target: Target) -> None:
    admin = AdminClient({"bootstrap.servers": target.cluster.bootstrap()})
    try:
        admin.create_topics([NewTopic(_TOPIC, 1, replication_factor=target.count)])[_TOPIC].result()
    except KafkaException as error:
        raise RuntimeError(str(error)) from error


def _produce(target: Target, batch: bytearray) -> int:
    """The error code, from whichever node leads."""
    part = m.ProduceRequestPartition(index=0, records=batch)
    topic = m.ProduceRequestTopic(name=_TOPIC, partition_data=[part])
    request = m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
    code = -1
    for node in range(1, target.count + 1):
        with Client(target, node) as client:
            answer = client.ask(request, 9)
        if answer is not None:
            (code,) = struct.unpack_from(">h", answer, _ERROR_AT)
            if code != 6:
                return int(code)
    return int(code)


def _read(target: Target) -> tuple[int, float]:
    """Small reads over Cursus, each on a connection of its own: how many were answered, and the
    longest of them.
    """
    command = f"CONSUME topic={_TOPIC} partition=0 offset=0 member=m batch=1".encode()
    answered, worst = 0, 0.0
    for _ in range(_READS):
        began = time.monotonic()
        with target.connect("cursus") as peer:
            peer.settimeout(30.0)
            peer.sendall(struct.pack(">I", len(command)) + command)
            try:
                answered += bool(peer.recv(4))
            except OSError:
                continue
        worst = max(worst, time.monotonic() - began)
    return answered, worst


def bombs(size: int, count: int, target: Target) -> str:
    """`count` records that are `size` bytes together."""
    _create(target)
    made = [Record(value=bytes(size // count), timestamp=1) for _ in range(count)]
    code = _produce(target, build_batch(made, codec=Codec.GZIP))
    settle(1.0)
    answered, worst = _read(target)
    settle(1.0)
    return f"produce answered {code}; {answered} of {_READS} reads, the longest {worst:.2f} s"


ATTACKS = (
    ("compressed: 200 MiB", lambda target: bombs(200 << 20, 200, target)),
    ("compressed: 300 MiB", lambda target: bombs(300 << 20, 300, target)),
    ("compressed: 28 MiB of small records", lambda target: bombs(20 << 20, 400_000, target)),
)
