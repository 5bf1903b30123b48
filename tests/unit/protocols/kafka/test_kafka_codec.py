"""Goal: encoders and decoders are total, keep versions apart, and do not copy records.

Method: hand-made bodies for malformed input, and messages whose fields a version lacks. That the
bytes are Kafka's is shown by the vectors and by the oracles in tests/property.
"""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from dragoman.errors import DecodeError, EncodeError
from dragoman.limits import KAFKA_ITEMS_MAX, KAFKA_RECORDS_INLINE_BYTES_MAX
from dragoman.protocols.kafka import codec, notation
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.decoder_source import _DecoderEmitter
from dragoman.protocols.kafka.encoder_source import _EncoderEmitter
from dragoman.protocols.kafka.errors import UnsupportedVersionError
from protocols.kafka_messages import all_versions, random_message

LARGE = bytes(range(256)) * 64


def fetch_response(*records: object) -> m.FetchResponse:
    partitions = [
        m.FetchResponsePartition(partition_index=index, records=item)  # type: ignore[arg-type]
        for index, item in enumerate(records)
    ]
    return m.FetchResponse(responses=[m.FetchResponseTopic(topic="t", partitions=partitions)])


def produce_request(name: str = "t", records: bytes | None = b"r") -> m.ProduceRequest:
    partition = m.ProduceRequestPartition(index=1, records=records)
    topic = m.ProduceRequestTopic(name=name, partition_data=[partition])
    return m.ProduceRequest(acks=1, timeout_ms=5, topic_data=[topic])


# ---- round trips


@pytest.mark.parametrize("name", notation.message_names())
def test_every_version_round_trips(name: str) -> None:
    rng = random.Random(name)
    for version in all_versions(name):
        message = random_message(rng, name, version)
        body = codec.encode_body(message, version)
        assert codec.decode(type(message), version, body) == message
        # Bytes in front of the body belong to a header and are not touched.
        assert codec.decode(type(message), version, bytearray(b"head" + body), 4) == message


@pytest.mark.parametrize("name", notation.message_names())
def test_defaults_round_trip(name: str) -> None:
    message = getattr(m, name)()
    for version in all_versions(name):
        assert codec.decode(type(message), version, codec.encode_body(message, version)) == message


# ---- records


@pytest.mark.parametrize("version", [4, 12])
def test_large_records_are_sent_as_they_are(version: int) -> None:
    frame = codec.encode_response(fetch_response(LARGE, b"small", LARGE), version, 1)
    assert [buffer is LARGE for buffer in frame] == [False, True, False, True, False]
    assert len(codec.join(frame)) == 4 + int.from_bytes(frame[0][:4], "big")


@pytest.mark.parametrize("version", [4, 12])
def test_records_may_be_several_buffers(version: int) -> None:
    whole = codec.encode_response(fetch_response(LARGE * 2 + b"end"), version, 1)
    pieces = codec.encode_response(fetch_response((LARGE, memoryview(LARGE), b"end")), version, 1)
    assert codec.join(pieces) == codec.join(whole)
    assert pieces[1] is LARGE
    small = codec.encode_response(fetch_response((b"a", bytearray(b"b"))), version, 1)
    assert codec.join(small) == codec.join(codec.encode_response(fetch_response(b"ab"), version, 1))
    assert len(small) == 1


def test_records_of_the_inline_limit_are_copied() -> None:
    at_limit = bytes(KAFKA_RECORDS_INLINE_BYTES_MAX)
    assert len(codec.encode_response(fetch_response(at_limit), 4, 1)) == 1
    assert len(codec.encode_response(fetch_response(at_limit + b"x"), 4, 1)) == 3


@pytest.mark.parametrize("version", [7, 9, 13])
def test_decoded_records_are_a_view_of_the_frame(version: int) -> None:
    body = bytearray(codec.encode_body(produce_request(records=b"AAAA"), version))
    request = codec.decode(m.ProduceRequest, version, body)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0:1] = b"B"
    assert b"BAAA" in body


def test_view_of_a_whole_frame_is_not_copied_and_of_a_part_is() -> None:
    body = bytearray(codec.encode_body(produce_request(records=b"AAAA"), 7))
    records = codec.decode(m.ProduceRequest, 7, memoryview(body)).topic_data[0].partition_data[0]
    assert memoryview(records.records or b"").obj is body
    part = memoryview(b"xx" + body)[2:]
    records = codec.decode(m.ProduceRequest, 7, part).topic_data[0].partition_data[0]
    assert records.records == b"AAAA"


# ---- malformed input


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_every_truncation_is_refused(version: int) -> None:
    body = codec.encode_body(produce_request(records=b"r" * 200), version)
    for size in range(len(body)):
        with pytest.raises(DecodeError):
            codec.decode_request(0, version, bytearray(body[:size]))


def test_bytes_left_over_are_refused_in_responses_and_ignored_in_requests() -> None:
    body = codec.encode_body(m.HeartbeatResponse(), 4)
    with pytest.raises(DecodeError, match="HeartbeatResponse v4: 2 bytes left over"):
        codec.decode_response(12, 4, body + b"\0\0")
    body = codec.encode_body(m.HeartbeatRequest(group_id="g"), 4)
    assert codec.decode_request(12, 4, body + b"\0\0") == m.HeartbeatRequest(group_id="g")


def test_librdkafkas_request_for_all_topics_is_understood() -> None:
    body = bytes.fromhex("00000000010000")
    assert codec.decode_request(3, 13, body) == m.MetadataRequest(
        topics=None, allow_auto_topic_creation=False
    )


def test_null_where_it_is_not_allowed_is_refused() -> None:
    with pytest.raises(DecodeError, match=r"MetadataRequest v0\.topics is null"):
        codec.decode_request(3, 0, bytes.fromhex("ffffffff"))
    assert codec.decode_request(3, 1, bytes.fromhex("ffffffff")) == m.MetadataRequest(topics=None)


def test_negative_length_other_than_null_is_refused() -> None:
    with pytest.raises(DecodeError, match="length -2"):
        codec.decode_request(3, 1, bytes.fromhex("fffffffe"))
    with pytest.raises(DecodeError, match="length -3"):
        codec.decode_request(22, 0, bytes.fromhex("fffd00000000"))


def test_count_beyond_the_frame_is_refused_before_it_is_used() -> None:
    with pytest.raises(DecodeError, match="length 2147483647 at byte 4, 0 bytes are left"):
        codec.decode_request(3, 1, bytes.fromhex("7fffffff"))


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError, match="not UTF-8"):
        codec.decode_request(10, 0, bytes.fromhex("0001ff"))


def test_too_many_items_in_one_message_are_refused() -> None:
    # Topics, each with one array that is empty: an item costs four bytes of input.
    count = KAFKA_ITEMS_MAX + 1
    body = count.to_bytes(4, "big") + b"\0\0" * count
    with pytest.raises(DecodeError, match="items in one message"):
        codec.decode_request(3, 4, body + b"\0")


def test_varint_beyond_32_bits_is_refused() -> None:
    with pytest.raises(DecodeError, match="more than 32 bits"):
        codec.decode_request(12, 4, bytes.fromhex("ffffffff7f"))


@pytest.mark.parametrize(
    ("api_key", "version"), [(0, 2), (0, 14), (12, 5), (12, -1), (4, 0), (999, 0), (-1, 0)]
)
def test_unknown_keys_and_versions_are_refused(api_key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        codec.decode_request(api_key, version, b"")
    with pytest.raises(UnsupportedVersionError):
        codec.decode_response(api_key, version, b"")


# ---- tagged fields


def heartbeat_with_tags(section: str) -> m.Message:
    return codec.decode_request(12, 4, bytes.fromhex("0267" + "00000001" + "026d" + "00" + section))


def test_unknown_tags_are_skipped() -> None:
    expected = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert heartbeat_with_tags("00") == expected
    assert heartbeat_with_tags("02" + "0001ff" + "0502abcd") == expected
    assert heartbeat_with_tags("01" + "80808001" + "8000") == expected


@pytest.mark.parametrize("section", ["02000000", "0100ff01", "02050005 00", "01", "0203000200"])
def test_malformed_tags_are_refused(section: str) -> None:
    with pytest.raises(DecodeError):
        heartbeat_with_tags(section)


def test_tagged_field_with_its_default_is_omitted() -> None:
    plain = m.FetchRequest(topics=[])
    assert codec.encode_body(plain, 12) == codec.encode_body(m.FetchRequest(cluster_id=None), 12)
    tagged = codec.encode_body(m.FetchRequest(cluster_id="c"), 12)
    # One tag; tag 0, two bytes, a compact string of one.
    assert tagged == codec.encode_body(plain, 12)[:-1] + b"\x01" + b"\x00\x02\x02c"


def test_equal_to_the_default_but_another_object_is_omitted_too() -> None:
    own = m.ProduceResponsePartition(current_leader=m.ProduceResponseCurrentLeader())
    topic = m.ProduceResponseTopic(name="t", partition_responses=[own])
    shared = m.ProduceResponseTopic(name="t", partition_responses=[m.ProduceResponsePartition()])
    encoded = [codec.encode_body(m.ProduceResponse(responses=[one]), 10) for one in (topic, shared)]
    assert encoded[0] == encoded[1]


def test_tag_with_a_wrong_size_is_refused() -> None:
    body = codec.encode_body(m.FetchRequest(cluster_id="c"), 12)
    assert body.endswith(bytes.fromhex("0100020263"))
    with pytest.raises(DecodeError, match="tag 0 ends at byte"):
        codec.decode_request(1, 12, body[:-5] + bytes.fromhex("010003026300"))


# ---- encoding


def test_value_that_the_version_lacks_is_an_error() -> None:
    leader = m.ProduceResponseCurrentLeader(leader_id=1, leader_epoch=2)
    partition = m.ProduceResponsePartition(current_leader=leader)
    topic = m.ProduceResponseTopic(name="t", partition_responses=[partition])
    with pytest.raises(EncodeError, match=r"v9\.responses\.partition_responses\.current_leader"):
        codec.encode_response(m.ProduceResponse(responses=[topic]), 9, 1)
    assert codec.encode_response(m.ProduceResponse(responses=[topic]), 10, 1)


def test_ignorable_value_that_the_version_lacks_is_dropped() -> None:
    message = m.HeartbeatResponse(throttle_time_ms=5)
    assert codec.encode_body(message, 0) == bytes(2)


@pytest.mark.parametrize(
    "message",
    [
        m.HeartbeatRequest(generation_id=1 << 31),
        m.HeartbeatRequest(generation_id="1"),  # type: ignore[arg-type]
        m.HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
        m.HeartbeatRequest(group_id="\ud800"),
        m.HeartbeatRequest(group_id="x" * 40000),
    ],
)
def test_values_that_do_not_fit_are_refused(message: m.Message) -> None:
    with pytest.raises(EncodeError, match="HeartbeatRequest v3 cannot be encoded"):
        codec.encode_request(message, 3, 1, None)


def test_bytes_that_are_not_bytes_are_refused() -> None:
    message = m.SaslAuthenticateRequest(auth_bytes="text")  # type: ignore[arg-type]
    with pytest.raises(EncodeError):
        codec.encode_request(message, 0, 1, None)
    with pytest.raises(EncodeError):
        codec.encode_body(message, 0)


def test_null_where_the_version_does_not_allow_it_is_refused() -> None:
    with pytest.raises(EncodeError):
        codec.encode_body(m.MetadataRequest(topics=None), 0)


def test_ids_must_have_sixteen_bytes() -> None:
    topic = m.ProduceRequestTopic(topic_id=b"short")
    with pytest.raises(EncodeError, match="5 bytes, an id has 16"):
        codec.encode_body(m.ProduceRequest(topic_data=[topic]), 13)


def test_unknown_versions_and_parts_cannot_be_encoded() -> None:
    with pytest.raises(EncodeError, match="no version 5"):
        codec.encode_request(m.HeartbeatRequest(), 5, 1, None)
    with pytest.raises(EncodeError, match="is not a response"):
        codec.encode_response(m.HeartbeatRequest(), 4, 1)
    with pytest.raises(EncodeError, match="is not a request"):
        codec.encode_request(m.HeartbeatResponse(), 4, 1, None)
    with pytest.raises(EncodeError, match="part of a message"):
        codec.encode_body(m.ProduceRequestTopic(), 4)


def test_nullable_structures() -> None:
    cursor = m.DescribeTopicPartitionsRequestCursor(topic_name="t", partition_index=3)
    for chosen in (cursor, None):
        message = m.DescribeTopicPartitionsRequest(cursor=chosen)
        body = codec.encode_body(message, 0)
        assert codec.decode_request(75, 0, body) == message


# ---- embedded structures


def test_newer_subscription_is_read_as_our_newest() -> None:
    message = m.ConsumerProtocolSubscription(topics=["t"], generation_id=4, rack_id="r")
    data = b"\0\x09" + codec.encode_body(message, 3) + b"whatever version 9 adds"
    assert codec.decode_versioned(m.ConsumerProtocolSubscription, data) == message


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0", b"\0\0\0\0\0\1"])
def test_malformed_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        codec.decode_versioned(m.ConsumerProtocolSubscription, data)


# ---- the compiler


def test_importing_compiles_nothing() -> None:
    check = "import dragoman.protocols.kafka.codec as c; assert not c._DECODERS and not c._ENCODERS"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_adjacent_fixed_fields_are_unpacked_together() -> None:
    text = _DecoderEmitter(notation.message("EndTxnRequest"), 0).source()
    assert "unpack_qho(d, p)" in text
    text = _EncoderEmitter(notation.message("FetchResponse"), 11).source()
    assert "pack_ihqqqi(" in text
