"""Messages to brokers: at least once, in the order of the calls for each queue that is named.

A message goes to a queue in turn, to that of its sharding key, or to the one that the caller names.
When a broker cannot take it, another one is tried: the same message may then be there twice, under
the same unique id. One-way messages are sent once and never heard of again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Self, TypeAlias, TypedDict, Unpack

from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    RequestTimeoutError,
    UnreachableError,
)
from dragoman.errors import EncodeError
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client.compression import deflate
from dragoman.protocols.rocketmq.client.errors import RocketmqError, refusal
from dragoman.protocols.rocketmq.client.replies import TIME_TO_LIVE, reply_properties
from dragoman.protocols.rocketmq.client.values import Message, ReceivedMessage, SendStatus, Sent
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
    encode_batch,
    encode_properties,
    tag_hash,
)

if TYPE_CHECKING:
    from dragoman.protocols.rocketmq.client.facade import RocketmqClient

#: Another broker may take what one refuses with these (spec, section 3.3).
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
#: As the original's clients.
COMPRESS_OVER_BYTES: Final = 4096
#: Picks one of the queues of a topic.
Selector: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]


class ProducerOptions(TypedDict, total=False):
    #: How often a message is sent again, 2 when not said.
    retries: int
    #: Bodies above this size are compressed, 4096 when not said; None: never.
    compress_over_bytes: int | None
    #: Queues of a topic that the first message creates, 4 when not said.
    queue_count: int


class Outgoing:
    """A message, or a batch, on its way: what does not change from one try to the next."""

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
            raise EncodeError(f"a body of {len(body)} bytes; brokers take {BODY_BYTES_MAX}")
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

    def fields(
        self, group: str, queue: MessageQueue, born_ms: int, queue_count: int
    ) -> dict[str, str | int | bool | None]:
        """Under the short names of request 310."""
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


class Producer:
    def __init__(
        self, client: RocketmqClient, group: str, **options: Unpack[ProducerOptions]
    ) -> None:
        self.group = group
        self._client = client
        self._retries = options.get("retries", 2)
        self._compress_over = options.get("compress_over_bytes", COMPRESS_OVER_BYTES)
        self._queue_count = options.get("queue_count", 4)
        #: Whose turn it is, by topic.
        self._turns: dict[str, int] = {}
        self._is_started = False
        self._is_closed = False

    # ---- life

    async def start(self) -> None:
        """Not needed before sending: the first message does it."""
        if self._is_closed:
            raise ClientClosedError("the producer is closed")
        if not self._is_started:
            self._client.membership.add_producer(self)
            self._client.started(self.close)
            self._is_started = True

    async def close(self) -> None:
        self._is_closed = True
        if self._is_started:
            self._is_started = False
            self._client.ended(self.close)
            await self._client.membership.remove_producer(self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def check_transaction(self, address: str, request: Command) -> None:
        """Only those that are transactional have something to say."""

    # ---- sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Sent:
        """Where it was stored, once the broker has it. Raises `ClientError` and `EncodeError`."""
        outgoing = self._outgoing(message)
        select = select or _by_sharding_key(message)
        return await self.deliver(outgoing, queue=queue, select=select, timeout_s=timeout_s)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> Sent:
        """Messages of one topic, stored one behind another, all or none."""
        return await self.deliver(self._batch(messages), queue=queue)

    async def send_one_way(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
    ) -> None:
        """Returns when the message is on its way; nobody tells whether it arrives."""
        await self.start()
        outgoing = self._outgoing(message)
        select = select or _by_sharding_key(message)
        queue = await self._chosen(outgoing.topic, queue, select, avoid=None)
        await self._client.remoting.tell(
            self._address(queue), _code(outgoing), self._fields(outgoing, queue), outgoing.body
        )

    # ---- asking others, and answering them

    async def request(self, message: Message, timeout_s: float = 5.0) -> ReceivedMessage:
        """Send a message and wait for what a consumer replies to it.

        Raises `RequestTimeoutError` when nobody does in time.
        """
        outgoing = self._outgoing(message)
        with self._client.replies.awaited() as (number, reply):
            select = _by_sharding_key(message)
            try:
                async with asyncio.timeout(timeout_s):
                    await self.start()
                    # What brokers know this client as is certain once there was a connection.
                    await self.queues(outgoing.topic)
                    outgoing.properties |= {
                        Property.CORRELATION_ID: number,
                        Property.REPLY_TO_CLIENT: self._client.client_id,
                        TIME_TO_LIVE: str(int(timeout_s * 1000)),
                    }
                    await self.deliver(outgoing, select=select, timeout_s=timeout_s)
                    return await reply
            except TimeoutError:
                text = f"nobody replied to {outgoing.unique_id} within {timeout_s:g} s"
                raise RequestTimeoutError(text) from None

    async def reply(self, message: ReceivedMessage, body: bytes) -> Sent:
        """Answer whoever sent this message and waits. Raises `EncodeError` when nobody does."""
        properties = self._named(Message(topic="")) | reply_properties(message)
        cluster = message.properties.get(Property.CLUSTER)
        if not cluster:
            brokers = (await self._client.routes.route(message.topic)).data.broker_datas
            cluster = next((each.cluster for each in brokers), "")
        outgoing = Outgoing(f"{cluster}_REPLY_TOPIC", body, properties, is_reply=True)
        return await self.deliver(outgoing)

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Where messages of a topic can go."""
        route = await self._client.routes.to_send(topic, self._queue_count)
        await self._client.membership.greet()
        return route.write_queues

    # ---- what is sent

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
        properties.setdefault(Property.UNIQUE_KEY, self._client.identity.unique_id())
        return properties

    def _batch(self, messages: Sequence[Message]) -> Outgoing:
        topics = {each.topic for each in messages}
        if len(topics) != 1:
            raise EncodeError(f"a batch is of one topic, this one of {len(topics)}")
        if any(each.delay_level or each.deliver_at_ms is not None for each in messages):
            raise EncodeError("messages of a batch cannot be delayed")
        named = [(each, self._named(each)) for each in messages]
        body = encode_batch(
            BatchedMessage(each.flag, each.body, encode_properties(properties))
            for each, properties in named
        )
        ids = ",".join(properties[Property.UNIQUE_KEY] for _, properties in named)
        own = {Property.WAIT: "true", Property.UNIQUE_KEY: self._client.identity.unique_id()}
        return Outgoing(topics.pop(), body, own, unique_id=ids, is_batch=True)

    def _fields(
        self, outgoing: Outgoing, queue: MessageQueue
    ) -> dict[str, str | int | bool | None]:
        now_ms = self._client.clock.wall_ms()
        return outgoing.fields(self.group, queue, now_ms, self._queue_count)

    # ---- where it goes

    async def _chosen(
        self,
        topic: str,
        queue: MessageQueue | None,
        select: Selector | None,
        avoid: MessageQueue | None,
    ) -> MessageQueue:
        if queue is None:
            return await self._pick(topic, select, avoid)
        # Where its broker is may have to be asked for, for the first time or again.
        await self.queues(topic)
        return queue

    async def _pick(
        self, topic: str, select: Selector | None, avoid: MessageQueue | None
    ) -> MessageQueue:
        queues = await self.queues(topic)
        if not queues:
            self._client.routes.forget(topic)
            raise UnreachableError(f"topic {topic} has no queue that can be written to")
        if select is not None:
            return select(queues)
        others = [each for each in queues if avoid is None or each.broker_name != avoid.broker_name]
        queues = others or queues
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._client.random.randrange(len(queues))
        self._turns[topic] = turn + 1
        return queues[turn % len(queues)]

    def _address(self, queue: MessageQueue) -> str:
        return self._client.remoting.broker(self._client.routes.master(queue.broker_name))

    # ---- trying

    async def deliver(
        self,
        outgoing: Outgoing,
        *,
        queue: MessageQueue | None = None,
        select: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Sent:
        """With all retries; `timeout_s` bounds them together."""
        await self.start()
        settings = self._client.settings
        loop = asyncio.get_running_loop()
        end = loop.time() + (timeout_s or settings.operation_timeout_s)
        failed: MessageQueue | None = None
        tries = 0
        while True:
            try:
                async with asyncio.timeout_at(end if timeout_s else None):
                    chosen = await self._chosen(outgoing.topic, queue, select, avoid=failed)
            except TimeoutError:
                asked = ", ".join(self._client.name_servers.addresses)
                text = f"where topic {outgoing.topic} is was not found out in time; asked: {asked}"
                raise RequestTimeoutError(text) from None
            try:
                return await self._try(outgoing, chosen, end - loop.time())
            except ClientError as error:
                tries += 1
                pause = settings.backoff_s(tries)
                may_repeat = (
                    error.number in RETRIED_CODES
                    if isinstance(error, RocketmqError)
                    else error.retriable
                )
                if not may_repeat or tries > self._retries or loop.time() + pause >= end:
                    raise
                failed = chosen
                self._client.routes.forget(outgoing.topic)
            await asyncio.sleep(pause)

    async def _try(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float) -> Sent:
        address = self._address(queue)
        response = await self._client.remoting.ask(
            address,
            _code(outgoing),
            self._fields(outgoing, queue),
            outgoing.body,
            timeout_s=max(0.001, min(timeout_s, self._client.settings.request_timeout_s)),
        )
        try:
            status = SendStatus(response.code)
        except ValueError:
            raise refusal(response, address) from None
        # A topic that this message has created has a route of its own from now on.
        self._client.routes.created(outgoing.topic)
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
