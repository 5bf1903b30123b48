"""Produce requests like those before them, a whole read at a time.

A producer's requests to one partition differ in their correlation id and their records only. So the
first one of a kind takes the ordinary way (`produce.py`) and leaves a *route*: the bytes between
the two, where they led, and the reply with gaps for the numbers. A later request that begins with
the bytes of a route needs no decoding, no look-up and no encoding; and all such requests that one
read brings wait, and are answered, together.

Routes hold while the metadata stays as it was: any change of topics, leaders, configurations or
rights drops them. What is refused on this way, or is not exactly of the shape, is left to the
ordinary way, which also words the errors; so nothing is decided here.
"""

from __future__ import annotations

import struct
from collections import deque
from functools import partial
from struct import Struct
from typing import Final, Protocol

from dragoman.broker.produce import check_produced, place
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import KAFKA_PRODUCE_ROUTES_MAX
from dragoman.log.batch import TRANSACTIONAL
from dragoman.primitives import uvarint
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka.connection import Request
from dragoman.protocols.kafka.decoder_source import rest_of_uvarint
from dragoman.protocols.kafka.handlers.refusals import refused_partition
from dragoman.protocols.kafka.handlers.service import KafkaService
from dragoman.protocols.kafka.messages import (
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from dragoman.protocols.session import Waiting
from dragoman.replication.replica import Replica
from dragoman.types import Buffer

#: Key and version together, and the correlation id. What follows belongs to a route.
_HEAD: Final = Struct(">Ii")
_unpack_size: Final = Struct(">i").unpack_from
_FLEXIBLE_SINCE: Final = 9
#: Before this version a reply has no log start offset.
_FIRST_VERSION: Final = 5
#: What ends a flexible request: the tagged sections of partition, topic and request, all empty.
_NO_TAGS: Final = bytes(3)
#: Stand for the numbers in a reply while its layout is found out.
_BASE_OFFSET: Final = 0x5B3C_A791_0D6E_F284
_LOG_START: Final = 0x4D1F_82E6_C03B_5A97
#: Lengths of prefixes that are tried; a producer with topic names of more lengths starts anew.
_ENDS_MAX: Final = 16


class Line(Protocol):
    """The session whose requests these are, and its line of replies."""

    @property
    def service(self) -> KafkaService: ...

    def enter(self, waiting: Waiting) -> None:
        """Take a place in the line."""
        ...

    def flush(self) -> None:
        """Send what is done and at the head of the line."""
        ...


class Route:
    """Where requests that begin like this lead, and how their replies look."""

    __slots__ = ("head", "is_flexible", "pack", "parts", "prefix", "records_at", "replica")

    def __init__(
        self, head: int, prefix: bytes, replica: Replica, is_flexible: bool, reply: bytes
    ) -> None:
        self.head = head
        #: The bytes from behind the correlation id up to the length of the records.
        self.prefix = prefix
        self.replica = replica
        self.is_flexible = is_flexible
        self.records_at = _HEAD.size + len(prefix)
        base = reply.rindex(_BASE_OFFSET.to_bytes(8, "big"))
        start = reply.rindex(_LOG_START.to_bytes(8, "big"))
        self.parts = (reply[:4], reply[8:base], reply[base + 8 : start], reply[start + 8 :])
        size, before, between, after = map(len, self.parts)
        self.pack = Struct(f">{size}si{before}sq{between}sq{after}s").pack

    def records(self, frame: bytearray) -> memoryview | None:
        """The records of a request that begins like this; None when the rest is unusual."""
        at = self.records_at
        try:
            if not self.is_flexible:
                (size,) = _unpack_size(frame, at)
                is_usual = 0 <= size == len(frame) - at - 4
                return memoryview(frame)[at + 4 :] if is_usual else None
            size, start = frame[at], at + 1
            if size > 0x7F:
                size, start = rest_of_uvarint(frame, start, size)
        except (IndexError, struct.error, DecodeError):
            return None
        stop = len(frame) - len(_NO_TAGS)
        is_usual = start + size - 1 == stop and frame.endswith(_NO_TAGS)
        return memoryview(frame)[start:stop] if is_usual and size else None

    def reply(self, correlation_id: int, base_offset: int, log_start: int) -> bytes:
        size, before, between, after = self.parts
        return self.pack(size, correlation_id, before, base_offset, between, log_start, after)


class Run:
    """Requests of one read, with one place in the line of replies."""

    __slots__ = ("_failed", "_session", "_taken", "_waiting", "is_done", "size")

    def __init__(self, session: Line, taken: list[tuple[Route, int, int]], size: int):
        self._session = session
        #: Route, correlation id and offset of each.
        self._taken = taken
        #: Partitions that failed, with what was committed by then: later, others may have written.
        self._failed: dict[Replica, tuple[DragomanError, int]] = {}
        self._waiting = 0
        self.is_done = False
        self.size = size

    def wait(self, ends: dict[Replica, int]) -> None:
        """Be done when every partition is committed up to its end."""
        self._waiting = len(ends)
        for replica, end in ends.items():
            replica.when_committed(end, partial(self._acknowledged, replica))

    def _acknowledged(self, replica: Replica, error: DragomanError | None) -> None:
        if error is not None:
            self._failed[replica] = (error, replica.log.high_watermark)
        self._waiting -= 1
        if not self._waiting and not self.is_done:
            self.is_done = True
            self._session.flush()

    @property
    def count(self) -> int:
        return len(self._taken)

    def take_reply(self) -> list[Buffer]:
        if self._failed:
            return [self._one_reply(*each) for each in self._taken]
        return [
            b"".join(
                [
                    route.reply(correlation_id, base_offset, route.replica.log.log_start_offset)
                    for route, correlation_id, base_offset in self._taken
                ]
            )
        ]

    def _one_reply(self, route: Route, correlation_id: int, base_offset: int) -> Buffer:
        failed = self._failed.get(route.replica)
        if failed is None or base_offset < failed[1]:
            return route.reply(correlation_id, base_offset, route.replica.log.log_start_offset)
        error, _ = failed
        version = route.head & 0xFFFF
        part = refused_partition(route.replica.metadata.index, error, version)
        return codec.join(_response(route.replica, part, version, correlation_id))

    def drop(self) -> None:
        """The connection is gone; what was appended stays."""
        self.is_done = True


class Express:
    """The routes of one connection."""

    __slots__ = ("_ends", "_last", "_metadata_version", "_routes", "_session")

    def __init__(self, session: Line) -> None:
        self._session = session
        self._routes: dict[bytes, Route] = {}
        #: Where the prefixes of the routes end; as many as there are lengths of topic names.
        self._ends: dict[int, None] = {}
        self._last: Route | None = None
        self._metadata_version = -1

    def learn(self, request: Request, records: Buffer, replica: Replica) -> None:
        """Remember a request for one partition that was appended in the ordinary way."""
        version, frame = request.version, request.frame
        if version < _FIRST_VERSION:
            return
        is_flexible = version >= _FLEXIBLE_SINCE
        size = len(records)
        length = uvarint(size + 1) if is_flexible else size.to_bytes(4, "big")
        end = len(frame) - (len(_NO_TAGS) if is_flexible else 0) - size - len(length)
        prefix = bytes(frame[_HEAD.size : end])
        head, _ = _HEAD.unpack_from(frame)
        part = ProduceResponsePartition(
            index=replica.metadata.index, base_offset=_BASE_OFFSET, log_start_offset=_LOG_START
        )
        reply = codec.join(_response(replica, part, version, 0))
        route = Route(head, prefix, replica, is_flexible, reply)
        if route.records(frame) != records:
            return
        self._forget_if_outdated()
        if len(self._routes) >= KAFKA_PRODUCE_ROUTES_MAX or len(self._ends) >= _ENDS_MAX:
            self._forget()
        self._routes[prefix] = self._last = route
        self._ends[end] = None

    def _forget_if_outdated(self) -> None:
        version = self._session.service.broker.quorum.version
        if version != self._metadata_version:
            self._metadata_version = version
            self._forget()

    def _forget(self) -> None:
        self._routes.clear()
        self._ends.clear()
        self._last = None

    def _find(self, frame: bytearray) -> Route | None:
        for end in self._ends:
            route = self._routes.get(bytes(frame[8:end]))
            if route is not None:
                return route
        return None

    def take(self, backlog: deque[bytearray]) -> bool:
        """Append the requests at the head of the backlog that follow a route, and take them out;
        whether there are any.
        """
        self._forget_if_outdated()
        route = self._last
        if route is None:
            return False
        now_ms = self._session.service.broker.clock.wall_ms()
        routes, unpack_head = self._routes, _HEAD.unpack_from
        taken: list[tuple[Route, int, int]] = []
        ends: dict[Replica, int] = {}
        size = 0
        for frame in backlog:
            if not frame.startswith(route.prefix, 8):
                # Most often another partition of the same topic.
                found = routes.get(bytes(frame[8 : route.records_at])) or self._find(frame)
                if found is None:
                    break
                route = found
            head, correlation_id = unpack_head(frame)
            if head != route.head:
                break
            batch = route.records(frame)
            if batch is None:
                break
            replica = route.replica
            try:
                header = check_produced(batch)
                if header.attributes & TRANSACTIONAL:
                    break
                appended = place(replica, batch, header, now_ms)
            except DragomanError:
                break
            taken.append((route, correlation_id, appended.base_offset))
            ends[replica] = appended.next_offset
            size += len(frame)
        self._last = route
        if not taken:
            return False
        if len(taken) == len(backlog):
            backlog.clear()
        else:
            for _ in taken:
                backlog.popleft()
        run = Run(self._session, taken, size)
        self._session.enter(run)
        run.wait(ends)
        return True


def _response(
    replica: Replica, part: ProduceResponsePartition, version: int, correlation_id: int
) -> list[Buffer]:
    topic = replica.metadata.topic
    response = ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[part]
            )
        ]
    )
    return codec.encode_response(response, version, correlation_id)
