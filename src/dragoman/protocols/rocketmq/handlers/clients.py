"""The RocketMQ clients that are connected to this node: producers, and members of groups.

A client registers with a heartbeat, which it repeats every 30 seconds. It is dropped when it
unregisters, loses its connection, or sends no heartbeat for `ROCKETMQ_CLIENT_TIMEOUT_S`. This node
announces its members of a group to the group's coordinator, which answers with the members of all
nodes (`listed_group.py`). When the list has changed, this node notifies its members (request 40),
and they rebalance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    Overloaded,
)
from dragoman.errors import ClusterError, DragomanError
from dragoman.limits import (
    ROCKETMQ_CLIENT_CHECK_INTERVAL_S,
    ROCKETMQ_CLIENT_TIMEOUT_S,
    ROCKETMQ_LISTING_RETRY_S,
    ROCKETMQ_PRODUCERS_PER_USER_MAX,
)
from dragoman.log_limiter import LogLimiter
from dragoman.net.channel import Channel
from dragoman.outcome import Outcome, start
from dragoman.protocols.rocketmq.bodies import (
    ConsumerData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.rpc import Announce, Listed, Listing, ProducerClient
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.world import Handle

#: Errors after which an announcement is retried.
_TRANSIENT = (CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator, Overloaded, ClusterError)


class Connection(Protocol):
    """The client's session, as this module uses it."""

    channel: Channel
    #: The language in the client's last request.
    language: str
    version: int
    #: Callbacks for when the connection closes.
    on_gone: dict[object, Callable[[], None]]

    def send_one_way(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None: ...

    def request(self, code: int, fields: Mapping[str, str], body: bytes) -> Outcome[Command]: ...


class Node(Protocol):
    """The node, as this module uses it."""

    broker: Core
    log: LogLimiter
    clients: Clients

    def group_config(self, group: str) -> SubscriptionGroupConfig: ...

    async def announce(self, request: Announce) -> Listing: ...


class _Member:
    __slots__ = ("listed", "seen", "session")

    def __init__(self, session: Connection, listed: Listed, seen: float) -> None:
        self.session = session
        self.listed = listed
        self.seen = seen


class LocalGroup:
    """A group with members that are connected to this node."""

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self.name = name
        self.members: dict[str, _Member] = {}
        #: The members of all nodes, from the coordinator's last answer.
        self.listing = Listing(number=-1)
        #: The number of the last announcement; answers to earlier ones are ignored.
        self._announcement = 0
        self._timer: Handle | None = None
        #: Joins that wait for the coordinator's answer.
        self._joins: list[Outcome[None]] = []
        #: The members of this node that the coordinator has acknowledged.
        self._announced: tuple[Listed, ...] | None = None

    def join(self, session: Connection, listed: Listed) -> Outcome[None] | None:
        """Join the group. Settled when the client is on the coordinator's list; None if it already
        is.
        """
        now = self._node.broker.clock.monotonic()
        known = self.members.get(listed.client_id)
        if known is not None and known.session is not session:
            known.session.on_gone.pop((self.name, listed.client_id), None)
        self.members[listed.client_id] = _Member(session, listed, now)
        if known is not None and known.listed == listed and self._announced is not None:
            return None
        joined: Outcome[None] = Outcome()
        self._joins.append(joined)
        self._announce()
        return joined

    def leave(self, client_id: str, session: Connection | None = None) -> None:
        """Leave the group. With a session, only if the member's last heartbeat came over that
        session.
        """
        member = self.members.get(client_id)
        if member is None or (session is not None and member.session is not session):
            return
        del self.members[client_id]
        member.session.on_gone.pop((self.name, client_id), None)
        self._announce()

    def drop_silent(self, before: float) -> None:
        silent = [name for name, each in self.members.items() if each.seen < before]
        for client_id in silent:
            text = "group %s: client %s sends no heartbeats and is dropped"
            self._node.log.info(text, self.name, client_id)
            self.leave(client_id)

    def subscription(self, session: Connection, topic: str) -> SubscriptionData | None:
        """The subscription to a topic: that of this session's member or, without one, of any
        member.
        """
        own = [each.listed for each in self.members.values() if each.session is session]
        for listed in (*own, *self.listing.members):
            for each in listed.data.subscription_data_set:
                if each.topic == topic:
                    return each
        return None

    # ---- the coordinator

    def _announce(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._announcement += 1
        members = tuple(each.listed for each in self.members.values())
        broker = self._node.broker
        if broker.is_stopping:
            return
        request = Announce(
            group=self.name,
            node=broker.node_id,
            members=members,
            # Without a number the coordinator answers at once.
            number=self.listing.number if members == self._announced else -1,
        )
        answered = partial(self._answered, self._announcement, members)
        start(self._node.announce(request)).then(answered)

    def _answered(
        self, announcement: int, members: tuple[Listed, ...], outcome: Listing | DragomanError
    ) -> None:
        if announcement != self._announcement:
            return
        if not self.members:
            self._node.clients.forget(self)
        if isinstance(outcome, Listing):
            self._announced = members
            self._take(outcome)
        elif isinstance(outcome, _TRANSIENT):
            self._announced = None
            if self.members:
                self._timer = self._node.broker.scheduler.call_later(
                    ROCKETMQ_LISTING_RETRY_S, self._announce
                )
            return
        else:
            self._announced = None
            self._node.log.warning("group %s: %s", self.name, outcome)
            self.members.clear()
            self._node.clients.forget(self)
        joins, self._joins = self._joins, []
        for joined in joins:
            joined.settle(None if isinstance(outcome, Listing) else outcome)
        if self.members and isinstance(outcome, Listing):
            # The coordinator holds its answer until the list changes.
            self._node.broker.scheduler.call_soon(self._watch, self._announcement)

    def _watch(self, announcement: int) -> None:
        if announcement == self._announcement and self.members:
            self._announce()

    def _take(self, listing: Listing) -> None:
        if listing.number == self.listing.number:
            return
        before, self.listing = self.listing, listing
        if _identities(before) != _identities(listing):
            self._notify()

    def _notify(self) -> None:
        if not self._node.group_config(self.name).notify_consumer_ids_changed_enable:
            return
        for session in dict.fromkeys(each.session for each in self.members.values()):
            fields = {"consumerGroup": self.name}
            session.send_one_way(Request.NOTIFY_CONSUMER_IDS_CHANGED, fields)


def _identities(listing: Listing) -> list[tuple[str, ConsumerData]]:
    """The part of a list that members must know, sorted."""
    members = ((each.client_id, each.data) for each in listing.members)
    return sorted(members, key=lambda each: each[0])


class _Producer(NamedTuple):
    session: Connection
    #: Monotonic and wall time of its last heartbeat.
    seen: float
    seen_ms: int
    caller: Caller


class Clients:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.groups: dict[str, LocalGroup] = {}
        #: The last heartbeat of each producer, by group and client id.
        self._producers: dict[str, dict[str, _Producer]] = {}
        #: The number of producers of each principal.
        self._counts: Counter[Principal] = Counter()
        self._timer: Handle | None = None

    # ---- consumers

    def join(self, session: Connection, client_id: str, data: ConsumerData) -> Outcome[None] | None:
        """Add a member, or renew it with a heartbeat. Settled as `LocalGroup.join`."""
        session.channel.client_id = client_id
        name = data.group_name
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = LocalGroup(self._node, name)
        session.on_gone[name, client_id] = lambda: self.leave(name, client_id, session)
        self._watch()
        return group.join(session, self._listed(session, client_id, data))

    def _listed(self, session: Connection, client_id: str, data: ConsumerData) -> Listed:
        host, port = session.channel.peer_address
        return Listed(
            client_id=client_id,
            node=self._node.broker.node_id,
            address=f"{host}:{port}",
            language=session.language,
            version=session.version,
            data=data,
        )

    def leave(self, group: str, client_id: str, session: Connection | None = None) -> None:
        found = self.groups.get(group)
        if found is not None:
            found.leave(client_id, session)

    def forget(self, group: LocalGroup) -> None:
        if self.groups.get(group.name) is group and not group.members:
            del self.groups[group.name]

    # ---- producers

    def add_producer(self, session: Connection, client_id: str, group: str, caller: Caller) -> None:
        """Add a producer, or renew it. Raises `Refused` for the id of another principal's, and
        `Overloaded` for one too many: no right is needed, so each principal has a bound.
        """
        broker = self._node.broker
        now = broker.clock.monotonic()
        known = self._producers.get(group, {}).get(client_id)
        if known is not None and known.caller.principal != caller.principal:
            text = f"the producer {client_id[:100]} is that of another user"
            raise Refused(Response.NO_PERMISSION, text)
        if known is None and self._counts[caller.principal] >= ROCKETMQ_PRODUCERS_PER_USER_MAX:
            raise Overloaded(f"{caller.name} has {ROCKETMQ_PRODUCERS_PER_USER_MAX} producers")
        if known is None:
            self._counts[caller.principal] += 1
        else:
            known.session.on_gone.pop(("producer", group, client_id), None)
        clients = self._producers.setdefault(group, {})
        clients[client_id] = _Producer(session, now, broker.clock.wall_ms(), caller)
        session.on_gone["producer", group, client_id] = lambda: self.drop_producer(
            group, client_id, session
        )
        self._watch()

    def drop_producer(self, group: str, client_id: str, session: Connection | None = None) -> None:
        clients = self._producers.get(group, {})
        known = clients.get(client_id)
        if known is None or session not in (None, known.session):
            return
        known.session.on_gone.pop(("producer", group, client_id), None)
        del clients[client_id]
        if not clients:
            del self._producers[group]
        self._counts[known.caller.principal] -= 1
        if not self._counts[known.caller.principal]:
            del self._counts[known.caller.principal]

    def producer_sessions(self, group: str, topic: str) -> list[Connection]:
        """The producers of a group that may write to a topic, and so may see a half of theirs."""
        may = self._node.broker.authorizer.may
        return [
            each.session
            for each in self._producers.get(group, {}).values()
            if may(each.caller, Operation.WRITE, Resource.TOPIC, topic)
        ]

    def producers(self) -> list[ProducerClient]:
        found = []
        for group, clients in self._producers.items():
            for client_id, producer in clients.items():
                session = producer.session
                host, port = session.channel.peer_address
                found.append(
                    ProducerClient(
                        group=group,
                        client_id=client_id,
                        address=f"{host}:{port}",
                        language=session.language,
                        version=session.version,
                        seen_ms=producer.seen_ms,
                    )
                )
        return found

    # ---- both

    def session_of(self, client_id: str, group: str = "") -> Connection | None:
        """The session of a client. With a group, the client must be a member of it."""
        names = [group] if group else list(self.groups)
        for name in names:
            local = self.groups.get(name)
            if local is not None and client_id in local.members:
                return local.members[client_id].session
        for clients in self._producers.values():
            if client_id in clients:
                return clients[client_id].session
        return None

    def _watch(self) -> None:
        if self._timer is None and not self._node.broker.is_stopping:
            self._timer = self._node.broker.scheduler.call_later(
                ROCKETMQ_CLIENT_CHECK_INTERVAL_S, self._look
            )

    def _look(self) -> None:
        self._timer = None
        before = self._node.broker.clock.monotonic() - ROCKETMQ_CLIENT_TIMEOUT_S
        for group in list(self.groups.values()):
            group.drop_silent(before)
        for group_name, clients in list(self._producers.items()):
            for client_id in [name for name, each in clients.items() if each.seen < before]:
                self.drop_producer(group_name, client_id)
        if self.groups or self._producers:
            self._watch()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
