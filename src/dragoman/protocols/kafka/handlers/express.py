"""The fast path of Produce: handles requests of a known shape, all requests of one read together.

A producer's requests to one partition differ only in correlation id and records. So the first one
takes the ordinary path (`produce.py`), which creates a *route*: the bytes between the two, the
partition that they name, and a template of the reply. A later request with the same bytes needs no
decoding, no partition lookup and no encoding of its reply. All requests of one read that match
routes wait together, and are answered together.

Routes are valid for one caller and one version of the metadata: a login, and any change of topics,
leaders, in-sync sets, configurations or access rules, drops them. A request that fails here, or
does not match a route exactly, takes the ordinary path, which also reports errors. So the fast path
makes no decisions of its own.
"""

from __future__ import annotations

import struct
from collections import deque
from functools import partial
from struct import Struct
from typing import Final, Protocol

from dragoman.broker.produce import check_produced, place
from dragoman.broker.topic_traffic import Flows
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import KAFKA_PRODUCE_ROUTES_MAX
from dragoman.log.batch import TRANSACTIONAL
from dragoman.log.partition import PartitionLog
from dragoman.net import connection_log
from dragoman.primitives import uvarint
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka.connection import Request
from dragoman.protocols.kafka.constants import ApiKey
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
from dragoman.security.access import Caller
from dragoman.types import Buffer

#: API key and version as one integer, and the correlation id. The route's bytes follow.
_HEAD: Final = Struct(">Ii")
_unpack_size: Final = Struct(">i").unpack_from
_FLEXIBLE_SINCE: Final = 9
#: The first version whose replies have a log start offset.
_FIRST_VERSION: Final = 5
#: The end of a flexible request: the empty tagged sections of partition, topic and request.
_NO_TAGS: Final = bytes(3)
#: Placeholders for the numbers in a reply. Their positions reveal its layout.
_BASE_OFFSET: Final = 0x5B3C_A791_0D6E_F284
_LOG_START: Final = 0x4D1F_82E6_C03B_5A97
#: Maximum number of prefix lengths. Beyond it, all routes are dropped and learned again.
_ENDS_MAX: Final = 16


class Line(Protocol):
    """The session of the requests, with its queue of replies."""

    @property
    def service(self) -> KafkaService: ...

    caller: Caller
    arrived_at: float

    def enter(self, waiting: Waiting) -> None:
        """Reserve a place in the queue of replies."""
        ...

    def note_failure(
        self, number: int | None, api: object, client: str | None, code: object, text: str
    ) -> None:
        """A request was answered with an error."""
        ...

    def flush(self) -> None:
        """Send the completed replies at the head of the queue."""
        ...


class Route:
    """The partition of requests that begin with `prefix`, and the layout of their replies."""

    __slots__ = ("head", "is_flexible", "pack", "parts", "prefix", "records_at", "replica")

    def __init__(
        self, head: int, prefix: bytes, replica: Replica, is_flexible: bool, reply: bytes
    ) -> None:
        self.head = head
        #: The bytes between the correlation id and the length of the records.
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
        """The records of a request with this prefix; None when the rest does not match."""
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
    """Requests of one read, with one place in the queue of replies."""

    __slots__ = (
        "_failed",
        "_session",
        "_taken",
        "_waiting",
        "arrived_at",
        "counter",
        "is_done",
        "size",
    )

    def __init__(self, session: Line, taken: list[tuple[Route, int, int]], size: int):
        self._session = session
        #: Route, correlation id and base offset of each request.
        self._taken = taken
        #: Partitions that failed, with the high watermark at that time, because it may rise again
        #: later.
        self._failed: dict[Replica, tuple[DragomanError, int]] = {}
        self._waiting = 0
        self.arrived_at = session.arrived_at
        self.counter = session.service.requests[ApiKey.PRODUCE]
        self.is_done = False
        self.size = size

    def wait(self, ends: dict[Replica, int]) -> None:
        """Complete when every partition is committed up to its end."""
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
        self.counter.failed(part.error_code)
        if connection_log.is_on():
            self._session.note_failure(correlation_id, "Produce", None, error.code, str(error))
        return codec.join(_response(route.replica, part, version, correlation_id))

    def drop(self) -> None:
        """Called when the connection has closed. The appended records stay."""
        self.is_done = True


class Express:
    """The routes of one connection."""

    __slots__ = ("_caller", "_ends", "_last", "_metadata_version", "_routes", "_session")

    def __init__(self, session: Line) -> None:
        self._session = session
        self._routes: dict[bytes, Route] = {}
        #: Ends of the routes' prefixes: one for each length of topic names.
        self._ends: dict[int, None] = {}
        self._last: Route | None = None
        self._metadata_version = -1
        self._caller = session.caller

    def learn(self, request: Request, records: Buffer, replica: Replica) -> None:
        """Create a route from a request for one partition that took the ordinary path."""
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
        session = self._session
        version = session.service.broker.quorum.version
        if version != self._metadata_version or session.caller is not self._caller:
            self._metadata_version = version
            self._caller = session.caller
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
        """Take requests that match routes from the head of the backlog and append them. Returns
        whether there were any.
        """
        self._forget_if_outdated()
        route = self._last
        if route is None:
            return False
        now_ms = self._session.service.broker.clock.wall_ms()
        routes, unpack_head = self._routes, _HEAD.unpack_from
        taken: list[tuple[Route, int, int]] = []
        ends: dict[Replica, int] = {}
        received = self._session.service.received
        #: The partition that was appended to last, and what its log had before that.
        last: Replica | None = None
        appended_bytes = log_end = size = 0
        for frame in backlog:
            if not frame.startswith(route.prefix, 8):
                # The request is most often for another partition of the same topic.
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
            if replica is not last:
                if last is not None:
                    _count(received, last.log, appended_bytes, log_end)
                last, log = replica, replica.log
                appended_bytes, log_end = log.appended_bytes, log.log_end_offset
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
        assert last is not None
        if len(taken) == len(backlog):
            backlog.clear()
        else:
            for _ in taken:
                backlog.popleft()
        _count(received, last.log, appended_bytes, log_end)
        run = Run(self._session, taken, size)
        self._session.enter(run)
        run.wait(ends)
        return True


def _count(received: Flows, log: PartitionLog, appended_bytes: int, log_end: int) -> None:
    """Count what was appended since the log had these bytes and this end."""
    flow = received[log.identity.topic]
    flow.size += log.appended_bytes - appended_bytes
    flow.records += log.log_end_offset - log_end


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
