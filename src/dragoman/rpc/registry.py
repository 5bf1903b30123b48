"""What this node serves: one handler for each type of requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import reduce
from operator import or_
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec

from dragoman.errors import DecodeError, DragomanError, OutcomeUnknownError
from dragoman.outcome import Outcome, start
from dragoman.rpc.messages import A, Answer, Reply, Request, answer_type
from dragoman.rpc.refusals import Refusals, Refused
from dragoman.types import Buffer

R = TypeVar("R", bound=Request[Answer])
#: Takes the header and the pieces of the body of a reply.
Send: TypeAlias = Callable[[bytes, Sequence[Buffer]], None]


class Call(Generic[R]):
    """A request as its handler sees it."""

    __slots__ = ("body", "node_id", "request")

    def __init__(self, node_id: int, request: R, body: memoryview) -> None:
        #: The node that asks; this one for a call within the process.
        self.node_id = node_id
        self.request = request
        #: Whoever keeps it copies it.
        self.body = body


Handler: TypeAlias = Callable[[Call[R]], Coroutine[object, None, A | Reply[A]]]
_AnyHandler: TypeAlias = Callable[
    [Call[Request[Answer]]], Coroutine[object, None, Answer | Reply[Answer]]
]


class Registry:
    """Handlers are registered while the node is put together, and not later."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals
        self._handlers: dict[type, _AnyHandler] = {}
        self._requests: msgspec.msgpack.Decoder[Request[Answer]] | None = None
        self._answers: dict[type, msgspec.msgpack.Decoder[Answer]] = {}

    def serve(
        self,
        request: type[Request[A]],
        handler: Callable[[Call[R]], Coroutine[object, None, A | Reply[A]]],
    ) -> None:
        """Have every request of this type answered by the handler. It raises `DragomanError` to
        refuse.
        """
        assert request not in self._handlers, f"{request.__name__} has a handler already"
        assert self._requests is None, "the node serves requests already"
        self._handlers[request] = cast(_AnyHandler, handler)

    @property
    def request_types(self) -> tuple[type[Request[Answer]], ...]:
        return tuple(self._handlers)

    # ---- for this node

    def run(self, node_id: int, request: Request[A], body: memoryview) -> Outcome[Reply[A]]:
        """Run the handler of a request."""
        return cast("Outcome[Reply[A]]", start(self._run(node_id, request, body)))

    async def _run(self, node_id: int, request: Request[Answer], body: memoryview) -> Reply[Answer]:
        answer = await self._handlers[type(request)](Call(node_id, request, body))
        return answer if isinstance(answer, Reply) else Reply(answer)

    # ---- for other nodes

    def answer(self, node_id: int, header: Buffer, body: memoryview, send: Send) -> None:
        """Answer what another node asks, now or later, exactly once. Raises `DecodeError`."""
        request = self.decode_request(header)

        def send_reply(reply: Reply[Answer] | DragomanError) -> None:
            if isinstance(reply, DragomanError):
                reply = Reply(self._refusals.encode(reply))
            send(msgspec.msgpack.encode(reply.answer), reply.pieces)

        self.run(node_id, request, body).then(send_reply)

    def decode_request(self, header: Buffer) -> Request[Answer]:
        """Raises `DecodeError`."""
        if self._requests is None:
            self._requests = msgspec.msgpack.Decoder(reduce(or_, self._handlers))
        try:
            return self._requests.decode(header)
        except msgspec.DecodeError as error:
            raise DecodeError(f"not a request of another node: {error}") from None

    def decode_answer(self, request: Request[A], header: Buffer) -> A:
        """The answer of another node. Raises the error that it refused with."""
        kind = type(request)
        decoder = self._answers.get(kind)
        if decoder is None:
            expected = answer_type(kind) | Refused
            decoder = self._answers[kind] = msgspec.msgpack.Decoder(expected)
        try:
            answer = decoder.decode(header)
        except msgspec.DecodeError as error:
            text = f"not an answer to {kind.__name__}: {error}; the outcome is unknown"
            raise OutcomeUnknownError(text) from None
        if isinstance(answer, Refused):
            raise self._refusals.decode(answer)
        return cast(A, answer)
