"""Requests and answers, and the ways to address the node that serves a request.

Each message is a struct with a fixed tag, encoded as msgpack; a batch or another large value
follows it as the body. Fields with defaults may be added: earlier releases ignore them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, NamedTuple, TypeAlias, TypeVar, get_args, get_origin

import msgspec

from dragoman.outcome import Retry
from dragoman.types import Buffer


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
