"""What all RocketMQ listeners of a node share: its clients, and what nodes do for each other's.

A node coordinates groups (`listed_group.py`), and reaches clients on whichever node they are
connected to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import GroupNotFound, Overloaded, UnknownTopic
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.errors import DragomanError
from dragoman.limits import ROCKETMQ_TOLD_OFFSETS_MAX
from dragoman.log_limiter import LogLimiter
from dragoman.outcome import (
    Acknowledge,
    Outcome,
    attempt,
    called_back,
    gather,
    ignore,
    start,
    succeeded,
)
from dragoman.protocols.rocketmq.bodies import SubscriptionGroupConfig
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers.clients import Clients
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.half_checks import watch_halves
from dragoman.protocols.rocketmq.handlers.listed_group import OWNER, ListedGroup
from dragoman.protocols.rocketmq.handlers.names import broker_name
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.rpc import (
    PROTOCOL,
    A,
    Announce,
    AskClient,
    CheckProducer,
    ClientAnswer,
    Count,
    DeleteGroup,
    DescribeGroups,
    FindOffset,
    ForwardReply,
    GroupRow,
    GroupRows,
    Listed,
    Listing,
    ListProducers,
    LockQueues,
    LookUpMembers,
    Number,
    ProducerClient,
    Producers,
    Queues,
    RelayedRequest,
    Relays,
    TellClient,
)
from dragoman.protocols.rocketmq.handlers.state import State
from dragoman.protocols.rocketmq.handlers.traffic import Traffic
from dragoman.types import GroupId, Offset, Partition, TopicName


def node_of(broker: Core) -> RocketmqNode:
    """The one of this broker, made at first use."""
    found = broker.shared.get(PROTOCOL)
    if found is None:
        found = broker.shared[PROTOCOL] = RocketmqNode(broker)
    assert isinstance(found, RocketmqNode)
    return found


class RocketmqNode:
    def __init__(self, broker: Core) -> None:
        self.broker = broker
        #: For lines that clients can cause at will.
        self.log = LogLimiter(logging.getLogger("dragoman.rocketmq"), broker.scheduler)
        self.clients = Clients(self)
        self.commits = Commits(broker)
        self.state = State(broker.tables)
        self._turn = 0
        #: Look-ups by key that are under way.
        self.searches = 0
        self.traffic = Traffic(broker.clock)
        self.relays = Relays(broker.node_id, broker.rpc)
        self._serve(self.relays)
        broker.leader_queues.protocols[PROTOCOL] = self.relays.receive
        broker.on_stopping.append(self.clients.stop)
        watch_halves(self)

    def _serve(self, relays: Relays) -> None:
        relays.serve(Announce, self._announce)
        relays.serve(LookUpMembers, self._look_up_members)
        relays.serve(LockQueues, self._lock_queues)
        relays.serve(TellClient, self._tell_client)
        relays.serve(AskClient, self._ask_client)
        relays.serve(CheckProducer, self._check_producer)
        relays.serve(ListProducers, self._list_producers)
        relays.serve(ForwardReply, self._forward_reply)
        relays.serve(FindOffset, self._find_offset)
        relays.serve(DescribeGroups, self._describe_groups)
        relays.serve(DeleteGroup, self._delete_group)

    def group_config(self, group: str) -> SubscriptionGroupConfig:
        found = self.state.groups.get(group)
        return SubscriptionGroupConfig(group_name=group) if found is None else found

    def is_forbidden(self, group: str, topic: str) -> bool:
        return (group, topic) in self.state.forbidden

    @property
    def broker_name(self) -> str:
        return broker_name(self.broker.node_id)

    def unique_id(self, store_host: bytes) -> str:
        """For a message whose client gave it none: 16 bytes like theirs."""
        self._turn = self._turn + 1 & 0xFFFF
        now = self.broker.clock.wall_ms()
        number = self.broker.random.getrandbits(48).to_bytes(6, "big")
        clock = (now & 0xFFFFFFFF).to_bytes(4, "big")
        return (store_host[:4] + number + clock + self._turn.to_bytes(2, "big")).hex().upper()

    def next_turn(self) -> int:
        self._turn += 1
        return self._turn

    # ---- groups that are coordinated here

    async def _announce(self, request: Announce) -> Listing:
        """Raises what `require_group`, `claim` and `ListedGroup.announce` raise."""
        broker = self.broker
        coordination, group_id = broker.coordination, GroupId(request.group)
        coordination.groups.require(group_id)
        group = coordination.groups.table.claim(
            group_id,
            OWNER,
            ListedGroup,
            lambda generation: ListedGroup(group_id, generation, broker.scheduler, broker.clock),
        )
        return await called_back(
            partial(group.announce, request.node, request.members, request.number)
        )

    def _known_group(self, name: str) -> ListedGroup | None:
        self.broker.coordination.groups.require(GroupId(name))
        group = self.broker.coordination.groups.table.get(GroupId(name))
        membership = None if group is None else group.membership
        return membership if isinstance(membership, ListedGroup) else None

    async def _look_up_members(self, request: LookUpMembers) -> Listing:
        group = self._known_group(request.group)
        return Listing(number=-1) if group is None else group.listing()

    async def _lock_queues(self, request: LockQueues) -> Queues:
        group = self._known_group(request.group)
        if group is None:
            return Queues()
        if request.is_release:
            group.unlock(request.client_id, request.queues)
            return Queues()
        return Queues(tuple(group.lock(request.client_id, request.queues)))

    # ---- any group, wherever it is coordinated

    async def announce(self, request: Announce) -> Listing:
        """Announce this node's members of a group to its coordinator."""
        return await self._call_coordinator(request.group, request)

    async def members(self, group: str) -> Listing:
        local = self.clients.groups.get(group)
        if local is not None and local.listing.number >= 0:
            return local.listing
        return await self._call_coordinator(group, LookUpMembers(group=group))

    async def lock_queues(self, request: LockQueues) -> Queues:
        return await self._call_coordinator(request.group, request)

    async def _call_coordinator(self, group: str, request: RelayedRequest[A]) -> A:
        coordination = self.broker.coordination
        node = await coordination.find_coordinator(CoordinatorKind.GROUP, group)
        return await self.relays.call(request, node)

    # ---- groups of all protocols, wherever they are coordinated

    async def describe_group(self, group: str, topic: str = "") -> GroupRow:
        """A group that does not exist has an empty description."""
        request = DescribeGroups(group=group, topic=topic)
        found = await self._call_coordinator(group, request)
        return found.rows[0] if found.rows else GroupRow(group=group)

    async def describe_all_groups(self, topic: str = "") -> dict[str, GroupRow]:
        """All groups by name, in order, of the nodes that answer. Raises `Overloaded` when a node
        has too many offsets.
        """
        found: dict[str, GroupRow] = {}
        for answer in await self._call_all(DescribeGroups(topic=topic)):
            if isinstance(answer, Overloaded):
                raise answer
            if isinstance(answer, GroupRows):
                found.update((each.group, each) for each in answer.rows)
        return dict(sorted(found.items()))

    async def _call_all(self, request: RelayedRequest[A]) -> list[A | DragomanError]:
        """The answers of all nodes, in the order of their numbers."""
        nodes = sorted(self.broker.image.nodes)
        return await gather([start(attempt(self.relays.call(request, each))) for each in nodes])

    async def _describe_groups(self, request: DescribeGroups) -> GroupRows:
        return GroupRows(tuple(self._rows(request)))

    def _rows(self, request: DescribeGroups) -> Iterator[GroupRow]:
        coordination = self.broker.coordination
        if request.group:
            coordination.groups.require(request.group)
            group = coordination.groups.table.get(GroupId(request.group))
            groups = [] if group is None else [group]
        else:
            groups = list(coordination.groups.table)
        room = ROCKETMQ_TOLD_OFFSETS_MAX
        for each in groups:
            offsets: dict[str, dict[int, int]] = {}
            for (topic, partition), committed in each.ledger.committed.items():
                if request.topic in ("", topic) and committed.is_position:
                    offsets.setdefault(topic, {})[partition] = committed.offset
                    room -= 1
            if room < 0:
                raise Overloaded(f"more than {ROCKETMQ_TOLD_OFFSETS_MAX} offsets; ask for less")
            membership = each.membership
            topics = membership.subscriptions() if membership is not None else None
            yield GroupRow(
                group=each.group_id,
                owner=each.owner,
                offsets=offsets,
                subscriptions=tuple(sorted(topics or ())),
            )

    async def delete_group(self, group: str) -> None:
        """Delete a group and its offsets, if it exists."""
        await self._call_coordinator(group, DeleteGroup(group=group))

    async def _delete_group(self, request: DeleteGroup) -> Count:
        delete = self.broker.coordination.groups.delete
        try:
            await delete(GroupId(request.group))
        except GroupNotFound:
            return Count(0)
        return Count(1)

    # ---- clients, wherever they are connected

    def tell_members(
        self,
        group: str,
        members: Sequence[Listed],
        code: int,
        fields: Mapping[str, str],
        body: Callable[[Listed], bytes],
    ) -> None:
        """Send a request without an answer to each of these members. One that is not reached
        finds out by itself, later.
        """
        for each in members:
            request = TellClient(
                group=group,
                code=code,
                fields=dict(fields),
                body=body(each),
                client_id=each.client_id,
            )
            start(self.relays.call(request, each.node)).then(ignore)

    async def ask_member(
        self,
        group: str,
        member: Listed,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
    ) -> ClientAnswer:
        request = AskClient(
            group=group, client_id=member.client_id, code=code, fields=dict(fields), body=body
        )
        return await self.relays.call(request, member.node)

    async def _tell_client(self, request: TellClient) -> Count:
        session = self.clients.session_of(request.client_id, request.group)
        if session is None:
            return Count(0)
        session.tell(request.code, request.fields, request.body)
        return Count(1)

    async def _ask_client(self, request: AskClient) -> ClientAnswer:
        session = self.clients.session_of(request.client_id, request.group)
        if session is None:
            text = f"The Consumer <{request.group}> <{request.client_id}> not online"
            raise Refused(Response.CONSUMER_NOT_ONLINE, text)
        response = await session.ask(request.code, request.fields, request.body)
        return ClientAnswer(
            code=response.code,
            remark=response.remark,
            fields=response.fields,
            body=bytes(response.body),
        )

    # ---- producers, wherever they are connected

    async def check_producer(self, request: CheckProducer) -> None:
        """Ask any producer of the group for a transaction's state: one of this node or, when there
        is none, of the others in turn.
        """
        nodes = (each for each in sorted(self.broker.image.nodes) if each != self.broker.node_id)
        await self._call_until_counted(request, [self.broker.node_id, *nodes])

    async def _call_until_counted(self, request: RelayedRequest[Count], nodes: list[int]) -> bool:
        """Call the nodes one after the other until one has a client for the request. Whether one
        has.
        """
        for node in nodes:
            with suppress(DragomanError):
                if (await self.relays.call(request, node)).count:
                    return True
        return False

    async def _check_producer(self, request: CheckProducer) -> Count:
        sessions = self.clients.producer_sessions(request.group)
        if not sessions:
            return Count(0)
        session = sessions[self.next_turn() % len(sessions)]
        session.tell(Request.CHECK_TRANSACTION_STATE, request.fields, request.body)
        return Count(1)

    async def all_producers(self) -> list[ProducerClient]:
        """Those of all nodes that answer."""
        answers = await self._call_all(ListProducers())
        return [each for found in answers if isinstance(found, Producers) for each in found.clients]

    async def _list_producers(self, _request: ListProducers) -> Producers:
        return Producers(tuple(self.clients.producers()))

    async def forward_reply(self, request: ForwardReply) -> bool:
        """Send a reply to the client that waits for it, on whichever node. Whether it was found."""
        nodes = sorted(self.broker.image.nodes)
        nodes.sort(key=lambda each: each != self.broker.node_id)
        return await self._call_until_counted(request, nodes)

    async def _forward_reply(self, request: ForwardReply) -> Count:
        session = self.clients.session_of(request.client_id)
        if session is None:
            return Count(0)
        session.tell(Request.PUSH_REPLY_MESSAGE_TO_CLIENT, request.fields, request.body)
        return Count(1)

    # ---- offsets and times of partitions, wherever they are led

    async def find_offset(self, request: FindOffset, leader: int) -> int:
        return (await self.relays.call(request, leader)).value

    async def _find_offset(self, request: FindOffset) -> Number:
        partition = self.broker.image.partitions.get(request.partition_id)
        if partition is None:
            raise UnknownTopic("the partition is gone")
        log = self.broker.partitions.replica(partition).log
        end = log.last_stable_offset
        if request.timestamp is not None:
            found = log.offset_for_time(request.timestamp, end)
            return Number(end if found is None else found[0])
        first = next(log.iterate(max(request.offset, log.log_start_offset), end), None)
        return Number(-1 if first is None else first.timestamp)


#: Group, topic, queue.
Place: TypeAlias = tuple[str, str, int]


class Commits:
    """Of the requests that came in at this node; each queue has one that all its readers use."""

    def __init__(self, broker: Core) -> None:
        self._broker = broker
        #: Those who wait for the last commit that is under way.
        self._under_way: dict[Place, list[Outcome[None]]] = {}

    def commit(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int],
        done: Acknowledge,
    ) -> None:
        waiting: dict[Place, list[Outcome[None]]] = {(group, topic, queue): [] for queue in offsets}
        self._under_way.update(waiting)

        def finished(error: DragomanError | None) -> None:
            for place, waiters in waiting.items():
                if self._under_way.get(place) is waiters:
                    del self._under_way[place]
            done(error)
            for waiters in waiting.values():
                for each in waiters:
                    each.succeed(None)

        commits = tuple(
            OffsetCommit(topic=TopicName(topic), partition=Partition(queue), offset=Offset(offset))
            for queue, offset in offsets.items()
        )
        request = CommitRequest(group_id=GroupId(group), offsets=commits, owner=OWNER)
        self._broker.coordination.groups.commit_anywhere(request, finished)

    def settled(self, place: Place) -> Outcome[None]:
        """Settled when no commit of the queue that has come so far is under way."""
        waiters = self._under_way.get(place)
        if waiters is None:
            return succeeded(None)
        outcome: Outcome[None] = Outcome()
        waiters.append(outcome)
        return outcome
