"""Goal: a connection of either role pairs replies with requests and refuses what cannot be.

Method: one of each, wired together by hand.
"""

from __future__ import annotations

import pytest

from dragoman.errors import DecodeError, EncodeError, LocalProtocolError, RemoteProtocolError
from dragoman.protocols.minibroker import codec
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.connection import Connection, Role

PUBLISH = m.Publish(topic="t", payload=b"v")
RECORD = m.Delivered(topic="t", partition=0, offset=0, payload=b"v")


def test_replies_belong_to_the_oldest_request_and_pushes_to_none() -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    commit = m.Commit(topic="t", group="g", partition=0, offset=5)
    sent = client.send(PUBLISH) + client.send(commit)
    assert server.receive_data(sent[:7]) == []
    assert server.receive_data(sent[7:]) == [PUBLISH, commit]
    assert (client.unanswered, server.unanswered) == (2, 2)
    messages = [m.Published(partition=1, offset=2), RECORD, m.Committed(offset=5)]
    answered = b"".join(map(server.send, messages))
    assert client.receive_data(answered) == messages
    assert (client.unanswered, server.unanswered) == (0, 0)


def test_unsolicited_error_leaves_the_line_as_it_is() -> None:
    client = Connection(Role.CLIENT)
    client.send(PUBLISH)
    evicted = m.Failed(reason="evicted: heartbeat timeout")
    assert client.receive_data(codec.encode(evicted)) == [evicted]
    assert client.unanswered == 1
    failed = m.Failed(reason="pub: bad key")
    assert client.receive_data(codec.encode(failed)) == [failed]
    assert client.unanswered == 0
    assert client.receive_data(codec.encode(failed)) == [failed]


def test_wrong_side_and_wrong_moment() -> None:
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    with pytest.raises(LocalProtocolError):
        client.send(m.Done())
    with pytest.raises(LocalProtocolError):
        server.send(PUBLISH)
    with pytest.raises(LocalProtocolError):
        server.send(m.Done())
    with pytest.raises(RemoteProtocolError):
        client.receive_data(codec.encode(m.Done()))


@pytest.mark.parametrize("size", [0, (100 << 20) + 1, 0xFFFFFFFF])
def test_impossible_sizes(size: int) -> None:
    for role in Role:
        with pytest.raises(DecodeError):
            Connection(role).receive_data(size.to_bytes(4, "big"))


@pytest.mark.parametrize(
    "message",
    [
        m.Publish(topic="x" * 65_536, payload=b""),
        m.Publish(topic="\ud800", payload=b""),
        m.Publish(topic="t", payload=bytes(100 << 20)),
        m.SubscribeHead(topic="t", partition=-1),
        m.SubscribeHead(topic="t", partition=1 << 32),
        m.SubscribeOffset(topic="t", partition=0, offset=1 << 64),
        m.Commit(topic="t", group="g", partition=0, offset=-1),
        m.Subscribed(partitions=(-1,)),
        m.Failed(reason="x" * 65_536),
    ],
)
def test_values_that_the_wire_cannot_express(message: m.Message) -> None:
    with pytest.raises(EncodeError):
        codec.encode(message)
