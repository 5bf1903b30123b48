"""Bytes that were captured from the original broker and its clients: the server says the same.

Goal: every vector of the protocol's description. Method: the frame goes into a world's session and
what comes back is compared byte by byte; vectors of single messages go through the codec both ways.
"""

from __future__ import annotations

import random
import re

import pytest

from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.connection import Connection, Role
from dragoman.protocols.cursus.messages import Batch, Command, KeepAlive, Text
from worlds.broker import World
from worlds.cursus import CursusPipe, framed

BATCH = bytes.fromhex(
    "00000095ba7c00066f72646572730000000001310000000000000000010000000000000002000000020000000000"
    "00000000000000000000010002703100026b3100000000000000070000000568656c6c6f00000000000000000000"
    "00000000000000000000000000000000000000000002000270310000000000000000000700000005776f726c6400"
    "000000000000000000000000000000"
)
ACK = bytes.fromhex(
    "0000005f7b22737461747573223a224f4b222c226c6173745f6f6666736574223a312c2270726f64756365725f65"
    "706f6368223a372c2270726f64756365725f6964223a227031222c227365715f7374617274223a312c227365715f"
    "656e64223a327d"
)
EMPTY = bytes.fromhex(
    "00000025ba7c00066f7264657273000000000131000000000000000000000000000000000000000000"
)
STREAMED = bytes.fromhex(
    "ba7c00066f7264657273000000000131000000000000000000000000000000000000000001000000000000000300"
    "000000000000000002633100000000000000000000000000046c69766500000000000000000000000000000000"
)
EVENTS = bytes.fromhex(
    "ba7c0002657300000000013100000000000000000000000000000000000000000200000000000000000000000000"
    "000000000000036f2d310000000000000000000000077b2261223a317d0007437265617465640000000100000000"
    "00000001000000000000000000010000000000000000000000036f2d310000000000000000000000077b2261223a"
    "327d000355706400000003000000000000000200077b226d223a317d"
)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> CursusPipe:
    return CursusPipe(world)


def test_raw_list(pipe: CursusPipe) -> None:
    assert pipe.exchange(bytes.fromhex("000000044c495354")) == framed("OK count=0 topics=")


def test_create_in_an_envelope_and_metadata_in_an_empty_one(pipe: CursusPipe) -> None:
    create = "00000022000561646d696e43524541544520746f7069633d7420706172746974696f6e733d32"
    policy = (
        "cleanup_policy=delete partitioner=hash_key auth_policy=open read_acl= write_acl= "
        "retention_hours=0 retention_bytes=0"
    )
    assert pipe.exchange(bytes.fromhex(create)) == framed(f"OK topic=t partitions=2 {policy}")
    metadata = bytes.fromhex("0000001200004d4554414441544120746f7069633d74")
    leaders = "leaders=localhost:9000,localhost:9000 epochs=0,0"
    assert pipe.exchange(metadata) == framed(f"OK topic=t partitions=2 {leaders} {policy}")


def test_join_reply(pipe: CursusPipe, world: World) -> None:
    pipe.ask("CREATE topic=t partitions=2")
    world.broker.random = _Digits(110)  # type: ignore[assignment]
    expected = (
        "000000314f4b2067656e65726174696f6e3d31206d656d6265723d6369642d303131302061737369676e6d65"
        "6e74733d5b3020315d"
    )
    assert pipe.exchange(framed("JOIN_GROUP topic=t group=g member=cid")).hex() == expected


class _Digits(random.Random):
    def __init__(self, value: int) -> None:
        super().__init__()
        self._value = value

    def randrange(self, *_: object) -> int:  # type: ignore[override]
        return self._value


def test_batch_and_its_acknowledgement(pipe: CursusPipe) -> None:
    pipe.ask("CREATE topic=orders partitions=1")
    assert pipe.exchange(BATCH) == ACK
    read = pipe.ask_batch("CONSUME topic=orders partition=0 offset=0 member=m")
    sent = codec.decode_batch(BATCH[4:])
    assert [(each.key, each.payload, each.producer_id, each.epoch) for each in read.messages] == [
        (each.key, each.payload, each.producer_id, each.epoch) for each in sent.messages
    ]


def test_batch_in_the_layout_of_the_first_page(pipe: CursusPipe) -> None:
    pipe.ask("CREATE topic=orders partitions=1")
    data = BATCH[4:]
    start = 4 + len("orders")
    first_page = data[:start] + b"\x00\x010" + b"\x00\x011" + data[start + 6 :]
    assert pipe.exchange(framed(first_page)) == ACK


def test_empty_consume(pipe: CursusPipe) -> None:
    pipe.ask("CREATE topic=orders partitions=1")
    consume = "CONSUME topic=orders partition=0 offset=0 member=m"
    assert pipe.exchange(framed(consume)) == EMPTY


def test_stream_push_keep_alive_and_replacement(pipe: CursusPipe, world: World) -> None:
    pipe.ask("CREATE topic=orders partitions=1")
    for _ in range(3):
        pipe.ask("PUBLISH topic=orders producerId=c1 message=before")
    stream = CursusPipe(world)
    assert stream.exchange(framed("STREAM topic=orders partition=0 group=g offset=3")) == b""
    pipe.ask("PUBLISH topic=orders producerId=c1 message=live")
    assert stream.received() == framed(STREAMED)
    world.advance(5.0)
    assert stream.received() == bytes(4)
    CursusPipe(world).exchange(framed("STREAM topic=orders partition=0 group=g offset=4"))
    world.settle()
    expected = (
        "0000003253545245414d5f434f4e54524f4c20747970653d434c4f534520726561736f6e3d7265706c616365"
        "64206f66667365743d34"
    )
    assert stream.received().hex() == expected
    assert stream.is_closed


def test_events_of_a_stream(pipe: CursusPipe) -> None:
    pipe.ask("CREATE topic=es partitions=1 event_sourcing=true")
    first = "APPEND_STREAM topic=es key=o-1 version=1 event_type=Created"
    assert pipe.ask(first + ' message={"a":1}') == "OK version=1 offset=0 partition=0"
    second = "APPEND_STREAM topic=es key=o-1 version=2 event_type=Upd schema_version=3"
    assert (
        pipe.ask(second + ' metadata={"m":1} message={"a":2}')
        == "OK version=2 offset=1 partition=0"
    )
    pipe.feed(framed("READ_STREAM topic=es key=o-1"))
    pipe.world.settle()
    head, events = pipe.frames()
    assert head.decode() == '{"status":"OK","topic":"es","key":"o-1","partition":0,"count":2}'
    assert events == EVENTS


def test_compressed_command(pipe: CursusPipe) -> None:
    sent = bytes.fromhex(
        "1f8b0800000000000203730e72750c715528c92fc84cb6ad5228482c2ac92cc9cccf2bb63504001f6106461b"
        "000000"
    )
    assert pipe.ask_raw(sent).startswith(b"OK topic=z partitions=1 ")


def test_redirect(pipe: CursusPipe, world: World) -> None:
    from dragoman.cluster.events import LeaderChanged

    pipe.ask("CREATE topic=orders partitions=1")
    partition = world.broker.image.topics["orders"].partitions[0]
    world.broker.image.apply(
        LeaderChanged(
            partition_id=partition.partition_id,
            leader=2,
            leader_epoch=1,
            in_sync=(2,),
            partition_epoch=1,
        )
    )
    pipe.channel._session.service.registered = lambda node: (f"10.0.0.{node}", 9000)
    redirect = (
        "000000294552524f523a204e4f545f4c4541444552204c45414445525f49532031302e302e302e323a3930"
    )
    consume = framed("CONSUME topic=orders partition=0 offset=0 member=m")
    assert pipe.exchange(consume).hex() == redirect + "3030"


def test_hashes() -> None:
    assert codec.fnv1a_32(b"k1") == 0x983D80C1
    assert codec.fnv1a_64(b"k1") == 0x08BE0F07B56224C1


def test_vectors_through_the_connection_of_either_end() -> None:
    server, client = Connection(Role.SERVER), Connection(Role.CLIENT)
    (command,) = server.receive_data(bytes.fromhex("0000001200004d4554414441544120746f7069633d74"))
    assert isinstance(command, Command)
    assert (command.word, dict(command.arguments)) == ("METADATA", {"topic": "t"})
    (batch,) = server.receive_data(BATCH)
    assert isinstance(batch, Batch)
    assert client.send(batch) == BATCH
    assert client.receive_data(bytes(4)) == [KeepAlive()]
    assert client.receive_data(ACK) == [Text(ACK[4:].decode())]
    assert server.send(KeepAlive()) == bytes(4)
    for pushed in (STREAMED, EVENTS, EMPTY[4:]):
        (found,) = client.receive_data(framed(pushed))
        assert isinstance(found, Batch)
        assert server.send(found) == framed(pushed)


def test_group_status_has_the_times_of_the_original(pipe: CursusPipe) -> None:
    pipe.ask("CREATE topic=orders partitions=2")
    pipe.ask("JOIN_GROUP topic=orders group=g1 member=c1")
    status = pipe.ask("GROUP_STATUS group=g1")
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"
    pattern = (
        r'\{"status":"OK","group_name":"g1","topic_name":"orders","state":"Stable","generation":1,'
        r'"member_count":1,"partition_count":2,"members":\[\{"member_id":"c1-\d{4}",'
        rf'"last_heartbeat":"{moment}","assignments":\[0,1\]\}}\],"last_rebalance":"{moment}"\}}'
    )
    assert re.fullmatch(pattern, status), status
