"""`RocketmqClient`: what producers, consumers and administration of one program share.

That is connections, routes, an identity, and a task which tells brokers of its groups and asks for
routes again. It also talks to the original name servers and brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Self, Unpack

from dragoman.client_core.errors import ClientClosedError
from dragoman.protocols.rocketmq.client.admin import RocketmqAdmin
from dragoman.protocols.rocketmq.client.filters import Filter
from dragoman.protocols.rocketmq.client.heartbeats import Membership
from dragoman.protocols.rocketmq.client.identity import Identity
from dragoman.protocols.rocketmq.client.listening import Listener
from dragoman.protocols.rocketmq.client.producer import Producer, ProducerOptions
from dragoman.protocols.rocketmq.client.pull_consumer import PullConsumer
from dragoman.protocols.rocketmq.client.push_consumer import ConsumerOptions, PushConsumer
from dragoman.protocols.rocketmq.client.remoting import Remoting
from dragoman.protocols.rocketmq.client.repeating import often
from dragoman.protocols.rocketmq.client.replies import Replies
from dragoman.protocols.rocketmq.client.routes import NameServers, Routes
from dragoman.protocols.rocketmq.client.settings import ClientSettings, parse_addresses
from dragoman.protocols.rocketmq.client.transactions import Check, TransactionProducer
from dragoman.world import Clock, Random, SystemClock, system_random

#: The group of the original's clients for what they send themselves.
OWN_PRODUCER: Final = "CLIENT_INNER_PRODUCER"


class RocketmqClient:
    def __init__(
        self,
        *name_servers: str,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Each address is `HOST:PORT`, or several with commas. Nothing is connected yet."""
        self.settings = settings or ClientSettings()
        self.clock = clock or SystemClock()
        self.random = random or system_random()
        self.identity = Identity(self.clock, self.random, self.settings.instance)
        self.remoting = Remoting(self.settings, self.identity)
        self.name_servers = NameServers(parse_addresses(name_servers), self.remoting, self.settings)
        self.routes = Routes(self.name_servers)
        self.membership = Membership(self.remoting, self.routes, self.identity)
        self.replies = Replies(self.remoting, self.random)
        self._parts: list[Callable[[], Awaitable[None]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._own_producer: Producer | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends its producers and consumers first."""
        self._is_closed = True
        for close in reversed(list(self._parts)):
            await close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.remoting.close()

    @property
    def client_id(self) -> str:
        return self.identity.client_id

    # ---- what it has

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        return Producer(self, group, **options)

    def transaction_producer(
        self, group: str, check: Check, **options: Unpack[ProducerOptions]
    ) -> TransactionProducer:
        """`check` says what became of a transaction when a broker asks."""
        return TransactionProducer(self, group, check, **options)

    def push_consumer(
        self,
        group: str,
        subscriptions: Mapping[str, str | Filter],
        listener: Listener,
        **options: Unpack[ConsumerOptions],
    ) -> PushConsumer:
        """A member of a group; `listener` is called with its messages once it is started.

        By topic: tags with `||` between them, `*`, or a `Filter`.
        """
        return PushConsumer(self, group, subscriptions, listener, **options)

    def pull_consumer(self, group: str) -> PullConsumer:
        """Reads the queues that it is told to, from where it is told to."""
        return PullConsumer(self, group)

    @property
    def admin(self) -> RocketmqAdmin:
        return RocketmqAdmin(self)

    # ---- for producers and consumers

    def started(self, close: Callable[[], Awaitable[None]]) -> None:
        """A part of the client lives from now on, and is closed with it."""
        if self._is_closed:
            raise ClientClosedError("the client is closed")
        self._parts.append(close)
        if not self._tasks:
            settings = self.settings
            self._tasks = [
                asyncio.create_task(often(settings.heartbeat_s, self.membership.beat)),
                asyncio.create_task(often(settings.route_refresh_s, self.routes.refresh)),
            ]

    def own_producer(self) -> Producer:
        """For what the client itself has to send."""
        if self._own_producer is None:
            self._own_producer = Producer(self, OWN_PRODUCER)
        return self._own_producer

    def ended(self, close: Callable[[], Awaitable[None]]) -> None:
        if close in self._parts:
            self._parts.remove(close)
