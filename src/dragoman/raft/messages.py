"""The messages between voters of the metadata quorum, and their encoding.

Messages are msgpack maps with a fixed tag each: a class may be renamed, its tag may not. Unknown
fields are ignored and fields with a default may be missing, so nodes of adjacent releases
understand each other. Offsets are positions in the log; a log's *end* is the offset of its next
record.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from dragoman.errors import MALFORMED, DecodeError
from dragoman.limits import RAFT_MESSAGE_BYTES_MAX
from dragoman.types import Buffer

#: Bounds of terms and node ids, then of offsets and sizes: those of a batch header.
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    #: The sending node.
    source: _Number
    #: The sender's term; in a pre-vote, the term that it would begin.
    term: _Number


class VoteRequest(_Message, frozen=True, kw_only=True, tag="VoteRequest"):
    #: The end of the candidate's log, and the term of its last record.
    end: _Offset
    last_term: _Number
    #: Asks without changing any term or vote.
    is_pre_vote: bool = False
    #: The leader requested this election, so voters do not protect it.
    is_transfer: bool = False


class VoteReply(_Message, frozen=True, kw_only=True, tag="VoteReply"):
    is_granted: bool
    is_pre_vote: bool = False


class AppendRequest(_Message, frozen=True, kw_only=True, tag="AppendRequest"):
    """Batches of the leader's log from `previous_end` on; a heartbeat when there are none."""

    previous_end: _Offset
    #: Term of the record before `previous_end`; 0 when there is none.
    previous_term: _Number
    commit: _Offset
    #: Number of the leader's check-quorum round, which the answer repeats.
    round: _Offset
    data: bytes = b""


class AppendReply(_Message, frozen=True, kw_only=True, tag="AppendReply"):
    round: _Offset
    is_match: bool
    #: Everything below matches the leader's log and is on stable storage.
    stable: _Offset = 0
    #: With a match, the end of it, stable or not. Otherwise a possible match: the follower's
    #: records up to here have terms up to `last_term`.
    end: _Offset = 0
    last_term: _Number = 0


class SnapshotRequest(_Message, frozen=True, kw_only=True, tag="SnapshotRequest"):
    """A piece of the snapshot of everything below `end`."""

    end: _Offset
    last_term: _Number
    round: _Offset
    #: Position of this piece in the snapshot, and the size of the whole.
    position: _Offset
    size: _Offset
    data: bytes


class SnapshotReply(_Message, frozen=True, kw_only=True, tag="SnapshotReply"):
    end: _Offset
    round: _Offset
    #: Bytes of the snapshot received; the next piece starts here.
    position: _Offset


class TimeoutNow(_Message, frozen=True, kw_only=True, tag="TimeoutNow"):
    """The leader hands over: the receiver begins an election at once."""


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
    """Raises `DecodeError` for every message that no node would send."""
    if len(data) > RAFT_MESSAGE_BYTES_MAX:
        raise DecodeError(f"message of {len(data)} bytes, at most {RAFT_MESSAGE_BYTES_MAX}")
    try:
        return _decoder.decode(data)
    except MALFORMED as error:
        raise DecodeError(f"message cannot be read: {error}") from None
