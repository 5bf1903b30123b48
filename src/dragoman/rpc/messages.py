"""Requests and answers, and the ways to say which node a request is for.

Each message is a struct with a fixed tag. On the wire it is msgpack; a batch or another large value
travels behind it as the body. Fields with defaults may be added: the release before ignores them.
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
    """The request was carried out, and there is nothing more to say."""


A = TypeVar("A", bound=Answer)
A_co = TypeVar("A_co", bound=Answer, covariant=True)


class Request(msgspec.Struct, Generic[A_co], frozen=True, kw_only=True, omit_defaults=True):
    """Base of requests: a `Request[Appended]` is answered with an `Appended`."""

    #: None: every error is reported at once.
    retry: ClassVar[Retry | None] = None


class Reply(NamedTuple, Generic[A]):
    """An answer and its body."""

    answer: A
    pieces: Sequence[Buffer] = ()

    @property
    def body(self) -> memoryview:
        """The pieces as one."""
        pieces = self.pieces
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def answer_type(request: type[Request[A]]) -> type[A]:
    """What a type of requests is answered with."""
    for base in getattr(request, "__orig_bases__", ()):
        if get_origin(base) is Request:
            (answer,) = get_args(base)
            assert isinstance(answer, type)
            return answer
    raise AssertionError(f"{request.__name__} does not name its answer")


# ---- where


class Node(NamedTuple):
    """The node of this number."""

    node_id: int


class Leader(NamedTuple):
    """The node that leads a partition."""

    partition_id: int


class Coordinator(NamedTuple):
    """The node that leads the partition of an internal topic in which a name is kept."""

    topic: str
    name: str


Where: TypeAlias = Node | Leader | Coordinator
