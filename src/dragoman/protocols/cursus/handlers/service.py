"""What all Cursus connections of a node share, and the table of commands they may send."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from dragoman.broker.broker import Broker
from dragoman.broker.relaying import TakeReply
from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import is_expressible
from dragoman.protocols.cursus.handlers.state import State
from dragoman.protocols.service import Address, Service, handlers_by_name

if TYPE_CHECKING:
    from dragoman.protocols.cursus.handlers.producers import Producers

#: What this protocol is called where nodes relay its requests to each other.
PROTOCOL: Final = "cursus"
Part = TypeVar("Part")
#: Which module handles which commands, each in a function that is called like it.
_MODULES: Final = {
    "topics": "CREATE DELETE LIST METADATA DESCRIBE LIST_OFFSETS",
    "publish": "PUBLISH",
    "consume": "CONSUME",
    "streams": "STREAM",
    "groups": (
        "SUBSCRIBE REGISTER_GROUP FIND_COORDINATOR JOIN_GROUP SYNC_GROUP LEAVE_GROUP HEARTBEAT "
        "GROUP_STATUS LIST_GROUPS"
    ),
    "offsets": "FETCH_OFFSET COMMIT COMMIT_OFFSET BATCH_COMMIT",
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


#: Performs what another node asks for on behalf of its client.
_RELAYED: Final[dict[str, Callable[[CursusService, memoryview, TakeReply], None]]] = (
    handlers_by_name(__package__, {PROTOCOL: "peer_requests.perform"})
)


class Stream(Protocol):
    """A connection that only pushes."""

    #: Topic, partition, group.
    @property
    def name(self) -> tuple[str, int, str]: ...

    def pump(self) -> None:
        """Push what there is and the peer takes."""
        ...

    def close(self, reason: str) -> None:
        """Say why, then end the connection."""
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


class CursusService(Service[Broker]):
    listener = "cursus"

    def __init__(
        self, broker: Broker, budget: MemoryBudget, advertised: Callable[[Channel], Address]
    ) -> None:
        super().__init__(broker, budget, advertised)
        self.scheduler = broker.scheduler
        self.idle_s = broker.settings.cursus_idle_timeout_ms / 1000
        self.requests = 0
        self.streams = Streams()
        self._parts: dict[type[object], object] = {}
        self.state = State(broker)
        #: Offsets on their way to the disk, by group, topic and partition: a later commit must not
        #: be lower than these either.
        self.commits_under_way: dict[tuple[str, str, int], list[int]] = {}
        self._sessions = 0
        self._turns: dict[str, int] = {}
        broker.on_stopping.append(self.streams.stop_all)
        broker.relaying.protocols[PROTOCOL] = partial(_RELAYED[PROTOCOL], self)

    def opened(self) -> bool:
        """A connection is there; whether it may stay."""
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
        """The partition, whoever leads it. Raises `Refusal`."""
        if not 0 <= partition < len(topic.partitions):
            raise Refusal(f"partition_not_found partition={partition}")
        return topic.partitions[partition]

    def replica(self, topic: TopicMetadata, partition: int) -> Replica:
        """The same, led by this node. Raises `Refusal`, `NotLeader`."""
        return self.broker.replica(self.partition(topic, partition))

    def next_turn(self, topic: str, count: int) -> int:
        """The partition whose turn it is for a message without a key."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return turn % count

    def forget_topic(self, topic: str) -> None:
        self._turns.pop(topic, None)

    # ---- what few need

    @cached_property
    def producers(self) -> Producers:
        from dragoman.protocols.cursus.handlers.producers import Producers

        return Producers(self.broker, self.state)

    def part(self, kind: type[Part], make: Callable[[], Part]) -> Part:
        """The one of its kind, made at first use."""
        found = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = make()
        assert isinstance(found, kind)
        return found
