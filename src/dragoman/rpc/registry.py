"""What this node serves: one handler for each type of request, and errors on their way to callers.

An error travels as its wire name, its text and its plain fields, and is raised as the same class at
the calling node. A name that a node does not know becomes a `ClusterError`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec

from dragoman.errors import ClusterError, DecodeError, DragomanError, OutcomeUnknownError
from dragoman.outcome import Outcome, start
from dragoman.rpc.messages import A, Answer, Reply, Request, answer_type
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
        """Answer the request of another node, now or later, exactly once. Raises `DecodeError`."""
        request = self.decode_request(header)
        self.run(node_id, request, body).then(partial(self._reply, send))

    def _reply(self, send: Send, reply: Reply[Answer] | DragomanError) -> None:
        if isinstance(reply, DragomanError):
            reply = Reply(self._refusals.encode(reply))
        send(msgspec.msgpack.encode(reply.answer), reply.pieces)

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


class Refused(Answer, frozen=True, kw_only=True, tag="Refused"):
    name: str
    text: str
    fields: dict[str, int | str | tuple[int, ...]] = {}


class Refusals:
    def __init__(self, classes: Mapping[str, type[DragomanError]]) -> None:
        """`classes`: by wire name."""
        self._classes = dict(classes)
        self._names = {kind: name for name, kind in self._classes.items()}

    def encode(self, error: DragomanError) -> Refused:
        """A class without a name of its own travels as its nearest base that has one."""
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
        # Constructors differ; text and fields are all that there is to an exception.
        error = kind.__new__(kind)
        error.args = (refused.text,)
        vars(error).update(refused.fields)
        return error
