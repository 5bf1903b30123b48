"""Goal: no request makes the decoder take more than its table allows, and clients hear why.

Method: requests with one element, or one byte, more than their bound, against the codec and against
a whole broker on virtual time.
"""

from __future__ import annotations

import logging
import struct

import pytest

from dragoman.limits import CLIENT_ID_BYTES_MAX, KAFKA_HEADER_TAGS_MAX, KAFKA_REQUEST_BYTES_MAX
from dragoman.log.store import Durability
from dragoman.protocols.kafka import codec, notation
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.bounds import bound_of, bounded_names
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode, OversizedMessageError
from dragoman.protocols.kafka.notation import MessageSpec, StructSpec
from worlds.broker import Wire, World


@pytest.fixture
def world() -> World:
    return World(durability=Durability.OS)


@pytest.fixture
def wire(world: World) -> Wire:
    return Wire(world)


def requests_with_arrays() -> list[MessageSpec]:
    specs = [notation.message(name) for name in notation.message_names()]
    return [
        spec
        for spec in specs
        if spec.direction == "Request"
        and any(field.type.element is not None for field in spec.struct.fields)
    ]


def test_every_bound_belongs_to_a_message_that_exists() -> None:
    assert bounded_names() <= set(notation.message_names())


@pytest.mark.parametrize("spec", requests_with_arrays(), ids=lambda spec: spec.name)
def test_every_array_of_every_request_is_refused_above_its_bound(spec: MessageSpec) -> None:
    """The count is enough to refuse: the decoder is given no element at all, only room for them."""
    high = spec.versions.high
    for field in spec.struct.fields:
        if field.type.element is None or field.tag is not None or high not in field.versions:
            continue
        body = before(spec.struct, field.name, high)
        count = bound_of(spec.name).items_max + 1
        body += uvarint(count + 1) if high >= spec.flexible else struct.pack(">i", count)
        with pytest.raises(OversizedMessageError, match=field.name):
            codec.decode_request(spec.api_key, high, body + bytes(40 * count))


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def before(struct: StructSpec, name: str, version: int) -> bytes:
    """The bytes in front of a field, all of them zero or empty."""
    flexible = version >= notation.message(struct.class_name).flexible
    sizes = {"i8": 1, "bool": 1, "i16": 2, "i32": 4, "i64": 8, "uuid": 16}
    body = b""
    for field in struct.fields:
        if field.name == name:
            return body
        if field.tag is not None or version not in field.versions:
            continue
        if field.type.kind in sizes:
            body += bytes(sizes[field.type.kind])
        elif flexible:
            body += b"\1"
        else:
            body += bytes(2 if field.type.kind == "str" else 4)
    raise AssertionError(name)


def test_elements_of_all_arrays_count_together() -> None:
    items_max = bound_of("OffsetFetchRequest").items_max
    many = m.OffsetFetchRequestTopic(name="t", partition_indexes=[0] * (items_max // 2))
    request = m.OffsetFetchRequest(group_id="g", topics=[many])
    body = codec.encode_body(request, 5)
    assert codec.decode_request(ApiKey.OFFSET_FETCH, 5, body) == request
    body = codec.encode_body(m.OffsetFetchRequest(group_id="g", topics=[many, many]), 5)
    with pytest.raises(OversizedMessageError, match="too many items"):
        codec.decode_request(ApiKey.OFFSET_FETCH, 5, body)


def test_tagged_fields_count_as_elements() -> None:
    count = bound_of("HeartbeatRequest").items_max + 1
    tags = b"".join(uvarint(tag) + b"\0" for tag in range(count))
    body = bytes.fromhex("0267" + "00000001" + "026d" + "00") + uvarint(count) + tags
    with pytest.raises(OversizedMessageError, match="too many items"):
        codec.decode_request(ApiKey.HEARTBEAT, 4, body)


# ---- what a client hears


def test_request_with_too_many_elements_is_answered_where_the_protocol_can(wire: Wire) -> None:
    count = bound_of("OffsetFetchRequest").items_max
    topic = m.OffsetFetchRequestTopic(name="t", partition_indexes=[0] * count)
    request = m.OffsetFetchRequest(group_id="g", topics=[topic])
    assert wire.ask(request, 5, m.OffsetFetchResponse) == m.OffsetFetchResponse(
        error_code=ErrorCode.INVALID_REQUEST
    )
    assert not wire.is_closed
    members = [m.LeaveGroupRequestMember(member_id="m")] * 30_000
    answer = wire.ask(m.LeaveGroupRequest(group_id="g", members=members), 3, m.LeaveGroupResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_refusal_is_logged_with_the_bound(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    """Java's consumer retries a refused fetch for ever and shows nothing."""
    caplog.set_level(logging.INFO)
    count = bound_of("FetchRequest").items_max
    topic = m.FetchRequestTopic("t", partitions=[m.FetchRequestPartition()] * count)
    answer = wire.ask(m.FetchRequest(topics=[topic]), 12, m.FetchResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    (line,) = [each for each in caplog.messages if "refusing a request" in each]
    assert "FetchRequest v12.topics.partitions" in line
    assert f"({count} at most)" in line


@pytest.mark.parametrize("name", ["FetchRequest", "OffsetCommitRequest", "TxnOffsetCommitRequest"])
def test_reader_of_every_partition_of_a_node_is_within_the_bounds(name: str) -> None:
    """20,000 partitions, each of a topic of its own with a name of a hundred characters."""
    assert bound_of(name).items_max >= 40_000
    assert (bound_of(name).bytes_max or 0) >= 20_000 * (100 + 60)


def test_connection_closes_where_the_protocol_cannot_say_it(world: World, wire: Wire) -> None:
    names = [m.MetadataRequestTopic(name="t")] * (bound_of("MetadataRequest").items_max + 1)
    wire.send(m.MetadataRequest(topics=names), 5)
    world.settle()
    assert wire.is_closed


def test_frame_that_is_larger_than_its_request_may_be_is_refused_undecoded(
    world: World, wire: Wire
) -> None:
    """All of the request is one string, so that no array is in the way of its size."""
    request = m.ListGroupsRequest(states_filter=["x" * (KAFKA_REQUEST_BYTES_MAX)])
    answer = wire.ask(request, 4, m.ListGroupsResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    wire.send(m.FindCoordinatorRequest(coordinator_keys=["x" * (4 << 20)]), 4)
    world.settle()
    assert wire.is_closed


def test_header_with_many_tags_ends_the_connection(world: World, wire: Wire) -> None:
    def frame(count: int) -> bytes:
        head = struct.pack(">hhihB", ApiKey.API_VERSIONS, 3, 1, -1, count)
        head += b"".join(bytes([tag, 0]) for tag in range(count)) + b"\2a\2b\0"
        return struct.pack(">i", len(head)) + head

    wire.exchange(frame(KAFKA_HEADER_TAGS_MAX))
    assert not wire.is_closed
    wire.exchange(frame(KAFKA_HEADER_TAGS_MAX + 1))
    assert wire.is_closed


def test_client_id_has_a_bound(world: World) -> None:
    for size, is_closed in ((CLIENT_ID_BYTES_MAX, False), (CLIENT_ID_BYTES_MAX + 1, True)):
        wire = Wire(world)
        request = codec.encode_request(m.ApiVersionsRequest(), 0, 1, "x" * size)
        wire.exchange(codec.join(request))
        assert wire.is_closed == is_closed
