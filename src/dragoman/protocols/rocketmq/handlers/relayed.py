"""What nodes ask each other on behalf of their RocketMQ clients.

A group's coordinator keeps the list of its members and their locks; a client is reached through the
node that it is connected to. Requests travel as `Relay` messages of this protocol, as msgpack.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from dragoman.broker.relaying import Relay
from dragoman.broker.relaying import Relayed as RelayedReply
from dragoman.errors import DecodeError, DragomanError
from dragoman.protocols.rocketmq.bodies import ConsumerData
from dragoman.rpc import Reply

PROTOCOL: Final = "rocketmq"


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group, as all nodes know it."""

    client_id: str
    #: The node that it is connected to.
    node: int
    address: str
    language: str
    version: int
    data: ConsumerData


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True): ...


class Announce(_Request, frozen=True, kw_only=True, tag="Announce"):
    """All members of a group that are connected to the asking node. Answered with `Listing`, when
    that has another number or after a while.
    """

    group: str
    node: int
    members: tuple[Listed, ...] = ()
    number: int = -1


class LookUpMembers(_Request, frozen=True, kw_only=True, tag="LookUpMembers"):
    """Answered with `Listing`."""

    group: str


class LockQueues(_Request, frozen=True, kw_only=True, tag="LockQueues"):
    """Answered with the `Queues` that the client holds now; of a release, with none."""

    group: str
    client_id: str
    queues: tuple[tuple[str, int], ...]
    is_release: bool = False


class TellClient(_Request, frozen=True, kw_only=True, tag="TellClient"):
    """A request without answer for a client of the node, or for all its members of a group.
    Answered with the number of clients that were told.
    """

    group: str
    code: int
    fields: dict[str, str]
    body: bytes = b""
    client_id: str = ""


class AskClient(_Request, frozen=True, kw_only=True, tag="AskClient"):
    """A request for a client of the node. Answered with its `ClientAnswer`."""

    group: str
    client_id: str
    code: int
    fields: dict[str, str]
    body: bytes = b""


class CheckProducer(_Request, frozen=True, kw_only=True, tag="CheckProducer"):
    """A transaction's state is asked of any producer of a group. Answered with how many were."""

    group: str
    fields: dict[str, str]
    body: bytes


class ListProducers(_Request, frozen=True, kw_only=True, tag="ListProducers"):
    """Answered with the node's `Producers`."""


class ForwardReply(_Request, frozen=True, kw_only=True, tag="ForwardReply"):
    """A reply of request/reply messaging for a client of the node. Answered with how many got
    it.
    """

    client_id: str
    fields: dict[str, str]
    body: bytes


class FindOffset(_Request, frozen=True, kw_only=True, tag="FindOffset"):
    """Of a partition that the node leads: the first offset at or after a time, or the time of the
    first record from an offset on. Answered with a `Number`.
    """

    partition_id: int
    timestamp: int | None = None
    offset: int = 0


class DescribeGroups(_Request, frozen=True, kw_only=True, tag="DescribeGroups"):
    """What the node knows, as their coordinator, of a group, or of all; of a topic, or of all.
    Answered with `GroupRows`.
    """

    group: str = ""
    topic: str = ""


class DeleteGroup(_Request, frozen=True, kw_only=True, tag="DeleteGroup"):
    """A group that has no members goes with its offsets. Answered with how many there were."""

    group: str


Request: TypeAlias = (
    Announce
    | LookUpMembers
    | LockQueues
    | TellClient
    | AskClient
    | CheckProducer
    | ListProducers
    | ForwardReply
    | FindOffset
    | DescribeGroups
    | DeleteGroup
)


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    members: tuple[Listed, ...] = ()


class Queues(msgspec.Struct, frozen=True):
    queues: tuple[tuple[str, int], ...] = ()


class Number(msgspec.Struct, frozen=True):
    value: int


class Count(msgspec.Struct, frozen=True):
    count: int = 0


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    #: The protocol that its members speak, if it has any.
    owner: str | None = None
    #: Committed, by topic and partition.
    offsets: dict[str, dict[int, int]] = {}
    #: Topics that its members read.
    subscriptions: tuple[str, ...] = ()


class GroupRows(msgspec.Struct, frozen=True):
    rows: tuple[GroupRow, ...] = ()


class ClientAnswer(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    remark: str | None = None
    fields: dict[str, str] = {}
    body: bytes = b""


class ProducerClient(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    client_id: str
    address: str
    language: str
    version: int
    seen_ms: int


class Producers(msgspec.Struct, frozen=True):
    clients: tuple[ProducerClient, ...] = ()


_decoder: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_Reply = TypeVar("_Reply")


def decode_request(body: memoryview) -> Request:
    """Raises `DecodeError`."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise DecodeError(f"not a request on behalf of a client: {error}") from None


def encode(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


RELAY: Final = Relay(protocol=PROTOCOL)


def read_answer(
    answer: Reply[RelayedReply] | DragomanError, kind: type[_Reply]
) -> _Reply | DragomanError:
    if isinstance(answer, DragomanError):
        return answer
    try:
        return msgspec.msgpack.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        return DecodeError(f"not an answer of a neighbour: {error}")
