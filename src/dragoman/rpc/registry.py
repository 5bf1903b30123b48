"""The server side of remote procedure calls: one handler for each type of request.

An error travels as its wire name, its text and its plain fields, and is raised as the same class at
the calling node. A wire name that the caller does not know becomes a `ClusterError`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec

from dragoman.errors import ClusterError, DecodeError, DragomanError, OutcomeUnknownError
from dragoman.outcome import Outcome, start
from dragoman.rpc.messages import A, Answer, Reply, Request, answer_type
from dragoman.types import Buffer

R = TypeVar("R", bound=Request[Answer])
#: Receives the header and the pieces of the body of a reply.
Send: TypeAlias = Callable[[bytes, Sequence[Buffer]], None]


class Call(Generic[R]):
    """A request as its handler sees it."""

    __slots__ = ("body", "node_id", "request")

    def __init__(self, node_id: int, request: R, body: memoryview) -> None:
        #: The calling node; this one for a call within the process.
        self.node_id = node_id
        self.request = request
        #: A view of the receive buffer; a handler that keeps it copies it.
        self.body = body


Handler: TypeAlias = Callable[[Call[R]], Coroutine[object, None, A | Reply[A]]]
_AnyHandler: TypeAlias = Callable[
    [Call[Request[Answer]]], Coroutine[object, None, Answer | Reply[Answer]]
]


class Registry:
    """Handlers are registered only while the node is composed."""

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
        """Register the handler of a type of request. It raises `DragomanError` to refuse."""
        assert request not in self._handlers, f"{request.__name__} has a handler already"
        assert self._requests is None, "the node serves requests already"
        self._handlers[request] = cast(_AnyHandler, handler)

    @property
    def request_types(self) -> tuple[type[Request[Answer]], ...]:
        return tuple(self._handlers)

    # ---- local calls

    def run(self, node_id: int, request: Request[A], body: memoryview) -> Outcome[Reply[A]]:
        """Run the handler of a request."""
        return cast("Outcome[Reply[A]]", start(self._run(node_id, request, body)))

    async def _run(self, node_id: int, request: Request[Answer], body: memoryview) -> Reply[Answer]:
        answer = await self._handlers[type(request)](Call(node_id, request, body))
        return answer if isinstance(answer, Reply) else Reply(answer)

    # ---- remote calls

    def answer(self, node_id: int, header: Buffer, body: memoryview, send: Send) -> None:
        """Serve a request of another node: reply now or later, exactly once. Raises
        `DecodeError`.
        """
        request = self.decode_request(header)

        def send_reply(reply: Reply[Answer] | DragomanError) -> None:
            if isinstance(reply, DragomanError):
                reply = Reply(self._refusals.encode(reply))
            send(msgspec.msgpack.encode(reply.answer), reply.pieces)

        self.run(node_id, request, body).then(send_reply)

    def decode_request(self, header: Buffer) -> Request[Answer]:
        """Decode a request. Raises `DecodeError`."""
        if self._requests is None:
            self._requests = msgspec.msgpack.Decoder(reduce(or_, self._handlers))
        try:
            return self._requests.decode(header)
        except msgspec.DecodeError as error:
            raise DecodeError(f"not a request of another node: {error}") from None

    def decode_answer(self, request: Request[A], header: Buffer) -> A:
        """Decode the answer of another node. Raises the error in it."""
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


class Refused(Answer, frozen=True, kw_only=True, tag="Refused"):
    name: str
    text: str
    fields: dict[str, int | str | tuple[int, ...]] = {}


class Refusals:
    def __init__(self, classes: Mapping[str, type[DragomanError]]) -> None:
        """`classes`: the error classes by wire name."""
        self._classes = dict(classes)
        self._names = {kind: name for name, kind in self._classes.items()}

    def encode(self, error: DragomanError) -> Refused:
        """A class without a wire name of its own travels as its nearest base class that has one."""
        fields = {
            name: value
            for name, value in vars(error).items()
            if isinstance(value, int | str | tuple)
        }
        name = next(self._names[each] for each in type(error).__mro__ if each in self._names)
        return Refused(name=name, text=str(error), fields=fields)

    def decode(self, refused: Refused) -> DragomanError:
        kind = self._classes.get(refused.name)
        if kind is None:
            return ClusterError(f"{refused.name}: {refused.text}")
        # Constructors differ, so the exception is built from its text and its fields.
        error = kind.__new__(kind)
        error.args = (refused.text,)
        vars(error).update(refused.fields)
        return error
