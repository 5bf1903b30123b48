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

from dragoman.broker.refusal_names import ERROR_BY_NAME, name_of
from dragoman.captures.control import Resume, Rewind, Snapshot, Status
from dragoman.errors import ClusterError, DecodeError, DragomanError, NotSentError
from dragoman.rpc import Done
from dragoman.types import Buffer


class _Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the messages. Their tags are fixed: a class may be renamed, its tag may not."""


# ---- captures of databases


class CaptureState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a capture is, as the node knows that runs it."""

    name: str
    #: -1: nobody runs it.
    node: int
    status: Status
    #: Processes that ended and were replaced, and rows captured, since the node runs it.
    restarts: int = 0
    rows: int = 0


class AskCaptures(_Message, frozen=True, kw_only=True, tag="AskCaptures"):
    """Answered with `CaptureStates`, for those that the node runs."""

    names: tuple[str, ...]


class TellCapture(_Message, frozen=True, kw_only=True, tag="TellCapture"):
    """Answered with `Done` when the capture has done it, or has begun to."""

    name: str
    command: Resume | Rewind | Snapshot


class RemoveCapture(_Message, frozen=True, kw_only=True, tag="RemoveCapture"):
    """Stop the capture for good. Answered with `Done` when that is agreed on."""

    name: str
    keeps_slot: bool = False


Request: TypeAlias = AskCaptures | TellCapture | RemoveCapture


# ---- answers


class CaptureStates(_Message, frozen=True, kw_only=True, tag="CaptureStates"):
    states: tuple[CaptureState, ...] = ()


class Refused(_Message, frozen=True, kw_only=True, tag="Refused"):
    name: str
    text: str
    fields: dict[str, int | str | tuple[int, ...]] = {}


Reply: TypeAlias = Done | CaptureStates | Refused


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
