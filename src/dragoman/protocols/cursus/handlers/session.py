"""A Cursus connection, whose replies are sent in the order of the requests.

The original handles one request at a time. Dragoman pipelines publish requests, because they wait
for the disk; any other request begins when all earlier requests have been answered, so that a
client may send CREATE and PUBLISH in one write. After STREAM the connection only pushes.

Only this module converts a handler's exceptions to Cursus's error texts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias

import msgspec

from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupNotFound,
    InvalidPartitions,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    Overloaded,
    ProducerFenced,
    ReplicaDamaged,
    RequestTimedOut,
    ShuttingDown,
    TransactionCoordinatorLoading,
    TransactionError,
)
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import (
    ClusterError,
    DecodeError,
    DiskFullError,
    DragomanError,
    EncodeError,
    NotControllerError,
    NotSentError,
)
from dragoman.limits import LOGIN_FRAME_BYTES_MAX
from dragoman.net import connection_log
from dragoman.net.channel import Channel
from dragoman.outcome import Acknowledge, start
from dragoman.protocols.cursus import codec, compression
from dragoman.protocols.cursus.codec import UnreadableRequest, quoted
from dragoman.protocols.cursus.connection import frame_reader
from dragoman.protocols.cursus.constants import (
    DECOMPRESSED_BYTES_MAX,
    FRAME_BYTES_MAX,
    INTERNAL_COMMANDS,
    STRUCTURED_ERRORS,
)
from dragoman.protocols.cursus.errors import UNKNOWN_OUTCOME, Refusal, error_text
from dragoman.protocols.cursus.handlers.logins import (
    OPEN_COMMANDS,
    credentials_of,
    log_in,
    login_required,
)
from dragoman.protocols.cursus.handlers.policy import no_access, policy_of
from dragoman.protocols.cursus.handlers.service import BATCH, REQUESTS, CursusService, Stream
from dragoman.protocols.cursus.messages import Batch, Command
from dragoman.protocols.service import Address, handlers_by_name
from dragoman.protocols.session import OrderedSession, Place
from dragoman.security.access import Operation, Resource
from dragoman.world import Handle

#: Returns host and port of another node; None if unknown.
AddressOf: TypeAlias = Callable[[int], tuple[str, int] | None]

#: Error codes by exception type; the first match applies.
_CODES: Final[tuple[tuple[type[DragomanError], str], ...]] = (
    (CoordinatorLoading, "coordinator_not_available"),
    (CoordinatorNotAvailable, "coordinator_not_available"),
    (ShuttingDown, "coordinator_not_available"),
    (TransactionCoordinatorLoading, "transaction_manager_not_available"),
    (Overloaded, "router_not_available"),
    # Clients retry these, which are resolved when other nodes return or become leaders.
    (NotEnoughReplicas, "cluster_not_available"),
    (ReplicaDamaged, "cluster_not_available"),
    (DiskFullError, "cluster_not_available"),
    # The request had no effect, so clients may retry, unlike after an unknown outcome.
    (NotControllerError, "no_raft_leader"),
    (NotSentError, "cluster_not_available"),
    (RequestTimedOut, UNKNOWN_OUTCOME),
    (ClusterError, UNKNOWN_OUTCOME),
    (GroupNotFound, "group_not_found"),
    (InvalidPartitions, "invalid_partitions"),
    (ProducerFenced, "producer_fenced"),
    (TransactionError, "transaction_commit_failed"),
    (MessageTooLarge, "broker_error"),
)


def refusal_text(error: DragomanError, address_of: AddressOf) -> str:
    """The text after `ERROR: `."""
    match error:
        case Refusal():
            return error.text
        case NotLeader():
            leader = address_of(error.leader)
            return "NOT_LEADER" if leader is None else "NOT_LEADER LEADER_IS {}:{}".format(*leader)
        case NotCoordinator():
            where = address_of(error.leader)
            return "NOT_COORDINATOR" + ("" if where is None else " host={} port={}".format(*where))
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "command_failed")
    return f"{code} reason={quoted(str(error))}"


def _code_in(text: str) -> str:
    """The code of a refusal's text, which begins it."""
    return text.partition(" ")[0]


Request: TypeAlias = Command | Batch | UnreadableRequest
_PERMISSIONS: Final = {
    Resource.TOPIC: "topic.read",
    Resource.GROUP: "group",
    Resource.TRANSACTIONAL_ID: "transaction",
    Resource.CLUSTER: "admin",
}
_ADMINISTRATION: Final = frozenset(
    (Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS)
)
#: Names of arguments in error codes, where they differ.
_IN_CODES: Final = {"producerId": "producer_id", "seqNum": "seq_num"}
#: Refusals quote arguments, which may be as long as a frame.
_ERROR_CHARACTERS_MAX: Final = 4096


class Arguments:
    """A command's arguments, and the permissions of its client."""

    __slots__ = ("command", "service")

    def __init__(self, service: CursusService, command: Command) -> None:
        self.service = service
        self.command = command

    def get(self, name: str, default: str = "") -> str:
        return self.command.arguments.get(name, default)

    def require(self, name: str, refusal: str = "") -> str:
        """An argument that must not be empty. Raises `Refusal`."""
        value = self.command.arguments.get(name, "")
        if not value:
            missing = f"missing_{_IN_CODES.get(name, name)} command={self.command.word}"
            raise Refusal(refusal or missing)
        return value

    def number(self, name: str, default: int | None = None, *, refusal: str = "") -> int:
        """A non-negative integer. Raises `Refusal`."""
        text = self.command.arguments.get(name)
        if text is None and default is not None:
            return default
        value = as_number(text or "")
        if value is None:
            raise Refusal(refusal or f"invalid_{_IN_CODES.get(name, name)} value={text or ''}")
        return value

    def message(self) -> bytes:
        """The bytes after `message=`. Raises `Refusal`."""
        if self.command.message is None:
            raise Refusal(f"missing_message command={self.command.word}")
        return self.command.message

    def is_allowed(self, operation: Operation, resource: Resource, name: str) -> bool:
        raise NotImplementedError

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """`is_allowed` for filters and alternatives, where a negative answer refuses nothing."""
        raise NotImplementedError

    def authorize(self, operation: Operation, resource: Resource, name: str) -> None:
        """Raises `Refusal`."""
        if not self.is_allowed(operation, resource, name):
            permission = _PERMISSIONS[resource]
            if operation in _ADMINISTRATION:
                permission = "admin"
            word = self.command.word
            raise Refusal(f"NOT_AUTHORIZED_FOR_OPERATION command={word} permission={permission}")


class Call(Arguments):
    """A client's command, with its place in the queue of replies."""

    __slots__ = ("place", "session")

    def __init__(self, session: CursusSession, command: Command, place: Place) -> None:
        # Assigned here because a call of the base class would slow every PUBLISH.
        self.service = session.service
        self.command = command
        self.session = session
        self.place = place

    def is_allowed(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.session.is_allowed(operation, resource, name)

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.session.may(operation, resource, name)

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed or closing, so that CONSUME and STREAM must not
        begin.
        """
        return self.place.is_done or self.session.channel.is_closing

    def address_of(self, node: int) -> str:
        """A node's address for this client; empty when it is unknown."""
        address = self.host_and_port(node)
        return "" if address is None else f"{address[0]}:{address[1]}"

    def host_and_port(self, node: int) -> Address | None:
        return self.service.address_of(self.session.channel, node)

    # ---- replies, which are dropped once the connection is closed

    def ok(self, text: str = "") -> None:
        self.place.reply(codec.frame(f"OK {text}".encode() if text else b"OK"))

    def json(self, data: bytes) -> None:
        self.place.reply(codec.frame(data))

    def refuse(self, error: DragomanError) -> None:
        if self.command.word == "READ_STREAM":
            # Clients of this command only understand JSON.
            text = refusal_text(error, self.service.registered)
            self.place.counter.failed(_code_in(text))
            self.json(msgspec.json.encode({"error": text, "status": "ERROR"}))
        else:
            self.session.refuse(self.place, error)

    def acknowledge(self, text: str = "") -> Acknowledge:
        """A callback that replies OK with this text, or with an error."""
        return partial(self._acknowledged, text)

    def _acknowledged(self, text: str, error: DragomanError | None) -> None:
        if error is None:
            self.ok(text)
        else:
            self.refuse(error)

    def finished(self, result: DragomanError | None) -> None:
        """Called when a handler's coroutine has replied, or raised the error to reply with."""
        if result is not None:
            self.refuse(result)


#: Handles a command. Raises `DragomanError` to refuse it; a handler that must wait returns a
#: coroutine.
Handler: TypeAlias = Callable[[Call], Coroutine[object, None, None] | None]
HANDLERS: Final[dict[str, Handler]] = handlers_by_name(__package__, REQUESTS)


def _handler(word: str) -> Handler:
    """Raises `Refusal`."""
    if word in INTERNAL_COMMANDS:
        raise Refusal(f"internal_command_unauthorized command={word}")
    return HANDLERS[word]


def as_number(text: str) -> int | None:
    """An unsigned decimal number of at most 64 bits; None for any other text that int() accepts."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        return None
    value = int(text)
    return value if value < 1 << 64 else None


class PublishHeader(Protocol):
    """A PUBLISH without its payload; see `publish.py`."""

    @property
    def arguments(self) -> Mapping[str, str]: ...

    def publish(self, session: CursusSession, payload: bytes, place: Place) -> None: ...


class CursusSession(OrderedSession[CursusService]):
    protocol = "cursus"

    def __init__(self, channel: Channel, service: CursusService) -> None:
        super().__init__(channel, frame_reader(service.scratch), service)
        self.features: frozenset[str] = frozenset()
        #: The offset at which the next CONSUME of a partition begins, regardless of its argument.
        self.positions: dict[tuple[str, int], int] = {}
        self.stream: Stream | None = None
        #: The last PUBLISH without its payload, which the next one often shares.
        self.publish_header: PublishHeader | None = None
        #: Answers a CONSUME that waits for records, once the client has closed its half.
        self.answer_now: Callable[[], None] | None = None
        #: Releases a CONSUME that waits, or a STREAM, when the connection is closed.
        self.release: Callable[[], None] | None = None
        self._requests = codec.RequestReader()
        #: The next request to begin, decoded when it was first examined.
        self._next: Request | None = None
        self._is_publish = False
        self._is_leader_queue = False
        #: The current request, if no other may begin before its reply.
        self._alone: Place | None = None
        self._idle_timer: Handle = service.scheduler.call_later(service.idle_s, self._check_idle)
        if not service.opened():
            self.close()
        elif self.must_log_in:
            self.await_login(FRAME_BYTES_MAX)

    # ---- requests

    def may_begin(self, frame: bytearray) -> bool:
        if self._alone is not None and not self._alone.is_done:
            return False
        request = self._next
        if request is None:
            request = self._next = self._read(frame)
            self._is_publish = type(request) is Batch or (
                type(request) is Command and request.word == "PUBLISH"
            )
        return self._is_publish or not self.has_unanswered

    def _read(self, frame: bytearray) -> Request:
        """The request in a frame, compressed or not."""
        # A few compressed bytes would make the node work for a client that nobody knows.
        size_max = LOGIN_FRAME_BYTES_MAX if self.must_log_in else DECOMPRESSED_BYTES_MAX
        try:
            return self._requests.read(compression.plain(frame, size_max))
        except UnreadableRequest as unreadable:
            expanded = compression.raw_snappy(frame, size_max) if len(frame) else None
            if expanded is not None:
                try:
                    return self._requests.read(expanded)
                except UnreadableRequest:
                    pass
            return unreadable.with_traceback(None)
        except DecodeError as error:
            return UnreadableRequest(f"decode_failed reason={codec.quoted(str(error))}")

    def received(self, frame: bytearray, place: Place) -> None:  # noqa: ARG002
        request, self._next = self._next, None
        assert request is not None
        if self.stream is not None:
            place.reply()
            return
        self._alone = None if self._is_publish else place
        requests = self.service.requests
        if isinstance(request, Command):
            place.counter = requests[request.word]
            # Errors of handlers become replies only here.
            call = Call(self, request, place)
            try:
                if self.channel.security.authentication == "off":
                    waiting = _handler(request.word)(call)
                else:
                    waiting = self._authenticated(call)
            except DragomanError as error:
                call.refuse(error)
            else:
                if waiting is not None:
                    start(waiting).then(call.finished)
        elif isinstance(request, Batch):
            place.counter = requests[BATCH]
            try:
                if self.must_log_in:
                    self.refused_anonymous()
                    raise login_required("PUBLISH")
                _PUBLISH[Batch](self, request, place)
            except DragomanError as error:
                self.refuse(place, error)
        else:
            place.counter.failed("unreadable")
            place.reply(self.error(request.reply))
            if request.closes:
                self.close()

    def _authenticated(self, call: Call) -> Coroutine[object, None, None] | None:
        """Begin a command on a listener with authentication. Raises `DragomanError`."""
        word = call.command.word
        if word not in OPEN_COMMANDS:
            credentials = credentials_of(call.command)
            if credentials is not None:
                # Nothing overtakes a login, not even a PUBLISH.
                self._alone = call.place
                return self._log_in_and_handle(call, *credentials)
            if self.must_log_in:
                self.refused_anonymous()
                raise login_required(word)
        return _handler(word)(call)

    async def _log_in_and_handle(self, call: Call, name: str, password: str) -> None:
        await log_in(self, name, password)
        if call.is_closed:
            # It would run as the caller before the login.
            return
        waiting = _handler(call.command.word)(call)
        if waiting is not None:
            await waiting

    def in_leader_queue(self, is_leader_only: bool) -> bool:
        """The relay queue for a message: that of the earlier messages while one of them is
        unanswered, because messages of one connection keep their order.
        """
        if self.unanswered == 1:
            self._is_leader_queue = is_leader_only
        return self._is_leader_queue

    # ---- permissions

    def may_access(self, operation: Operation, topic: TopicMetadata) -> bool:
        """Whether rules and the topic's policy allow this client to read or write it."""
        return self.may(operation, Resource.TOPIC, topic.name) and policy_of(topic).allows(
            operation, self.caller.name
        )

    def check_access(self, operation: Operation, topic: TopicMetadata) -> None:
        """Raises `Refusal` unless this client may read or write the topic."""
        self.authorize_topic(operation, topic.name)
        if not policy_of(topic).allows(operation, self.caller.name):
            raise no_access(operation, topic.name)

    def authorize_topic(self, operation: Operation, name: str) -> None:
        """Raises `Refusal`, whether or not there is such a topic. Its policy is checked later."""
        if not self.is_allowed(operation, Resource.TOPIC, name):
            raise no_access(operation, name)

    def topic_to_read(self, name: str) -> TopicMetadata:
        """Raises `Refusal`."""
        self.authorize_topic(Operation.READ, name)
        topic = self.service.topic(name)
        self.check_access(Operation.READ, topic)
        return topic

    def topic_to_write(self, name: str) -> TopicMetadata:
        """Raises `Refusal`."""
        self.authorize_topic(Operation.WRITE, name)
        topic = self.service.topic(name)
        if topic.is_internal:
            raise Refusal(f"internal_topic_write_forbidden topic={name}")
        if not policy_of(topic).allows(Operation.WRITE, self.caller.name):
            raise no_access(Operation.WRITE, name)
        return topic

    # ---- answers

    def error(self, text: str, *, is_structured: bool = False) -> bytes:
        is_structured = is_structured or STRUCTURED_ERRORS in self.features
        shown = error_text(text[:_ERROR_CHARACTERS_MAX], is_structured=is_structured)
        return codec.frame(shown.encode())

    def refuse(self, place: Place, error: DragomanError) -> None:
        is_structured = isinstance(error, Refusal) and error.is_structured
        text = refusal_text(error, self.service.registered)
        code = _code_in(text)
        place.counter.failed(code)
        if connection_log.is_on():
            self.note_failure(None, "", None, code, text)
        place.reply(self.error(text, is_structured=is_structured))

    # ---- life

    def on_writable(self) -> None:
        if self.stream is not None:
            self.stream.pump()

    def on_ended(self) -> None:
        if self.answer_now is not None:
            self.answer_now()
        if self.stream is not None:
            self.stream.close("stopped")

    def on_closed(self) -> None:
        self._idle_timer.cancel()
        if self.release is not None:
            self.release()
        self.service.closed()

    def _check_idle(self) -> None:
        service = self.service
        left = self.channel.last_active + service.idle_s - service.scheduler.time()
        if self.stream is not None or self.has_unanswered or self.is_throttled:
            left = service.idle_s
        if left <= 0:
            self.channel.complain(f"silent for {service.idle_s:g} s")
            self.close()
            return
        self._idle_timer = service.scheduler.call_later(left, self._check_idle)


#: Publishes a batch, which is not a command.
_PUBLISH: Final[dict[type[Batch], Callable[[CursusSession, Batch, Place], None]]] = (
    handlers_by_name(__package__, {Batch: "publish.publish_batch"})
)


def batch_frame(batch: Batch) -> bytes:
    """The frame of a batch. Raises `Refusal` for records that the layout cannot hold."""
    try:
        return codec.frame(codec.encode_batch(batch))
    except EncodeError as error:
        raise Refusal(f"command_failed reason={codec.quoted(str(error))}") from None
