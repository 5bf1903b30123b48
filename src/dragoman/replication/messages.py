"""Messages between nodes about partitions: fetches, and requests to the controller.

A message is a small header (a frozen struct, as msgpack) and, for a reply to a fetch, a body: the
batches of all its partitions, back to back, as in the leader's log. The body passes through no
codec. Unknown fields are ignored, so a field with a default may be added; a message of a new kind
is sent only when all nodes know it (docs/guides/upgrading.md).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import msgspec

from dragoman.cluster.events import FIRST_LEVEL, Member
from dragoman.errors import MALFORMED, DecodeError

#: In place of an offset or epoch: none.
NONE = -1


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the messages. Their tags are fixed: a class may be renamed, its tag may not."""


# ---- followers and leaders


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The position of a follower in one partition."""

    partition_id: int
    #: The leader epoch that it follows.
    leader_epoch: int
    #: The next offset, which is its log's end. `NONE`: it trusts none of its log.
    offset: int
    #: Epoch of the record before the offset; `NONE` without one.
    last_epoch: int
    #: Everything below is on the follower's stable storage.
    stable_end: int
    #: The newest partition epoch that the follower knows: it may have been removed and added again.
    partition_epoch: int


class FetchRequest(_Message, frozen=True, kw_only=True, tag="FetchRequest"):
    """A fetch of the next batches of all partitions that a node follows from another.

    A session begins with request 0, which names all partitions; later ones name those with changed
    positions. Session numbers only grow, so that late requests are detected.
    """

    follower: Member
    session: int
    number: int
    positions: tuple[Position, ...] = ()
    #: Partitions that are no longer followed.
    dropped: tuple[int, ...] = ()
    #: The longest wait for data, and the largest size of the answer.
    wait_ms: int = 0
    bytes_max: int = 0


class Progress(_Message, frozen=True, kw_only=True, tag="Progress"):
    """Stable ends since the last fetch, which may still be parked. Not answered."""

    follower: Member
    session: int
    #: (partition id, leader epoch, stable end)
    stable_ends: tuple[tuple[int, int, int], ...]


class Status(IntEnum):
    OK = 0
    #: The follower's last record is not in the leader's log: see `epoch` and `epoch_end`.
    DIVERGING = 1
    #: The offset was deleted: restart at `epoch_end`, where the leader's first batch begins.
    OUT_OF_RANGE = 2
    #: The follower has an older leader epoch than the leader.
    FENCED = 3
    #: The receiver does not lead the partition, or not yet in that epoch.
    NOT_LEADER = 4
    #: The leader cannot read its log at the offset.
    UNREADABLE = 5


class Fetched(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The answer for one partition."""

    partition_id: int
    leader_epoch: int
    #: The offset of the answered position; see `last_epoch`, too.
    offset: int
    status: Status
    high_watermark: int
    log_start_offset: int
    #: Size of this partition's part of the body.
    size: int = 0
    #: The leader's newest epoch that is not above the follower's, and the end of that epoch.
    epoch: int = NONE
    epoch_end: int = NONE
    #: The epoch in the answered position: a truncated follower may reach the same offset again.
    last_epoch: int = NONE


class FetchReply(_Message, frozen=True, kw_only=True, tag="FetchReply"):
    session: int
    number: int
    partitions: tuple[Fetched, ...] = ()
    #: CRC-32C of the body: the batches' own CRCs do not cover offsets and epochs.
    checksum: int = 0
    #: Whether the leader does not know this session, so that the follower has to begin another.
    is_unknown: bool = False


# ---- nodes and the controller


class Registration(_Message, frozen=True, kw_only=True, tag="Registration"):
    """Registration of a node, for its partitions."""

    node_id: int
    directory: str
    #: The same in every retry of one registration, and in no other of this directory.
    life: str
    #: Whether all data that was ever stable is intact: after a clean stop, or with an intact
    #: journal.
    is_intact: bool
    #: Partitions that are not intact, in any case.
    damaged: tuple[int, ...] = ()
    addresses: dict[str, str] = {}
    rack: str = ""
    #: The highest and the lowest feature level that the node supports.
    feature_level: int = FIRST_LEVEL
    feature_level_min: int = FIRST_LEVEL


class InSyncChange(msgspec.Struct, frozen=True, array_like=True):
    """A leader's request for an in-sync set; granted if its epochs are still current."""

    partition_id: int
    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[Member, ...]


class InSyncChanges(_Message, frozen=True, kw_only=True, tag="InSyncChanges"):
    leader: Member
    changes: tuple[InSyncChange, ...]


class Heartbeat(_Message, frozen=True, kw_only=True, tag="Heartbeat"):
    member: Member


class HandOver(_Message, frozen=True, kw_only=True, tag="HandOver"):
    """The node is about to stop and requests that other nodes lead its partitions."""

    member: Member


class ElectPreferred(_Message, frozen=True, kw_only=True, tag="ElectPreferred"):
    """An operator wants the first replica to lead."""

    partition_id: int


class ElectUnclean(_Message, frozen=True, kw_only=True, tag="ElectUnclean"):
    """An operator wants a replica to lead that may lack committed records."""

    partition_id: int
    node_id: int


class Move(_Message, frozen=True, kw_only=True, tag="Move"):
    """An operator wants the partition on these nodes; none: cancel a move that is under way."""

    partition_id: int
    replicas: tuple[int, ...] = ()


class AddNode(_Message, frozen=True, kw_only=True, tag="AddNode"):
    """An operator wants the node at this address to join."""

    node_id: int
    address: str


class RemoveNode(_Message, frozen=True, kw_only=True, tag="RemoveNode"):
    """An operator wants a node out of the quorum, and forgotten if it holds no replica."""

    node_id: int


class TransferMetadata(_Message, frozen=True, kw_only=True, tag="TransferMetadata"):
    """An operator wants this node to lead the metadata; `NONE`: any but the current leader."""

    node_id: int = NONE


class Relieve(_Message, frozen=True, kw_only=True, tag="Relieve"):
    """An operator wants other nodes to lead the partitions that this node leads."""

    node_id: int


class Decision(IntEnum):
    """The controller's decision about a request."""

    ACCEPTED = 0
    #: Another change came first: the image is about to change.
    CONFLICT = 1
    #: Refused for a reason that the image does not show. Nothing was changed.
    REFUSED = 2
    #: No answer: the change may have happened, or may still happen.
    UNKNOWN = 3


class ControlReply(_Message, frozen=True, kw_only=True, tag="ControlReply"):
    """One decision for each change in the request; a request without changes has one."""

    outcomes: tuple[Decision, ...]
    #: Why a request was refused, for people.
    text: str = ""
    #: The image shows the outcome from this version on.
    version: int = 0


#: Requests that nodes make by themselves.
NodeRequest: TypeAlias = Registration | InSyncChanges | Heartbeat | HandOver
#: Requests of operators about partitions, and about nodes.
PartitionRequest: TypeAlias = ElectPreferred | ElectUnclean | Move | Relieve
MembershipRequest: TypeAlias = AddNode | RemoveNode | TransferMetadata
ControlRequest: TypeAlias = NodeRequest | PartitionRequest | MembershipRequest
Message: TypeAlias = FetchRequest | Progress | FetchReply | ControlReply | ControlRequest

_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Raises `DecodeError`."""
    try:
        return _decoder.decode(data)
    except MALFORMED as error:
        raise DecodeError(f"not a message about partitions: {error}") from None
