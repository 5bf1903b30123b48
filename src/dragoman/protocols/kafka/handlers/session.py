"""A Kafka connection, whose replies are sent strictly in the order of the requests.

Requests begin as they arrive: a slow one (a parked fetch, a durable produce) does not delay the
start of the next, but its reply holds back all later replies. The backlog and the reply queue are
those of `OrderedSession`. Three things are specific to Kafka, because its requests are many and
small, or few and long:

- Produce requests that repeat the shape of an earlier one have no `Call`: the express takes them
  directly from the backlog (`express.py`).
- A loop turn begins a bounded number of requests, and no request begins while a reply is being
  computed in slices (`slices.py`).
- A reply at the head of the queue is passed to the channel at once. The channel sends all replies
  of a loop turn in one write, so a callback at the end of the turn would cost more than it saves.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from dragoman.broker.administration import Actor
from dragoman.broker.errors import NotAuthorized, ThrottlingQuotaExceeded
from dragoman.broker.grants import Grant
from dragoman.errors import DragomanError, EncodeError, RemoteProtocolError
from dragoman.limits import KAFKA_REQUESTS_PER_TURN_MAX
from dragoman.net import connection_log
from dragoman.net.channel import Channel
from dragoman.outcome import start
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka.connection import Request, ServerConnection
from dragoman.protocols.kafka.constants import ApiKey, is_accepted
from dragoman.protocols.kafka.error_codes import CODES_IN
from dragoman.protocols.kafka.errors import OversizedMessageError
from dragoman.protocols.kafka.handlers.express import Express
from dragoman.protocols.kafka.handlers.refusals import refusal_of
from dragoman.protocols.kafka.handlers.service import REQUESTS, KafkaService
from dragoman.protocols.kafka.messages import FetchResponse, Message, ProduceResponse
from dragoman.protocols.service import handlers_by_name
from dragoman.protocols.session import OrderedSession, Waiting
from dragoman.replication.replica import Replica
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Resource
from dragoman.types import Buffer

if TYPE_CHECKING:
    from dragoman.protocols.kafka.handlers.login import Asked, Login

AnyMessage = TypeVar("AnyMessage", bound=Message)
#: Replies whose handlers count the errors: there are many, and next to none has one.
_COUNTED: Final = frozenset((ProduceResponse, FetchResponse))


class Call:
    """A request and its place in the queue of replies."""

    __slots__ = (
        "_on_drop",
        "_on_end",
        "_reply",
        "arrived_at",
        "begun_at",
        "caller",
        "counter",
        "grant",
        "has_failed",
        "is_done",
        "request",
        "session",
        "size",
        "throttled_s",
    )

    count = 1

    def __init__(self, session: KafkaSession, request: Request) -> None:
        self.session = session
        self.request = request
        #: The connection's caller when the request began. A connection may reauthenticate
        #: (KIP-368), which does not change the permissions of its earlier requests.
        self.caller = session.caller
        self.arrived_at = session.arrived_at
        self.counter = session.service.requests[request.api_key]
        #: Bytes of the node's memory budget that the request occupies.
        self.size = len(request.frame)
        self.is_done = False
        #: Whether its reply has an error.
        self.has_failed = False
        self._reply: list[Buffer] | None = None
        self._on_drop: Callable[[], None] | None = None
        self._on_end: Callable[[], None] | None = None
        #: The right that a parked request relies on.
        self.grant: Grant | None = None
        #: The time at which the handler was called; None if its time is not counted, or is already.
        self.begun_at: float | None = None
        #: For how long the client is to be throttled.
        self.throttled_s = 0.0

    @property
    def client_id(self) -> str:
        return self.request.client_id or ""

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def service(self) -> KafkaService:
        return self.session.service

    def is_allowed(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.service.is_allowed(self.caller, operation, resource, name)

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """`is_allowed` for filters and alternatives, where a negative answer refuses nothing."""
        return self.service.may(self.caller, operation, resource, name)

    def describable(self, resource: Resource, names: Collection[str]) -> frozenset[str]:
        """The names of resources that the caller may describe."""
        return self.service.describable(self.caller, resource, names)

    @property
    def actor(self) -> Actor:
        """Who administers."""
        return Actor(self.caller, "kafka")

    def authorize(self, operation: Operation, resource: Resource, name: str) -> None:
        """Raises `NotAuthorized`, in the class of the resource."""
        service, caller = self.service, self.caller
        if not service.broker.authorizer.is_allowed(caller, operation, resource, name):
            raise service.refused(caller, operation, resource, name)

    def authorize_by_id(self, operation: Operation, topic_id: bytes) -> None:
        """Raises `NotAuthorized` for a topic that the request names by its id, if there is one. The
        text does not reveal the topic's name.
        """
        topic = self.service.broker.image.topics_by_id.get(topic_id)
        if topic is not None and not self.is_allowed(operation, Resource.TOPIC, topic.name):
            what = f"{operation.value} the topic with id {topic_id.hex()}"
            raise NotAuthorized(f"{self.caller.name} may not {what}")

    def authorize_new_topic(self, name: str) -> None:
        """Raises `NotAuthorized` if the caller may create neither any topic nor this one."""
        self.service.authorize_new_topic(self.caller, name)

    def authorize_cluster(self, operation: Operation) -> None:
        """Raises `ClusterNotAuthorized`."""
        self.authorize(operation, Resource.CLUSTER, CLUSTER_NAME)

    def take_mutations(self, count: int, *, is_strict: bool) -> None:
        """Count partitions that the request creates or deletes. Raises `ThrottlingQuotaExceeded` if
        these are too many and the client knows the error (`is_strict`); else it is throttled.
        """
        throttles = self.service.broker.throttles
        if not throttles.is_on:
            return
        is_allowed, seconds = throttles.mutations_s(
            self.caller, self.client_id, count, is_strict=is_strict
        )
        self.throttled_s = max(self.throttled_s, seconds)
        if not is_allowed:
            raise ThrottlingQuotaExceeded("too many partitions are created or deleted")

    def decode(self, kind: type[AnyMessage]) -> AnyMessage:
        """Decode the request as the message that its handler serves."""
        message = self.request.decode()
        assert isinstance(message, kind)
        return message

    def reply(self, message: Message) -> None:
        request = self.request
        if type(message) not in _COUNTED:
            self.count_errors(message)
        if self.service.broker.throttles.is_on:
            from dragoman.protocols.kafka.handlers.quota_use import metered

            message = metered(self, message)
        if self.has_failed and connection_log.is_on():
            from dragoman.protocols.kafka.handlers.failures import note_failures

            note_failures(self, message)
        self.reply_raw(codec.encode_response(message, request.version, request.correlation_id))

    def reply_raw(self, buffers: list[Buffer]) -> None:
        assert not self.is_done
        self.is_done = True
        if self.grant is not None:
            self.grant.release()
        self._reply = buffers
        self._on_drop = self._on_end = None
        self.session.worked_on(self)
        self.session.flush()
        if self._reply is not None:
            # The reply waits behind an earlier one, and is charged to the budget meanwhile.
            held = sum(map(len, buffers))
            self.size += held
            self.service.budget.take(held)

    def count_errors(self, message: Message) -> None:
        """Count the codes in a reply, or in a part of one that is encoded by itself."""
        for code in CODES_IN[type(message)](message):
            self.failed(code)

    def failed(self, code: int) -> None:
        """Count an error in the reply."""
        self.has_failed = True
        self.counter.failed(code)

    def finish_silently(self) -> None:
        """Finish a request without a reply (Produce with acks=0)."""
        assert not self.is_done
        if self.service.broker.throttles.is_on:
            from dragoman.protocols.kafka.handlers.quota_use import metered

            metered(self, ProduceResponse())
        self.is_done = True
        self.session.flush()

    def fail(self, error: DragomanError) -> None:
        """Close the connection, because no response to this request has a field for the error."""
        self.session.fail(self, error)

    def is_wanted(self) -> bool:
        """Whether the client still waits for the reply."""
        return not self.is_done

    def on_drop(self, forget: Callable[[], None]) -> None:
        """Register a callback for the case that the connection closes before the reply is ready."""
        self._on_drop = forget

    def on_end(self, answer: Callable[[], None]) -> None:
        """Register a callback for the case that the client closes its half of the connection: a
        parked request is then answered at once. Its time is counted as that of a parked one.
        """
        self.counter = self.counter.parked
        if self.session.channel.is_ended:
            answer()
        else:
            self._on_end = answer

    def end(self) -> None:
        if not self.is_done and self._on_end is not None:
            self._on_end()

    def drop(self) -> None:
        on_drop = None if self.is_done else self._on_drop
        self.is_done = True
        if on_drop is not None:
            on_drop()

    def take_reply(self) -> Sequence[Buffer]:
        reply, self._reply = self._reply, None
        return () if reply is None else reply


Handler: TypeAlias = Callable[[Call], None]


def awaited(handler: Callable[[Call], Coroutine[object, None, Message | list[Buffer]]]) -> Handler:
    """A handler that sends what a coroutine returns: a message, or encoded buffers.

    An error that the coroutine raises closes the connection. If the connection closes first, the
    coroutine runs to its end and its reply is dropped.
    """

    @wraps(handler)
    def handle(call: Call) -> None:
        reply_with(call, handler(call))

    return handle


def reply_with(call: Call, work: Coroutine[object, None, Message | list[Buffer]]) -> None:
    """Reply with what a coroutine returns; see `awaited`."""
    start(work).then(partial(finish, call))


def finish(call: Call, result: Message | list[Buffer] | DragomanError) -> None:
    """Send the reply, unless the connection is gone; an error closes the connection."""
    if call.is_done:
        return
    if isinstance(result, DragomanError):
        call.fail(result)
    elif isinstance(result, list):
        call.reply_raw(result)
    else:
        call.reply(result)


HANDLERS: Final[dict[int, Handler]] = handlers_by_name(__package__, REQUESTS)


class KafkaSession(OrderedSession[KafkaService]):
    protocol = "kafka"
    counts_bytes = False

    __slots__ = (
        "_connection",
        "_express",
        "_guard",
        "_login",
        "_settings",
        "_waits_for_turn",
        "_worked_on",
    )

    def __init__(self, channel: Channel, service: KafkaService) -> None:
        maximum = service.broker.settings.socket_request_max_bytes
        self._connection = ServerConnection(maximum, service.scratch)
        super().__init__(channel, self._connection.reader, service)
        self._express: Express | None = None
        #: The request whose reply is being computed in slices.
        self._worked_on: Call | None = None
        #: Whether the backlog waits for the next loop turn.
        self._waits_for_turn = False
        self._login: Login | None = None
        #: The same, while it must see each frame.
        self._guard: Login | None = None
        self._settings = service.broker.settings
        if self.must_log_in:
            self.await_login(service.broker.settings.socket_request_max_bytes)
            self.guard_changed()

    # ---- logins

    @property
    def login(self) -> Login:
        if self._login is None:
            # Imported here: most nodes have no listener with logins.
            from dragoman.protocols.kafka.handlers.login import Login

            self._login = Login(self)
        return self._login

    def guard_changed(self) -> None:
        """The login, or the settings, have changed."""
        self._settings = self.service.broker.settings
        if self._login is not None or self.must_log_in:
            self._guard = self.login if self.login.is_watching else None

    def log_in(self, caller: Caller) -> None:
        super().log_in(caller)
        # Its routes were learnt for another caller.
        self._express = None
        self.guard_changed()

    # ---- requests

    def _begin_backlog(self) -> None:
        if self._waits_for_turn or self._mute is not None:
            return
        if self.service.broker.settings is not self._settings:
            self.guard_changed()
        backlog, channel = self._backlog, self.channel
        begun = 0
        # Earlier replies may have filled the send buffer, and a request may begin a sliced reply.
        while backlog and channel.is_writable and self._worked_on is None and self._mute is None:
            if channel.is_closing:
                self._drop_backlog()
                return
            if begun == KAFKA_REQUESTS_PER_TURN_MAX:
                self._begin_next_turn()
                return
            if self._guard is not None and self._guard.take(backlog):
                begun += 1
            elif self._express is None or not self._express.take(backlog):
                self._begin_request(backlog)
                begun += 1

    def _begin_next_turn(self) -> None:
        self._waits_for_turn = True
        self.service.broker.scheduler.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._waits_for_turn = False
        self._resume()

    def on_ended(self) -> None:
        for waiting in list(self._queue):
            if isinstance(waiting, Call):
                waiting.end()

    def _begin_request(self, backlog: deque[bytearray]) -> None:
        # A frame that cannot be decoded stays in the backlog, and is dropped with it.
        request = self._connection.request(backlog[0])
        handler = HANDLERS.get(request.api_key)
        if handler is None or not is_accepted(request.api_key, request.version):
            handler = _unserved(request)
        backlog.popleft()
        call = Call(self, request)
        self.enter(call)
        if self._throttles.is_on:
            call.begun_at = self.service.broker.clock.monotonic()
        try:
            handler(call)
        except (RemoteProtocolError, EncodeError) as error:
            self.fail(call, error)
        if call.begun_at is not None:
            from dragoman.protocols.kafka.handlers.quota_use import time_used

            call.throttled_s = max(call.throttled_s, time_used(call))

    def begin(self, request: Request) -> Call:
        """Give a request its place in the queue of replies."""
        call = Call(self, request)
        self.enter(call)
        return call

    def fail(self, call: Call, error: DragomanError) -> None:
        """Close the connection of a request that cannot be answered. A request that is too large to
        decode is refused instead, if its response has a field for an error of the request.
        """
        self.worked_on(call)
        refusal = None
        if isinstance(error, OversizedMessageError):
            refusal = refusal_of(call.request.api_key, call.version, error)
        if refusal is not None:
            number = call.request.correlation_id
            said = _said(call.request, error)
            self.channel.complain(said, doing="refusing a request of", request=number)
            if type(refusal) in _COUNTED:
                call.count_errors(refusal)
            call.reply(refusal)
        else:
            # A reply that its version cannot encode is a fault of this node.
            is_theirs = isinstance(error, RemoteProtocolError)
            self._close(logging.INFO if is_theirs else logging.ERROR, call.request, error)

    def working_on(self, call: Call) -> None:
        """Begin no later request until `worked_on`."""
        self._worked_on = call

    def hold_back(self, call: Asked) -> None:
        """Begin no later request until this one is answered."""
        assert isinstance(call, Call)
        self.working_on(call)

    def worked_on(self, call: Call) -> None:
        if self._worked_on is call:
            self._worked_on = None
            if self._backlog and not self._is_beginning and not self._waits_for_turn:
                self._begin_next_turn()

    def enter(self, waiting: Waiting) -> None:
        """Reserve a place in the queue of replies. The frames are already charged to the budget."""
        self._queue.append(waiting)

    def learn(self, request: Request, records: Buffer, replica: Replica) -> None:
        """Let the express take later requests of this shape, which write to a single partition.
        They are not counted, so no client with a quota gets there.
        """
        if self._throttles.is_on and self._throttles.limits(self.caller, request.client_id or ""):
            return
        if self._express is None:
            self._express = Express(self)
        self._express.learn(request, records, replica)

    def _close(self, level: int, request: Request, error: Exception) -> None:
        self.channel.complain(_said(request, error), level, request=request.correlation_id)
        self.channel.close()


def _unserved(request: Request) -> Handler:
    """The reply to a request that is not served. ApiVersions answers unknown versions; other
    requests raise `RemoteProtocolError`.
    """
    if request.api_key == ApiKey.API_VERSIONS:
        from dragoman.protocols.kafka.handlers.api_versions import handle_unsupported

        return handle_unsupported
    raise RemoteProtocolError(f"api key {request.api_key} version {request.version} is not served")


def _said(request: Request, error: Exception) -> str:
    return f"api key {request.api_key} version {request.version}: {error}"
