"""What all Cursus connections of a node share, and the table of commands they may send."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from dragoman.broker.broker import Broker
from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import TopicMetadata
from dragoman.framing import Scratch
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.net.framed import Place
from dragoman.protocols.cursus.constants import INTERNAL_COMMANDS
from dragoman.protocols.cursus.errors import Refusal
from dragoman.protocols.cursus.handlers.policy import is_expressible
from dragoman.protocols.cursus.handlers.publish import publish_batch
from dragoman.protocols.cursus.handlers.session import Call, CursusSession, Handler
from dragoman.protocols.cursus.handlers.state import State
from dragoman.protocols.cursus.handlers.streams import Streams
from dragoman.protocols.cursus.messages import Batch
from dragoman.security.authorizer import Operation, Resource

if TYPE_CHECKING:
    from dragoman.protocols.cursus.handlers.events import EventStore
    from dragoman.protocols.cursus.handlers.producers import Producers
    from dragoman.protocols.cursus.handlers.transactions import Transactions

#: Module and function of each command's handler, loaded at first use: a start need not.
_PLACES: Final = {
    "CREATE": "topics.handle_create",
    "DELETE": "topics.handle_delete",
    "LIST": "topics.handle_list",
    "METADATA": "topics.handle_metadata",
    "DESCRIBE": "topics.handle_describe",
    "LIST_OFFSETS": "topics.handle_list_offsets",
    "HELP": "negotiation.handle_help",
    "PUBLISH": "publish.handle_publish",
    "CONSUME": "consume.handle_consume",
    "STREAM": "streams.handle_stream",
    "SUBSCRIBE": "groups.handle_register",
    "REGISTER_GROUP": "groups.handle_register",
    "FIND_COORDINATOR": "groups.handle_find_coordinator",
    "JOIN_GROUP": "groups.handle_join",
    "SYNC_GROUP": "groups.handle_sync",
    "LEAVE_GROUP": "groups.handle_leave",
    "HEARTBEAT": "groups.handle_heartbeat",
    "GROUP_STATUS": "groups.handle_status",
    "LIST_GROUPS": "groups.handle_list",
    "FETCH_OFFSET": "offsets.handle_fetch",
    "COMMIT": "offsets.handle_commit",
    "COMMIT_OFFSET": "offsets.handle_commit",
    "BATCH_COMMIT": "offsets.handle_batch_commit",
    "PROTOCOL_INFO": "negotiation.handle_info",
    "NEGOTIATE": "negotiation.handle_negotiate",
    "AUTH": "negotiation.handle_auth",
    "INIT_PRODUCER_ID": "transactions.handle_init",
    "BEGIN_TXN": "transactions.handle_begin",
    "TXN_PUBLISH": "transactions.handle_publish",
    "SEND_OFFSETS_TO_TXN": "transactions.handle_offsets",
    "END_TXN": "transactions.handle_end",
    "TXN_STATUS": "transactions.handle_status",
    "APPEND_STREAM": "events.handle_append",
    "STREAM_VERSION": "events.handle_version",
    "READ_STREAM": "events.handle_read",
    "SAVE_SNAPSHOT": "events.handle_save_snapshot",
    "READ_SNAPSHOT": "events.handle_read_snapshot",
    "LIST_CLUSTER": "negotiation.handle_cluster",
    "CLUSTER_STATUS": "negotiation.handle_cluster",
    "ELECT_LEADER": "negotiation.handle_cluster",
}
_PERMISSIONS: Final = {
    Resource.TOPIC: "topic.read",
    Resource.GROUP: "group",
    Resource.TRANSACTIONAL_ID: "transaction",
    Resource.CLUSTER: "admin",
}


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
        #: Those of another node, by its number.
        self.address_of: Callable[[int], tuple[str, int] | None] = lambda _node: None
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
        self._producers: Producers | None = None
        self._events: EventStore | None = None
        self._transactions: Transactions | None = None
        broker.on_stopping.append(self.streams.stop_all)

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
            module, _, function = _PLACES[word].partition(".")
            handler = getattr(import_module(f"{__package__}.{module}"), function)
            assert handler is not None
            self._handlers[word] = handler
        return handler

    def publish_batch(self, session: CursusSession, batch: Batch, place: Place) -> None:
        publish_batch(session, batch, place)

    # ---- topics

    def topic(self, name: str) -> TopicMetadata:
        topic = self.broker.image.topics.get(name)
        if topic is None or not is_expressible(name):
            raise Refusal(f"topic_not_found topic={name}")
        return topic

    def replica(self, topic: TopicMetadata, partition: int) -> Replica:
        if not 0 <= partition < len(topic.partitions):
            raise Refusal(f"partition_not_found partition={partition}")
        return self.broker.replica(topic.partitions[partition])

    def next_turn(self, topic: str, count: int) -> int:
        """The partition whose turn it is for a message without a key."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return turn % count

    def forget_topic(self, topic: str) -> None:
        self._turns.pop(topic, None)

    # ---- what few need

    @property
    def producers(self) -> Producers:
        if self._producers is None:
            from dragoman.protocols.cursus.handlers.producers import Producers

            self._producers = Producers(self.broker, self.state)
        return self._producers

    @property
    def events(self) -> EventStore:
        if self._events is None:
            from dragoman.protocols.cursus.handlers.events import EventStore

            self._events = EventStore(self)
        return self._events

    @property
    def transactions(self) -> Transactions:
        if self._transactions is None:
            from dragoman.protocols.cursus.handlers.transactions import Transactions

            self._transactions = Transactions(self.broker)
        return self._transactions


def authorize(call: Call, operation: Operation, resource: Resource, name: str) -> None:
    """Raises `Refusal`."""
    authorizer = call.service.broker.authorizer
    if authorizer.is_allowed(call.session.principal, operation, resource, name):
        return
    if resource is Resource.TOPIC and operation in (Operation.READ, Operation.WRITE):
        raise Refusal(f"NOT_AUTHORIZED_FOR_TOPIC operation={operation.value} topic={name}")
    permission = _PERMISSIONS[resource]
    if operation in (Operation.CREATE, Operation.DELETE):
        permission = "admin"
    word = call.command.word
    raise Refusal(f"NOT_AUTHORIZED_FOR_OPERATION command={word} permission={permission}")
