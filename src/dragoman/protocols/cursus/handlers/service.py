"""The service that all Cursus connections of a node share, and the table of its commands."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from dragoman.broker.accumulator import RecordAccumulator
from dragoman.broker.coordination import Coordination, CoordinatorKind
from dragoman.broker.errors import CoordinatorLoading, CoordinatorNotAvailable
from dragoman.broker.global_table import GlobalTables
from dragoman.broker.leader_queues import LeaderQueues
from dragoman.broker.partitions import Partitions
from dragoman.broker.readers import Readers
from dragoman.broker.topics import Topics
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.cluster.quorum import MetadataQuorum
from dragoman.config.settings import Settings
from dragoman.limits import CURSUS_COORDINATOR_RETRY_S, CURSUS_COORDINATOR_WAIT_S
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.net.requests import Requests
from dragoman.outcome import Retry, retried
from dragoman.protocols import service
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import is_expressible
from dragoman.protocols.cursus.handlers.state import State
from dragoman.protocols.service import Address, Service, handlers_by_name
from dragoman.replication.replica import Replica
from dragoman.rpc import Rpc
from dragoman.world import Clock, Random, Scheduler

if TYPE_CHECKING:
    from dragoman.protocols.cursus.handlers.producers import Producers

#: The name of this protocol in requests between nodes.
PROTOCOL: Final = "cursus"
Part = TypeVar("Part")
#: The commands that each module handles, in functions named after them.
_MODULES: Final = {
    "topics": "CREATE DELETE LIST METADATA DESCRIBE LIST_OFFSETS",
    "publish": "PUBLISH",
    "consume": "CONSUME STREAM",
    "groups": (
        "SUBSCRIBE REGISTER_GROUP FIND_COORDINATOR JOIN_GROUP SYNC_GROUP LEAVE_GROUP HEARTBEAT "
        "GROUP_STATUS LIST_GROUPS FETCH_OFFSET COMMIT COMMIT_OFFSET BATCH_COMMIT"
    ),
    "transactions": (
        "INIT_PRODUCER_ID BEGIN_TXN TXN_PUBLISH SEND_OFFSETS_TO_TXN END_TXN TXN_STATUS"
    ),
    "events": "APPEND_STREAM STREAM_VERSION READ_STREAM SAVE_SNAPSHOT READ_SNAPSHOT",
    "negotiation": "HELP PROTOCOL_INFO NEGOTIATE AUTH",
    "cluster": "LIST_CLUSTER CLUSTER_STATUS ELECT_LEADER",
}
#: Module and function of the handler of each command.
REQUESTS: Final[dict[str, str]] = {
    word: f"{module}.handle_{word.lower()}"
    for module, words in _MODULES.items()
    for word in words.split()
}
#: What a publish of several messages is counted as, which is not a command.
BATCH: Final = "PUBLISH_BATCH"
_COUNTED: Final = {*REQUESTS, BATCH}
#: Retries until this node has become the coordinator. The original never refuses at this point, so
#: clients do not expect a refusal.
_COORDINATED_SOON: Final = Retry(
    transient=(CoordinatorLoading, CoordinatorNotAvailable),
    interval_s=CURSUS_COORDINATOR_RETRY_S,
    patience_s=CURSUS_COORDINATOR_WAIT_S,
)
#: Performs requests of other nodes for their clients.
_RELAYED: Final[
    dict[str, Callable[[CursusService, memoryview], Coroutine[object, None, bytes]]]
] = handlers_by_name(__package__, {PROTOCOL: "relayed.perform"})


class Core(service.Core, Protocol):
    """The part of the node that this protocol uses."""

    #: Callbacks for when the node begins to stop.
    on_stopping: list[Callable[[], None]]

    @property
    def settings(self) -> Settings: ...

    scheduler: Scheduler
    clock: Clock
    random: Random

    @property
    def is_stopping(self) -> bool: ...

    @property
    def quorum(self) -> MetadataQuorum: ...

    topics: Topics
    tables: GlobalTables
    accumulator: RecordAccumulator
    leader_queues: LeaderQueues
    readers: Readers
    coordination: Coordination
    rpc: Rpc
    partitions: Partitions


class Stream(Protocol):
    """A connection that only pushes."""

    #: Topic, partition, group.
    name: tuple[str, int, str]

    def pump(self) -> None:
        """Push available records while the peer accepts them."""
        ...

    def close(self, reason: str) -> None:
        """Push the reason, then close the connection."""
        ...


class Streams:
    """All streams of a node."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, int, str], Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Stream) -> None:
        previous = self._streams.get(stream.name)
        if previous is not None:
            previous.close("replaced")
        self._streams[stream.name] = stream

    def remove(self, stream: Stream) -> None:
        if self._streams.get(stream.name) is stream:
            del self._streams[stream.name]

    def stop_all(self) -> None:
        for stream in list(self._streams.values()):
            stream.close("stopped")


class CursusService(Service[Core]):
    advertised_listener = "cursus"
    requests: Requests[str]

    @classmethod
    def counted_requests(cls) -> Requests[str]:
        return Requests("cursus", lambda word: word if word in _COUNTED else None)

    def __init__(
        self, broker: Core, budget: MemoryBudget, advertised: Callable[[Channel], Address]
    ) -> None:
        super().__init__(broker, budget, advertised)
        self.scheduler = broker.scheduler
        self.idle_s = broker.settings.cursus_idle_timeout_ms / 1000
        self.streams = Streams()
        self._parts: dict[type[object], object] = {}
        self.state = State(broker.tables)
        #: Offsets of commits that are not durable yet, by group, topic and partition. A later
        #: commit must not be lower than these, either.
        self.commits_under_way: dict[tuple[str, str, int], list[int]] = {}
        self._sessions = 0
        self._turns: dict[str, int] = {}
        broker.on_stopping.append(self.streams.stop_all)
        broker.leader_queues.protocols[PROTOCOL] = partial(_RELAYED[PROTOCOL], self)

    def opened(self) -> bool:
        """Count a new connection. Returns whether it may stay."""
        self._sessions += 1
        return self._sessions <= self.broker.settings.cursus_connections_max

    def closed(self) -> None:
        self._sessions -= 1

    # ---- topics

    def topic(self, name: str) -> TopicMetadata:
        topic = self.broker.image.topics.get(name)
        if topic is None or not is_expressible(name):
            raise Refusal(f"topic_not_found topic={name}")
        return topic

    def partition(self, topic: TopicMetadata, partition: int) -> PartitionMetadata:
        """A partition, led by any node. Raises `Refusal`."""
        if not 0 <= partition < len(topic.partitions):
            raise Refusal(f"partition_not_found partition={partition}")
        return topic.partitions[partition]

    def replica(self, topic: TopicMetadata, partition: int) -> Replica:
        """The replica of a partition that this node leads. Raises `Refusal`, `NotLeader`."""
        return self.broker.partitions.replica(self.partition(topic, partition))

    def next_turn(self, topic: str, count: int) -> int:
        """The partition of the next message without a key."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return turn % count

    def forget_topic(self, topic: str) -> None:
        self._turns.pop(topic, None)

    # ---- coordinators

    async def coordinated(self, kind: CoordinatorKind, name: str) -> None:
        """Return when this node coordinates the group or transaction.

        Both are stored in internal topics, which are created on first use and loaded after a change
        of leader. The first command waits for that, up to a timeout. Raises an error at once if
        another node coordinates the group or transaction.
        """

        async def require() -> None:
            if kind is CoordinatorKind.GROUP:
                self.broker.coordination.groups.require(name)
            else:
                self.broker.coordination.transactions.require(name)

        broker = self.broker
        await retried(_COORDINATED_SOON, broker.scheduler, require, lambda: broker.is_stopping)

    # ---- loaded on demand

    @cached_property
    def producers(self) -> Producers:
        from dragoman.protocols.cursus.handlers.producers import Producers

        broker = self.broker
        producer_ids = broker.coordination.transactions.producer_ids
        return Producers(self.state, producer_ids, broker.accumulator, broker.clock)

    def part(self, kind: type[Part], make: Callable[[], Part]) -> Part:
        """The instance of a type, created on first use."""
        found = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = make()
        assert isinstance(found, kind)
        return found
