"""What nodes ask each other on behalf of their clients: the messages, and the port they go through.

A partition has one leader and a group one coordinator, but what clients want often needs several: a
transaction ends on partitions of many nodes, and some protocols cannot send a client elsewhere. So
a node asks its neighbour, in these terms. Header as msgpack, body as it is; messages and fields
with defaults may be added.

A refusal travels as its name (`refusal_names.py`), its text and its fields, and comes out as the
same exception. When there is no answer the outcome is unknown, unless it is a `NotSentError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from dragoman.broker.offsets import CommitRequest
from dragoman.broker.publications import Destination, Publication, Target
from dragoman.broker.refusal_names import ERROR_BY_NAME, name_of
from dragoman.broker.transactions.state import TopicPartition
from dragoman.errors import ClusterError, DecodeError, DragomanError, NotSentError
from dragoman.rpc.messages import Done as Done
from dragoman.types import Buffer


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the messages. Their tags are fixed: a class may be renamed, its tag may not."""


# ---- transactions


class Enrol(_Message, frozen=True, kw_only=True, tag="Enrol"):
    """A leader or group coordinator is about to write in a transaction: may it?

    Answered with `Done` once everything named is part of the transaction; `is_check`: only if it
    was before.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()
    is_check: bool = False
    #: See `EndTransaction`.
    order: tuple[int, int] = (0, 0)


class EndTransaction(_Message, frozen=True, kw_only=True, tag="EndTransaction"):
    """Write markers to partitions that the node leads, and end what was staged for groups that it
    coordinates. Answered with `Done` when all of that is durable.

    `order` rises with every request that a node sends. One that was overtaken is refused: it is
    what is left of a lost connection, was repeated since, and the producer may have begun another
    transaction under the same epoch.
    """

    producer_id: int
    #: Of the markers.
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...] = ()
    groups: tuple[str, ...] = ()
    order: tuple[int, int] = (0, 0)


# ---- groups


class CommitOffsets(_Message, frozen=True, kw_only=True, tag="CommitOffsets"):
    """Answered with `Done` when all of them are committed."""

    request: CommitRequest


class CommittedOffsets(_Message, frozen=True, kw_only=True, tag="CommittedOffsets"):
    """Answered with `Offsets`."""

    group_id: str
    topic: str


class JoinMember(_Message, frozen=True, kw_only=True, tag="JoinMember"):
    """A client of the asking node joins a group whose partitions are shared by turns. Repeated, it
    changes nothing. Answered with `Assigned`.
    """

    group_id: str
    owner: str
    member_id: str
    topic: str
    client_host: str = ""
    session_timeout_s: float = 0.0


class WatchMember(_Message, frozen=True, kw_only=True, tag="WatchMember"):
    """Answered with `Assigned`, when that has another number or after a while."""

    group_id: str
    member_id: str
    number: int


class HeartbeatMember(_Message, frozen=True, kw_only=True, tag="HeartbeatMember"):
    group_id: str
    member_id: str


class LeaveMember(_Message, frozen=True, kw_only=True, tag="LeaveMember"):
    group_id: str
    member_id: str


# ---- publications


class Publish(_Message, frozen=True, kw_only=True, tag="Publish"):
    """A client's request to the node that decides about it. Answered with `Published`."""

    publication: Publication


class CheckPieces(_Message, frozen=True, kw_only=True, tag="CheckPieces"):
    """Are the pieces there and sound, and may they go to a partition that the node leads?"""

    destination: Destination


class NextSequence(_Message, frozen=True, kw_only=True, tag="NextSequence"):
    """What a partition that the node leads takes next of a producer: a `SequenceNumber`."""

    topic: str
    partition: int
    producer_id: int


class CopyPieces(_Message, frozen=True, kw_only=True, tag="CopyPieces"):
    """Append what is missing of the pieces to a partition that the node leads. Answered with `Done`
    when all of them are committed, which may take longer than the answer is waited for.
    """

    target: Target
    producer_id: int


class KeepStaged(_Message, frozen=True, kw_only=True, tag="KeepStaged"):
    """What the asking node needs of a staging partition, and what it needs no more."""

    partition: int
    #: -1: nothing.
    held_from: int = -1
    released: tuple[tuple[int, int], ...] = ()


# ---- deferred records


class DeferRecord(_Message, frozen=True, kw_only=True, tag="DeferRecord"):
    """The body is a batch with one record, to be kept aside until `when_ms`; or, if it is held,
    until somebody decides, who is asked for from then on. Answered with `Deferred`.
    """

    topic: str
    partition: int
    when_ms: int
    is_held: bool = False
    labels: dict[str, str] = {}


class DecideDeferred(_Message, frozen=True, kw_only=True, tag="DecideDeferred"):
    """Release a held record, or drop one that is kept aside. Answered with `Done`."""

    partition_id: int
    offset: int
    labels: dict[str, str] = {}
    is_release: bool = False


class ReadDeferred(_Message, frozen=True, kw_only=True, tag="ReadDeferred"):
    """Answered with `DeferredContent`."""

    partition_id: int
    offset: int


class DeliverDeferred(_Message, frozen=True, kw_only=True, tag="DeliverDeferred"):
    """The body is a batch for a partition that the node leads, under the producer id and sequence
    that were decided on. Answered with `Done` when it is committed, now or from before.
    """

    partition_id: int


Request: TypeAlias = (
    Enrol
    | EndTransaction
    | CommitOffsets
    | CommittedOffsets
    | JoinMember
    | WatchMember
    | HeartbeatMember
    | LeaveMember
    | Publish
    | CheckPieces
    | NextSequence
    | CopyPieces
    | KeepStaged
    | DeferRecord
    | DecideDeferred
    | ReadDeferred
    | DeliverDeferred
)


# ---- answers


class Offsets(_Message, frozen=True, kw_only=True, tag="Offsets"):
    """Partition and committed offset."""

    offsets: tuple[tuple[int, int], ...] = ()


class Assigned(_Message, frozen=True, kw_only=True, tag="Assigned"):
    partitions: tuple[int, ...] = ()
    number: int = 0
    #: It was silent for too long, and is out.
    is_evicted: bool = False


class Published(_Message, frozen=True, kw_only=True, tag="Published"):
    was_before: bool


class SequenceNumber(_Message, frozen=True, kw_only=True, tag="SequenceNumber"):
    number: int


class Deferred(_Message, frozen=True, kw_only=True, tag="Deferred"):
    """Where the record is kept."""

    partition_id: int
    offset: int


class DeferredContent(_Message, frozen=True, kw_only=True, tag="DeferredContent"):
    """The body is a batch with the record."""

    topic: str
    partition: int
    labels: dict[str, str] = {}


class Refused(_Message, frozen=True, kw_only=True, tag="Refused"):
    name: str
    text: str
    fields: dict[str, int | str | tuple[int, ...]] = {}


Reply: TypeAlias = (
    Done | Offsets | Assigned | Published | SequenceNumber | Deferred | DeferredContent | Refused
)


class Answer(NamedTuple):
    reply: Reply
    body: memoryview


Answered: TypeAlias = Callable[[Answer | DragomanError], None]

_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_request(header: Buffer) -> Request:
    """Raises `DecodeError`."""
    try:
        return _requests.decode(header)
    except msgspec.DecodeError as error:
        raise DecodeError(f"not a request of a neighbour: {error}") from None


def decode_answer(header: Buffer, body: memoryview) -> Answer | DragomanError:
    """What was answered, or the refusal as an exception."""
    try:
        reply = _replies.decode(header)
    except msgspec.DecodeError as error:
        return ClusterError(f"not an answer of a neighbour: {error}; the outcome is unknown")
    return _exception(reply) if isinstance(reply, Refused) else Answer(reply, body)


# ---- refusals


def refusal_of(error: DragomanError) -> Refused:
    fields = {
        name: value for name, value in vars(error).items() if isinstance(value, int | str | tuple)
    }
    return Refused(name=name_of(type(error)), text=str(error), fields=fields)


def _exception(refused: Refused) -> DragomanError:
    kind = ERROR_BY_NAME.get(refused.name)
    if kind is None:
        return ClusterError(f"{refused.name}: {refused.text}")
    # Constructors differ; text and fields are all that there is to an exception.
    error = kind.__new__(kind)
    error.args = (refused.text,)
    vars(error).update(refused.fields)
    return error


def told(done: Callable[[DragomanError | None], None], answer: Answer | DragomanError) -> None:
    """For whoever only wants to know whether it was done."""
    done(answer if isinstance(answer, DragomanError) else None)


# ---- the port


class Neighbours(Protocol):
    def ask(
        self, node_id: int, request: Request, body: Sequence[Buffer], done: Answered, /
    ) -> None:
        """`done` is called exactly once, perhaps before this returns."""
        ...


class NoNeighbours:
    """For a node that is alone, or cannot reach the others yet."""

    def ask(
        self, node_id: int, _request: Request, _body: Sequence[Buffer], done: Answered, /
    ) -> None:
        done(NotSentError(f"node {node_id} cannot be reached"))
