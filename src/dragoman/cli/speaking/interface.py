"""What a protocol has to bring for `produce` and `consume` to speak it.

What it cannot express is refused before anything is sent: a protocol names those things with the
reason (`cannot_write`, `cannot_show`) or looks at the whole plan (`check`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NoReturn, Protocol, TypeAlias

import msgspec

from dragoman.cli.positions import Place
from dragoman.cli.status import USAGE, CommandError

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
#: What some protocols have no word for: fields of records, and what the broker is asked for.
Feature: TypeAlias = Literal["key", "null", "headers", "partition", "timestamp", "codec", "acks"]


class OutgoingRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A record to be written."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    #: None: client or broker choose.
    partition: int | None = None
    #: Milliseconds since 1970; None: now.
    timestamp: int | None = None


class IncomingRecord(Protocol):
    """A record that was read. What the protocol does not tell is None."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers | None: ...


class PlainRecord(msgspec.Struct, frozen=True, gc=False):
    """An `IncomingRecord` of a protocol that tells no more than this."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: None = None
    headers: None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where `produce` writes to, and how."""

    bootstrap: str
    topic: str
    codec: str = "none"
    acks: Literal["all", "1", "0"] = "all"


class Writer(Protocol):
    @property
    def written_records(self) -> int:
        """How many the broker has acknowledged."""
        ...

    def write(self, records: Sequence[OutgoingRecord]) -> None:
        """Take records in. A failure may be that of earlier ones."""
        ...


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What `consume` reads."""

    bootstrap: str
    topic: str
    #: Empty: all.
    partitions: tuple[int, ...] = ()
    start: Place = Place("beginning")
    #: None: the present end, or no end when it follows.
    until: Place | None = None
    follow: bool = False
    max_records: int | None = None
    group: str | None = None
    is_committed_only: bool = True

    @property
    def last_offset(self) -> int | None:
        """The offset that `until` names, if it is one."""
        is_offset = self.until is not None and self.until.kind == "offset"
        return self.until.number if self.until is not None and is_offset else None


class Reader(Protocol):
    def next_records(self) -> Sequence[IncomingRecord]:
        """What came next, at least one record; empty when everything was read."""
        ...

    def printed(self, count: int) -> None:
        """So many of the records given last were printed: commit them, for a group."""
        ...


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    #: What `--bootstrap` is without being given.
    bootstrap: str
    #: Why a record, or a request, cannot have this.
    cannot_write: Mapping[Feature, str] = {}
    #: Why this cannot be printed. JSON shows it as null.
    cannot_show: Mapping[Feature, str] = {}
    #: Raises `CommandError` for a plan that the protocol has no words for.
    check: Callable[[Plan], None]
    #: Entering connects; leaving waits for what was written.
    write: Callable[[Target], AbstractContextManager[Writer]]
    #: Entering connects; leaving commits what was printed, and leaves the group.
    read: Callable[[Plan], AbstractContextManager[Reader]]


def refuse(option: str, protocol: str, reason: str) -> NoReturn:
    raise CommandError(f"{option}: not with --protocol {protocol}: {reason}", USAGE)


def check_partition(topic: str, partition: int, count: int) -> None:
    if not 0 <= partition < count:
        raise CommandError(f"topic {topic!r} has no partition {partition}; it has {count}")
