"""What `produce` and `consume` ask of a protocol's client, and the records that pass through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from dragoman.cli.positions import Place, PlaceKind
from dragoman.cli.status import CommandError

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
#: What some protocols cannot express: fields of records, and options of a request.
Feature: TypeAlias = Literal["key", "null", "headers", "partition", "timestamp", "codec", "acks"]


class OutgoingRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A record to be written."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    #: None: the client or the broker chooses.
    partition: int | None = None
    #: Milliseconds since 1970; None: now.
    timestamp: int | None = None


class IncomingRecord(Protocol):
    """A record that was read. None stands for what the protocol does not show."""

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
    """An `IncomingRecord`; the defaults are those of a protocol that shows no more."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: Headers | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where `produce` writes to, and how."""

    bootstrap: str
    topic: str
    codec: str = "none"
    acks: Literal["all", "1", "0"] = "all"


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


# ---- what a protocol cannot read


class Refusal(msgspec.Struct, frozen=True):
    """Plans that a protocol cannot express, and why."""

    option: str
    reason: str
    applies: Callable[[Plan], bool]
    #: Whether the protocol is named as the cause.
    is_by_protocol: bool = True


def not_from(reason: str, *kinds: PlaceKind) -> Refusal:
    return Refusal("--from", reason, lambda plan: plan.start.kind in kinds)


def not_until(reason: str, *kinds: PlaceKind) -> Refusal:
    return Refusal(
        "--until", reason, lambda plan: plan.until is not None and plan.until.kind in kinds
    )


#: A reader that follows has no present end to resolve other places against.
FOLLOWS_TO_OFFSET: Final = Refusal(
    "--until",
    "with --follow, expected an offset",
    lambda plan: plan.follow and plan.until is not None and plan.last_offset is None,
)
COMMITTED_ONLY: Final = Refusal(
    "--isolation", "it reads committed records only", lambda plan: not plan.is_committed_only
)
GROUP_ASSIGNS: Final = Refusal(
    "--partition",
    "with --group, the broker gives the partitions",
    lambda plan: plan.group is not None and bool(plan.partitions),
)


def check_partition(topic: str, partition: int, count: int) -> None:
    if not 0 <= partition < count:
        raise CommandError(f"topic {topic!r} has no partition {partition}; it has {count}")


def portions(records: Sequence[OutgoingRecord], size: int) -> list[Sequence[OutgoingRecord]]:
    return [records[begin : begin + size] for begin in range(0, len(records), size)]
