"""Requests between nodes on behalf of RocketMQ clients.

A group's coordinator keeps the list of the group's members and their locks; a client is reached
through the node that it is connected to. Requests are encoded in msgpack, inside `Relay` requests
of this protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final, Generic, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

from dragoman.broker.leader_queues import Relay
from dragoman.errors import MALFORMED, DecodeError
from dragoman.protocols.rocketmq.bodies import ConsumerData
from dragoman.rpc import Node, Rpc

PROTOCOL: Final = "rocketmq"
RELAY: Final = Relay(protocol=PROTOCOL)
A = TypeVar("A", bound=msgspec.Struct)
A_co = TypeVar("A_co", bound=msgspec.Struct, covariant=True)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group in the coordinator's list."""

    client_id: str
    #: The node that the member is connected to.
    node: int
    address: str
    language: str
    version: int
    data: ConsumerData


# ---- answers


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
    #: The protocol of its members, if it has any.
    owner: str | None = None
    #: Committed offsets by topic and partition.
    offsets: dict[str, dict[int, int]] = {}
    #: Topics that its members have subscribed to.
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


# ---- requests


class NodeRequest(msgspec.Struct, Generic[A_co], frozen=True, kw_only=True, omit_defaults=True):
    """A request to another node. The answer to a `NodeRequest[Listing]` is a `Listing`."""


class Announce(NodeRequest[Listing], frozen=True, kw_only=True, tag="Announce"):
    """Announce all members of a group that are connected to the calling node. The answer is held
    until the list's number differs from the node's, or for `ROCKETMQ_LISTING_WAIT_S`.
    """

    group: str
    node: int
    members: tuple[Listed, ...] = ()
    number: int = -1


class LookUpMembers(NodeRequest[Listing], frozen=True, kw_only=True, tag="LookUpMembers"):
    group: str


class LockQueues(NodeRequest[Queues], frozen=True, kw_only=True, tag="LockQueues"):
    """Lock queues for a client, or release them. The answer has the queues that the client now
    holds; after a release, none.
    """

    group: str
    client_id: str
    queues: tuple[tuple[str, int], ...]
    is_release: bool = False


class TellClient(NodeRequest[Count], frozen=True, kw_only=True, tag="TellClient"):
    """Send a one-way request to a client of the node. The answer is the number of clients that the
    request was sent to.
    """

    group: str
    code: int
    fields: dict[str, str]
    body: bytes = b""
    client_id: str = ""


class AskClient(NodeRequest[ClientAnswer], frozen=True, kw_only=True, tag="AskClient"):
    """Send a request to a client of the node, and answer with the client's response."""

    group: str
    client_id: str
    code: int
    fields: dict[str, str]
    body: bytes = b""


class CheckProducer(NodeRequest[Count], frozen=True, kw_only=True, tag="CheckProducer"):
    """Ask one producer of a group, connected to the node, for the state of a transaction. The
    answer is the number of producers that the request was sent to.
    """

    group: str
    fields: dict[str, str]
    body: bytes


class ListProducers(NodeRequest[Producers], frozen=True, kw_only=True, tag="ListProducers"):
    """List the producers that are connected to the node."""


class ForwardReply(NodeRequest[Count], frozen=True, kw_only=True, tag="ForwardReply"):
    """Send a reply of request/reply messaging to a client of the node. The answer is the number of
    clients that the reply was sent to.
    """

    client_id: str
    fields: dict[str, str]
    body: bytes


class FindOffset(NodeRequest[Number], frozen=True, kw_only=True, tag="FindOffset"):
    """Find the first offset at or after a time in a partition that the node leads or, without a
    time, the timestamp of the first record at or after an offset.
    """

    partition_id: int
    timestamp: int | None = None
    offset: int = 0


class DescribeGroups(NodeRequest[GroupRows], frozen=True, kw_only=True, tag="DescribeGroups"):
    """Describe one group or all groups that the node coordinates, with their offsets in one topic
    or in all topics.
    """

    group: str = ""
    topic: str = ""


class DeleteGroup(NodeRequest[Count], frozen=True, kw_only=True, tag="DeleteGroup"):
    """Delete a group without members, and its offsets. The answer is the number of deleted
    groups.
    """

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


R = TypeVar("R", bound=NodeRequest[msgspec.Struct])
_AnyHandler: TypeAlias = Callable[
    [NodeRequest[msgspec.Struct]], Coroutine[object, None, msgspec.Struct]
]
_decoder: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)


def decode_request(body: memoryview) -> Request:
    """Raises `DecodeError`."""
    try:
        return _decoder.decode(body)
    except MALFORMED as error:
        raise DecodeError(f"not a request on behalf of a client: {error}") from None


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(message)


def _answer_type(request: type[NodeRequest[A]]) -> type[A]:
    """The answer type of a request type."""
    for base in getattr(request, "__orig_bases__", ()):
        if get_origin(base) is NodeRequest:
            (answer,) = get_args(base)
            assert isinstance(answer, type)
            return answer
    raise AssertionError(f"{request.__name__} does not declare its answer")


class NodeRpc:
    """Calls RocketMQ's requests on any node, including this one."""

    def __init__(self, node_id: int, rpc: Rpc) -> None:
        self._node_id = node_id
        self._rpc = rpc
        self._handlers: dict[type, _AnyHandler] = {}

    def serve(
        self, request: type[NodeRequest[A]], handler: Callable[[R], Coroutine[object, None, A]]
    ) -> None:
        """Register the handler of a request type."""
        self._handlers[request] = cast(_AnyHandler, handler)

    @property
    def request_types(self) -> tuple[type, ...]:
        return tuple(self._handlers)

    async def call(self, request: NodeRequest[A], node: int) -> A:
        """Call a node and return its answer. Raises the errors of its handler."""
        if node == self._node_id:
            return cast(A, await self._handlers[type(request)](request))
        reply = await self._rpc.exchange(RELAY, Node(node), (encode(request),))
        try:
            return msgspec.msgpack.decode(reply.body, type=_answer_type(type(request)))
        except MALFORMED as error:
            raise DecodeError(f"not an answer of another node: {error}") from None

    async def answer(self, body: memoryview) -> bytes:
        """Handle a request of another node."""
        request = decode_request(body)
        return encode(await self._handlers[type(request)](request))
