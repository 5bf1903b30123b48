"""Goal: RocketMQ's bytes are those of the specification, both ways, and bad ones are refused."""

from __future__ import annotations

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DecodeError, EncodeError
from dragoman.protocols.rocketmq.codec import Command, Connection, decode, encode
from dragoman.protocols.rocketmq.constants import Serialization
from dragoman.protocols.rocketmq.messages import (
    BatchedMessage,
    Message,
    decode_batch,
    decode_messages,
    decode_properties,
    encode_batch,
    encode_message,
    encode_properties,
    host_bytes,
    host_text,
    offset_message_id,
    read_message_id,
    tag_hash,
)

V1 = bytes.fromhex(
    "0000007f0000007b7b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a2254227d2c"
    "22666c6167223a302c226c616e6775616765223a224a415641222c226f7061717565223a312c2273657269616c69"
    "7a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3339397d"
)
V2 = bytes.fromhex(
    "0000002501000021006900018f0000000100000000000000000000000c0005746f7069630000000154"
)
V3 = bytes.fromhex("000000210100001d001100018f0000000100000001000000086e6f20746f70696300000000")
V3B = bytes.fromhex(
    "00000065000000617b22636f6465223a34302c226578744669656c6473223a7b22636f6e73756d657247726f7570"
    "223a2267227d2c22666c6167223a322c226c616e6775616765223a224a415641222c226f7061717565223a372c22"
    "76657273696f6e223a3339397d"
)
V4 = bytes.fromhex(
    "00000073daa320a73610a6860000000100000000000000000000000500000000000004000000000000000174876e"
    "8000c0a8010a0000d43100000174876e807bc0a8010200002a9f0000000000000000000000000000000568656c6c"
    "6f01540012544147530154616741024b455953016b3102"
)
V7 = bytes.fromhex(
    "0000001e0000000000000000000000000000000161000754414753017802000000180000000000000000000000"
    "000000000262630000"
)


def command(**changes: object) -> Command:
    given = {"code": 105, "opaque": 1, "language": "JAVA", "fields": {"topic": "T"}} | changes
    return Command(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("vector", "meant"),
    [
        (V1, command(stated_serialization="JSON")),
        (V2, command(serialization=Serialization.BINARY)),
        (
            V3,
            command(
                code=17,
                flag=1,
                remark="no topic",
                fields={},
                serialization=Serialization.BINARY,
            ),
        ),
        (V3B, command(code=40, flag=2, opaque=7, fields={"consumerGroup": "g"})),
    ],
)
def test_vectors_of_commands(vector: bytes, meant: Command) -> None:
    assert encode(meant) == vector
    for size in (1, 7, len(vector)):
        connection = Connection()
        found = []
        for start in range(0, len(vector), size):
            found += connection.receive_data(vector[start : start + size])
        assert found == [meant]


def test_the_vector_of_a_message() -> None:
    meant = Message(
        topic="T",
        body=b"hello",
        properties={"TAGS": "TagA", "KEYS": "k1"},
        queue_id=1,
        queue_offset=5,
        physical_offset=1024,
        born_ms=1600000000000,
        born_host=host_bytes("192.168.1.10", 54321),
        store_ms=1600000000123,
        store_host=host_bytes("192.168.1.2", 10911),
    )
    assert encode_message(meant) == V4
    assert decode_messages(V4 + V4) == [meant, meant]
    assert meant.message_id == "C0A8010200002A9F0000000000000400"


def test_the_vector_of_a_batch() -> None:
    meant = [BatchedMessage(0, b"a", b"TAGS\x01x\x02"), BatchedMessage(0, b"bc", b"")]
    assert encode_batch(meant) == V7
    assert decode_batch(V7) == meant


@pytest.mark.parametrize(
    ("tag", "number"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("*", 42),
        ("", 0),
        ("订单", 1129459),
        ("polygenelubricants", -2147483648),
    ],
)
def test_tags_hash_as_in_java(tag: str, number: int) -> None:
    assert tag_hash(tag) == number


def test_ids_and_hosts() -> None:
    store = host_bytes("192.168.1.2", 10911)
    assert offset_message_id(store, 1024) == "C0A8010200002A9F0000000000000400"
    assert read_message_id("C0A8010200002A9F0000000000000400") == (store, 1024)
    assert host_text(store) == "192.168.1.2:10911"
    assert host_bytes("example.org", 7) == host_bytes("0.0.0.0", 7)
    for bad in ("", "xyz", "C0A8", "zz" * 16):
        with pytest.raises(DecodeError):
            read_message_id(bad)


def test_values_of_other_clients_are_taken_as_text() -> None:
    header = (
        b'{"code":15,"language":3,"version":1,"opaque":9,"flag":2,"extFields":'
        b'{"queueId":3,"commitOffset":-1,"unitMode":false,"batch":true,"topic":"T","x":null}}'
    )
    frame = len(header).to_bytes(4, "big") + header
    found = decode(frame)
    assert found.language == "PYTHON"
    assert found.fields == {
        "queueId": "3",
        "commitOffset": "-1",
        "unitMode": "false",
        "batch": "true",
        "topic": "T",
    }


def test_json_has_no_blanks() -> None:
    assert b" " not in encode(command(fields={"a": "b", "c": "d"}, remark="x"))[8:]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\5{}",
        b"\0\0\0\2{}",
        b"\0\0\0\4null",
        b"\0\0\0\5[1,2]",
        b"\x02\0\0\2{}",
        b'\0\0\0\x0a{"code":"',
        b"\0\0\0\x17" + b'{"code":1,"opaque":1e30}'[:23],
        b"\x01\0\0\5\0\0\0\0\0",
        V2[4:-1],
        V2[4:8] + V2[8:-4] + b"\xff\xff\xff\xff",
    ],
)
def test_what_is_no_command_is_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(frame)


def test_a_frame_that_announces_too_much_is_refused_before_it_comes() -> None:
    for size in (b"\x01\0\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0"):
        with pytest.raises(DecodeError):
            Connection().receive_data(size + bytes(8))


def test_what_the_binary_header_cannot_say_is_refused() -> None:
    with pytest.raises(EncodeError):
        encode(command(code=200050, serialization=Serialization.BINARY))


names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
values = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=50)


@given(
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    remark=st.none() | values,
    fields=st.dictionaries(names, values, max_size=5),
    body=st.binary(max_size=50),
    serialization=st.sampled_from(Serialization),
)
def test_commands_come_back_as_they_were(**parts: object) -> None:
    meant = command(**parts)
    (found,) = Connection().receive_data(encode(meant))
    assert found == meant


properties = st.dictionaries(
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1),
    max_size=6,
)


@given(
    topic=st.text("abc%-_", min_size=1, max_size=200),
    body=st.binary(max_size=100),
    properties=properties,
    queue_id=st.integers(0, 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    reconsume_times=st.integers(0, 100),
)
def test_messages_come_back_as_they_were(**parts: object) -> None:
    meant = Message(**parts)  # type: ignore[arg-type]
    assert decode_messages(encode_message(meant)) == [meant]
    assert decode_properties(encode_properties(meant.properties).decode()) == meant.properties


@given(st.binary(max_size=200))
def test_broken_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    for read in (decode, decode_messages, decode_batch):
        try:
            read(data)
        except DecodeError:
            continue


@given(st.integers(0, len(V4) * 8 - 1))
def test_a_wrong_bit_in_a_message_does_no_harm(bit: int) -> None:
    data = bytearray(V4)
    data[bit // 8] ^= 1 << bit % 8
    try:
        decode_messages(data)
    except DecodeError:
        return


def test_a_header_that_is_nested_too_deep_does_no_harm() -> None:
    header = b'{"code":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    # From Python 3.14 on, the bound is the stack, and what is skipped needs little of it.
    with suppress(DecodeError):
        assert decode(pack(">I", len(header)) + header).code == 1
