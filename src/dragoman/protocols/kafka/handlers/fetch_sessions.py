"""Incremental fetch sessions (KIP-227): a consumer names its partitions once, and then only
changes.

    session id, epoch     meaning
    0, -1                 a full request without a session
    0, 0                  a full request, to be kept as a session
    id, n                 the session's partitions with these changes; n counts up, 2^31-1 is
                          followed by 1
    id, -1                close the session; the request is a full one

A reply within a session names only partitions with data, an error, or marks that changed since they
were last sent. The cache is bounded in sessions and in partitions. When it is full, the least
recently used session is evicted if it has been idle for a while; otherwise the request gets no
session. A session that exceeds its own bound, or the cache's, ends, and its client starts over with
a full request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeAlias

from dragoman.broker.fetch import Fetched, Wanted
from dragoman.limits import (
    FETCH_SESSION_IDLE_S,
    FETCH_SESSION_PARTITIONS_MAX,
    FETCH_SESSIONS_PARTITIONS_MAX,
)
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.messages import FetchRequest, FetchRequestPartition
from dragoman.security.access import Caller
from dragoman.world import Clock, Random

NO_SESSION = 0
FULL_WITHOUT_SESSION = -1
FULL_WITH_SESSION = 0
_EPOCH_MAX = (1 << 31) - 1

#: Topic name and id (one of them empty), and partition.
Key: TypeAlias = tuple[str, bytes, int]
#: High watermark, last stable offset and log start, as the client last received them.
Marks: TypeAlias = tuple[int, int, int]
#: Keys, and the partitions found for them.
Found: TypeAlias = tuple[list[Key], list[Wanted]]


class SessionError(Exception):
    """The session cannot be used; the client starts over with a full request."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class FetchSession:
    __slots__ = (
        "_marks",
        "_resolved",
        "_resolved_for",
        "epoch",
        "last_used",
        "partitions",
        "session_id",
        "uses_ids",
    )

    def __init__(self, session_id: int, uses_ids: bool, now: float) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.epoch = 1
        self.last_used = now
        #: In read order; partitions that had data move to the end.
        self.partitions: OrderedDict[Key, FetchRequestPartition] = OrderedDict()
        self._marks: dict[Key, Marks] = {}
        #: Partitions as resolved for a caller at a metadata version: most requests of a session
        #: change nothing, and resolving thousands of partitions costs more than reading them.
        self._resolved: dict[Key, Wanted] = {}
        self._resolved_for: tuple[int, Caller] | None = None

    def resolve(
        self,
        version: int,
        caller: Caller,
        find: Callable[[Key, FetchRequestPartition], Wanted],
    ) -> Found:
        """All partitions in order. `find` looks partitions up and authorizes the caller; its
        results are cached until the metadata changes or another caller uses the session.
        """
        resolved = self._resolved
        if (version, caller) != self._resolved_for:
            resolved.clear()
            self._resolved_for = (version, caller)
        found: list[Wanted] = []
        for key, partition in self.partitions.items():
            wanted = resolved.get(key)
            if wanted is None:
                wanted = find(key, partition)
                if wanted.error is None:
                    resolved[key] = wanted
            found.append(wanted)
        return list(self.partitions), found

    def update(self, request: FetchRequest) -> None:
        for key, partition in requested_partitions(request):
            self.partitions[key] = partition
            self._resolved.pop(key, None)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                key = (topic.topic, topic.topic_id, index)
                self.partitions.pop(key, None)
                self._marks.pop(key, None)
                self._resolved.pop(key, None)

    def has_news(self, key: Key, found: Fetched) -> bool:
        """Whether the reply must name the partition. Records the marks that it will contain."""
        marks = (found.high_watermark, found.last_stable_offset, found.log_start_offset)
        is_news = bool(found.size) or found.error is not None or self._marks.get(key) != marks
        # An error is repeated while it lasts, even if the marks do not change.
        self._marks[key] = marks if found.error is None else (-1, -1, -1)
        if found.size and key in self.partitions:
            self.partitions.move_to_end(key)
        return is_news


def requested_partitions(request: FetchRequest) -> Iterator[tuple[Key, FetchRequestPartition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield (topic.topic, topic.topic_id, partition.partition), partition


class FetchSessions:
    def __init__(self, slots: Callable[[], int], clock: Clock, random: Random) -> None:
        self._slots = slots
        self._clock = clock
        self._random = random
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        #: The number of partitions of all sessions together.
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, uses_ids: bool) -> FetchSession | None:
        """The session of a request, new or updated; None for a full request without one.

        Raises `SessionError`.
        """
        session_id, epoch = request.session_id, request.session_epoch
        if epoch == FULL_WITHOUT_SESSION:
            self._drop(session_id)
            return None
        if epoch == FULL_WITH_SESSION:
            self._drop(session_id)
            return self._create(request, uses_ids)
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise SessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.last_used = now = self._clock.monotonic()
        self._sessions.move_to_end(session_id)
        if request.topics or request.forgotten_topics_data:
            # A busy reader names most of its partitions in every request, with new offsets.
            added = sum(key not in session.partitions for key, _ in requested_partitions(request))
            if len(session.partitions) + added > FETCH_SESSION_PARTITIONS_MAX or (
                added and not self._make_room(now, added, 0)
            ):
                self._drop(session_id)
                raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            before = len(session.partitions)
            session.update(request)
            self._partitions += len(session.partitions) - before
        return session

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)

    def _create(self, request: FetchRequest, uses_ids: bool) -> FetchSession | None:
        now = self._clock.monotonic()
        count = sum(len(topic.partitions) for topic in request.topics)
        if not 0 < count <= FETCH_SESSION_PARTITIONS_MAX or not self._make_room(now, count, 1):
            return None
        session = FetchSession(self._new_id(), uses_ids, now)
        session.update(request)
        self._sessions[session.session_id] = session
        self._partitions += len(session.partitions)
        return session

    def _make_room(self, now: float, partitions: int, sessions: int) -> bool:
        slots = self._slots()
        while (
            len(self._sessions) + sessions > slots
            or self._partitions + partitions > FETCH_SESSIONS_PARTITIONS_MAX
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < FETCH_SESSION_IDLE_S:
                return False
            self._drop(oldest.session_id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._random.randrange(1, _EPOCH_MAX)
            if session_id not in self._sessions:
                return session_id
