"""Calls between nodes for callers of the HTTP API: any node serves every operation.

A request travels as the body of a `Relay` to the node that leads the partition or coordinates the
group. A node of a release without it refuses a relay of this protocol, so no feature level is
needed: nothing was done, and the refusal names the node that is too old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

from dragoman.api.node_requests import NodeRequest, Request
from dragoman.broker.leader_queues import Relay
from dragoman.errors import MALFORMED, BrokerError, ClusterError, DecodeError, DragomanError
from dragoman.limits import HTTP_NODES_SECONDS
from dragoman.net.future import settled
from dragoman.outcome import attempt, gather, start
from dragoman.rpc import Rpc, Where

PROTOCOL: Final = "http"
_RELAY: Final = Relay(protocol=PROTOCOL)
_decoder: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)

T = TypeVar("T")
A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R", bound=NodeRequest[msgspec.Struct])
_AnyHandler: TypeAlias = Callable[
    [NodeRequest[msgspec.Struct]], Coroutine[object, None, msgspec.Struct]
]


def _answer_type(request: type[NodeRequest[A]]) -> type[A]:
    for base in getattr(request, "__orig_bases__", ()):
        if get_origin(base) is NodeRequest:
            (answer,) = get_args(base)
            assert isinstance(answer, type)
            return answer
    raise AssertionError(f"{request.__name__} does not declare its answer")


class NodeCalls:
    """Calls requests on any node, this one included."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def call(self, request: NodeRequest[A], where: Where) -> A:
        """Raises the errors of the handler, and `ClusterError` for a node that is too old."""
        try:
            reply = await self._rpc.exchange(_RELAY, where, (msgspec.msgpack.encode(request),))
        except BrokerError as error:
            if type(error) is not BrokerError:
                raise
            # What `LeaderQueues` answers for a protocol that the node does not serve.
            raise ClusterError(
                f"{type(request).__name__} is not served by every node yet: {error}"
            ) from None
        try:
            return msgspec.msgpack.decode(reply.body, type=_answer_type(type(request)))
        except MALFORMED as error:
            raise DecodeError(f"not an answer of another node: {error}") from None


async def in_time(calls: Sequence[Coroutine[object, None, T]]) -> list[T | DragomanError]:
    """The results of calls, in order, or their errors. A silent node does not keep what the others
    answer: its result is a `ClusterError`.
    """
    late = ClusterError(f"no answer within {HTTP_NODES_SECONDS} s")
    found: list[T | DragomanError] = [late] * len(calls)

    async def take(index: int, call: Coroutine[object, None, T]) -> None:
        found[index] = await attempt(call)

    work = gather([start(take(index, call)) for index, call in enumerate(calls)])
    if not work.is_settled:
        with suppress(TimeoutError):
            async with asyncio.timeout(HTTP_NODES_SECONDS):
                await settled(work)
    # Later answers must not change the result.
    return list(found)


class NodeHandlers:
    """The handlers of a node's requests."""

    def __init__(self) -> None:
        self._handlers: dict[type, _AnyHandler] = {}

    def serve(
        self, request: type[NodeRequest[A]], handler: Callable[[R], Coroutine[object, None, A]]
    ) -> None:
        """Register the handler of a request type."""
        self._handlers[request] = cast(_AnyHandler, handler)

    @property
    def request_types(self) -> tuple[type, ...]:
        return tuple(self._handlers)

    async def answer(self, body: memoryview) -> bytes:
        """Handle a request. Raises `DecodeError`, and what its handler raises."""
        try:
            request = _decoder.decode(body)
        except MALFORMED as error:
            raise DecodeError(f"not a request for the HTTP API: {error}") from None
        return msgspec.msgpack.encode(await self._handlers[type(request)](request))
