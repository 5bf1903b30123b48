"""What the voters of the metadata quorum tell each other, and the bytes of it.

Messages are msgpack maps with a fixed tag each: a class may be renamed, its tag may not. A field
that a release does not know is ignored and one with a default may be missing, so nodes of
neighbouring releases understand each other. Offsets name places in the log; a log's *end* is the
offset of the record that comes next.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from dragoman.errors import DecodeError
from dragoman.limits import RAFT_MESSAGE_BYTES_MAX
from dragoman.types import Buffer

#: Terms and numbers of nodes, then offsets and sizes: as large as a batch's header holds.
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    #: The node that sent it.
    source: _Number
    #: The sender's term; of a pre-vote, the one that it would begin.
    term: _Number


class VoteRequest(_Message, frozen=True, kw_only=True, tag="VoteRequest"):
    #: The candidate's log: where it ends, and the term of its last record.
    end: _Offset
    last_term: _Number
    #: Only a question; nobody's term or vote changes.
    is_pre_vote: bool = False
    #: The leader itself asked for this election, so nobody has to protect it.
    is_transfer: bool = False


class VoteReply(_Message, frozen=True, kw_only=True, tag="VoteReply"):
    is_granted: bool
    is_pre_vote: bool = False


class AppendRequest(_Message, frozen=True, kw_only=True, tag="AppendRequest"):
    """Batches from `previous_end` on, as the leader has them; a heartbeat when there are none."""

    previous_end: _Offset
    #: Term of the record before `previous_end`; 0 when there is none.
    previous_term: _Number
    commit: _Offset
    #: Counts the leader's questions whether it still leads; the answer repeats it.
    round: _Offset
    data: bytes = b""


class AppendReply(_Message, frozen=True, kw_only=True, tag="AppendReply"):
    round: _Offset
    is_match: bool
    #: Everything below is the leader's log and on stable storage here.
    stable: _Offset = 0
    #: With a match, the same without being stable yet. Else where the two logs may agree: the
    #: follower's records up to here have terms up to `last_term`.
    end: _Offset = 0
    last_term: _Number = 0


class SnapshotRequest(_Message, frozen=True, kw_only=True, tag="SnapshotRequest"):
    """A piece of the snapshot that stands for everything below `end`."""

    end: _Offset
    last_term: _Number
    round: _Offset
    #: Where this piece lies in the snapshot, and how large the whole is.
    position: _Offset
    size: _Offset
    data: bytes


class SnapshotReply(_Message, frozen=True, kw_only=True, tag="SnapshotReply"):
    end: _Offset
    round: _Offset
    #: Bytes of that snapshot received so far: the next piece starts here.
    position: _Offset


class TimeoutNow(_Message, frozen=True, kw_only=True, tag="TimeoutNow"):
    """The leader hands over: begin an election at once."""


Message: TypeAlias = (
    VoteRequest
    | VoteReply
    | AppendRequest
    | AppendReply
    | SnapshotRequest
    | SnapshotReply
    | TimeoutNow
)

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_message(data: Buffer) -> Message:
    """Raises `DecodeError` for everything that no node of ours sends."""
    if len(data) > RAFT_MESSAGE_BYTES_MAX:
        raise DecodeError(f"message of {len(data)} bytes, at most {RAFT_MESSAGE_BYTES_MAX}")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"message cannot be read: {error}") from None
