"""A minibroker client with one long-lived connection for all requests and subscriptions.

    open ── lost ──► dialling: every address, a pause, again ── made ──► subscribed again ──► open

Requests wait for the connection and are retried over the next one when it breaks (`retry_for_s`,
`repeats_publish`). After "not leader" the next address is tried (spec, sections 9 and 10).

Back-pressure. If the user of a subscription does not take its records, the connection is not read,
unless a reply is due: a handler that commits must get its reply. In that case records keep
accumulating, up to `MINIBROKER_CLIENT_RECORDS_MAX`.

`MinibrokerClient` is for asyncio, `BlockingMinibrokerClient` for code without an event loop.

Errors of the server's replies (`client_core.errors` has those of connections):

    ClientError
      RefusedError              ERR: `reason` is the server's text
        NotLeaderError          every node says that another one leads     retriable
      AlreadySubscribedError    a connection has one subscription to a topic
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Self, TypeVar

from dragoman.client_core.addresses import Address, Rotation, parse_addresses
from dragoman.client_core.blocking_client import BlockingClient, BlockingPart, opening, waiting
from dragoman.client_core.channel import OrderedChannel
from dragoman.client_core.connection import ConnectionSettings, dial
from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    UnreachableError,
)
from dragoman.client_core.retry import Retry, RetryPolicy
from dragoman.errors import DecodeError
from dragoman.framing import FrameReader, Scratch
from dragoman.limits import CONNECTION_CLOSE_GRACE_S, MINIBROKER_CLIENT_RECORDS_MAX
from dragoman.protocols.minibroker import codec
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.client.subscription import (
    GroupSubscription,
    OnRebalance,
    PartitionSubscription,
    Subscription,
)
from dragoman.protocols.minibroker.constants import FRAME_BYTES_MAX
from dragoman.protocols.minibroker.errors import NOT_LEADER
from dragoman.protocols.minibroker.messages import Delivered, Published

DEFAULT_PORT = 4222


class ClientSettings(ConnectionSettings, frozen=True, kw_only=True):
    """Settings of a minibroker client. Times are in seconds. The pauses are the original
    client's.
    """

    #: How long a request is retried over new connections before its error is raised.
    retry_for_s: float = 60.0
    #: Whether a PUB is retried if the connection breaks before the reply. If so, the record may be
    #: stored twice; if not, it may be stored although `ConnectionLostError` was raised.
    repeats_publish: bool = True
    #: Pause between rounds over all addresses.
    reconnect_pause_s: float = 0.5
    #: Pause after "not leader", and after a failed attempt.
    redirect_pause_s: float = 0.25
    retry_pause_s: float = 0.15
    #: Interval between heartbeats of group members. The server evicts after 15 s.
    heartbeat_interval_s: float = 5.0
    in_flight_max: int = 256
    #: Maximum number of records queued for one subscription; beyond it the connection is not read.
    queue_records_max: int = 1000

    @property
    def retry_policy(self) -> RetryPolicy:
        """The pauses have equal lengths, as in the original client."""
        return RetryPolicy(self.retry_for_s, self.retry_pause_s, self.retry_pause_s)


class MinibrokerClient:
    """Open with `open` or `async with`. `addresses` is `HOST:PORT`, or several with commas."""

    def __init__(self, addresses: str, settings: ClientSettings | None = None) -> None:
        self.settings = settings if settings is not None else ClientSettings()
        self._addresses = Rotation(parse_addresses((addresses,), default_port=DEFAULT_PORT))
        self._retry = Retry(self.settings.retry_policy)
        self._scratch = Scratch()
        self._channel: OrderedChannel | None = None
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._why_not: ClientError = UnreachableError("the client was not opened")
        self._is_closed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._subscriptions: dict[str, Subscription] = {}
        self._replies_due = 0
        self._is_paused = False

    # ---- lifecycle

    async def open(self) -> Self:
        """Connect. Raises `UnreachableError` when no address answers."""
        channel = await self._dial()
        self._use(channel)
        self._tasks = [
            asyncio.create_task(self._keep_connected(), name="minibroker-connection"),
            asyncio.create_task(self._keep_alive(), name="minibroker-heartbeats"),
        ]
        return self

    async def close(self) -> None:
        """Wait for the replies that are due, end the subscriptions and close the connection."""
        if self._is_closed:
            return
        self._is_closed = True
        self._why_not = ClientClosedError("the client is closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for subscription in self._subscriptions.values():
            subscription.end()
        self._subscriptions.clear()
        channel, self._channel = self._channel, None
        if channel is not None:
            self._regulate(channel)
            # After a lost connection or a timeout there is nothing left to wait for.
            with suppress(ClientError):
                await channel.request(codec.encode(m.Quit()), CONNECTION_CLOSE_GRACE_S)
            channel.close(ClientClosedError("the client is closed"))
        self._ready.set()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- calls

    async def publish(self, topic: str, payload: bytes, key: bytes = b"") -> m.Published:
        """Publish a record. Returns its partition and offset, once it is durable. Concurrent calls
        are pipelined.

        Raises `RefusedError`, `UnreachableError`, and `EncodeError` for values that the wire cannot
        express.
        """
        reply = await self._call(m.Publish(topic=topic, payload=payload, key=key))
        assert isinstance(reply, m.Published)
        return reply

    async def subscribe(
        self, topic: str, partition: int = 0, offset: int | None = None
    ) -> Subscription:
        """The records of one partition from `offset` on or, without one, from the next record on.

        Raises `AlreadySubscribedError`, and the errors of `publish`.
        """
        return await self._subscribe(PartitionSubscription(self, topic, partition, offset))

    async def join(
        self, topic: str, group: str, on_rebalance: OnRebalance | None = None
    ) -> GroupSubscription:
        """The records of the partitions that the group assigns to this member, from the committed
        offsets on.

        `on_rebalance` is called on the client's event loop, for the first assignment as well.
        """
        subscription = GroupSubscription(self, topic, group, on_rebalance)
        await self._subscribe(subscription)
        return subscription

    async def commit(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Commit the next offset for the group to read. Returns when the commit is durable."""
        await self._call(m.Commit(topic=topic, group=group, partition=partition, offset=offset))

    # ---- called by subscriptions

    async def unsubscribe(self, subscription: Subscription) -> None:
        if self._subscriptions.get(subscription.topic) is not subscription:
            subscription.end()
            return
        del self._subscriptions[subscription.topic]
        subscription.end()
        channel = self._channel
        if channel is not None:
            self._regulate(channel)
            try:
                await self._exchange(channel, m.Unsubscribe(topic=subscription.topic))
            except ClientError:
                # The subscription ended with the connection.
                return

    def queue_changed(self, subscription: Subscription) -> None:
        """Called when a subscription has queued a record, or its user has taken one."""
        bound = self.settings.queue_records_max
        is_full = subscription.waiting_records >= bound
        if self._channel is not None and (is_full != self._is_paused or self._replies_due):
            self._regulate(self._channel)

    # ---- requests

    async def _call(self, request: m.Request) -> m.Reply:
        """Send a request, retry it over new connections, and return its reply."""
        deadline = asyncio.get_running_loop().time() + self.settings.retry_for_s
        is_repeatable = self.settings.repeats_publish or not isinstance(request, m.Publish)
        redirects = 0

        async def attempt() -> m.Reply:
            nonlocal redirects
            while True:
                channel = await self._connected(deadline)
                try:
                    return await self._exchange(channel, request)
                except NotLeaderError:
                    redirects += 1
                    if redirects > len(self._addresses):
                        raise
                    self._move_on(channel)
                    await asyncio.sleep(self.settings.redirect_pause_s)

        def may_retry(error: ClientError) -> bool:
            if self._is_closed or not self._tasks or isinstance(error, NotLeaderError):
                return False
            return error.retriable and (is_repeatable or not error.is_ambiguous)

        return await self._retry.call(attempt, may_retry=may_retry)

    async def _connected(self, deadline: float) -> OrderedChannel:
        while self._channel is None or not self._channel.is_open:
            if self._is_closed or not self._tasks:
                raise type(self._why_not)(str(self._why_not))
            self._ready.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._ready.wait()
            except TimeoutError:
                raise UnreachableError(str(self._why_not)) from None
        return self._channel

    async def _exchange(self, channel: OrderedChannel, request: m.Request) -> m.Reply:
        frame = codec.encode(request)
        self._replies_due += 1
        self._regulate(channel)
        try:
            answer = await channel.request(frame, self.settings.request_timeout_s)
        finally:
            self._replies_due -= 1
            self._regulate(channel)
        try:
            reply = codec.decode_reply(answer, request)
        except DecodeError as error:
            lost = ConnectionLostError(f"{channel.address} is not a minibroker server: {error}")
            channel.close(lost)
            raise lost from None
        if isinstance(reply, m.Failed):
            raise refused(reply.reason)
        return reply

    def _regulate(self, channel: OrderedChannel) -> None:
        """Pause or resume reading, depending on the queued records and the replies that are due."""
        bound = self.settings.queue_records_max
        if self._replies_due:
            bound = max(bound, MINIBROKER_CLIENT_RECORDS_MAX)
        is_full = any(each.waiting_records >= bound for each in self._subscriptions.values())
        if is_full != self._is_paused:
            self._is_paused = is_full
            if is_full:
                channel.pause()
            else:
                channel.resume()

    # ---- subscriptions

    async def _subscribe(self, subscription: Subscription) -> Subscription:
        topic = subscription.topic
        if topic in self._subscriptions:
            raise AlreadySubscribedError(f"already subscribed to {topic}")
        # Registered before the request is sent, because records may arrive before the reply.
        self._subscriptions[topic] = subscription
        try:
            _assign(subscription, await self._call(subscription.request()))
        except BaseException:
            self._subscriptions.pop(topic, None)
            raise
        subscription.is_established = True
        return subscription

    async def _subscribe_again(self, channel: OrderedChannel) -> None:
        """Repeat the subscriptions on a new connection. A refused one ends with the error."""
        for topic, subscription in list(self._subscriptions.items()):
            if not subscription.is_established:
                # `_subscribe` still retries the first request of this subscription.
                continue
            try:
                _assign(subscription, await self._exchange(channel, subscription.request()))
            except NotLeaderError:
                self._move_on(channel)
                raise
            except RefusedError as error:
                self._subscriptions.pop(topic, None)
                subscription.end(error)

    def _pushed(self, frame: bytearray) -> None:
        match codec.decode_push(frame):
            case m.Delivered() as record:
                subscription = self._subscriptions.get(record.topic)
                if subscription is not None:
                    subscription.accept(record)
            case m.Rebalanced(topic=topic, group=group, partitions=partitions):
                subscription = self._subscriptions.get(topic)
                if isinstance(subscription, GroupSubscription) and subscription.group == group:
                    subscription.assign(partitions)
            case m.Failed(reason=reason):
                self._refused(reason)

    def _refused(self, reason: str) -> None:
        """Handle an ERR that answers no request. `iterate TOPIC/PARTITION: CAUSE` ends the
        subscription whose reader failed. After an eviction the server closes the connection, and
        the client reconnects and subscribes again.
        """
        topic = reason.removeprefix("iterate ").partition(": ")[0].rpartition("/")[0]
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            subscription.end(refused(reason))

    # ---- the connection

    async def _dial(self) -> OrderedChannel:
        """Connect to the first address that accepts, in the order of the rotation."""
        failures = []
        for _ in range(len(self._addresses)):
            try:
                return await self._connect(self._addresses.first)
            except UnreachableError as error:
                failures.append(str(error))
                self._addresses.move_on()
        raise UnreachableError("; ".join(failures))

    async def _connect(self, address: Address) -> OrderedChannel:
        def make(loop: asyncio.AbstractEventLoop) -> OrderedChannel:
            channel = OrderedChannel(
                address,
                FrameReader(FRAME_BYTES_MAX, self._scratch),
                protocol="minibroker",
                loop=loop,
                in_flight_max=self.settings.in_flight_max,
                is_push=codec.is_push,
                on_push=self._pushed,
                on_lost=lambda error: self._on_lost(channel, error),
            )
            return channel

        return await dial(address, make, self.settings.connect_timeout_s, tls=self.settings.tls)

    def _use(self, channel: OrderedChannel) -> None:
        self._channel = channel
        self._ready.set()

    def _on_lost(self, channel: OrderedChannel, error: ClientError) -> None:
        if channel is self._channel:
            self._channel = None
            self._is_paused = False
        if not self._is_closed:
            self._why_not = error
        self._lost.set()

    def _move_on(self, channel: OrderedChannel) -> None:
        """Switch to the next address, unless another request has already done so."""
        if channel.is_open:
            self._addresses.move_on()
            channel.close(ConnectionLostError(f"{channel.address} does not lead"))

    async def _keep_connected(self) -> None:
        while True:
            await self._lost.wait()
            self._lost.clear()
            if self._channel is not None and self._channel.is_open:
                # The lost channel was an attempt that has been replaced.
                continue
            try:
                channel = await self._dial()
            except UnreachableError as error:
                self._why_not = error
                self._lost.set()
                await asyncio.sleep(self.settings.reconnect_pause_s)
                continue
            self._channel = channel
            try:
                await self._subscribe_again(channel)
            except ClientError:
                channel.close()
                self._lost.set()
                await asyncio.sleep(self.settings.reconnect_pause_s)
                continue
            if channel.is_open:
                self._use(channel)

    async def _keep_alive(self) -> None:
        """Send a heartbeat for every group. If one is refused, close the connection and rejoin."""
        while True:
            await asyncio.sleep(self.settings.heartbeat_interval_s)
            for subscription in list(self._subscriptions.values()):
                channel = self._channel
                if channel is None or not isinstance(subscription, GroupSubscription):
                    continue
                heartbeat = m.Heartbeat(topic=subscription.topic, group=subscription.group)
                try:
                    await self._exchange(channel, heartbeat)
                except RefusedError:
                    channel.close()
                except ClientError:
                    # The client is reconnecting, and will join the group again.
                    continue


def _assign(subscription: Subscription, reply: m.Reply) -> None:
    assert isinstance(reply, m.Subscribed | m.Joined)
    subscription.assign(reply.partitions)


AnySubscription = TypeVar("AnySubscription", bound=Subscription)


class BlockingSubscription(BlockingPart[AnySubscription]):
    """A blocking `Subscription`."""

    @property
    def partitions(self) -> tuple[int, ...]:
        return self._part.partitions

    def next(self, timeout_s: float | None = None) -> Delivered | None:
        """The next record; None on a timeout, or when the subscription is closed."""
        return self._thread.run(lambda: self._next(timeout_s))

    async def _next(self, timeout_s: float | None) -> Delivered | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self._part, None)
        except TimeoutError:
            return None

    def __iter__(self) -> Iterator[Delivered]:
        while (record := self.next()) is not None:
            yield record


class BlockingGroupSubscription(BlockingSubscription[GroupSubscription]):
    """A blocking `GroupSubscription`."""

    commit = waiting(GroupSubscription.commit)


class BlockingMinibrokerClient(BlockingClient[MinibrokerClient]):
    """`MinibrokerClient` with blocking methods."""

    def __init__(self, addresses: str, settings: ClientSettings | None = None) -> None:
        super().__init__(
            "dragoman-minibroker-client", lambda: MinibrokerClient(addresses, settings)
        )

    def open(self) -> Self:
        self._thread.run(self._client.open)
        return self

    publish = waiting(MinibrokerClient.publish)
    commit = waiting(MinibrokerClient.commit)
    subscribe = opening(MinibrokerClient.subscribe, BlockingSubscription[Subscription])
    join = opening(MinibrokerClient.join, BlockingGroupSubscription)

    def publish_many(self, topic: str, payloads: list[bytes], key: bytes = b"") -> list[Published]:
        """Publish concurrently, in order. Making all records durable costs little more than one."""
        return self._thread.run(lambda: self._publish_many(topic, payloads, key))

    async def _publish_many(self, topic: str, payloads: list[bytes], key: bytes) -> list[Published]:
        publish = self._client.publish
        return await asyncio.gather(*(publish(topic, each, key) for each in payloads))


class RefusedError(ClientError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotLeaderError(RefusedError):
    retriable = True


class AlreadySubscribedError(ClientError): ...


def refused(reason: str) -> RefusedError:
    return NotLeaderError(reason) if NOT_LEADER in reason else RefusedError(reason)
