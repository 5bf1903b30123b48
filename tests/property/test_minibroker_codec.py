"""Goal: what is encoded decodes to itself, and no bytes make a decoder fail otherwise than it says.

Method: messages and bytes from hypothesis; every message cut at every byte.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DecodeError, RemoteProtocolError
from dragoman.protocols.minibroker import codec
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.connection import Connection, Role
from dragoman.protocols.minibroker.errors import fitting, quoted

#: Any bytes, as the codec shows them.
STRINGS = st.binary(max_size=40).map(lambda data: data.decode("utf-8", "surrogateescape"))
U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
BYTES = st.binary(max_size=60)
PARTITIONS = st.lists(U32, max_size=8).map(tuple)

REQUESTS = st.one_of(
    st.builds(m.Publish, topic=STRINGS, key=BYTES, payload=BYTES),
    st.builds(m.SubscribeHead, topic=STRINGS, partition=U32),
    st.builds(m.SubscribeOffset, topic=STRINGS, partition=U32, offset=U64),
    st.builds(m.SubscribeGroup, topic=STRINGS, group=STRINGS),
    st.builds(m.Unsubscribe, topic=STRINGS),
    st.builds(m.Commit, topic=STRINGS, group=STRINGS, partition=U32, offset=U64),
    st.builds(m.Quit),
    st.builds(m.Heartbeat, topic=STRINGS, group=STRINGS),
)
PUSHES = st.one_of(
    st.builds(m.Delivered, topic=STRINGS, partition=U32, offset=U64, key=BYTES, payload=BYTES),
    st.builds(m.Rebalanced, topic=STRINGS, group=STRINGS, partitions=PARTITIONS),
)


def replies(request: m.Request) -> st.SearchStrategy[m.Reply]:
    """What a server may answer."""
    failed = st.builds(m.Failed, reason=STRINGS)
    match request:
        case m.Publish():
            return failed | st.builds(m.Published, partition=U32, offset=U64)
        case m.SubscribeHead() | m.SubscribeOffset():
            return failed | st.builds(m.Subscribed, partitions=PARTITIONS)
        case m.SubscribeGroup():
            return failed | st.builds(m.Joined, group=STRINGS, partitions=PARTITIONS)
        case m.Commit():
            return failed | st.builds(m.Committed, offset=U64)
        case _:
            return failed | st.builds(m.Done)


@given(REQUESTS, BYTES)
def test_requests(request: m.Request, more: bytes) -> None:
    frame = codec.encode(request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert codec.decode_request(frame[4:]) == request
    assert codec.decode_request(bytearray(frame[4:] + more)) == request
    for end in range(4, len(frame)):
        try:
            codec.decode_request(frame[4:end])
        except DecodeError:
            continue
        raise AssertionError("a request that was cut off has decoded")


@given(st.data(), REQUESTS)
def test_replies(data: st.DataObject, request: m.Request) -> None:
    reply = data.draw(replies(request))
    frame = codec.encode(reply)
    assert codec.decode_reply(frame[4:], request) == reply
    for end in range(5, len(frame)):
        try:
            codec.decode_reply(frame[4:end], request)
        except DecodeError:
            continue
        raise AssertionError("a reply that was cut off has decoded")


@given(PUSHES)
def test_pushes(push: m.Push) -> None:
    frame = codec.encode(push)
    assert codec.is_push(frame[4:])
    assert codec.decode_push(frame[4:]) == push
    if isinstance(push, m.Delivered):
        frames = codec.DeliveredFrames(push.topic, push.partition)
        assert frames.frame(push.offset, push.key, push.payload) == frame


@given(U32, U64)
def test_the_short_way_to_the_usual_reply(partition: int, offset: int) -> None:
    expected = codec.encode(m.Published(partition=partition, offset=offset))
    assert codec.published_frame(partition, offset) == expected


@given(st.binary(min_size=1, max_size=80), REQUESTS)
def test_any_bytes(frame: bytes, request: m.Request) -> None:
    for decode in (
        codec.decode_request,
        codec.decode_push,
        codec.is_push,
        lambda frame: codec.decode_reply(frame, request),
    ):
        try:
            decode(frame)
        except DecodeError:
            continue


@given(st.lists(REQUESTS, max_size=5), st.data())
def test_stream_in_pieces(requests: list[m.Request], data: st.DataObject) -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    stream = b"".join(map(client.send, requests))
    received: list[object] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        received += server.receive_data(stream[:cut])
        stream = stream[cut:]
    assert received == requests


@given(st.sampled_from(list(Role)), st.binary(max_size=200))
def test_garbage_on_a_connection(role: Role, data: bytes) -> None:
    try:
        Connection(role).receive_data(data)
    except RemoteProtocolError:
        return


@given(st.binary(max_size=100).map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_texts_of_errors_can_be_sent(text: str) -> None:
    shown = quoted(text)
    assert shown.isprintable()
    codec.encode(m.Failed(reason=fitting(shown * 1000)))
