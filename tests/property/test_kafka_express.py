"""Goal: the produce express answers, and leaves in the log, what the ordinary way would.

Method: the same requests go to two brokers in the same turns: to one all on one connection, several
to a read, so that most take the express; to the other each on a connection of its own, where none
can. Replies and logs must be equal.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dragoman.log.batch import CONTROL, TRANSACTIONAL
from dragoman.log.store import Durability
from dragoman.protocols.kafka import codec
from dragoman.types import Buffer
from worlds.broker import Wire, World, batch_of, produce_request

TOPICS = {"t": {}, "time": {"message.timestamp.type": "LogAppendTime"}, "longer-name": {}}
PARTITIONS = 2


class Ask(NamedTuple):
    version: int
    topic: str
    partition: int
    acks: int
    kind: str
    size: int
    producer: int
    sequence: int
    ends_turn: bool


asks = st.lists(
    st.builds(
        Ask,
        version=st.sampled_from((3, 5, 7, 7, 7, 9, 9, 12, 13)),
        topic=st.sampled_from((*TOPICS, "t", "t", "t")),
        partition=st.sampled_from((0, 0, 0, 1, 2)),
        acks=st.sampled_from((-1, -1, -1, 1, 3)),
        kind=st.sampled_from(("good",) * 8 + ("cut", "crc", "control", "transactional", "none")),
        size=st.sampled_from((0, 1, 1, 30, 90, 9000, 20_000)),
        producer=st.sampled_from((-1, -1, 5)),
        sequence=st.integers(0, 3),
        ends_turn=st.booleans(),
    ),
    max_size=40,
)


def records_of(ask: Ask) -> Buffer | None:
    if ask.kind == "none":
        return None
    attributes = {"control": CONTROL, "transactional": TRANSACTIONAL}.get(ask.kind, 0)
    is_idempotent = ask.producer >= 0
    batch = batch_of(
        b"v" * ask.size,
        attributes=attributes,
        producer_id=ask.producer,
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=ask.sequence if is_idempotent else -1,
    )
    if ask.kind == "cut":
        del batch[-1:]
    if ask.kind == "crc":
        batch[-1] ^= 1
    return batch


class Rig:
    def __init__(self) -> None:
        self.world = World(durability=Durability.OS)
        for topic, config in TOPICS.items():
            config = {"max.message.bytes": "15000", **config}
            self.world.create(topic, PARTITIONS, config)

    def frame(self, ask: Ask, number: int) -> bytes:
        topic_id = self.world.broker.image.topics[ask.topic].topic_id
        request = produce_request(
            ask.topic,
            records_of(ask),
            partition=ask.partition,
            acks=ask.acks,
            topic_id=topic_id,
        )
        return codec.join(codec.encode_request(request, ask.version, number, "client"))

    def logs(self) -> list[bytes]:
        return [
            b"".join(replica.log.read(0, 1 << 30, replica.log.high_watermark).buffers)
            for topic in TOPICS
            for index in range(PARTITIONS)
            for replica in [self.world.broker.partitions.find(topic, index)]
        ]


def turns_of(asked: list[Ask]) -> list[list[int]]:
    turns: list[list[int]] = [[]]
    for number, ask in enumerate(asked):
        turns[-1].append(number)
        if ask.ends_turn:
            turns.append([])
    return turns


def on_one_connection(rig: Rig, asked: list[Ask]) -> bytes:
    wire = Wire(rig.world)
    for turn in turns_of(asked):
        wire.feed(b"".join(rig.frame(asked[number], number) for number in turn))
        rig.world.settle()
    assert rig.world.budget.used == 0
    return bytes(wire.transport.sent)


def on_a_connection_each(rig: Rig, asked: list[Ask]) -> bytes:
    replies = b""
    for turn in turns_of(asked):
        wires = [Wire(rig.world) for _ in turn]
        for wire, number in zip(wires, turn, strict=True):
            wire.feed(rig.frame(asked[number], number))
        rig.world.settle()
        replies += b"".join(bytes(wire.transport.sent) for wire in wires)
    return replies


@given(asks)
def test_express_and_ordinary_way_agree(asked: list[Ask]) -> None:
    express, ordinary = Rig(), Rig()
    assert on_one_connection(express, asked) == on_a_connection_each(ordinary, asked)
    assert express.logs() == ordinary.logs()
