"""The service that all minibroker connections of a node share, and the table of its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from dragoman.broker.coordination import Coordination
from dragoman.broker.groups.remote_members import GroupMembers
from dragoman.broker.leader_queues import LeaderQueues
from dragoman.broker.readers import Readers
from dragoman.broker.topics import Topics
from dragoman.config.settings import Settings
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.net.requests import Requests
from dragoman.protocols import service
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.service import Address, Service
from dragoman.world import Clock, Scheduler

#: Owner of this protocol's groups in the registry of all groups.
OWNER: Final = "minibroker"
#: Module and function of the handler of each request.
REQUESTS: Final[dict[type[m.Request], str]] = {
    m.Publish: "requests.publish",
    m.SubscribeHead: "requests.subscribe",
    m.SubscribeOffset: "requests.subscribe",
    m.SubscribeGroup: "requests.subscribe",
    m.Unsubscribe: "requests.unsubscribe",
    m.Commit: "requests.commit",
    m.Heartbeat: "requests.heartbeat",
    m.Quit: "requests.quit_connection",
}
#: Counters of deleted topics are dropped once there are so many more counters than topics.
_SPARE_TURNS = 1000


class Core(service.Core, Protocol):
    """The part of the node that this protocol uses."""

    @property
    def settings(self) -> Settings: ...

    clock: Clock
    leader_queues: LeaderQueues
    readers: Readers
    scheduler: Scheduler
    coordination: Coordination
    group_members: GroupMembers
    topics: Topics


def _request_name(kind: type[m.Request]) -> str | None:
    return kind.__name__ if kind in REQUESTS else None


class MinibrokerService(Service[Core]):
    advertised_listener = "minibroker"
    requests: Requests[type[m.Request]]

    @classmethod
    def counted_requests(cls) -> Requests[type[m.Request]]:
        return Requests("minibroker", _request_name)

    def __init__(
        self, broker: Core, budget: MemoryBudget, advertised: Callable[[Channel], Address]
    ) -> None:
        super().__init__(broker, budget, advertised)
        self.heartbeat_timeout_s = broker.settings.minibroker_heartbeat_timeout_ms / 1000
        #: Open subscriptions.
        self.subscriptions: set[object] = set()
        #: Records without a key that were published since the start, by topic.
        self._turns: dict[str, int] = {}

    @property
    def subscriber_count(self) -> int:
        return len(self.subscriptions)

    def next_turn(self, topic: str) -> int:
        """The number of the next record without a key: 0, 1, 2 …"""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        if not turn and len(self._turns) > len(self.broker.image.topics) + _SPARE_TURNS:
            known = self.broker.image.topics
            self._turns = {name: count for name, count in self._turns.items() if name in known}
        return turn
