"""What all RocketMQ listeners of a node share: its clients, and what nodes do for each other's.

Coordinates the groups that this node has to (`membership.py`), and reaches a client wherever it is
connected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, assert_never

from dragoman.broker.broker import Broker
from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import GroupNotFound, Overloaded, UnknownTopic
from dragoman.broker.relaying import Relayed as RelayedReply
from dragoman.broker.relaying import TakeReply
from dragoman.errors import DragomanError
from dragoman.limits import ROCKETMQ_TOLD_OFFSETS_MAX
from dragoman.log_limiter import LogLimiter
from dragoman.outcome import start
from dragoman.protocols.rocketmq.bodies import SubscriptionGroupConfig
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers.clients import Clients
from dragoman.protocols.rocketmq.handlers.commits import Commits
from dragoman.protocols.rocketmq.handlers.membership import OWNER, Answer, ListedGroup
from dragoman.protocols.rocketmq.handlers.names import broker_name
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import (
    PROTOCOL,
    RELAY,
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
    TellClient,
    decode_request,
    encode,
    read_answer,
)
from dragoman.protocols.rocketmq.handlers.relayed import Request as Relayed
from dragoman.protocols.rocketmq.handlers.state import State
from dragoman.protocols.rocketmq.handlers.traffic import Traffic
from dragoman.protocols.rocketmq.handlers.transactions import watch_halves
from dragoman.rpc import Node, Reply
from dragoman.types import GroupId


def node_of(broker: Broker) -> RocketmqNode:
    """The one of this broker, made at first use."""
    found = broker.shared.get(PROTOCOL)
    if found is None:
        found = broker.shared[PROTOCOL] = RocketmqNode(broker)
    assert isinstance(found, RocketmqNode)
    return found


class RocketmqNode:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        #: For lines that clients can cause at will.
        self.log = LogLimiter(logging.getLogger("dragoman.rocketmq"), broker.scheduler)
        self.clients = Clients(self)
        self.commits = Commits(broker)
        self.state = State(broker)
        self._turn = 0
        #: Look-ups by key that are under way.
        self.searches = 0
        self.traffic = Traffic(broker.clock)
        broker.relaying.protocols[PROTOCOL] = self.relayed
        broker.on_stopping.append(self.clients.stop)
        watch_halves(self)

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

    def _group(self, name: str) -> ListedGroup:
        """Raises what `require_group` and `claim` raise."""
        broker = self.broker
        coordination, group_id = broker.coordination, GroupId(name)
        coordination.groups.require(group_id)
        return coordination.groups.table.claim(
            group_id,
            OWNER,
            ListedGroup,
            lambda generation: ListedGroup(group_id, generation, broker.scheduler, broker.clock),
        )

    def announced(self, request: Announce, answer: Answer) -> None:
        try:
            group = self._group(request.group)
            group.announce(request.node, request.members, request.number, answer)
        except DragomanError as error:
            answer(error)

    def _known_group(self, name: str) -> ListedGroup | None:
        self.broker.coordination.groups.require(GroupId(name))
        group = self.broker.coordination.groups.table.get(GroupId(name))
        membership = None if group is None else group.membership
        return membership if isinstance(membership, ListedGroup) else None

    def _listing(self, name: str) -> Listing:
        group = self._known_group(name)
        return Listing(number=-1) if group is None else group.listing()

    def _lock(self, request: LockQueues) -> Queues:
        group = self._known_group(request.group)
        if group is None:
            return Queues()
        if request.is_release:
            group.unlock(request.client_id, request.queues)
            return Queues()
        return Queues(tuple(group.lock(request.client_id, request.queues)))

    # ---- any group, wherever it is coordinated

    def look_up_members(self, group: str, done: Callable[[Listing | DragomanError], None]) -> None:
        local = self.clients.groups.get(group)
        if local is not None and local.listing.number >= 0:
            done(local.listing)
        else:
            self._ask_coordinator(group, LookUpMembers(group=group), Listing, done)

    def lock_queues(
        self, request: LockQueues, done: Callable[[Queues | DragomanError], None]
    ) -> None:
        self._ask_coordinator(request.group, request, Queues, done)

    def _ask_coordinator(
        self, group: str, request: Relayed, kind: type[Any], done: Callable[[Any], None]
    ) -> None:
        def found(node: int | DragomanError) -> None:
            if isinstance(node, DragomanError):
                done(node)
            else:
                self.ask_node(node, request, kind, done)

        start(self.broker.coordination.find_coordinator(CoordinatorKind.GROUP, group)).then(found)

    def ask_node(
        self, node: int, request: Relayed, kind: type[Any], done: Callable[[Any], None]
    ) -> None:
        """Ask a node, perhaps this one."""
        if node == self.broker.node_id:
            try:
                self._perform(request, done)
            except DragomanError as error:
                done(error)
            return

        def answered(reply: Reply[RelayedReply] | DragomanError) -> None:
            done(read_answer(reply, kind))

        self.broker.rpc.begin(RELAY, Node(node), (encode(request),)).then(answered)

    def relayed(self, body: memoryview, told: TakeReply) -> None:
        """What another node asks for in the place of its client. Raises `DragomanError`."""

        def answer(outcome: Any) -> None:
            told(outcome if isinstance(outcome, DragomanError) else encode(outcome))

        self._perform(decode_request(body), answer)

    def _perform(self, request: Relayed, done: Callable[[Any], None]) -> None:
        match request:
            case Announce():
                self.announced(request, done)
            case LookUpMembers():
                done(self._listing(request.group))
            case LockQueues():
                done(self._lock(request))
            case TellClient():
                done(Count(self._tell_here(request)))
            case AskClient():
                self._ask_here(request, done)
            case CheckProducer():
                done(Count(self._check_here(request)))
            case ListProducers():
                done(Producers(tuple(self.clients.producers())))
            case ForwardReply():
                done(Count(self._forward_here(request)))
            case FindOffset():
                done(Number(self._find_offset(request)))
            case DescribeGroups():
                done(GroupRows(tuple(self._rows(request))))
            case DeleteGroup():
                self._delete_here(request, done)
            case _:
                assert_never(request)

    def _find_offset(self, request: FindOffset) -> int:
        from dragoman.protocols.rocketmq.handlers.times import look_up

        partition = self.broker.image.partitions.get(request.partition_id)
        if partition is None:
            raise UnknownTopic("the partition is gone")
        return look_up(self.broker.replica(partition), request)

    # ---- groups of all protocols, wherever they are coordinated

    def describe_group(
        self, group: str, done: Callable[[GroupRow | DragomanError], None], topic: str = ""
    ) -> None:
        """Nothing is known of a group that there is not."""

        def described(outcome: GroupRows | DragomanError) -> None:
            if isinstance(outcome, DragomanError):
                done(outcome)
            else:
                done(outcome.rows[0] if outcome.rows else GroupRow(group=group))

        request = DescribeGroups(group=group, topic=topic)
        self._ask_coordinator(group, request, GroupRows, described)

    def describe_all_groups(
        self, done: Callable[[dict[str, GroupRow] | DragomanError], None], topic: str = ""
    ) -> None:
        """In the order of their names, of all nodes that answer; or that one has too many."""
        found: dict[str, GroupRow] = {}
        nodes = sorted(self.broker.image.nodes)
        left = len(nodes)
        refused: Overloaded | None = None

        def answered(outcome: GroupRows | DragomanError) -> None:
            nonlocal left, refused
            if isinstance(outcome, GroupRows):
                found.update((each.group, each) for each in outcome.rows)
            elif isinstance(outcome, Overloaded):
                refused = outcome
            left -= 1
            if not left:
                done(refused or dict(sorted(found.items())))

        for node in nodes:
            self.ask_node(node, DescribeGroups(topic=topic), GroupRows, answered)

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

    def delete_group(self, group: str, done: Callable[[DragomanError | None], None]) -> None:
        """With its offsets; one that there is not is gone already."""

        def deleted(outcome: Count | DragomanError) -> None:
            done(outcome if isinstance(outcome, DragomanError) else None)

        self._ask_coordinator(group, DeleteGroup(group=group), Count, deleted)

    def _delete_here(self, request: DeleteGroup, done: Callable[[Any], None]) -> None:
        def deleted(error: DragomanError | None) -> None:
            if isinstance(error, GroupNotFound):
                done(Count(0))
            else:
                done(error or Count(1))

        start(self.broker.coordination.groups.delete(GroupId(request.group))).then(deleted)

    # ---- clients, wherever they are connected

    def tell_members(
        self,
        group: str,
        members: Sequence[Listed],
        code: int,
        fields: Mapping[str, str],
        body: Callable[[Listed], bytes],
    ) -> None:
        """A request without answer for each of these members."""
        for each in members:
            request = TellClient(
                group=group,
                code=code,
                fields=dict(fields),
                body=body(each),
                client_id=each.client_id,
            )
            self.ask_node(each.node, request, Count, _unheard)

    def ask_member(
        self,
        group: str,
        member: Listed,
        code: int,
        fields: Mapping[str, str],
        body: bytes,
        done: Callable[[ClientAnswer | DragomanError], None],
    ) -> None:
        request = AskClient(
            group=group, client_id=member.client_id, code=code, fields=dict(fields), body=body
        )
        self.ask_node(member.node, request, ClientAnswer, done)

    def _tell_here(self, request: TellClient) -> int:
        session = self.clients.session_of(request.client_id, request.group)
        if session is None:
            return 0
        session.tell(request.code, request.fields, request.body)
        return 1

    def _ask_here(self, request: AskClient, done: Callable[[Any], None]) -> None:
        session = self.clients.session_of(request.client_id, request.group)
        if session is None:
            text = f"The Consumer <{request.group}> <{request.client_id}> not online"
            raise Refused(Response.CONSUMER_NOT_ONLINE, text)

        def answered(response: Command | DragomanError) -> None:
            if isinstance(response, DragomanError):
                done(response)
            else:
                body = bytes(response.body)
                done(
                    ClientAnswer(
                        code=response.code,
                        remark=response.remark,
                        fields=response.fields,
                        body=body,
                    )
                )

        session.ask(request.code, request.fields, request.body, answered)

    # ---- producers, wherever they are connected

    def check_producer(self, request: CheckProducer) -> None:
        """Ask any producer of the group for a transaction's state: one of this node, or of the
        others in turn."""
        nodes = [each for each in sorted(self.broker.image.nodes) if each != self.broker.node_id]
        self._check_next(request, [self.broker.node_id, *nodes])

    def _check_next(self, request: CheckProducer, nodes: list[int]) -> None:
        if not nodes:
            return

        def answered(outcome: Count | DragomanError) -> None:
            if isinstance(outcome, DragomanError) or not outcome.count:
                self._check_next(request, nodes[1:])

        self.ask_node(nodes[0], request, Count, answered)

    def _check_here(self, request: CheckProducer) -> int:
        sessions = self.clients.producer_sessions(request.group)
        if not sessions:
            return 0
        session = sessions[self.next_turn() % len(sessions)]
        session.tell(Request.CHECK_TRANSACTION_STATE, request.fields, request.body)
        return 1

    def all_producers(self, done: Callable[[list[ProducerClient]], None]) -> None:
        """Of all nodes that answer."""
        found: list[ProducerClient] = []
        nodes = sorted(self.broker.image.nodes)
        left = len(nodes)

        def answered(outcome: Producers | DragomanError) -> None:
            nonlocal left
            if isinstance(outcome, Producers):
                found.extend(outcome.clients)
            left -= 1
            if not left:
                done(found)

        for node in nodes:
            self.ask_node(node, ListProducers(), Producers, answered)

    def forward_reply(self, request: ForwardReply, done: Callable[[bool], None]) -> None:
        """A reply to whoever sent the request, on whichever node."""
        nodes = sorted(self.broker.image.nodes)
        nodes.sort(key=lambda each: each != self.broker.node_id)
        self._forward_next(request, nodes, done)

    def _forward_next(
        self, request: ForwardReply, nodes: list[int], done: Callable[[bool], None]
    ) -> None:
        if not nodes:
            done(False)
            return

        def answered(outcome: Count | DragomanError) -> None:
            if isinstance(outcome, Count) and outcome.count:
                done(True)
            else:
                self._forward_next(request, nodes[1:], done)

        self.ask_node(nodes[0], request, Count, answered)

    def _forward_here(self, request: ForwardReply) -> int:
        session = self.clients.session_of(request.client_id)
        if session is None:
            return 0
        session.tell(Request.PUSH_REPLY_MESSAGE_TO_CLIENT, request.fields, request.body)
        return 1


def _unheard(_outcome: object) -> None:
    """Clients find out by themselves, later."""
