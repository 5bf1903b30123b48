"""Goal: headers are read as Kafka's rules say, and replies find their requests.

Method: both roles face each other in memory; malformed headers and replies out of step are made by
hand.
"""

from __future__ import annotations

import pytest

from dragoman.errors import DecodeError, LocalProtocolError, RemoteProtocolError
from dragoman.framing import Scratch
from dragoman.limits import KAFKA_IN_FLIGHT_MAX
from dragoman.protocols.kafka import codec, notation
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import (
    ClientConnection,
    Request,
    ServerConnection,
    encode_api_versions_fallback,
)
from dragoman.protocols.kafka.constants import ACCEPTED_VERSIONS, ApiKey
from dragoman.protocols.kafka.errors import ErrorCode, UnsupportedVersionError

FRAME_MAX = 1 << 20


def server() -> ServerConnection:
    return ServerConnection(FRAME_MAX, Scratch())


def client(client_id: str | None = "me") -> ClientConnection:
    return ClientConnection(client_id, FRAME_MAX, Scratch())


def received(text: str) -> Request:
    body = bytes.fromhex(text)
    (request,) = server().receive_data(len(body).to_bytes(4, "big") + body)
    return request


# ---- server


@pytest.mark.parametrize("client_id", [None, "", "me", "größe", "x" * 300])
def test_every_request_reaches_the_server(client_id: str | None) -> None:
    asking, broker = client(client_id), server()
    for key, versions in ACCEPTED_VERSIONS.items():
        message = getattr(m, notation.name_of(key, "Request") or "")()
        for version in range(versions.low, versions.high + 1):
            correlation_id, frame = asking.send(message, version)
            asking._in_flight.clear()
            (request,) = broker.receive_data(codec.join(frame))
            assert (request.api_key, request.version) == (key, version)
            assert (request.correlation_id, request.client_id) == (correlation_id, client_id)
            assert request.decode() == message


def test_header_agrees_with_the_schema() -> None:
    for version, flexible in ((3, False), (4, True)):
        frame = codec.join(codec.encode_request(m.HeartbeatRequest(), version, 77, "me"))
        header = m.RequestHeader(
            request_api_key=12, request_api_version=version, correlation_id=77, client_id="me"
        )
        assert frame[4:].startswith(codec.encode_body(header, 2 if flexible else 1))
        frame = codec.join(codec.encode_response(m.HeartbeatResponse(), version, 77))
        header_of_response = m.ResponseHeader(correlation_id=77)
        assert frame[4:].startswith(codec.encode_body(header_of_response, 1 if flexible else 0))


def test_several_clients_ids_on_one_connection() -> None:
    broker = server()
    stream = b"".join(
        codec.join(codec.encode_request(m.HeartbeatRequest(), 0, number, name))
        for number, name in enumerate(["a", "a", "ab", None, None, "", "a"])
    )
    requests = broker.receive_data(stream)
    assert [request.client_id for request in requests] == ["a", "a", "ab", None, None, "", "a"]
    assert all(request.decode() == m.HeartbeatRequest() for request in requests)


def test_header_tags_are_skipped() -> None:
    tags, body = "02 0001ff 0502abcd", "0267 00000001 026d 00 00"
    request = received(f"000c0004 00000001 0001 63 {tags} {body}")
    assert request.decode() == m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def test_body_is_a_view_of_the_frame() -> None:
    request = received("000a0000 00000005 ffff 0001 67")
    assert bytes(request.body) == b"\0\1g"
    assert request.body.obj is request.frame


@pytest.mark.parametrize(
    "text",
    [
        "00",
        "000c0004000000",
        "000c000400000001",
        "000c0004000000010005 6162",
        "000c000400000001fffe",
        "000c0004000000010001ff",
        "000c0004000000010000",
        "000c0004000000010000 01",
        "000c0004000000010000 0100ff01",
        "000c0004000000010000 02010001 00",
    ],
)
def test_malformed_headers_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        received(text)


@pytest.mark.parametrize("text", ["0012 00ff 00000001 ffff", "0012 00ff 00000001 0001 63 0102"])
def test_unknown_api_versions_version_gets_as_far_as_the_handler(text: str) -> None:
    request = received(text)
    assert (request.api_key, request.version, request.correlation_id) == (18, 255, 1)
    with pytest.raises(UnsupportedVersionError):
        request.decode()


@pytest.mark.parametrize("key_and_version", ["03e7 0000", "ffff ffff", "0000 0002"])
def test_unknown_keys_differ_from_malformed_requests(key_and_version: str) -> None:
    request = received(f"{key_and_version} 00000001 ffff")
    with pytest.raises(UnsupportedVersionError):
        request.decode()


# ---- client


def test_replies_find_their_requests() -> None:
    asking, broker = client(), server()
    sent = [
        asking.send(m.ApiVersionsRequest(), 3),
        asking.send(m.HeartbeatRequest(), 4),
        asking.send(m.MetadataRequest(), 12),
    ]
    answers: list[m.Message] = [
        m.ApiVersionsResponse(throttle_time_ms=1),
        m.HeartbeatResponse(throttle_time_ms=2),
        m.MetadataResponse(cluster_id="c"),
    ]
    assert asking.in_flight == 3
    stream = b""
    for (_, frame), answer in zip(sent, answers, strict=True):
        (request,) = broker.receive_data(codec.join(frame))
        stream += codec.join(codec.encode_response(answer, request.version, request.correlation_id))
    replies = asking.receive_data(stream)
    assert [reply.message for reply in replies] == answers
    assert [reply.correlation_id for reply in replies] == [number for number, _ in sent]
    assert [(reply.api_key, reply.version) for reply in replies] == [(18, 3), (12, 4), (3, 12)]
    assert asking.in_flight == 0


def test_every_reply_is_read() -> None:
    asking = client()
    for key in ApiKey:
        request = getattr(m, notation.name_of(key, "Request") or "")
        message = request(acks=1) if key is ApiKey.PRODUCE else request()
        answer = getattr(m, notation.name_of(key, "Response") or "")()
        versions = notation.versions_of(type(message).__name__)
        for version in range(versions.low, versions.high + 1):
            correlation_id, _ = asking.send(message, version)
            frame = codec.join(codec.encode_response(answer, version, correlation_id))
            (reply,) = asking.receive_data(frame)
            assert reply.message == answer


def test_produce_without_acks_expects_no_reply() -> None:
    asking = client()
    asking.send(m.ProduceRequest(acks=0), 9)
    assert asking.in_flight == 0
    asking.send(m.ProduceRequest(acks=1), 9)
    assert asking.in_flight == 1


def test_api_versions_fallback_is_understood() -> None:
    asking = client()
    correlation_id, _ = asking.send(m.ApiVersionsRequest(), 4)
    served = [m.ApiVersionsResponseApiKey(api_key=18, min_version=0, max_version=3)]
    fallback = encode_api_versions_fallback(correlation_id, served)
    (reply,) = asking.receive_data(codec.join(fallback))
    assert reply.message == m.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served
    )


def test_reply_out_of_step_is_refused() -> None:
    asking = client()
    asking.send(m.HeartbeatRequest(), 0)
    with pytest.raises(RemoteProtocolError, match="response 5 came where 0 was due"):
        asking.receive_data(codec.join(codec.encode_response(m.HeartbeatResponse(), 0, 5)))


def test_reply_to_nothing_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="answers no request"):
        client().receive_data(codec.join(codec.encode_response(m.HeartbeatResponse(), 0, 0)))


@pytest.mark.parametrize("text", ["0000", "00000000", "0000000000", "00000000 00 0000"])
def test_malformed_replies_are_refused(text: str) -> None:
    asking = client()
    asking.send(m.HeartbeatRequest(), 4)
    body = bytes.fromhex(text)
    with pytest.raises(DecodeError):
        asking.receive_data(len(body).to_bytes(4, "big") + body)


def test_requests_in_flight_are_bounded() -> None:
    asking = client()
    for _ in range(KAFKA_IN_FLIGHT_MAX):
        asking.send(m.HeartbeatRequest(), 0)
    with pytest.raises(LocalProtocolError, match="requests are unanswered"):
        asking.send(m.HeartbeatRequest(), 0)


def test_correlation_ids_wrap_to_zero() -> None:
    asking = ClientConnection(None, FRAME_MAX, Scratch(), first_correlation_id=0x7FFFFFFF)
    assert asking.send(m.HeartbeatRequest(), 0)[0] == 0x7FFFFFFF
    assert asking.send(m.HeartbeatRequest(), 0)[0] == 0


def test_transport_may_read_into_the_buffer_itself() -> None:
    broker = server()
    frame = codec.join(codec.encode_request(m.HeartbeatRequest(), 4, 9, "me"))
    for half in (frame[:7], frame[7:]):
        broker.reader.get_buffer(-1)[: len(half)] = half
        requests = [broker.request(each) for each in broker.reader.buffer_updated(len(half))]
        assert broker.reader.pending_bytes == (0 if requests else len(half) - 4)
    assert [request.correlation_id for request in requests] == [9]
