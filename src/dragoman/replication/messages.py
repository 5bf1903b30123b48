"""What nodes tell each other about partitions: fetches, and requests to the controller.

A message is a small header (a frozen struct, as msgpack) and, for a reply to a fetch, a body: the
batches of all its partitions, back to back, as they lie in the leader's log. The body passes
through no codec. Unknown fields are ignored, so a field with a default may be added; a message of a
new kind is sent only when all nodes know it (docs/guides/upgrading.md).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import msgspec

from dragoman.cluster.events import FIRST_LEVEL, Member
from dragoman.errors import DecodeError

#: In place of an offset or epoch: there is none.
NONE = -1


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the messages. Their tags are fixed: a class may be renamed, its tag may not."""


# ---- followers and leaders


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a follower stands in one partition."""

    partition_id: int
    #: The leadership that it follows.
    leader_epoch: int
    #: What it wants next: its log's end. `NONE`: it has nothing that it trusts.
    offset: int
    #: Epoch of the record before that; `NONE` when it has none.
    last_epoch: int
    #: Everything below is on its stable storage.
    stable_end: int
    #: The newest change of the partition that it knows: it may have been dropped and come back.
    partition_epoch: int


class FetchRequest(_Message, frozen=True, kw_only=True, tag="FetchRequest"):
    """The next batches of all partitions that a node follows from another.

    A session begins with request 0, which names all partitions; later ones name those whose
    position has changed. Numbers of sessions only grow, so that a late request is known as such.
    """

    follower: Member
    session: int
    number: int
    positions: tuple[Position, ...] = ()
    #: Partitions that the follower does not want any more.
    dropped: tuple[int, ...] = ()
    #: How long to wait when there is nothing, and how many bytes to send at most.
    wait_ms: int = 0
    bytes_max: int = 0


class Progress(_Message, frozen=True, kw_only=True, tag="Progress"):
    """What has become stable since the last fetch, which may still be waiting. Not answered."""

    follower: Member
    session: int
    #: (partition id, leader epoch, stable end)
    stable_ends: tuple[tuple[int, int, int], ...]


class Status(IntEnum):
    OK = 0
    #: The follower's last record is not in the leader's log: see `epoch` and `epoch_end`.
    DIVERGING = 1
    #: The offset is gone: start again at `epoch_end`, where the leader's first batch begins.
    OUT_OF_RANGE = 2
    #: The follower knows an older leadership than the leader.
    FENCED = 3
    #: This node does not lead, or not yet in that epoch.
    NOT_LEADER = 4
    #: The leader cannot read its own log there.
    UNREADABLE = 5


class Fetched(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """News of one partition."""

    partition_id: int
    leader_epoch: int
    #: The position that this is the answer to; see `last_epoch`, too.
    offset: int
    status: Status
    high_watermark: int
    log_start_offset: int
    #: Bytes of the body that belong to this partition.
    size: int = 0
    #: The leader's newest epoch that is not above the follower's, and where that ended.
    epoch: int = NONE
    epoch_end: int = NONE
    #: Of the position. A follower that was cut and has copied on may be at the same offset again.
    last_epoch: int = NONE


class FetchReply(_Message, frozen=True, kw_only=True, tag="FetchReply"):
    session: int
    number: int
    partitions: tuple[Fetched, ...] = ()
    #: CRC-32C of the body: batches have a checksum each, but not over their offsets and epochs.
    checksum: int = 0
    #: The leader does not know this session: begin another.
    is_unknown: bool = False


# ---- nodes and the controller


class Registration(_Message, frozen=True, kw_only=True, tag="Registration"):
    """A node is there and wants its partitions."""

    node_id: int
    directory: str
    #: Equal in every repetition of one registration, and in no other of this directory.
    life: str
    #: Everything that was ever stable in the directory is: a clean stop, or a sound journal.
    is_intact: bool
    #: Partitions that are not, whatever the node says of the rest.
    damaged: tuple[int, ...] = ()
    addresses: dict[str, str] = {}
    rack: str = ""
    #: The highest and the lowest feature level that it can work at.
    feature_level: int = FIRST_LEVEL
    feature_level_min: int = FIRST_LEVEL


class InSyncChange(msgspec.Struct, frozen=True, array_like=True):
    """A leader's wish; granted if the epochs are still the ones it knows."""

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
    """The node is about to stop: other nodes shall lead its partitions."""

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
    """What the controller has decided about a request."""

    ACCEPTED = 0
    #: Another change came first: the image is about to change.
    CONFLICT = 1
    #: Refused for a reason that the image does not show. Nothing was changed.
    REFUSED = 2
    #: No answer: the change may have happened, or may still happen.
    UNKNOWN = 3


class ControlReply(_Message, frozen=True, kw_only=True, tag="ControlReply"):
    """One decision for each change of the request; a request without changes has one."""

    outcomes: tuple[Decision, ...]
    #: Why a request was refused, for people.
    text: str = ""
    #: The image must have this version for the outcome to be seen.
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
    except msgspec.DecodeError as error:
        raise DecodeError(f"not a message about partitions: {error}") from None
