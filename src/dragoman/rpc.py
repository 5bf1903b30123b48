"""Remote procedure calls between nodes: typed requests, typed answers.

A service declares its requests and answers beside the handlers that serve them, and registers each
handler once. `Rpc.call` says *where* a request is served (a node, the leader of a partition, the
coordinator of a name), and runs the handler there: in this process when that is this node.

**Messages.** Each is a struct with a fixed tag, encoded as msgpack; a batch or another large value
follows it as the body. Fields with defaults may be added: earlier releases ignore them.

**Errors.** An error of the called node travels as its wire name, its text and its plain fields, and
is raised as the same class at the calling node. A wire name that the caller does not know becomes a
`ClusterError`. `NotSentError` means that no node got the request, so nothing was done.
`OutcomeUnknownError` means that the answer was lost, so the request may or may not have been
carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import (
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

import msgspec

from dragoman.errors import (
    MALFORMED,
    ClusterError,
    DecodeError,
    DragomanError,
    NotSentError,
    OutcomeUnknownError,
)
from dragoman.outcome import Outcome, Retry, retried, start
from dragoman.types import Buffer
from dragoman.world import Scheduler


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of answers."""


class Done(Answer, frozen=True, kw_only=True, tag="Done"):
    """The request was carried out; it has no result."""


A = TypeVar("A", bound=Answer)
A_co = TypeVar("A_co", bound=Answer, covariant=True)


class Request(msgspec.Struct, Generic[A_co], frozen=True, kw_only=True, omit_defaults=True):
    """Base of requests: a `Request[Appended]` is answered with an `Appended`."""

    #: Without one, every error is raised at once.
    retry: ClassVar[Retry | None] = None


class Reply(NamedTuple, Generic[A]):
    """An answer and its body."""

    answer: A
    pieces: Sequence[Buffer] = ()

    @property
    def body(self) -> memoryview:
        """The pieces joined."""
        pieces = self.pieces
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def answer_type(request: type[Request[A]]) -> type[A]:
    """The type of the answer to a type of request."""
    for base in getattr(request, "__orig_bases__", ()):
        if get_origin(base) is Request:
            (answer,) = get_args(base)
            assert isinstance(answer, type)
            return answer
    raise AssertionError(f"{request.__name__} does not name its answer")


# ---- where


class Node(NamedTuple):
    """The node with this id."""

    node_id: int


class Leader(NamedTuple):
    """The leader of a partition."""

    partition_id: int


class Coordinator(NamedTuple):
    """The leader of the partition of an internal topic to which a name maps."""

    topic: str
    name: str


Where: TypeAlias = Node | Leader | Coordinator


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
        self.run(node_id, request, body).then(partial(self._reply, send))

    def _reply(self, send: Send, reply: Reply[Answer] | DragomanError) -> None:
        if isinstance(reply, DragomanError):
            reply = Reply(self._refusals.encode(reply))
        send(msgspec.msgpack.encode(reply.answer), reply.pieces)

    def decode_request(self, header: Buffer) -> Request[Answer]:
        """Decode a request. Raises `DecodeError`."""
        if self._requests is None:
            self._requests = msgspec.msgpack.Decoder(reduce(or_, self._handlers))
        try:
            return self._requests.decode(header)
        except MALFORMED as error:
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
        except MALFORMED as error:
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


class RawReply(msgspec.Struct, frozen=True):
    """The encoded answer of another node."""

    header: Buffer
    body: memoryview


class Transport(Protocol):
    """The connections to other nodes."""

    def exchange(self, node_id: int, header: bytes, body: Sequence[Buffer], /) -> Outcome[RawReply]:
        """Send a request and wait for its reply. Fails with `NotSentError` or `ClusterError`."""
        ...


class NoTransport:
    """The transport of a node without peers, or before it connects to them."""

    def exchange(self, node_id: int, _header: bytes, _body: Sequence[Buffer]) -> Outcome[RawReply]:
        outcome: Outcome[RawReply] = Outcome()
        outcome.fail(NotSentError(f"node {node_id} cannot be reached"))
        return outcome


class Directory(Protocol):
    """Maps a location to the responsible node."""

    async def locate(self, where: Where, /) -> int:
        """The responsible node. Raises `NotLeader`, `CoordinatorNotAvailable` and the like while
        there is none.
        """
        ...


class Rpc:
    def __init__(
        self, node_id: int, registry: Registry, directory: Directory, scheduler: Scheduler
    ) -> None:
        self._node_id = node_id
        self._registry = registry
        self._directory = directory
        self._scheduler = scheduler
        #: Replaced by the composition root once connections exist.
        self.transport: Transport = NoTransport()
        #: Whether the node is stopping, in which case nothing is retried.
        self.is_stopping: Callable[[], bool] = lambda: False

    async def call(self, request: Request[A], at: Where, body: Sequence[Buffer] = ()) -> A:
        """Call the responsible node, and return the answer without its body."""
        return (await self.exchange(request, at, body)).answer

    async def exchange(
        self, request: Request[A], at: Where, body: Sequence[Buffer] = ()
    ) -> Reply[A]:
        """Call the responsible node. Transient errors are retried as the type of the request
        declares.
        """
        retry = request.retry

        async def once() -> Reply[A]:
            return await self._once(request, at, body)

        if retry is None:
            return await once()
        return await retried(retry, self._scheduler, once, self.is_stopping)

    def begin(
        self, request: Request[A], at: Where, body: Sequence[Buffer] = ()
    ) -> Outcome[Reply[A]]:
        """`call` for callers with a callback."""
        return start(self.exchange(request, at, body))

    async def _once(self, request: Request[A], at: Where, body: Sequence[Buffer]) -> Reply[A]:
        node_id = await self._directory.locate(at)
        if node_id == self._node_id:
            joined = body[0] if len(body) == 1 else b"".join(body)
            return await self._registry.run(node_id, request, memoryview(joined))
        header = msgspec.msgpack.encode(request)
        try:
            reply = await self.transport.exchange(node_id, header, body)
        except (NotSentError, OutcomeUnknownError):
            raise
        except ClusterError as error:
            raise OutcomeUnknownError(str(error)) from None
        return Reply(self._registry.decode_answer(request, reply.header), (reply.body,))
