"""Goal: messages between voters survive the wire, and no bytes do harm.

Method: round trips of generated messages, of messages with fields of a later release, and rubbish.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DecodeError
from dragoman.raft import messages
from dragoman.raft.messages import Message, decode_message, encode_message

KINDS = (
    messages.VoteRequest,
    messages.VoteReply,
    messages.AppendRequest,
    messages.AppendReply,
    messages.SnapshotRequest,
    messages.SnapshotReply,
    messages.TimeoutNow,
)
_VALUES = {
    bool: st.booleans(),
    bytes: st.binary(max_size=50),
}
any_message = st.sampled_from(KINDS).flatmap(
    lambda kind: st.builds(
        kind,
        **{
            field.name: _VALUES.get(field.type, st.integers(0, 2**31 - 1))
            for field in msgspec.structs.fields(kind)
        },
    )
)


@given(any_message)
def test_message_comes_back(message: Message):
    assert decode_message(encode_message(message)) == message


@given(any_message, st.text(min_size=12), st.integers() | st.binary() | st.lists(st.booleans()))
def test_fields_of_a_later_release_are_ignored(message: Message, name: str, value: object):
    fields = msgspec.msgpack.decode(encode_message(message))
    if isinstance(value, int):
        value %= 1 << 64
    assert decode_message(msgspec.msgpack.encode({**fields, name: value})) == message


@given(any_message, st.data())
def test_wrong_bytes_are_refused_or_read_as_another_message(message: Message, data: st.DataObject):
    encoded = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(decode_message(encoded[: data.draw(st.integers(0, len(encoded)))]), KINDS)
    except DecodeError:
        return


@given(st.binary(max_size=200))
def test_rubbish_is_refused(data: bytes):
    with pytest.raises(DecodeError):
        decode_message(data)


def test_numbers_below_zero_and_beyond_a_header_are_refused():
    good = msgspec.msgpack.decode(encode_message(messages.TimeoutNow(source=1, term=1)))
    for term in (-1, 1 << 31):
        with pytest.raises(DecodeError):
            decode_message(msgspec.msgpack.encode({**good, "term": term}))


def test_message_that_is_too_long_is_refused_unread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(messages, "RAFT_MESSAGE_BYTES_MAX", 10)
    with pytest.raises(DecodeError, match="at most 10"):
        decode_message(bytes(11))
