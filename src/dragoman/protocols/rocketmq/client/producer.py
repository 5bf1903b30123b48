"""Producers: messages are stored at least once, in call order per queue.

A message goes to the next queue in round-robin order, to the queue of its sharding key, or to the
queue that the caller names. When a broker fails, the message is sent to another one, so it may be
stored twice with the same unique id. One-way messages are sent once, without an acknowledgement.

A transactional producer delivers a message if a local transaction commits (spec, 5.3):

    half message stored ── local transaction ── commit or rollback, sent one way
                                             ╲─ unknown or lost: the broker checks, `check` decides

The application supplies `local` and `check`, which return the state of its own transaction. The
state is unknown if they raise.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Final, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec

from dragoman.client_core.errors import ClientError, RequestTimeoutError, UnreachableError
from dragoman.errors import DecodeError, EncodeError
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client.errors import RocketmqError, refusal
from dragoman.protocols.rocketmq.client.membership import Membership, ProducerMember
from dragoman.protocols.rocketmq.client.messages import (
    Message,
    ReceivedMessage,
    SendStatus,
    Sent,
    deflate,
    inflate,
    received,
)
from dragoman.protocols.rocketmq.client.remoting import Fields, Remoting
from dragoman.protocols.rocketmq.client.routes import Routes
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import (
    BODY_BYTES_MAX,
    TEMPLATE_TOPIC,
    Property,
    Request,
    Response,
    SysFlag,
)
from dragoman.protocols.rocketmq.messages import (
    BatchedMessage,
    decode_properties,
    encode_batch,
    encode_properties,
    read_message_id,
    tag_hash,
)
from dragoman.world import Clock, Random

#: Response codes after which a message is sent to another broker (spec, 3.3).
RETRIED_CODES: Final = frozenset(
    (
        Response.SYSTEM_ERROR,
        Response.SYSTEM_BUSY,
        Response.SERVICE_NOT_AVAILABLE,
        Response.NO_PERMISSION,
        Response.TOPIC_NOT_EXIST,
        Response.NO_BUYER_ID,
        Response.NOT_IN_CURRENT_UNIT,
        Response.GO_AWAY,
    )
)
#: The default of RocketMQ's clients.
COMPRESS_OVER_BYTES: Final = 4096
#: Selects one of the queues of a topic.
Selector: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]

#: The property with the timeout of a request, in milliseconds.
TIME_TO_LIVE: Final = "TTL"
_KIND: Final = "MSG_TYPE"
_CARRIED: Final = (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, TIME_TO_LIVE)


class ProducerOptions(TypedDict, total=False):
    """Options of a producer."""

    #: Number of retries of a message; 2 by default.
    retries: int
    #: Bodies above this size are compressed; 4096 by default, None to disable compression.
    compress_over_bytes: int | None
    #: Number of queues of a topic that its first message creates; 4 by default.
    queue_count: int


# ---- requests and replies


class Replies:
    """Pending requests. A broker sends the reply over the requester's connection."""

    def __init__(self, remoting: Remoting, random: Random) -> None:
        self._random = random
        #: Requests by their correlation ids.
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        remoting.on_request(Request.PUSH_REPLY_MESSAGE_TO_CLIENT, self._replied)

    @contextmanager
    def awaited(self) -> Iterator[tuple[str, asyncio.Future[ReceivedMessage]]]:
        """Register a request. Yields its correlation id and the future reply."""
        number = f"{self._random.getrandbits(128):032x}"
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            yield number, future
        finally:
            del self._waiting[number]
            future.cancel()

    async def _replied(self, _address: str, request: Command) -> Command:
        fields = request.fields
        properties = decode_properties(fields.get("properties", ""))
        future = self._waiting.get(properties.get(Property.CORRELATION_ID, ""))
        if future is None or future.done():
            return Command(code=Response.SYSTEM_ERROR, remark="no request waits for this reply")
        try:
            sys_flag, born_ms = int(fields.get("sysFlag", 0)), int(fields.get("bornTimestamp", 0))
        except ValueError:
            raise DecodeError(f"a reply with {fields}") from None
        future.set_result(
            ReceivedMessage(
                topic=fields.get("topic", ""),
                body=inflate(bytes(request.body), sys_flag),
                properties=properties,
                born_ms=born_ms,
            )
        )
        return Command(code=Response.SUCCESS)


def reply_properties(message: ReceivedMessage) -> dict[str, str]:
    """The properties of the reply to a message. Raises `EncodeError` if it expects none."""
    if not all(message.properties.get(name) for name in _CARRIED):
        raise EncodeError(f"message {message.unique_id} does not expect a reply")
    return {_KIND: "reply"} | {name: message.properties[name] for name in _CARRIED}


# ---- producers


class Outgoing:
    """A message or batch, encoded once for all attempts to send it."""

    def __init__(
        self,
        topic: str,
        body: bytes,
        properties: dict[str, str],
        *,
        flag: int = 0,
        sys_flag: int = 0,
        unique_id: str = "",
        is_batch: bool = False,
        is_reply: bool = False,
        compress_over: int | None = COMPRESS_OVER_BYTES,
        reconsume_times: int = 0,
        max_reconsume_times: int | None = None,
    ) -> None:
        if not is_batch and compress_over is not None and len(body) > compress_over:
            body, sys_flag = deflate(body), sys_flag | SysFlag.COMPRESSED
        if len(body) > BODY_BYTES_MAX:
            raise EncodeError(f"a body of {len(body)} bytes; brokers accept {BODY_BYTES_MAX}")
        self.topic = topic
        self.body = body
        self.properties = properties
        self.flag = flag
        self.sys_flag = sys_flag
        self.unique_id = unique_id or properties.get(Property.UNIQUE_KEY, "")
        self.is_batch = is_batch
        self.is_reply = is_reply
        self.reconsume_times = reconsume_times
        self.max_reconsume_times = max_reconsume_times

    def fields(self, group: str, queue: MessageQueue, born_ms: int, queue_count: int) -> Fields:
        """The fields of a send, with the short names of request 310."""
        return {
            "a": group,
            "b": self.topic,
            "c": TEMPLATE_TOPIC,
            "d": queue_count,
            "e": queue.queue_id,
            "f": self.sys_flag,
            "g": born_ms,
            "h": self.flag,
            "i": encode_properties(self.properties).decode(),
            "j": self.reconsume_times,
            "k": False,
            "l": self.max_reconsume_times,
            "m": self.is_batch,
            "n": queue.broker_name,
        }


class ProducerPorts(msgspec.Struct, frozen=True):
    """Ports that the producers of a client share."""

    remoting: Remoting
    routes: Routes
    membership: Membership
    replies: Replies
    clock: Clock
    random: Random


class Producer(ProducerMember):
    def __init__(
        self, ports: ProducerPorts, group: str, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__(group, ports.membership)
        self._remoting = ports.remoting
        self._identity = ports.remoting.identity
        self._routes = ports.routes
        self._replies = ports.replies
        self._clock = ports.clock
        self._random = ports.random
        self._retries = options.get("retries", 2)
        self._compress_over = options.get("compress_over_bytes", COMPRESS_OVER_BYTES)
        self._queue_count = options.get("queue_count", 4)
        #: By topic, the position of the next queue in round-robin order.
        self._turns: dict[str, int] = {}

    # ---- sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Sent:
        """Send a message, and return where it was stored. Raises `ClientError` and
        `EncodeError`.
        """
        outgoing = self._outgoing(message)
        select = select or _by_sharding_key(message)
        return await self.deliver(outgoing, queue=queue, select=select, timeout_s=timeout_s)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> Sent:
        """Send messages of one topic atomically, to consecutive offsets of one queue."""
        return await self.deliver(self._batch(messages), queue=queue)

    async def send_one_way(
        self, message: Message, *, queue: MessageQueue | None = None, select: Selector | None = None
    ) -> None:
        """Send a message without an acknowledgement; returns when its bytes are written."""
        await self.start()
        outgoing = self._outgoing(message)
        select = select or _by_sharding_key(message)
        queue = await self._chosen(outgoing.topic, queue, select, avoid=None)
        await self._remoting.send_one_way(
            self._address(queue), _code(outgoing), self._fields(outgoing, queue), outgoing.body
        )

    # ---- requests and replies

    async def request(self, message: Message, timeout_s: float = 5.0) -> ReceivedMessage:
        """Send a message, and return a consumer's reply.

        Raises `RequestTimeoutError` when no reply arrives in time.
        """
        outgoing = self._outgoing(message)
        with self._replies.awaited() as (number, reply):
            select = _by_sharding_key(message)
            try:
                async with asyncio.timeout(timeout_s):
                    await self.start()
                    # The client id is final once a connection has been made.
                    await self.queues(outgoing.topic)
                    outgoing.properties |= {
                        Property.CORRELATION_ID: number,
                        Property.REPLY_TO_CLIENT: self._identity.client_id,
                        TIME_TO_LIVE: str(int(timeout_s * 1000)),
                    }
                    await self.deliver(outgoing, select=select, timeout_s=timeout_s)
                    return await reply
            except TimeoutError:
                text = f"no reply to {outgoing.unique_id} within {timeout_s:g} s"
                raise RequestTimeoutError(text) from None

    async def reply(self, message: ReceivedMessage, body: bytes) -> Sent:
        """Reply to a message. Raises `EncodeError` if it expects no reply."""
        properties = self._named(Message(topic="")) | reply_properties(message)
        cluster = message.properties.get(Property.CLUSTER)
        if not cluster:
            brokers = (await self._routes.route(message.topic)).data.broker_datas
            cluster = next((each.cluster for each in brokers), "")
        outgoing = Outgoing(f"{cluster}_REPLY_TOPIC", body, properties, is_reply=True)
        return await self.deliver(outgoing)

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic that can be written to."""
        route = await self._routes.to_send(topic, self._queue_count)
        await self._membership.greet()
        return route.write_queues

    # ---- encoding

    def _outgoing(self, message: Message, sys_flag: int = 0) -> Outgoing:
        properties = self._named(message)
        return Outgoing(
            message.topic,
            message.body,
            properties,
            flag=message.flag,
            sys_flag=sys_flag,
            compress_over=self._compress_over,
        )

    def _named(self, message: Message) -> dict[str, str]:
        properties = message.all_properties()
        properties.setdefault(Property.UNIQUE_KEY, self._identity.unique_id())
        return properties

    def _batch(self, messages: Sequence[Message]) -> Outgoing:
        topics = {each.topic for each in messages}
        if len(topics) != 1:
            raise EncodeError(f"a batch has messages of one topic, this one of {len(topics)}")
        if any(each.delay_level or each.deliver_at_ms is not None for each in messages):
            raise EncodeError("messages of a batch cannot be delayed")
        named = [(each, self._named(each)) for each in messages]
        body = encode_batch(
            BatchedMessage(each.flag, each.body, encode_properties(properties))
            for each, properties in named
        )
        ids = ",".join(properties[Property.UNIQUE_KEY] for _, properties in named)
        own = {Property.WAIT: "true", Property.UNIQUE_KEY: self._identity.unique_id()}
        return Outgoing(topics.pop(), body, own, unique_id=ids, is_batch=True)

    def _fields(self, outgoing: Outgoing, queue: MessageQueue) -> Fields:
        now_ms = self._clock.wall_ms()
        return outgoing.fields(self.group, queue, now_ms, self._queue_count)

    # ---- queue selection

    async def _chosen(
        self,
        topic: str,
        queue: MessageQueue | None,
        select: Selector | None,
        avoid: MessageQueue | None,
    ) -> MessageQueue:
        if queue is None:
            return await self._pick(topic, select, avoid)
        # After a failure, the route and the address of the broker are looked up again.
        await self.queues(topic)
        return queue

    async def _pick(
        self, topic: str, select: Selector | None, avoid: MessageQueue | None
    ) -> MessageQueue:
        queues = await self.queues(topic)
        if not queues:
            self._routes.forget(topic)
            raise UnreachableError(f"topic {topic} has no queue that can be written to")
        if select is not None:
            return select(queues)
        others = [each for each in queues if avoid is None or each.broker_name != avoid.broker_name]
        queues = others or queues
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._random.randrange(len(queues))
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]

    def _address(self, queue: MessageQueue) -> str:
        return self._remoting.broker(self._routes.master(queue.broker_name))

    # ---- sending with retries

    async def deliver(
        self,
        outgoing: Outgoing,
        *,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Sent:
        """Send with retries. `timeout_s` bounds all attempts together."""
        await self.start()
        settings = self._remoting.settings
        loop = asyncio.get_running_loop()
        end = loop.time() + (timeout_s or settings.operation_timeout_s)
        failed: MessageQueue | None = None
        attempts = 0
        while True:
            try:
                async with asyncio.timeout_at(end if timeout_s else None):
                    chosen = await self._chosen(outgoing.topic, queue, select, avoid=failed)
            except TimeoutError:
                addresses = ", ".join(self._routes.name_servers.addresses)
                text = f"no route of topic {outgoing.topic} in time from name servers {addresses}"
                raise RequestTimeoutError(text) from None
            try:
                return await self._try(outgoing, chosen, end - loop.time())
            except ClientError as error:
                attempts += 1
                pause = settings.backoff_s(attempts)
                may_repeat = (
                    error.number in RETRIED_CODES
                    if isinstance(error, RocketmqError)
                    else error.retriable
                )
                if not may_repeat or attempts > self._retries or loop.time() + pause >= end:
                    raise
                failed = chosen
                self._routes.forget(outgoing.topic)
            await asyncio.sleep(pause)

    async def _try(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float) -> Sent:
        address = self._address(queue)
        response = await self._remoting.request(
            address,
            _code(outgoing),
            self._fields(outgoing, queue),
            outgoing.body,
            timeout_s=max(0.001, min(timeout_s, self._remoting.settings.request_timeout_s)),
        )
        try:
            status = SendStatus(response.code)
        except ValueError:
            raise refusal(response, address) from None
        # The message may have created the topic, which then has a route of its own.
        self._routes.created(outgoing.topic)
        return _sent(status, response, outgoing, queue)


def _code(outgoing: Outgoing) -> Request:
    if outgoing.is_reply:
        return Request.SEND_REPLY_MESSAGE_V2
    return Request.SEND_BATCH_MESSAGE if outgoing.is_batch else Request.SEND_MESSAGE_V2


def _by_sharding_key(message: Message) -> Selector | None:
    if not message.sharding_key:
        return None
    return lambda queues: queues[tag_hash(message.sharding_key) % len(queues)]


def _sent(status: SendStatus, response: Command, outgoing: Outgoing, queue: MessageQueue) -> Sent:
    fields = response.fields
    try:
        stored = MessageQueue(
            topic=outgoing.topic,
            broker_name=queue.broker_name,
            queue_id=int(fields.get("queueId", queue.queue_id)),
        )
        queue_offset = int(fields.get("queueOffset", -1))
    except ValueError:
        raise RocketmqError(response.code, f"a send was answered with {fields}") from None
    return Sent(
        status=status,
        unique_id=outgoing.unique_id,
        message_id=fields.get("msgId", ""),
        queue=stored,
        queue_offset=queue_offset,
        transaction_id=fields.get("transactionId", ""),
    )


log = logging.getLogger("dragoman.client.rocketmq")
Given = TypeVar("Given")


class TransactionState(IntEnum):
    UNKNOWN = 0
    COMMIT = SysFlag.TRANSACTION_COMMIT
    ROLLBACK = SysFlag.TRANSACTION_ROLLBACK


Decision: TypeAlias = TransactionState | Awaitable[TransactionState]
LocalTransaction: TypeAlias = Callable[[Message], Decision]
Check: TypeAlias = Callable[[ReceivedMessage], Decision]


class TransactionProducer(Producer):
    def __init__(
        self, ports: ProducerPorts, group: str, check: Check, **options: Unpack[ProducerOptions]
    ) -> None:
        super().__init__(ports, group, **options)
        self._check = check

    async def send_in_transaction(
        self, message: Message, local: LocalTransaction, *, queue: MessageQueue | None = None
    ) -> tuple[Sent, TransactionState]:
        """Store a half message, run the local transaction, and send its state to the broker.

        Returns where the half message was stored, and the state.
        """
        if message.delay_level or message.deliver_at_ms is not None:
            raise EncodeError("a message in a transaction cannot be delayed")
        outgoing = self._outgoing(message, SysFlag.TRANSACTION_PREPARED)
        outgoing.properties |= {
            Property.TRANSACTION_PREPARED: "true",
            Property.PRODUCER_GROUP: self.group,
        }
        sent = await self.deliver(outgoing, queue=queue)
        state = TransactionState.ROLLBACK
        if sent.status is SendStatus.OK:
            state = await _decided(local, message)
        try:
            await self._end(sent, state)
        except (ClientError, DecodeError) as error:
            # The broker will check the transaction.
            log.warning("transaction of %s was not ended: %s", sent.unique_id, error)
        return sent, state

    async def _end(self, sent: Sent, state: TransactionState) -> None:
        _, physical_offset = read_message_id(sent.message_id)
        fields: Fields = {
            "topic": sent.queue.topic,
            "producerGroup": self.group,
            "tranStateTableOffset": sent.queue_offset,
            "commitLogOffset": physical_offset,
            "commitOrRollback": int(state),
            "fromTransactionCheck": False,
            "msgId": sent.unique_id,
            "transactionId": sent.transaction_id or sent.unique_id,
            "bname": sent.queue.broker_name,
        }
        address = self._address(sent.queue)
        await self._remoting.send_one_way(address, Request.END_TRANSACTION, fields)

    async def check_transaction(self, address: str, request: Command) -> None:
        messages = received(request.body)
        if not messages or messages[0].properties.get(Property.PRODUCER_GROUP) != self.group:
            return
        state = await _decided(self._check, messages[0])
        given = request.fields
        fields: Fields = {
            "topic": given.get("topic", messages[0].topic),
            "producerGroup": self.group,
            "tranStateTableOffset": given.get("tranStateTableOffset"),
            "commitLogOffset": given.get("commitLogOffset"),
            "commitOrRollback": int(state),
            "fromTransactionCheck": True,
            "msgId": given.get("msgId") or messages[0].unique_id,
            "transactionId": given.get("transactionId") or messages[0].unique_id,
            "bname": given.get("bname"),
        }
        await self._remoting.send_one_way(address, Request.END_TRANSACTION, fields)


async def _decided(decide: Callable[[Given], Decision], message: Given) -> TransactionState:
    try:
        decision = decide(message)
        return await decision if inspect.isawaitable(decision) else decision
    except Exception:
        log.exception("a local transaction has failed: its message waits for a check")
        return TransactionState.UNKNOWN
