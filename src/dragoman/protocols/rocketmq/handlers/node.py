"""State shared by a node's RocketMQ listeners: its clients, and calls of other nodes.

A group is coordinated by one node (`listed_group.py`), and a client is connected to one. The public
methods call the responsible node; the private ones, named like the requests, handle calls on this
node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import GroupNotFound, Overloaded, UnknownTopic
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.errors import DragomanError
from dragoman.limits import ROCKETMQ_DESCRIBED_OFFSETS_MAX
from dragoman.log_limiter import LogLimiter
from dragoman.outcome import Outcome, attempt, gather, ignore, start
from dragoman.protocols.rocketmq.bodies import SubscriptionGroupConfig
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers import rpc
from dragoman.protocols.rocketmq.handlers.clients import Clients
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.half_checks import watch_halves
from dragoman.protocols.rocketmq.handlers.listed_group import OWNER, ListedGroup
from dragoman.protocols.rocketmq.handlers.names import broker_name, retry_group, topic_name
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.rpc import PROTOCOL, A, NodeRequest, NodeRpc
from dragoman.protocols.rocketmq.handlers.state import State
from dragoman.protocols.rocketmq.handlers.traffic import Traffic
from dragoman.security.access import Caller
from dragoman.types import GroupId, Offset, Partition, TopicName

#: Waiters by group, topic and queue.
_Waiting: TypeAlias = dict[tuple[str, str, int], list[Outcome[None]]]


class Commits:
    """Offset commits that were received by this node.

    RocketMQ applies a commit when the request arrives, and its clients rely on that: they commit
    one way, and then request the offset. Dragoman's commits take until they are durable, so a
    request for the offset of a queue waits for the queue's last commit.
    """

    def __init__(self, broker: Core) -> None:
        self._broker = broker
        #: By queue, the requests that wait for its last commit.
        self._pending: _Waiting = {}

    def commit(
        self, caller: Caller, group: str, topic: str, offsets: Mapping[int, int]
    ) -> Outcome[None]:
        """Commit offsets by queue. Settled when they are durable."""
        waiting: _Waiting = {(group, topic, queue): [] for queue in offsets}
        self._pending.update(waiting)
        commits = tuple(
            OffsetCommit(topic=TopicName(topic), partition=Partition(queue), offset=Offset(offset))
            for queue, offset in offsets.items()
        )
        request = CommitRequest(group_id=GroupId(group), offsets=commits, owner=OWNER)
        committed: Outcome[None] = Outcome()
        finished = partial(self._finish, waiting, committed)
        # The retries of a group need rights on the group, which this node has checked.
        known = caller if retry_group(topic) is None else NODE_ITSELF
        self._broker.coordination.groups.commit_anywhere(request, finished, caller=known)
        return committed

    def _finish(
        self, waiting: _Waiting, committed: Outcome[None], error: DragomanError | None
    ) -> None:
        for queue, waiters in waiting.items():
            if self._pending.get(queue) is waiters:
                del self._pending[queue]
        committed.acknowledge(error)
        for waiters in waiting.values():
            for each in waiters:
                each.succeed(None)

    async def settled(self, group: str, topic: str, queue: int) -> None:
        """Return when the earlier commits of the queue are done."""
        waiters = self._pending.get((group, topic, queue))
        if waiters is not None:
            outcome: Outcome[None] = Outcome()
            waiters.append(outcome)
            await outcome


def node_of(broker: Core) -> RocketmqNode:
    """This node's instance, created on first use."""
    found = broker.shared.get(PROTOCOL)
    if found is None:
        found = broker.shared[PROTOCOL] = RocketmqNode(broker)
    assert isinstance(found, RocketmqNode)
    return found


class RocketmqNode:
    def __init__(self, broker: Core) -> None:
        self.broker = broker
        #: A rate-limited log for messages that clients can trigger at will.
        self.log = LogLimiter(logging.getLogger("dragoman.rocketmq"), broker.scheduler)
        self.clients = Clients(self)
        self.commits = Commits(broker)
        self.state = State(broker.tables)
        self._turn = 0
        #: The number of searches in progress.
        self.searches = 0
        self.traffic = Traffic(broker.clock)
        self.rpc = NodeRpc(broker.node_id, broker.rpc)
        self._serve()
        broker.leader_queues.protocols[PROTOCOL] = self.rpc.answer
        broker.on_stopping.append(self.clients.stop)
        watch_halves(self)

    def _serve(self) -> None:
        serve = self.rpc.serve
        serve(rpc.Announce, self._announce)
        serve(rpc.LookUpMembers, self._look_up_members)
        serve(rpc.LockQueues, self._lock_queues)
        serve(rpc.TellClient, self._tell_client)
        serve(rpc.AskClient, self._ask_client)
        serve(rpc.CheckProducer, self._check_producer)
        serve(rpc.ListProducers, self._list_producers)
        serve(rpc.ForwardReply, self._forward_reply)
        serve(rpc.FindOffset, self._find_offset)
        serve(rpc.DescribeGroups, self._describe_groups)
        serve(rpc.DeleteGroup, self._delete_group)

    def group_config(self, group: str) -> SubscriptionGroupConfig:
        found = self.state.groups.get(group)
        return SubscriptionGroupConfig(group_name=group) if found is None else found

    def is_forbidden(self, group: str, topic: str) -> bool:
        return (group, topic) in self.state.forbidden

    @property
    def broker_name(self) -> str:
        return broker_name(self.broker.node_id)

    def unique_id(self, store_host: bytes) -> str:
        """A unique id for a message without one, in the clients' format of 16 bytes."""
        self._turn = self._turn + 1 & 0xFFFF
        now = self.broker.clock.wall_ms()
        number = self.broker.random.getrandbits(48).to_bytes(6, "big")
        clock = (now & 0xFFFFFFFF).to_bytes(4, "big")
        return (store_host[:4] + number + clock + self._turn.to_bytes(2, "big")).hex().upper()

    def next_turn(self) -> int:
        self._turn += 1
        return self._turn

    # ---- groups that this node coordinates

    async def _announce(self, request: rpc.Announce) -> rpc.Listing:
        broker = self.broker
        coordination, group_id = broker.coordination, GroupId(request.group)
        coordination.groups.require(group_id)
        group = coordination.groups.table.claim(
            group_id,
            OWNER,
            ListedGroup,
            lambda generation: ListedGroup(group_id, generation, broker.scheduler, broker.clock),
        )
        return await group.announce(request.node, request.members, request.number)

    def _known_group(self, name: str) -> ListedGroup | None:
        self.broker.coordination.groups.require(GroupId(name))
        group = self.broker.coordination.groups.table.get(GroupId(name))
        membership = None if group is None else group.membership
        return membership if isinstance(membership, ListedGroup) else None

    async def _look_up_members(self, request: rpc.LookUpMembers) -> rpc.Listing:
        group = self._known_group(request.group)
        return rpc.Listing(number=-1) if group is None else group.listing()

    async def _lock_queues(self, request: rpc.LockQueues) -> rpc.Queues:
        group = self._known_group(request.group)
        if group is None:
            return rpc.Queues()
        if request.is_release:
            group.unlock(request.client_id, request.queues)
            return rpc.Queues()
        return rpc.Queues(tuple(group.lock(request.client_id, request.queues)))

    # ---- any group, wherever it is coordinated

    async def announce(self, request: rpc.Announce) -> rpc.Listing:
        """Announce this node's members of a group to the group's coordinator."""
        return await self._call_coordinator(request.group, request)

    async def members(self, group: str) -> rpc.Listing:
        local = self.clients.groups.get(group)
        if local is not None and local.listing.number >= 0:
            return local.listing
        return await self._call_coordinator(group, rpc.LookUpMembers(group=group))

    async def lock_queues(self, request: rpc.LockQueues) -> rpc.Queues:
        return await self._call_coordinator(request.group, request)

    async def _call_coordinator(self, group: str, request: NodeRequest[A]) -> A:
        coordination = self.broker.coordination
        node = await coordination.find_coordinator(CoordinatorKind.GROUP, group)
        return await self.rpc.call(request, node)

    # ---- groups of all protocols, wherever they are coordinated

    async def describe_group(self, group: str, topic: str = "") -> rpc.GroupRow:
        """Describe a group. The description is empty if the group does not exist."""
        request = rpc.DescribeGroups(group=group, topic=topic)
        found = await self._call_coordinator(group, request)
        return found.rows[0] if found.rows else rpc.GroupRow(group=group)

    async def describe_all_groups(self, topic: str = "") -> dict[str, rpc.GroupRow]:
        """All groups, sorted by name, without those of failed nodes. Raises `Overloaded` when a
        node has too many offsets.
        """
        found: dict[str, rpc.GroupRow] = {}
        for answer in await self._call_all(rpc.DescribeGroups(topic=topic)):
            if isinstance(answer, Overloaded):
                raise answer
            if isinstance(answer, rpc.GroupRows):
                found.update((each.group, each) for each in answer.rows)
        return dict(sorted(found.items()))

    async def _call_all(self, request: NodeRequest[A]) -> list[A | DragomanError]:
        """The answers or errors of all nodes, in id order."""
        nodes = sorted(self.broker.image.nodes)
        return await gather([start(attempt(self.rpc.call(request, each))) for each in nodes])

    async def _describe_groups(self, request: rpc.DescribeGroups) -> rpc.GroupRows:
        return rpc.GroupRows(tuple(self._rows(request)))

    def _rows(self, request: rpc.DescribeGroups) -> Iterator[rpc.GroupRow]:
        coordination = self.broker.coordination
        if request.group:
            coordination.groups.require(request.group)
            group = coordination.groups.table.get(GroupId(request.group))
            groups = [] if group is None else [group]
        else:
            groups = list(coordination.groups.table)
        room = ROCKETMQ_DESCRIBED_OFFSETS_MAX
        for each in groups:
            offsets: dict[str, dict[int, int]] = {}
            for (topic, partition), committed in each.ledger.committed.items():
                if request.topic in ("", topic) and committed.is_position:
                    offsets.setdefault(topic, {})[partition] = committed.offset
                    room -= 1
            if room < 0:
                raise Overloaded(f"more than {ROCKETMQ_DESCRIBED_OFFSETS_MAX} offsets of groups")
            membership = each.membership
            topics = membership.subscriptions() if membership is not None else None
            yield rpc.GroupRow(
                group=each.group_id,
                owner=each.owner,
                offsets=offsets,
                subscriptions=tuple(sorted(topics or ())),
            )

    async def delete_group(self, group: str) -> None:
        """Delete a group and its offsets, if it exists."""
        await self._call_coordinator(group, rpc.DeleteGroup(group=group))

    async def _delete_group(self, request: rpc.DeleteGroup) -> rpc.Count:
        delete = self.broker.coordination.groups.delete
        try:
            await delete(GroupId(request.group))
        except GroupNotFound:
            return rpc.Count(0)
        return rpc.Count(1)

    # ---- clients, wherever they are connected

    def notify_members(
        self,
        group: str,
        members: Sequence[rpc.Listed],
        code: int,
        fields: Mapping[str, str],
        body: Callable[[rpc.Listed], bytes],
    ) -> None:
        """Send a one-way request to each of these members. A lost request is not retried, because
        members notice changes on their own later.
        """
        for each in members:
            request = rpc.TellClient(
                group=group,
                code=code,
                fields=dict(fields),
                body=body(each),
                client_id=each.client_id,
            )
            start(self.rpc.call(request, each.node)).then(ignore)

    async def request_member(
        self,
        group: str,
        member: rpc.Listed,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
    ) -> rpc.ClientAnswer:
        request = rpc.AskClient(
            group=group, client_id=member.client_id, code=code, fields=dict(fields), body=body
        )
        return await self.rpc.call(request, member.node)

    async def _tell_client(self, request: rpc.TellClient) -> rpc.Count:
        session = self.clients.session_of(request.client_id, request.group)
        if session is None:
            return rpc.Count(0)
        session.send_one_way(request.code, request.fields, request.body)
        return rpc.Count(1)

    async def _ask_client(self, request: rpc.AskClient) -> rpc.ClientAnswer:
        session = self.clients.session_of(request.client_id, request.group)
        if session is None:
            text = f"The Consumer <{request.group}> <{request.client_id}> not online"
            raise Refused(Response.CONSUMER_NOT_ONLINE, text)
        response = await session.request(request.code, request.fields, request.body)
        return rpc.ClientAnswer(
            code=response.code,
            remark=response.remark,
            fields=response.fields,
            body=bytes(response.body),
        )

    # ---- producers, wherever they are connected

    async def check_producer(self, request: rpc.CheckProducer) -> None:
        """Request a transaction's state from any producer of the group, preferably one that is
        connected to this node.
        """
        nodes = (each for each in sorted(self.broker.image.nodes) if each != self.broker.node_id)
        await self._call_until_counted(request, [self.broker.node_id, *nodes])

    async def _call_until_counted(self, request: NodeRequest[rpc.Count], nodes: list[int]) -> bool:
        """Call the nodes sequentially until one has sent the request to a client. False if none
        has.
        """
        for node in nodes:
            with suppress(DragomanError):
                if (await self.rpc.call(request, node)).count:
                    return True
        return False

    async def _check_producer(self, request: rpc.CheckProducer) -> rpc.Count:
        topic = topic_name(request.fields["topic"])
        sessions = self.clients.producer_sessions(request.group, topic)
        if not sessions:
            return rpc.Count(0)
        session = sessions[self.next_turn() % len(sessions)]
        session.send_one_way(Request.CHECK_TRANSACTION_STATE, request.fields, request.body)
        return rpc.Count(1)

    async def all_producers(self) -> list[rpc.ProducerClient]:
        """The producers of all nodes, without those of failed nodes."""
        answers = await self._call_all(rpc.ListProducers())
        return [
            each for found in answers if isinstance(found, rpc.Producers) for each in found.clients
        ]

    async def _list_producers(self, _request: rpc.ListProducers) -> rpc.Producers:
        return rpc.Producers(tuple(self.clients.producers()))

    async def forward_reply(self, request: rpc.ForwardReply) -> bool:
        """Send a reply to the client that waits for it, on any node. False if the client is not
        found.
        """
        nodes = sorted(self.broker.image.nodes)
        nodes.sort(key=lambda each: each != self.broker.node_id)
        return await self._call_until_counted(request, nodes)

    async def _forward_reply(self, request: rpc.ForwardReply) -> rpc.Count:
        session = self.clients.session_of(request.client_id)
        if session is None:
            return rpc.Count(0)
        session.send_one_way(Request.PUSH_REPLY_MESSAGE_TO_CLIENT, request.fields, request.body)
        return rpc.Count(1)

    # ---- offsets and times of partitions, wherever they are led

    async def find_offset(self, request: rpc.FindOffset, leader: int) -> int:
        return (await self.rpc.call(request, leader)).value

    async def _find_offset(self, request: rpc.FindOffset) -> rpc.Number:
        partition = self.broker.image.partitions.get(request.partition_id)
        if partition is None:
            raise UnknownTopic("the partition is gone")
        log = self.broker.partitions.replica(partition).log
        end = log.last_stable_offset
        if request.timestamp is not None:
            found = log.offset_for_time(request.timestamp, end)
            return rpc.Number(end if found is None else found[0])
        first = next(log.iterate(max(request.offset, log.log_start_offset), end), None)
        return rpc.Number(-1 if first is None else first.timestamp)
