"""`RocketmqClient`: the connections, routes and groups that the parts of one program share.

It also works with the original name servers and brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, Self, Unpack

from dragoman.protocols.rocketmq.client.admin import RocketmqAdmin
from dragoman.protocols.rocketmq.client.consumption import Listener
from dragoman.protocols.rocketmq.client.identity import Identity
from dragoman.protocols.rocketmq.client.membership import Membership
from dragoman.protocols.rocketmq.client.producer import (
    Producer,
    ProducerOptions,
    ProducerPorts,
    Replies,
)
from dragoman.protocols.rocketmq.client.pull import Filter
from dragoman.protocols.rocketmq.client.pull_consumer import PullConsumer
from dragoman.protocols.rocketmq.client.push_consumer import ConsumerOptions, PushConsumer
from dragoman.protocols.rocketmq.client.remoting import Remoting
from dragoman.protocols.rocketmq.client.routes import NameServers, Routes
from dragoman.protocols.rocketmq.client.settings import ClientSettings, parse_addresses
from dragoman.protocols.rocketmq.client.transactions import Check, TransactionProducer
from dragoman.world import Clock, Random, SystemClock, system_random

#: The group in which the original's clients send their own messages.
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
        random = random or system_random()
        identity = Identity(self.clock, random, self.settings.instance)
        self.remoting = Remoting(self.settings, identity)
        self.routes = Routes(NameServers(parse_addresses(name_servers), self.remoting))
        self._membership = Membership(self.remoting, self.routes)
        self._producer_ports = ProducerPorts(
            remoting=self.remoting,
            routes=self.routes,
            membership=self._membership,
            replies=Replies(self.remoting, random),
            clock=self.clock,
            random=random,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close producers and consumers, then connections."""
        await self._membership.close()
        await self.remoting.close()

    @property
    def client_id(self) -> str:
        return self.remoting.identity.client_id

    def producer(self, group: str, **options: Unpack[ProducerOptions]) -> Producer:
        return Producer(self._producer_ports, group, **options)

    def transaction_producer(
        self, group: str, check: Check, **options: Unpack[ProducerOptions]
    ) -> TransactionProducer:
        """`check` returns the state of a transaction when a broker asks for it."""
        return TransactionProducer(self._producer_ports, group, check, **options)

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
        return PushConsumer(
            group,
            subscriptions,
            listener,
            remoting=self.remoting,
            routes=self.routes,
            membership=self._membership,
            queue_offsets=self.admin,
            deliver=self.own_producer.deliver,
            clock=self.clock,
            **options,
        )

    def pull_consumer(self, group: str) -> PullConsumer:
        """A consumer that reads the queues that its user names, from the offsets that it names."""
        return PullConsumer(
            group, self.remoting, self.routes, self._membership, self.admin, self.clock
        )

    @property
    def admin(self) -> RocketmqAdmin:
        return RocketmqAdmin(self)

    @cached_property
    def own_producer(self) -> Producer:
        """The producer of the messages that the client itself sends."""
        return Producer(self._producer_ports, OWN_PRODUCER)
