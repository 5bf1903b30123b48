"""Name servers, and routes: which brokers have the queues of a topic.

A request goes to the name server that answered last and, if that fails, to the others. Routes are
cached and refreshed. Broker addresses come from all routes.
"""

from __future__ import annotations

import logging
from typing import Final

from dragoman.client_core.errors import ClientError, UnreachableError
from dragoman.client_core.retry import Retry
from dragoman.errors import DragomanError
from dragoman.limits import ROCKETMQ_CLIENT_ROUTES_MAX
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageQueue, TopicRouteData
from dragoman.protocols.rocketmq.client.errors import RocketmqError, TopicNotFoundError
from dragoman.protocols.rocketmq.client.remoting import Fields, Remoting
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import TEMPLATE_TOPIC, Perm, Request
from dragoman.types import Buffer

log = logging.getLogger("dragoman.client.rocketmq")

MASTER_ID: Final = "0"


class NameServers:
    def __init__(self, addresses: tuple[str, ...], remoting: Remoting) -> None:
        self.addresses = addresses
        self._remoting = remoting
        self._retry = Retry(remoting.settings.retry_policy)
        self._preferred = 0

    async def call(self, code: int, fields: Fields | None = None, body: Buffer = b"") -> Command:
        """Send a request, and return the response of the first name server that answers. Raises
        `ClientError`.
        """
        return await self._retry.call(lambda: self._each(code, fields, body))

    async def _each(self, code: int, fields: Fields | None, body: Buffer) -> Command:
        failures: dict[str, None] = {}
        for _ in self.addresses:
            address = self.addresses[self._preferred]
            try:
                return await self._remoting.call(address, code, fields, body)
            except RocketmqError:
                raise
            except ClientError as error:
                if not error.retriable:
                    raise
                failures[str(error)] = None
                self._preferred = (self._preferred + 1) % len(self.addresses)
        raise UnreachableError("; ".join(failures))


class Route:
    """The brokers and queues of a topic. All members of a group sort queues in the same order."""

    def __init__(self, topic: str, data: TopicRouteData) -> None:
        self.topic = topic
        self.data = data
        self.brokers = {each.broker_name: each.broker_addrs for each in data.broker_datas}
        self.write_queues = self._write_queues()
        self.read_queues = self._queues(
            {
                each.broker_name: each.read_queue_nums
                for each in data.queue_datas
                if each.perm & Perm.READ
            }
        )

    def _queues(self, counts: dict[str, int]) -> tuple[MessageQueue, ...]:
        return tuple(
            sorted(
                MessageQueue(topic=self.topic, broker_name=name, queue_id=number)
                for name, count in counts.items()
                for number in range(count)
            )
        )

    def _write_queues(self) -> tuple[MessageQueue, ...]:
        ordered = self.data.order_topic_conf
        if isinstance(ordered, str) and ordered:
            pairs = (each.partition(":") for each in ordered.split(";"))
            return self._queues({name: int(count) for name, _, count in pairs if count.isdigit()})
        return self._queues(
            {
                each.broker_name: each.write_queue_nums
                for each in self.data.queue_datas
                if each.perm & Perm.WRITE and MASTER_ID in self.brokers.get(each.broker_name, {})
            }
        )


class Routes:
    """The routes of the topics that a client uses."""

    def __init__(self, name_servers: NameServers) -> None:
        self.name_servers = name_servers
        self._known: dict[str, Route] = {}
        #: Routes for topics that do not exist yet, for their first message.
        self._templates: dict[str, Route] = {}
        #: The addresses of brokers by broker name, then by broker id.
        self.brokers: dict[str, dict[str, str]] = {}
        #: Incremented when a broker is added or its address changes.
        self.generation = 0

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._known)

    async def route(self, topic: str) -> Route:
        """The cached route of a topic. Raises `ClientError`, for example `TopicNotFoundError`."""
        return self._known.get(topic) or await self.refreshed(topic)

    async def refreshed(self, topic: str) -> Route:
        """The current route of a topic, from a name server. Raises the same errors as `route`."""
        answer = await self.name_servers.call(
            Request.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": True}
        )
        return self._learn(topic, bodies.decode(answer.body, TopicRouteData), self._known)

    async def to_send(self, topic: str, queue_count: int) -> Route:
        """The route for sending to a topic. The first message creates a missing topic."""
        known = self._known.get(topic) or self._templates.get(topic)
        if known is not None:
            return known
        try:
            return await self.refreshed(topic)
        except TopicNotFoundError:
            pass
        answer = await self.name_servers.call(
            Request.GET_ROUTEINFO_BY_TOPIC,
            {"topic": TEMPLATE_TOPIC, "acceptStandardJsonOnly": True},
        )
        data = bodies.decode(answer.body, TopicRouteData)
        for each in data.queue_datas:
            each.read_queue_nums = min(queue_count, each.read_queue_nums)
            each.write_queue_nums = min(queue_count, each.write_queue_nums)
        return self._learn(topic, data, self._templates)

    def created(self, topic: str) -> None:
        """Drop the template of a topic after a message has created the topic."""
        self._templates.pop(topic, None)

    def _learn(self, topic: str, data: TopicRouteData, routes: dict[str, Route]) -> Route:
        route = Route(topic, data)
        if any(self.brokers.get(name) != each for name, each in route.brokers.items()):
            self.brokers |= route.brokers
            self.generation += 1
        routes.pop(topic, None)
        while len(routes) >= ROCKETMQ_CLIENT_ROUTES_MAX:
            del routes[next(iter(routes))]
        routes[topic] = route
        return route

    def forget(self, topic: str) -> None:
        """Drop the route from the cache."""
        self._known.pop(topic, None)
        self._templates.pop(topic, None)

    async def refresh(self) -> None:
        """Refresh all routes. A route that cannot be refreshed is kept."""
        for topic in self.topics:
            try:
                await self.refreshed(topic)
            except DragomanError as error:
                log.info("route of %s: %s", topic, error)
        # A broker without a route no longer exists.
        named: dict[str, dict[str, str]] = {}
        for route in (*self._templates.values(), *self._known.values()):
            named |= route.brokers
        if named != self.brokers:
            self.brokers = named
            self.generation += 1

    def master(self, broker_name: str) -> str:
        """The address of the master. Raises `UnreachableError` if there is none."""
        address = self.brokers.get(broker_name, {}).get(MASTER_ID)
        if address is None:
            raise UnreachableError(f"broker {broker_name} has no master")
        return address

    def any_of(self, broker_name: str, broker_id: int = 0) -> str:
        """The address of the broker with this id, or of the master, or of any slave.

        Raises `UnreachableError`.
        """
        addresses = self.brokers.get(broker_name, {})
        for each in (str(broker_id), MASTER_ID, *sorted(addresses)):
            if each in addresses:
                return addresses[each]
        raise UnreachableError(f"broker {broker_name} has no address")
