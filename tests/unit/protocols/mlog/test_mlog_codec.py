"""Goal: mlog's messages have exactly the original's bytes; bad bytes raise DecodeError, no more.

Method: the specification's vectors both ways; Go's reading rules one by one; every message in both
encodings with random values, cut at every byte, and random bytes (seeded).
"""

from __future__ import annotations

import random

import msgspec
import pytest

from dragoman.errors import DecodeError, EncodeError, LocalProtocolError
from dragoman.framing import Scratch
from dragoman.protocols.mlog import codec
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.constants import PAYLOAD_BYTES_MAX, Encoding, MessageType
from dragoman.protocols.mlog.handlers import metadata_events
from dragoman.protocols.mlog.messages import Field, Kind, fields_of
from protocols.mlog_vectors import JSON_FRAMES, METADATA_EVENTS, PROTOBUF_FRAMES, REPLICATION_BATCH

FRAMES = [
    *((frame, message, Encoding.JSON) for frame, message in JSON_FRAMES),
    *((frame, message, Encoding.PROTOBUF) for frame, message in PROTOBUF_FRAMES),
]


def decoded(number: int, payload: bytes, encoding: Encoding = Encoding.JSON) -> m.Message:
    return codec.decode_payload(number, payload, encoding)


# ---- vectors


@pytest.mark.parametrize(("frame", "message", "encoding"), FRAMES)
def test_vector_both_ways(frame: str, message: m.Message, encoding: Encoding) -> None:
    data = bytes.fromhex(frame)
    assert codec.encode_frame(message, encoding) == data
    assert decoded(int.from_bytes(data[:2], "big"), data[6:], encoding) == message


def test_every_json_message_has_a_vector_but_the_two_that_are_ours() -> None:
    seen = {type(message) for _, message in JSON_FRAMES}
    assert set(m.TYPES) - seen == {m.FetchStream, m.FetchStreamResp}


def test_numbers_are_the_declaration_order() -> None:
    assert [each.value for each in MessageType] == list(range(29))
    assert len(m.MESSAGES) == 29


def test_replication_batch_both_ways() -> None:
    data = bytes.fromhex(REPLICATION_BATCH)
    entries = [m.Entry(offset=5, value=b"hello"), m.Entry(offset=6, value=b"world!")]
    assert codec.encode_batch(entries) == data
    assert codec.decode_batch(data) == entries
    assert codec.encode_batch([]) == b""
    assert codec.decode_batch(b"") == []


def test_replication_batch_with_wrong_length_or_checksum_is_refused() -> None:
    data = bytes.fromhex(REPLICATION_BATCH)
    for end in range(1, len(data)):
        with pytest.raises(DecodeError):
            codec.decode_batch(data[:end])
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(DecodeError, match="checksum"):
        codec.decode_batch(damaged)


def test_malformed_tail_of_a_replication_batch_is_left_out() -> None:
    import struct
    import zlib

    good = struct.pack(">qi", 9, 2) + b"ok"
    for tail in (struct.pack(">qi", 10, 99) + b"x", b"\0\0\0", struct.pack(">qi", 10, -1)):
        records = good + tail
        header = struct.pack(">qiiIBi", 9, len(records), 0, zlib.crc32(records), 0, 1)
        assert codec.decode_batch(header + records) == [m.Entry(offset=9, value=b"ok")]


@pytest.mark.parametrize("text", METADATA_EVENTS)
def test_metadata_event_both_ways(text: str) -> None:
    event = metadata_events.decode_event(text.encode())
    assert metadata_events.encode_event(event).decode() == text


def test_every_event_has_a_vector() -> None:
    seen = [type(metadata_events.decode_event(text.encode())) for text in METADATA_EVENTS]
    assert tuple(seen) == metadata_events.EVENTS


@pytest.mark.parametrize("text", ['{"event_type":7,"data":{}}', "[]", "", '{"data":[]}', "{"])
def test_other_metadata_events_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        metadata_events.decode_event(text.encode())


# ---- Go's JSON


def test_keys_in_any_case_and_unknown_ones_are_taken() -> None:
    payload = b'{ "topic" : "t" , "VALUE":"aGk=","acks":1,"extra":{"deep":[1,{}]} }'
    assert decoded(2, payload) == m.Produce(topic="t", value=b"hi", acks=1)


def test_null_is_the_zero_value_everywhere() -> None:
    payload = b'{"Topic":null,"Value":null,"Acks":null}'
    assert decoded(2, payload) == m.Produce()
    payload = b'{"Entries":[null,{"Offset":null,"Value":""}]}'
    assert decoded(9, payload) == m.FetchBatchResp(entries=[m.Entry(), m.Entry(value=b"")])
    assert decoded(17, b'{"topic":"t","ReplicaNodeIds":[null]}') == m.CreateTopicResp(
        topic="t", replica_node_ids=[""]
    )
    assert decoded(4, b'{"values":[null,"YQ=="]}') == m.ProduceBatch(values=[None, b"a"])


def test_offsets_above_2_to_the_63_are_integers() -> None:
    largest = (1 << 64) - 1
    assert decoded(12, b'{"Topic":"t","Offset":%d}' % largest) == m.CommitOffset(
        topic="t", offset=largest
    )
    frame = codec.encode_frame(m.CommitOffset(topic="t", offset=largest), Encoding.JSON)
    assert b"18446744073709551615" in frame


def test_bytes_that_are_not_utf8_become_the_replacement_character() -> None:
    assert decoded(18, b'{"Topic":"a\xff"}') == m.DeleteTopic(topic="a\N{REPLACEMENT CHARACTER}")


def test_base64_may_have_line_ends() -> None:
    assert decoded(2, b'{"Value":"aG\\r\\nVs\\nbG8="}') == m.Produce(value=b"hello")


def test_line_separators_are_escaped() -> None:
    frame = codec.encode_frame(m.DeleteTopic(topic="a\u2028b\u2029"), Encoding.JSON)
    assert frame[6:] == b'{"Topic":"a\\u2028b\\u2029"}'


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{}x",
        b"{} {}",
        b'{"Topic":1}',
        b'{"Topic":{}}',
        b'{"Value":"not base64"}',
        b'{"Value":"YQ"}',
        b'{"Value":[1]}',
        b'{"Acks":"1"}',
        b'{"Acks":1.5}',
        b'{"Acks":1.0}',
        b'{"Acks":true}',
        b'{"acks":4294967296}',
        b'{"Acks":-2147483649}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_produce_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        decoded(2, payload)


@pytest.mark.parametrize(
    ("number", "payload"),
    [
        (4, b'{"Values":"YQ=="}'),
        (7, b'{"Entry":[]}'),
        (9, b'{"Entries":[1]}'),
        (12, b'{"Offset":-1}'),
        (12, b'{"Offset":18446744073709551616}'),
        (13, b'{"Success":1}'),
        (8, b'{"MaxCount":4294967296}'),
    ],
)
def test_wrong_types_and_ranges_are_refused(number: int, payload: bytes) -> None:
    with pytest.raises(DecodeError):
        decoded(number, payload)


@pytest.mark.parametrize("number", [29, 30, 1000, 65535])
def test_unknown_types_are_refused(number: int) -> None:
    with pytest.raises(DecodeError, match="message type"):
        decoded(number, b"{}")


# ---- protobuf


def test_unknown_fields_and_other_wire_types_are_skipped() -> None:
    # Field 9 as fixed64, fixed32, bytes and varint; field 3 (acks) as bytes; then the topic twice.
    junk = b"\x49" + bytes(8) + b"\x4d" + bytes(4) + b"\x4a\x02xx" + b"\x48\x05" + b"\x1a\x01y"
    assert decoded(2, junk + b"\x0a\x01a\x0a\x01b", Encoding.PROTOBUF) == m.Produce(topic="b")


def test_negative_and_large_integers() -> None:
    for message in (
        m.Produce(acks=-5),
        m.CommitOffset(offset=(1 << 64) - 1),
        m.ReplicaInfo(leo=-1),
        m.ReplicaInfo(leo=-(1 << 63)),
        m.FetchBatch(max_count=(1 << 32) - 1),
    ):
        from dragoman.protocols.mlog import protobuf

        assert protobuf.decode(type(message), protobuf.encode(message)) == message


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x00\x01",
        b"\x0b",
        b"\x7b",
        b"\x0a\x01\xff",
        b"\x18" + b"\xff" * 10 + b"\x01",
        b"\x18\x80",
        b"\x49\x00",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_bad_protobuf_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        decoded(2, payload, Encoding.PROTOBUF)


# ---- every message, random values


def random_struct(rng: random.Random, kind: type[msgspec.Struct]) -> msgspec.Struct:
    values: dict[str, object] = {}
    for field in fields_of(kind):
        if field.is_list:
            count = rng.randrange(1, 4)
            values[field.name] = [random_value(rng, field) for _ in range(count)]
        else:
            values[field.name] = random_value(rng, field)
    return kind(**values)


def random_value(rng: random.Random, field: Field) -> object:
    match field.kind:
        case Kind.TEXT:
            return "".join(rng.choices('aé<>&"\\\n\u2028\U0001f600\x01', k=rng.randrange(1, 6)))
        case Kind.BYTES:
            return rng.randbytes(rng.randrange(1, 20))
        case Kind.BOOL:
            return True
        case Kind.INT:
            return rng.choice((field.low or 1, field.high, rng.randint(1, field.high)))
        case Kind.MESSAGE:
            assert field.message is not None
            return random_struct(rng, field.message)


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("number", list(MessageType))
def test_random_messages_come_back_and_cut_ones_never_hang(
    number: MessageType, encoding: Encoding
) -> None:
    rng = random.Random(f"{number} {encoding}")
    for _ in range(20):
        message = random_struct(rng, m.MESSAGES[number])
        assert isinstance(message, m.Message)
        frame = codec.encode_frame(message, encoding)
        assert decoded(number, frame[6:], encoding) == message
        for end in range(6, len(frame)):
            try:
                decoded(number, frame[6:end], encoding)
            except DecodeError:
                continue
            assert encoding is Encoding.PROTOBUF, "cut JSON is never whole"


@pytest.mark.parametrize("encoding", list(Encoding))
def test_random_bytes_decode_or_raise_decode_error(encoding: Encoding) -> None:
    rng = random.Random(f"random bytes {encoding}")
    alphabet = b'{}[]":,0123456789.eE-+ntf \\uTopicValue\x00\x0a\x12\x1a\x80\xff'
    for _ in range(5000):
        payload = bytes(rng.choices(alphabet, k=rng.randrange(40)))
        try:
            decoded(rng.randrange(29), payload, encoding)
        except DecodeError:
            continue


# ---- encoding what cannot be


@pytest.mark.parametrize(
    "message",
    [
        m.CommitOffset(offset=-1),
        m.CommitOffset(offset=1 << 64),
        m.Produce(acks=1 << 31),
        m.DeleteTopic(topic="\ud800"),
    ],
)
@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_client_cannot_send_what_a_field_cannot_hold(
    message: m.Message, encoding: Encoding
) -> None:
    with pytest.raises(EncodeError):
        Connection(Role.CLIENT, encoding=encoding).send(message)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_payloads_above_the_limit_are_refused(encoding: Encoding) -> None:
    with pytest.raises(EncodeError, match="at most"):
        codec.encode_frame(m.Produce(value=bytes(PAYLOAD_BYTES_MAX)), encoding)


# ---- connection


@pytest.mark.parametrize(("frame", "message", "encoding"), FRAMES)
def test_connection_takes_frames_one_byte_at_a_time(
    frame: str, message: m.Message, encoding: Encoding
) -> None:
    data = bytes.fromhex(frame)
    is_request = type(message) in m.REPLIES
    role = Role.SERVER if is_request else Role.CLIENT
    connection = Connection(role, Scratch(), None if is_request else encoding)
    received = [each for byte in data for each in connection.receive_data(bytes([byte]))]
    assert received == [message]
    assert connection.encoding is encoding
    sender = Connection(Role.CLIENT if is_request else Role.SERVER, encoding=encoding)
    assert sender.send(message) == data


def test_server_keeps_the_encoding_of_the_first_frame() -> None:
    json_first = Connection(Role.SERVER)
    json_first.receive_data(bytes.fromhex("0017000000027b7d"))
    with pytest.raises(DecodeError):
        json_first.receive_data(bytes.fromhex("001700000000"))
    protobuf_first = Connection(Role.SERVER)
    assert protobuf_first.receive_data(bytes.fromhex("001700000000")) == [m.FindRaftLeader()]
    with pytest.raises(DecodeError):
        protobuf_first.receive_data(bytes.fromhex("0017000000027b7d"))


def test_oversized_frames_are_refused_by_their_header() -> None:
    for size in (PAYLOAD_BYTES_MAX + 1, 1 << 31, (1 << 32) - 1):
        with pytest.raises(DecodeError):
            Connection(Role.SERVER).receive_data(b"\x00\x02" + size.to_bytes(4, "big"))


def test_roles_send_their_own_messages_only() -> None:
    with pytest.raises(LocalProtocolError):
        Connection(Role.CLIENT, encoding=Encoding.JSON).send(m.ProduceResp())
    with pytest.raises(LocalProtocolError):
        Connection(Role.SERVER).send(m.Produce())
    with pytest.raises(LocalProtocolError):
        Connection(Role.CLIENT)
    client = Connection(Role.CLIENT, encoding=Encoding.JSON)
    with pytest.raises(DecodeError):
        client.receive_data(bytes.fromhex("0017000000027b7d"))
