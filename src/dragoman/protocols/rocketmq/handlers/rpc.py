"""What nodes ask each other on behalf of their RocketMQ clients.

A group's coordinator keeps the list of its members and their locks; a client is reached through the
node that it is connected to. Requests travel as `Relay` messages of this protocol, as msgpack.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final, Generic, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

from dragoman.broker.leader_queues import Relay, TakeReply
from dragoman.errors import DecodeError
from dragoman.outcome import start
from dragoman.protocols.rocketmq.bodies import ConsumerData
from dragoman.rpc import Node, Rpc

PROTOCOL: Final = "rocketmq"
RELAY: Final = Relay(protocol=PROTOCOL)
A = TypeVar("A", bound=msgspec.Struct)
A_co = TypeVar("A_co", bound=msgspec.Struct, covariant=True)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group, as all nodes know it."""

    client_id: str
    #: The node that it is connected to.
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


# ---- requests


class RelayedRequest(msgspec.Struct, Generic[A_co], frozen=True, kw_only=True, omit_defaults=True):
    """Base of requests: a `RelayedRequest[Listing]` is answered with a `Listing`."""


class Announce(RelayedRequest[Listing], frozen=True, kw_only=True, tag="Announce"):
    """All members of a group that are connected to the asking node. Answered when the list has
    another number than the node knows, or after a while.
    """

    group: str
    node: int
    members: tuple[Listed, ...] = ()
    number: int = -1


class LookUpMembers(RelayedRequest[Listing], frozen=True, kw_only=True, tag="LookUpMembers"):
    """The members of a group are wanted."""

    group: str


class LockQueues(RelayedRequest[Queues], frozen=True, kw_only=True, tag="LockQueues"):
    """A client wants to lock queues, or releases them. Answered with those of them that it holds
    now; after a release, with none.
    """

    group: str
    client_id: str
    queues: tuple[tuple[str, int], ...]
    is_release: bool = False


class TellClient(RelayedRequest[Count], frozen=True, kw_only=True, tag="TellClient"):
    """A request without an answer for a client of the node. Answered with the number of clients
    that it was sent to.
    """

    group: str
    code: int
    fields: dict[str, str]
    body: bytes = b""
    client_id: str = ""


class AskClient(RelayedRequest[ClientAnswer], frozen=True, kw_only=True, tag="AskClient"):
    """A request for a client of the node, which answers it."""

    group: str
    client_id: str
    code: int
    fields: dict[str, str]
    body: bytes = b""


class CheckProducer(RelayedRequest[Count], frozen=True, kw_only=True, tag="CheckProducer"):
    """Any producer of a group is to be asked for the state of a transaction. Answered with the
    number of producers that were asked.
    """

    group: str
    fields: dict[str, str]
    body: bytes


class ListProducers(RelayedRequest[Producers], frozen=True, kw_only=True, tag="ListProducers"):
    """The producers that are connected to the node are wanted."""


class ForwardReply(RelayedRequest[Count], frozen=True, kw_only=True, tag="ForwardReply"):
    """A reply of request/reply messaging for a client of the node. Answered with the number of
    clients that it was sent to.
    """

    client_id: str
    fields: dict[str, str]
    body: bytes


class FindOffset(RelayedRequest[Number], frozen=True, kw_only=True, tag="FindOffset"):
    """The first offset at or after a time in a partition that the node leads or, without a time,
    the time of the first record from an offset on.
    """

    partition_id: int
    timestamp: int | None = None
    offset: int = 0


class DescribeGroups(RelayedRequest[GroupRows], frozen=True, kw_only=True, tag="DescribeGroups"):
    """What the node knows, as their coordinator, about one group or all groups, and one topic or
    all topics.
    """

    group: str = ""
    topic: str = ""


class DeleteGroup(RelayedRequest[Count], frozen=True, kw_only=True, tag="DeleteGroup"):
    """Delete a group without members, and its offsets. Answered with the number of groups that
    were deleted.
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


R = TypeVar("R", bound=RelayedRequest[msgspec.Struct])
_AnyHandler: TypeAlias = Callable[
    [RelayedRequest[msgspec.Struct]], Coroutine[object, None, msgspec.Struct]
]
_decoder: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)


def decode_request(body: memoryview) -> Request:
    """Raises `DecodeError`."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise DecodeError(f"not a request on behalf of a client: {error}") from None


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(message)


def _answer_type(request: type[RelayedRequest[A]]) -> type[A]:
    """What a type of requests is answered with."""
    for base in getattr(request, "__orig_bases__", ()):
        if get_origin(base) is RelayedRequest:
            (answer,) = get_args(base)
            assert isinstance(answer, type)
            return answer
    raise AssertionError(f"{request.__name__} does not name its answer")


class Relays:
    """Has each request handled on the node that it is for."""

    def __init__(self, node_id: int, rpc: Rpc) -> None:
        self._node_id = node_id
        self._rpc = rpc
        self._handlers: dict[type, _AnyHandler] = {}

    def serve(
        self, request: type[RelayedRequest[A]], handler: Callable[[R], Coroutine[object, None, A]]
    ) -> None:
        """Have every request of this type answered by the handler."""
        self._handlers[request] = cast(_AnyHandler, handler)

    @property
    def request_types(self) -> tuple[type, ...]:
        return tuple(self._handlers)

    async def call(self, request: RelayedRequest[A], node: int) -> A:
        """Have a request handled by a node, which may be this one."""
        if node == self._node_id:
            return cast(A, await self._handlers[type(request)](request))
        reply = await self._rpc.exchange(RELAY, Node(node), (encode(request),))
        try:
            return msgspec.msgpack.decode(reply.body, type=_answer_type(type(request)))
        except msgspec.DecodeError as error:
            raise DecodeError(f"not an answer of another node: {error}") from None

    def receive(self, body: memoryview, take: TakeReply) -> None:
        """Handle what another node asks on behalf of its client."""
        start(self._answer(body)).then(take)

    async def _answer(self, body: memoryview) -> bytes:
        request = decode_request(body)
        return encode(await self._handlers[type(request)](request))
