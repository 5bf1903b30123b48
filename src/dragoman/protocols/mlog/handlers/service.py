"""The service that all mlog connections of a node share, and the table of its requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from dragoman.broker.accumulator import RecordAccumulator
from dragoman.broker.coordination import Coordination
from dragoman.broker.errors import RequestTimedOut
from dragoman.broker.partitions import Partitions
from dragoman.broker.replica_ends import ReplicaEndFinder
from dragoman.broker.topics import Topics
from dragoman.cluster.quorum import MetadataQuorum
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.net.requests import Requests
from dragoman.protocols import service
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.errors import ErrorCode
from dragoman.protocols.service import Address, Service
from dragoman.protocols.session import Place
from dragoman.rpc import Rpc
from dragoman.world import Clock, Handle, Scheduler

#: Module and function of the handler of each request.
REQUESTS: Final[dict[type[m.Message], str]] = {
    m.Produce: "produce.handle_produce",
    m.ProduceBatch: "produce.handle_produce_batch",
    m.Fetch: "fetch.handle_fetch",
    m.FetchBatch: "fetch.handle_fetch_batch",
    m.FetchStream: "fetch.handle_fetch_stream",
    m.CommitOffset: "fetch.handle_commit",
    m.FetchOffset: "fetch.handle_fetch_offset",
    m.CreateTopic: "topics.handle_create",
    m.DeleteTopic: "topics.handle_delete",
    m.ListTopics: "topics.handle_list",
    m.FindTopicLeader: "leaders.handle_find_topic_leader",
    m.FindRaftLeader: "leaders.handle_find_raft_leader",
    m.ReplicateStream: "fetch.handle_replicate",
    m.ApplyIsrUpdateEvent: "fetch.handle_isr_update",
}


class Requester(Protocol):
    """The session of a request."""

    def fail(self, place: Place, error: DragomanError) -> None: ...


class CatchUpTimeouts:
    """Requests that wait for all replicas, oldest first, with one timer for all."""

    def __init__(self, scheduler: Scheduler, clock: Clock, timeout_s: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[float, Requester, Place]] = deque()
        self._timer: Handle | None = None

    def add(self, session: Requester, place: Place) -> None:
        self._forget_answered()
        timeout_s = self._timeout_s()
        self._waiting.append((self._clock.monotonic() + timeout_s, session, place))
        if self._timer is None:
            self._timer = self._scheduler.call_later(timeout_s, self._expire)

    def _forget_answered(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0][2].is_done:
            waiting.popleft()

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        while self._waiting and (self._waiting[0][0] <= now or self._waiting[0][2].is_done):
            _, session, place = self._waiting.popleft()
            if not place.is_done:
                session.fail(place, RequestTimedOut("not all replicas have the records"))
        if self._waiting:
            left_s = max(0.0, self._waiting[0][0] - now)
            self._timer = self._scheduler.call_later(left_s, self._expire)


class Core(service.Core, Protocol):
    """The part of the node that this protocol uses."""

    @property
    def settings(self) -> Settings: ...

    scheduler: Scheduler
    clock: Clock
    coordination: Coordination
    accumulator: RecordAccumulator

    @property
    def quorum(self) -> MetadataQuorum: ...

    topics: Topics
    replica_ends: ReplicaEndFinder
    rpc: Rpc
    partitions: Partitions


def _request_name(kind: type[m.Message]) -> str | None:
    return kind.__name__ if kind in REQUESTS else None


def _code_name(code: int | str) -> str:
    return ErrorCode(code).name if isinstance(code, int) else code


class MlogService(Service[Core]):
    advertised_listener = "mlog"
    requests: Requests[type[m.Message]]

    @classmethod
    def counted_requests(cls) -> Requests[type[m.Message]]:
        return Requests("mlog", _request_name, _code_name)

    def __init__(
        self, broker: Core, budget: MemoryBudget, advertised: Callable[[Channel], Address]
    ) -> None:
        super().__init__(broker, budget, advertised)
        self.catch_up = CatchUpTimeouts(
            broker.scheduler,
            broker.clock,
            lambda: broker.settings.mlog_acks_all_timeout_ms / 1000,
        )
