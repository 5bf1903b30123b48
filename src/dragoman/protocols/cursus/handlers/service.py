"""What all Cursus connections of a node share, and the table of commands they may send."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Final, assert_never

from dragoman.broker.addresses import address_of
from dragoman.broker.broker import Broker
from dragoman.broker.relaying import TakeReply
from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.framing import Scratch
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.net.framed import Place
from dragoman.protocols.cursus.constants import INTERNAL_COMMANDS
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import is_expressible
from dragoman.protocols.cursus.handlers.publish import append_batch, publish_batch
from dragoman.protocols.cursus.handlers.relayed import (
    PROTOCOL,
    RelayedBatch,
    RelayedCall,
    StagedMessage,
    StagedOffsets,
    decode,
    in_words,
)
from dragoman.protocols.cursus.handlers.session import CursusSession, Handler
from dragoman.protocols.cursus.handlers.state import State
from dragoman.protocols.cursus.handlers.streams import Streams
from dragoman.protocols.cursus.messages import Batch

if TYPE_CHECKING:
    from dragoman.protocols.cursus.handlers.events import EventStore
    from dragoman.protocols.cursus.handlers.producers import Producers
    from dragoman.protocols.cursus.handlers.transactions import Transactions

#: Which module handles which commands, each in a function that is called like it. They are loaded
#: at first use: a start need not.
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
_MODULE_OF: Final = {word: module for module, words in _MODULES.items() for word in words.split()}


class CursusService:
    def __init__(
        self,
        broker: Broker,
        budget: MemoryBudget,
        advertised: Callable[[Channel], tuple[str, int]],
    ) -> None:
        self.broker = broker
        self.budget = budget
        self.scheduler = broker.scheduler
        #: Host and port that a client on this channel is told to connect to.
        self.advertised = advertised
        #: What other nodes call the listener that this service is for.
        self.listener = "cursus"
        #: Host and port of another node, by its number; None when they are not known.
        self.address_of: Callable[[int], tuple[str, int] | None] = lambda node: address_of(
            broker.image, node, self.listener
        )
        self.scratch = Scratch()
        self.idle_s = broker.settings.cursus_idle_timeout_ms / 1000
        self.requests = 0
        self.streams = Streams(broker)
        self.state = State(broker)
        #: Offsets on their way to the disk, by group, topic and partition: a later commit must not
        #: be lower than these either.
        self.commits_under_way: dict[tuple[str, str, int], list[int]] = {}
        self._sessions: set[CursusSession] = set()
        self._handlers: dict[str, Handler] = {}
        self._turns: dict[str, int] = {}
        broker.on_stopping.append(self.streams.stop_all)
        broker.relaying.protocols[PROTOCOL] = self.relayed

    def session(self, channel: Channel) -> CursusSession:
        session = CursusSession(channel, self)
        self._sessions.add(session)
        if len(self._sessions) > self.broker.settings.cursus_connections_max:
            session.close()
        return session

    def closed(self, session: CursusSession) -> None:
        self._sessions.discard(session)

    def handler(self, word: str) -> Handler:
        handler = self._handlers.get(word)
        if handler is None:
            if word in INTERNAL_COMMANDS:
                raise Refusal(f"internal_command_unauthorized command={word}")
            module = import_module(f"{__package__}.{_MODULE_OF[word]}")
            handler = getattr(module, f"handle_{word.lower()}")
            assert handler is not None
            self._handlers[word] = handler
        return handler

    def publish_batch(self, session: CursusSession, batch: Batch, place: Place) -> None:
        publish_batch(session, batch, place)

    def relayed(self, body: memoryview, told: TakeReply) -> None:
        """What another node asks for in the place of its client. Raises `DragomanError`."""
        request = decode(body)

        def answer(outcome: bytes | DragomanError) -> None:
            told(in_words(outcome))

        try:
            match request:
                case RelayedBatch(batch=batch):
                    replica = self.broker.find(batch.topic, batch.partition)
                    append_batch(self, request, replica, answer)
                case StagedMessage():
                    replica = self.broker.find(request.topic, request.partition)
                    self.transactions.stage_message(request, replica, answer)
                case StagedOffsets():
                    self.transactions.stage_offsets(RelayedCall(self, request.command, answer))
                case _:
                    assert_never(request)
        except DragomanError as error:
            answer(error)

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

    @cached_property
    def events(self) -> EventStore:
        from dragoman.protocols.cursus.handlers.events import EventStore

        return EventStore(self)

    @cached_property
    def transactions(self) -> Transactions:
        from dragoman.protocols.cursus.handlers.transactions import Transactions

        return Transactions(self.broker)
