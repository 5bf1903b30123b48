"""A RocketMQ connection: requests in both directions, answered in any order.

A request with an unknown code is answered with code 3; bytes that are not a frame close the
connection, as in RocketMQ. The client's responses settle the broker's own requests
(`RocketmqSession.request`); unexpected responses are dropped.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from dragoman.broker.administration import Actor
from dragoman.broker.errors import Overloaded
from dragoman.broker.readers import Reader
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DecodeError, DragomanError, EncodeError, LoginsOverloadedError
from dragoman.limits import (
    LOGIN_FRAME_BYTES_MAX,
    ROCKETMQ_ANSWER_TIMEOUT_S,
    ROCKETMQ_PLAIN_BODY_BYTES_MAX,
    ROCKETMQ_UNANSWERED_REQUESTS_MAX,
)
from dragoman.net import connection_log
from dragoman.net.channel import Channel
from dragoman.outcome import Outcome, failed, ignore, pause, start
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.codec import Command, Connection, decode, encode_parts, frame_of
from dragoman.protocols.rocketmq.constants import (
    IS_ONE_WAY,
    IS_RESPONSE,
    RETRY_PREFIX,
    VERSION,
    Request,
    Response,
    Serialization,
)
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.names import require_topic, retry_group, topic_name
from dragoman.protocols.rocketmq.handlers.node import RocketmqNode
from dragoman.protocols.rocketmq.handlers.refusals import Refused, refusal
from dragoman.protocols.rocketmq.handlers.service import REQUESTS, RocketmqService
from dragoman.protocols.rocketmq.handlers.signers import Signer, caller_of, unproven_signer
from dragoman.protocols.rocketmq.messages import host_bytes
from dragoman.protocols.service import handlers_by_name
from dragoman.protocols.session import MatchedSession
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Resource
from dragoman.types import Buffer
from dragoman.world import Handle

log = logging.getLogger("dragoman.rocketmq")
T = TypeVar("T")
_NO_FIELDS: dict[str, str] = {}
_SUCCESS = Response.SUCCESS
_INT_DIGITS_MAX = 20
#: Requests whose bodies are messages, and may be large.
_WITH_MESSAGES = frozenset(code for code in Request if code.name.startswith("SEND_"))
_TRUE = ("true", "1", "True")
#: Codes of answers that are no errors.
_RESULTS = frozenset(
    (
        Response.SUCCESS,
        Response.PULL_NOT_FOUND,
        Response.PULL_RETRY_IMMEDIATELY,
        Response.QUERY_NOT_FOUND,
        Response.NO_MESSAGE,
    )
)
#: What an operation on the retries of a group needs on the group.
_OF_GROUP = {
    Operation.WRITE: Operation.READ,
    Operation.CREATE: Operation.READ,
    Operation.ALTER: Operation.ALTER_CONFIGS,
}


class Answer(NamedTuple):
    code: int = _SUCCESS
    remark: str | None = None
    fields: dict[str, str] = _NO_FIELDS
    body: Buffer = b""


#: A structure is the body of the answer; None means an answer without a body.
Result: TypeAlias = Answer | msgspec.Struct | None
#: A coroutine whose result answers a request; if it raises, the request is refused.
Answering: TypeAlias = Coroutine[object, None, Result]
#: Raises `DragomanError` to refuse. A handler that returns no coroutine answers through the call.
Handler: TypeAlias = "Callable[[Call], Answering | None]"


class Call:
    """A request, and the only answer to it: any further answer is dropped."""

    __slots__ = (
        "_size",
        "arrived_at",
        "body",
        "caller",
        "code",
        "counter",
        "fields",
        "is_done",
        "request",
        "session",
    )

    def __init__(
        self, session: RocketmqSession, request: Command, caller: Caller, size: int
    ) -> None:
        self.session = session
        #: The signer of this request, or the connection's caller.
        self.caller = caller
        self.request = request
        self.code = request.code
        self.fields = request.fields
        self.body = request.body
        self.arrived_at = session.arrived_at
        self.counter = session.service.requests[request.code]
        self._size = size
        self.is_done = False

    @property
    def actor(self) -> Actor:
        """Who administers."""
        return Actor(self.caller, "rocketmq")

    @property
    def service(self) -> RocketmqService:
        return self.session.service

    @property
    def broker(self) -> Core:
        return self.session.service.broker

    @property
    def node(self) -> RocketmqNode:
        return self.session.service.node

    @property
    def is_go(self) -> bool:
        """Whether this is the Go client, which reads tables with strings as keys (spec, 9)."""
        return self.request.language == "GO"

    # ---- the request

    def text(self, name: str, *others: str) -> str:
        """A required field, under this name or one of the others. Raises `Refused`."""
        for each in (name, *others):
            value = self.fields.get(each)
            if value is not None:
                return value
        raise Refused(Response.SYSTEM_ERROR, f"the custom field <{name}> is null")

    def number(self, name: str, default: int | None = None) -> int:
        """A 64-bit integer; an empty field has the default, too. Raises `Refused`."""
        value = self.fields.get(name)
        if value is None or (not value and default is not None):
            if default is None:
                raise Refused(Response.SYSTEM_ERROR, f"the custom field <{name}> is null")
            return default
        try:
            if len(value) > _INT_DIGITS_MAX:
                raise ValueError
            number = int(value)
        except ValueError:
            text = f"the custom field <{name}> is not a number: {value[:40]!r}"
            raise Refused(Response.SYSTEM_ERROR, text) from None
        if not -(1 << 63) <= number < 1 << 63:
            text = f"the custom field <{name}> has more than 64 bits"
            raise Refused(Response.SYSTEM_ERROR, text)
        return number

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.fields.get(name)
        return default if value is None else value in _TRUE

    def known_topic(self, operation: Operation) -> TopicMetadata:
        """The topic that the request names. Raises `Refused` and `NotAuthorized`."""
        spelt = self.text("topic")
        self.authorize_topic(operation, topic_name(spelt))
        return require_topic(self.broker.image, spelt)

    # ---- permissions

    def is_allowed(self, operation: Operation, resource: Resource, name: str) -> bool:
        return self.session.service.is_allowed(self.caller, operation, resource, name)

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        """`is_allowed` for filters and alternatives, where a negative answer refuses nothing."""
        return self.session.service.may(self.caller, operation, resource, name)

    def authorize(self, operation: Operation, resource: Resource, name: str) -> None:
        """Raises `NotAuthorized`, in the class of the resource."""
        service, caller = self.session.service, self.caller
        if not service.broker.authorizer.is_allowed(caller, operation, resource, name):
            raise service.refused(caller, operation, resource, name)

    def may_access(self, operation: Operation, topic: str) -> bool:
        """Whether the caller is allowed an operation on a topic, existing or not. A topic with the
        retries of a group belongs to the group: its consumers send and read them.
        """
        group = retry_group(topic)
        if group is None:
            return self.may(operation, Resource.TOPIC, topic)
        return self.may(_OF_GROUP.get(operation, operation), Resource.GROUP, group)

    def describable_topics(self, names: Collection[str]) -> frozenset[str]:
        """The names of topics for which `may_access` allows to describe them."""
        describable = partial(self.session.service.describable, self.caller)
        groups = {group: name for name in names if (group := retry_group(name)) is not None}
        plain = describable(Resource.TOPIC, [name for name in names if retry_group(name) is None])
        return plain.union(map(groups.__getitem__, describable(Resource.GROUP, groups)))

    def authorize_topic(self, operation: Operation, topic: str) -> None:
        """Raises `NotAuthorized` unless `may_access`."""
        if topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            self.authorize(_OF_GROUP.get(operation, operation), Resource.GROUP, group)
        else:
            self.authorize(operation, Resource.TOPIC, topic)

    def authorize_member(self, group: str) -> None:
        """Raises `NotAuthorized` unless the caller may be a member of the group, and may send to
        its retries. These are those of another group if this one has an escaped dot in its name.
        """
        self.authorize(Operation.READ, Resource.GROUP, group)
        self.authorize_topic(Operation.READ, topic_name(RETRY_PREFIX + group))

    def authorize_new_topic(self, topic: str) -> None:
        """Raises `NotAuthorized` if the caller may create neither any topic nor this one."""
        if retry_group(topic) is None:
            self.session.service.authorize_new_topic(self.caller, topic)
        else:
            self.authorize_topic(Operation.CREATE, topic)

    def authorize_cluster(self, operation: Operation) -> None:
        """Raises `NotAuthorized`."""
        self.authorize(operation, Resource.CLUSTER, CLUSTER_NAME)

    # ---- the answer

    def answer_with(self, answering: Answering) -> None:
        """Answer with the result of a coroutine, or refuse with the error that it raises."""
        start(answering).then(self._conclude)

    def _conclude(self, result: Result | DragomanError) -> None:
        if isinstance(result, DragomanError):
            self.refuse(result)
        elif result is None:
            self.reply()
        elif isinstance(result, msgspec.Struct):
            self.reply(body=bodies.encode(result))
        else:
            self.reply(*result)

    def after(self, work: Coroutine[object, None, T], use: Callable[[T], None]) -> None:
        """For handlers with callbacks: pass the result of `work` to `use`. An error of either
        refuses the request.
        """
        start(work).then(partial(self._use, use))

    def _use(self, use: Callable[[T], None], result: T | DragomanError) -> None:
        if isinstance(result, DragomanError):
            self.refuse(result)
        else:
            self.guarded(partial(use, result))

    def pause(self) -> Outcome[None]:
        """Awaited between the parts of long work, so that the loop serves other requests."""
        return pause(self.broker.scheduler, 0)

    def queue_table(self, body: msgspec.Struct) -> Answer:
        """An answer with tables by queue, whose keys have the client's format."""
        return Answer(body=bodies.encode(body, object_keys=not self.is_go))

    def reply(
        self,
        code: int = _SUCCESS,
        remark: str | None = None,
        fields: dict[str, str] = _NO_FIELDS,
        body: Buffer = b"",
    ) -> None:
        if self.is_done:
            return
        session, request = self.session, self.request
        self.finish()
        if code not in _RESULTS:
            self.counter.failed(code)
        if not request.flag & IS_ONE_WAY:
            session.send_command(
                Command(
                    code=code,
                    opaque=request.opaque,
                    flag=IS_RESPONSE,
                    language="JAVA",
                    version=VERSION,
                    remark=remark,
                    fields=fields,
                    body=body,
                    serialization=request.serialization,
                )
            )

    def reply_with(self, header: str) -> None:
        """Reply with this header in JSON, and no body."""
        if self.is_done:
            return
        self.finish()
        if not self.request.flag & IS_ONE_WAY:
            self.session.send(frame_of(header.encode()))

    def dismiss(self) -> None:
        """Leave the request unanswered."""
        if not self.is_done:
            self.finish()

    def finish(self) -> None:
        """Count the request as answered; called once, before the answer is sent."""
        self.is_done = True
        session = self.session
        session.finished(self._size)
        self.counter.answered(session.service.monotonic() - self.arrived_at)

    def refuse(self, error: DragomanError) -> None:
        number, text = refusal(error)
        if connection_log.is_on():
            request = self.request
            client = request.fields.get("clientID") or request.fields.get("consumerGroup")
            self.session.note_failure(request.opaque, request.code, client, number, text)
        self.reply(number, text)

    def done(self, error: DragomanError | None) -> None:
        """Reply without fields, or refuse."""
        if error is None:
            self.reply()
        else:
            self.refuse(error)

    def guarded(self, action: Callable[[], None]) -> None:
        """Run a step of the handler. An error that it raises refuses the request."""
        if self.is_done:
            return
        try:
            action()
        except DragomanError as error:
            self.refuse(error)

    def parked(self) -> None:
        """Release the request's share of the memory budget while it waits for messages."""
        self.session.finished(self._size)
        self._size = 0
        self.session.begun(0)
        self.counter = self.counter.parked


def _run(handler: Handler, call: Call) -> None:
    """Run the handler. Raises the errors that precede its first await."""
    answering = handler(call)
    if answering is not None:
        call.answer_with(answering)


async def _run_when_loaded(handler: Handler, call: Call) -> None:
    try:
        await call.node.state.loaded()
        _run(handler, call)
    except DragomanError as error:
        call.refuse(error)


HANDLERS: Final[dict[int, Handler]] = handlers_by_name(__package__, REQUESTS)


class RocketmqSession(MatchedSession[RocketmqService]):
    protocol = "rocketmq"

    def __init__(self, channel: Channel, service: RocketmqService) -> None:
        connection = Connection(service.scratch)
        super().__init__(channel, connection.reader, service)
        host, port = channel.peer_address
        self.peer_host = host_bytes(host, port)
        #: Language and version in the client's last request.
        self.language, self.version = "JAVA", 0
        self._serialization = Serialization.JSON
        #: Readers of earlier pulls by partition id, least recently used first.
        self.readers: OrderedDict[int, Reader] = OrderedDict()
        #: Callbacks for when the peer reads data again.
        self.waiting_to_send: list[Callable[[], None]] = []
        #: Callbacks for when the connection closes.
        self.on_gone: dict[object, Callable[[], None]] = {}
        #: Callbacks for when the client closes its half; they answer pulls that wait for messages.
        self.answer_now: dict[object, Callable[[], None]] = {}
        #: The users that have signed requests of this connection, by access key.
        self.signers: dict[str, Signer] = {}
        #: The caller of the last request.
        self._last_caller = self.caller
        #: Whether a request waits because of wrong signatures.
        self._is_held = False
        self._opaque = 0
        #: Unanswered requests to the client, with their timers, by `opaque`.
        self._requests: dict[int, tuple[Outcome[Command], Handle]] = {}
        if self.must_log_in:
            # The first request is authenticated like any other, and may be a whole message.
            self.await_login(None)

    @property
    def store_host(self) -> bytes:
        """This node's address for message ids; 0.0.0.0 until its name is resolved."""
        return self.service.store_host(self.channel)

    # ---- requests of the client

    def received(self, frame: bytearray) -> None:
        request = self._decoded_before_login(frame) if self.awaits_login else decode(frame)
        if request.flag & IS_RESPONSE:
            self._answered(request)
            return
        self.language, self.version = request.language, request.version
        self._serialization = request.serialization
        call = Call(self, request, self.caller, len(frame))
        self.begun(len(frame))
        if self.channel.security.authentication == "off":
            self._begin_call(call)
            return
        name = unproven_signer(self, request)
        if name and self.service.broker.logins.must_wait(name, self.caller.host):
            start(self._begin_later(call, name)).then(ignore)
        else:
            self._begin_signed(call)

    def _decoded_before_login(self, frame: bytearray) -> Command:
        """Raises `DecodeError`."""
        try:
            return decode(frame, LOGIN_FRAME_BYTES_MAX)
        except DecodeError as error:
            raise self._unreadable(error) from None

    async def _begin_later(self, call: Call, name: str) -> None:
        """Begin a request after the wait for earlier wrong signatures. No other begins, and none is
        read, meanwhile.
        """
        self._is_held = True
        self.pause_reading()
        try:
            await self.service.broker.logins.wait(name, self.caller.host)
        except LoginsOverloadedError as error:
            call.refuse(Overloaded(str(error)))
        else:
            if not self.channel.is_closing:
                self._begin_signed(call)
        self._is_held = False
        if not self.channel.is_closing:
            self.resume()
            self._count_before_login()

    def _begin_signed(self, call: Call) -> None:
        """Begin a request on a listener that looks at signatures."""
        try:
            call.caller = self._last_caller = caller_of(self, call.request)
        except DragomanError as error:
            call.refuse(error)
        else:
            self._begin_call(call)

    def _begin_call(self, call: Call) -> None:
        request = call.request
        try:
            handler = HANDLERS.get(request.code)
            if handler is None:
                text = f"request type {request.code} not supported"
                raise Refused(Response.REQUEST_CODE_NOT_SUPPORTED, text)
            if (
                len(request.body) > ROCKETMQ_PLAIN_BODY_BYTES_MAX
                and request.code not in _WITH_MESSAGES
            ):
                text = f"a body of {len(request.body)} bytes is too large for this request"
                raise Refused(Response.INVALID_PARAMETER, text)
            state = self.service.node.state
            if state.is_loaded:
                _run(handler, call)
            else:
                start(_run_when_loaded(handler, call)).then(ignore)
        except DragomanError as error:
            call.refuse(error)

    @property
    def counted_caller(self) -> Caller:
        # A connection has one signer, or several of one program.
        return self._last_caller

    def may_begin(self) -> bool:
        return not self._is_held

    def send_command(self, command: Command) -> None:
        try:
            parts = encode_parts(command)
        except EncodeError as error:
            failure = Command(
                code=Response.SYSTEM_ERROR,
                opaque=command.opaque,
                flag=command.flag,
                language=command.language,
                remark=str(error),
                serialization=command.serialization,
            )
            parts = encode_parts(failure)
        self.send(*(part for part in parts if len(part)))

    # ---- requests to the client

    def send_one_way(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        self.send_command(self._command(code, IS_ONE_WAY, fields, body))

    def request(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        timeout_s: float = ROCKETMQ_ANSWER_TIMEOUT_S,
    ) -> Outcome[Command]:
        """Send a request; the outcome is the client's response."""
        if len(self._requests) >= ROCKETMQ_UNANSWERED_REQUESTS_MAX or self.channel.is_closing:
            return failed(Overloaded("the client does not answer"))
        request = self._command(code, 0, fields, body)
        timer = self.service.broker.scheduler.call_later(
            timeout_s, self._expired, request.opaque, timeout_s
        )
        response: Outcome[Command] = Outcome()
        self._requests[request.opaque] = (response, timer)
        self.send_command(request)
        return response

    def _command(self, code: int, flag: int, fields: Mapping[str, str], body: bytes) -> Command:
        self._opaque = self._opaque + 1 & 0x7FFFFFFF
        return Command(
            code=code,
            opaque=self._opaque,
            flag=flag,
            language="JAVA",
            version=VERSION,
            fields=dict(fields),
            body=body,
            serialization=self._serialization,
        )

    def _answered(self, response: Command) -> None:
        outcome, timer = self._requests.pop(response.opaque, (None, None))
        if outcome is not None and timer is not None:
            timer.cancel()
            response.body = bytes(response.body)
            outcome.succeed(response)

    def _expired(self, opaque: int, timeout_s: float) -> None:
        outcome, _ = self._requests.pop(opaque)
        text = f"the client did not answer within {timeout_s:g} s"
        outcome.fail(Refused(Response.CONSUME_MSG_TIMEOUT, text))

    # ---- called by the channel

    def buffer_updated(self, count: int) -> None:
        super().buffer_updated(count)
        if self._login_wait is not None:
            self._count_before_login()

    def _count_before_login(self) -> None:
        if self.awaits_login:
            self.count_unverified(self.pending_bytes + self.waiting_bytes)

    def when_writable(self, then: Callable[[], None]) -> None:
        """Call back now, or when the peer reads data again; never once the connection is lost."""
        if self.can_send:
            then()
        elif not self.channel.is_closing:
            self.waiting_to_send.append(then)

    def on_writable(self) -> None:
        waiting, self.waiting_to_send = self.waiting_to_send, []
        for index, then in enumerate(waiting):
            if not self.can_send:
                self.waiting_to_send = waiting[index:] + self.waiting_to_send
                return
            then()

    def on_ended(self) -> None:
        for answer in list(self.answer_now.values()):
            answer()

    def on_closed(self) -> None:
        self.answer_now.clear()
        self.waiting_to_send.clear()
        for reader in self.readers.values():
            reader.close()
        self.readers.clear()
        requests, self._requests = self._requests, {}
        for outcome, timer in requests.values():
            timer.cancel()
            outcome.fail(Refused(Response.CONSUMER_NOT_ONLINE, "the client has disconnected"))
        signers, self.signers = self.signers, {}
        for signer in signers.values():
            self.service.broker.logins.closed(signer)
        gone, self.on_gone = self.on_gone, {}
        for each in gone.values():
            each()
