"""One RocketMQ connection: requests in either direction, each answered when it can be.

A request that is not understood gets code 3; what is no request ends the connection, as in the
original. Responses of the client answer what the broker has asked it (`ask`); others are dropped.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from dragoman.broker.errors import Overloaded
from dragoman.broker.readers import Reader
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError, EncodeError
from dragoman.limits import (
    ROCKETMQ_ANSWER_TIMEOUT_S,
    ROCKETMQ_ASKED_MAX,
    ROCKETMQ_PLAIN_BODY_BYTES_MAX,
)
from dragoman.net.channel import Channel
from dragoman.outcome import Outcome, failed, ignore, pause, start
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.codec import Command, Connection, decode, encode_parts, frame_of
from dragoman.protocols.rocketmq.constants import (
    IS_ONE_WAY,
    IS_RESPONSE,
    VERSION,
    Request,
    Response,
    Serialization,
)
from dragoman.protocols.rocketmq.handlers.names import require_topic
from dragoman.protocols.rocketmq.handlers.node import RocketmqNode
from dragoman.protocols.rocketmq.handlers.refusals import Refused, refusal
from dragoman.protocols.rocketmq.handlers.service import REQUESTS, RocketmqService
from dragoman.protocols.rocketmq.messages import host_bytes
from dragoman.protocols.service import handlers_by_name
from dragoman.protocols.session import MatchedSession
from dragoman.security.authorizer import CLUSTER_NAME, Operation, Resource
from dragoman.types import Buffer
from dragoman.world import Handle

log = logging.getLogger("dragoman.rocketmq")
T = TypeVar("T")
Item = TypeVar("Item")
_NO_FIELDS: dict[str, str] = {}
_SUCCESS = Response.SUCCESS
_INT_DIGITS_MAX = 20
#: Requests whose body is what a producer sends.
_WITH_MESSAGES = frozenset(
    (
        Request.SEND_MESSAGE,
        Request.SEND_MESSAGE_V2,
        Request.SEND_BATCH_MESSAGE,
        Request.SEND_REPLY_MESSAGE,
        Request.SEND_REPLY_MESSAGE_V2,
    )
)
_TRUE = ("true", "1", "True")


class Answer(NamedTuple):
    """What a request is answered with."""

    code: int = _SUCCESS
    remark: str | None = None
    fields: dict[str, str] = _NO_FIELDS
    body: Buffer = b""


#: A structure is the body of an answer without fields; None is an answer without either.
Result: TypeAlias = Answer | msgspec.Struct | None
#: A coroutine of this kind answers a request with its result or, if it raises, with a refusal.
Answering: TypeAlias = Coroutine[object, None, Result]
#: Raises `DragomanError` to refuse. Without a coroutine the handler calls back with the answer.
Handler: TypeAlias = "Callable[[Call], Answering | None]"


class Call:
    """One request and the way its answer takes. Late answers are dropped."""

    __slots__ = ("_size", "body", "code", "fields", "is_done", "request", "session")

    def __init__(self, session: RocketmqSession, request: Command, size: int) -> None:
        self.session = session
        self.request = request
        self.code = request.code
        self.fields = request.fields
        self.body = request.body
        self._size = size
        self.is_done = False

    @property
    def service(self) -> RocketmqService:
        return self.session.service

    @property
    def node(self) -> RocketmqNode:
        return self.session.service.node

    @property
    def is_go(self) -> bool:
        """Go's administration client reads strings as keys, all others objects (spec, 9)."""
        return self.request.language == "GO"

    # ---- what was asked

    def text(self, name: str, *others: str) -> str:
        """A field that has to be there, under this name or one of the others."""
        for each in (name, *others):
            value = self.fields.get(each)
            if value is not None:
                return value
        raise Refused(Response.SYSTEM_ERROR, f"the custom field <{name}> is null")

    def number(self, name: str, default: int | None = None) -> int:
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
            text = f"the custom field <{name}> is no number: {value[:40]!r}"
            raise Refused(Response.SYSTEM_ERROR, text) from None
        if not -(1 << 63) <= number < 1 << 63:
            text = f"the custom field <{name}> has more than 64 bits"
            raise Refused(Response.SYSTEM_ERROR, text)
        return number

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.fields.get(name)
        return default if value is None else value in _TRUE

    def known_topic(self, operation: Operation) -> TopicMetadata:
        """The topic that the request names. Raises `Refused` when it does not exist, and
        `NotAuthorized` when the client may not do this with it.
        """
        topic = require_topic(self.service.broker.image, self.text("topic"))
        self.session.authorize(operation, Resource.TOPIC, topic.name)
        return topic

    def authorize_cluster(self, operation: Operation) -> None:
        """Raises `NotAuthorized`. The name is the one that rules know the cluster by."""
        self.session.authorize(operation, Resource.CLUSTER, CLUSTER_NAME)

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
        """For handlers that call back: use a result. What it or its use raises is answered."""

        def resume(result: T | DragomanError) -> None:
            if isinstance(result, DragomanError):
                self.refuse(result)
            else:
                self.guarded(partial(use, result))

        start(work).then(resume)

    async def in_turn(
        self, items: Sequence[Item], work: Callable[[Item], Coroutine[object, None, T]]
    ) -> list[T]:
        """The results of some work on each item, one after the other. The loop runs other things
        between any two.
        """
        scheduler = self.service.broker.scheduler
        found: list[T] = []
        for each in items:
            found.append(await work(each))
            await pause(scheduler, 0)
        return found

    def queue_table(self, body: msgspec.Struct) -> Answer:
        """A body with tables by queue, whose keys have the form that the client reads."""
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
        self.is_done = True
        session, request = self.session, self.request
        session.finished(self._size)
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
        """The same with a header in JSON that is written already: most answers look alike."""
        if self.is_done:
            return
        self.is_done = True
        self.session.finished(self._size)
        if not self.request.flag & IS_ONE_WAY:
            self.session.send(frame_of(header.encode()))

    def dismiss(self) -> None:
        """Not to be answered."""
        if not self.is_done:
            self.is_done = True
            self.session.finished(self._size)

    def refuse(self, error: DragomanError) -> None:
        number, text = refusal(error)
        self.reply(number, text)

    def done(self, error: DragomanError | None) -> None:
        """For what has no answer but that it went well."""
        if error is None:
            self.reply()
        else:
            self.refuse(error)

    def guarded(self, go_on: Callable[[], None]) -> None:
        """Do what remains for the answer; what it raises is answered."""
        if self.is_done:
            return
        try:
            go_on()
        except DragomanError as error:
            self.refuse(error)

    def parked(self) -> None:
        """It waits for others than its own peer: it holds none of the node's memory meanwhile."""
        self.session.finished(self._size)
        self._size = 0
        self.session.begun(0)


def _run(handler: Handler, call: Call) -> None:
    """Raises what the handler raises at once."""
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
    def __init__(self, channel: Channel, service: RocketmqService) -> None:
        connection = Connection(service.scratch)
        super().__init__(channel, connection.reader, service)
        host, port = channel.peer_address
        self.peer_host = host_bytes(host, port)
        #: As in the client's last request, which itself is not kept: it may be large.
        self.language, self.version = "JAVA", 0
        self._serialization = Serialization.JSON
        #: Where pulls of this connection read last, by partition id; the longest unused first.
        self.readers: OrderedDict[int, Reader] = OrderedDict()
        #: Called when the peer takes data again, and when it is gone.
        self.waiting_to_send: list[Callable[[], None]] = []
        self.on_gone: dict[object, Callable[[], None]] = {}
        #: Answer pulls that wait for messages, when the client sends no more.
        self.answer_now: dict[object, Callable[[], None]] = {}
        self._opaque = 0
        self._asked: dict[int, tuple[Outcome[Command], Handle]] = {}

    @property
    def store_host(self) -> bytes:
        """This node's address as message ids have it, as far as its name is resolved by now."""
        return self.service.store_host(self.channel)

    # ---- requests of the client

    def received(self, frame: bytearray) -> None:
        request = decode(frame)
        if request.flag & IS_RESPONSE:
            self._answered(request)
            return
        self.language, self.version = request.language, request.version
        self._serialization = request.serialization
        call = Call(self, request, len(frame))
        self.begun(len(frame))
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
            # The frame is sound, whatever is wrong with what the request carries.
            call.refuse(error)

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

    def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """A request without an answer."""
        self.send_command(self._request(code, IS_ONE_WAY, fields, body))

    def ask(
        self,
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        timeout_s: float = ROCKETMQ_ANSWER_TIMEOUT_S,
    ) -> Outcome[Command]:
        """Send a request and wait for the client's response."""
        if len(self._asked) >= ROCKETMQ_ASKED_MAX or self.channel.is_closing:
            return failed(Overloaded("the client does not answer"))
        request = self._request(code, 0, fields, body)
        timer = self.service.broker.scheduler.call_later(
            timeout_s, self._expired, request.opaque, timeout_s
        )
        response: Outcome[Command] = Outcome()
        self._asked[request.opaque] = (response, timer)
        self.send_command(request)
        return response

    def _request(self, code: int, flag: int, fields: Mapping[str, str], body: bytes) -> Command:
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
        outcome, timer = self._asked.pop(response.opaque, (None, None))
        if outcome is not None and timer is not None:
            timer.cancel()
            response.body = bytes(response.body)
            outcome.succeed(response)

    def _expired(self, opaque: int, timeout_s: float) -> None:
        outcome, _ = self._asked.pop(opaque)
        text = f"the client did not answer within {timeout_s:g} s"
        outcome.fail(Refused(Response.CONSUME_MSG_TIMEOUT, text))

    # ---- from the channel

    def when_writable(self, then: Callable[[], None]) -> None:
        """Now, or when the peer takes data again; not at all when it is gone."""
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
        asked, self._asked = self._asked, {}
        for outcome, timer in asked.values():
            timer.cancel()
            outcome.fail(Refused(Response.CONSUMER_NOT_ONLINE, "the client is gone"))
        gone, self.on_gone = self.on_gone, {}
        for each in gone.values():
            each()
