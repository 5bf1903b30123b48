"""The cluster: its state as one node sees it, and the requests of operators.

Operators' requests are forwarded to the metadata leader. Every refusal says what to do instead.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import Final, Literal, Protocol, TypeVar

from msgspec import Raw

from dragoman import __version__, limits
from dragoman.api.access import Access
from dragoman.api.damaged_ranges import damaged_ranges
from dragoman.api.declaration import ApiError
from dragoman.api.usage_values import ChangedSetting, ChangedSettings
from dragoman.api.values import (
    ClusterStatus,
    Elected,
    Election,
    FewCopies,
    ListenerStatus,
    MlogEvents,
    Moves,
    NewMoves,
    NewNode,
    NewSettings,
    NodeStatus,
    PartitionStatus,
    Told,
    Transfer,
)
from dragoman.broker.administration import Act, Actor, note_each, recorded
from dragoman.broker.configs import NodeConfigs
from dragoman.broker.errors import (
    ElectionNotNeeded,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
)
from dragoman.broker.leadership import Leadership, Plan, drain, spread
from dragoman.broker.topics import Topics
from dragoman.cluster.metadata import EVERY_NODE, NO_LEADER, MetadataImage, PartitionMetadata
from dragoman.config.dynamic import is_inert, require_dynamic
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError, OutcomeUnknownError
from dragoman.log.store import LogStore
from dragoman.net.future import future_of
from dragoman.net.listener import OpenListener
from dragoman.outcome import attempt, gather, start
from dragoman.raft.membership import Membership
from dragoman.replication.messages import (
    AddNode,
    ControlReply,
    Decision,
    MembershipRequest,
    PartitionRequest,
    Relieve,
    RemoveNode,
    TransferMetadata,
)
from dragoman.security.access import Caller, Operation
from dragoman.security.audit import AuditLog
from dragoman.security.authorizer import Authorizer
from dragoman.types import NodeId
from dragoman.world import Clock

Item = TypeVar("Item")

# ---- ports


class Quorum(Protocol):
    @property
    def leader(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def membership(self) -> Membership: ...


class Room(Protocol):
    @property
    def has_room(self) -> bool:
        """Whether the node's disk has room for replicated records."""
        ...

    @property
    def controller_silence_s(self) -> float:
        """Seconds since the controller last answered this node."""
        ...


class Controller(Protocol):
    async def request(
        self, request: PartitionRequest | MembershipRequest
    ) -> ControlReply | None: ...


class ClusterMembers(Protocol):
    @property
    def access(self) -> Controller: ...

    @property
    def replication(self) -> Room: ...


class GroupTable(Protocol):
    @property
    def table(self) -> Sized: ...


class GroupCount(Protocol):
    @property
    def groups(self) -> GroupTable: ...


_THROTTLE: Final = "leader.replication.throttled.rate"


class ClusterBroker(Protocol):
    """What the service uses of the broker."""

    @property
    def node_id(self) -> int: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def store(self) -> LogStore: ...

    @property
    def quorum(self) -> Quorum: ...

    @property
    def cluster(self) -> ClusterMembers: ...

    @property
    def topics(self) -> Topics: ...

    @property
    def leadership(self) -> Leadership: ...

    @property
    def node_configs(self) -> NodeConfigs: ...

    @property
    def audit(self) -> AuditLog: ...

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def coordination(self) -> GroupCount: ...


class OpenListeners(Protocol):
    @property
    def opened(self) -> Sequence[OpenListener]: ...


class ClusterNode(Protocol):
    """What the service uses of the node."""

    @property
    def broker(self) -> ClusterBroker: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def started_at(self) -> float: ...

    @property
    def listeners(self) -> OpenListeners: ...

    def mlog_events(self) -> Sequence[bytes]:
        """The metadata as mlog's metadata events, each in the original's JSON."""
        ...


# ---- the service


class ClusterService:
    def __init__(self, node: ClusterNode, is_ready: Callable[[], bool]) -> None:
        """`is_ready` says whether clients may use the node."""
        self._node = node
        self._access = Access(node.broker)
        self._is_ready = is_ready
        self._broker = node.broker
        self._image = node.broker.image

    # ---- state

    def cluster_status(self, caller: Caller) -> ClusterStatus:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        broker, image = self._broker, self._image
        leader = broker.quorum.leader
        partitions = list(image.partitions.values())
        # Moves come first, because operators wait for them and the list is bounded.
        moving = (each for each in partitions if each.target)
        others = (each for each in partitions if not each.target and _wants_attention(each))
        damage = damaged_ranges(broker.store)
        return ClusterStatus(
            cluster_id=image.cluster_id,
            node_id=broker.node_id,
            controller=leader if leader != NO_LEADER else None,
            version=__version__,
            feature_level=image.feature_level,
            ready=self._is_ready(),
            durability=broker.settings.durability,
            uptime_ms=round((self._node.clock.monotonic() - self._node.started_at) * 1000),
            topics=len(image.topics),
            partitions=len(image.partitions),
            groups=len(broker.coordination.groups.table),
            nodes=tuple(self._nodes()),
            leaderless=sum(each.leader == NO_LEADER for each in partitions),
            under_replicated=sum(each.is_under_replicated for each in partitions),
            moving=len(image.moving),
            unclean=sum(each.unclean_epoch >= 0 for each in partitions),
            attention=tuple(map(_status, _shown(chain(moving, others)))),
            copies=self._copies(),
            few_copies=tuple(_shown(self._few_copies())),
            damaged_ranges=len(damage),
            damage=tuple(damage[: limits.DAMAGED_RANGES_SHOWN_MAX]),
            journal_damage=tuple(
                str(each) for each in broker.store.journal_damage[: limits.DAMAGED_RANGES_SHOWN_MAX]
            ),
        )

    def _nodes(self) -> Iterator[NodeStatus]:
        membership = self._broker.quorum.membership
        partitions = self._image.partitions.values()
        held = Counter(node for each in partitions for node in each.replicas)
        led = Counter(each.leader for each in partitions)
        for node_id in sorted({*self._image.nodes, *membership.nodes, self._broker.node_id}):
            registered = self._image.registrations.get(node_id)
            addresses = registered.addresses if registered is not None else {}
            yield NodeStatus(
                node_id=node_id,
                alive=self._image.is_live(node_id),
                listeners=self._listeners(node_id, addresses),
                rack=registered.rack if registered is not None else "",
                role=self._role(node_id),
                feature_level=registered.feature_level if registered is not None else None,
                replicas=held[node_id],
                leads=led[node_id],
            )

    def _role(self, node_id: int) -> Literal["voter", "learner", "none", "etcd"]:
        if self._broker.settings.metadata_quorum == "etcd":
            return "etcd"
        membership = self._broker.quorum.membership
        if node_id in membership.voters:
            return "voter"
        return "learner" if node_id in membership.learners else "none"

    def _listeners(self, node_id: int, addresses: Mapping[str, str]) -> tuple[ListenerStatus, ...]:
        """This node's own listeners, or those that another node has registered."""
        if node_id != self._broker.node_id:
            return tuple(
                ListenerStatus(name=name, bound=address, advertised=address)
                for name, address in addresses.items()
            )
        found = []
        for each in self._node.listeners.opened:
            advertised = str(each.advertised) if each.advertised else None
            if each.name == "peer":
                # The address at which other nodes reach this one, which differs from the bound one
                # if that is a wildcard.
                advertised = advertised or addresses.get("peer")
            found.append(
                ListenerStatus(name=each.name, bound=str(each.bound), advertised=advertised)
            )
        return tuple(found)

    def _copies(self) -> int:
        """Replicas that a new topic gets by default, at most one per live node."""
        live = len(self._image.nodes.keys() - self._image.fenced)
        return min(live, self._broker.topics.default_factor(live))

    def _few_copies(self) -> Iterator[FewCopies]:
        wanted = self._copies()
        for name, topic in self._image.topics.items():
            copies = min(len(each.target or each.replicas) for each in topic.partitions)
            if copies < wanted:
                yield FewCopies(topic=name, copies=copies)

    def mlog_events(self, caller: Caller) -> MlogEvents:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        return MlogEvents(items=tuple(map(Raw, self._node.mlog_events())))

    # ---- membership

    async def add_node(self, caller: Caller, node: NewNode) -> Told:
        self._access.require_cluster(caller, Operation.ALTER)
        with self._recorded("node.add", caller, node.node_id, node.address):
            await self._ask(AddNode(node_id=node.node_id, address=node.address))
        return Told(detail=f"node {node.node_id} may join; it votes once it has caught up")

    async def remove_node(self, caller: Caller, name: NodeId) -> Told:
        self._access.require_cluster(caller, Operation.ALTER)
        with self._recorded("node.remove", caller, name):
            reply = await self._ask(RemoveNode(node_id=name))
        detail = reply.text or f"node {name} does not belong to the cluster any more"
        return Told(detail=detail, waiting_replicas=len(self._image.held_by(name)))

    # ---- leaders

    async def transfer(self, caller: Caller, wanted: Transfer) -> Told:
        self._access.require_cluster(caller, Operation.ALTER)
        done = []
        for node in (wanted.relieve, wanted.metadata_to):
            if node is not None and node >= 0 and node not in self._image.registrations:
                raise ApiError(404, "unknown_node", f"there is no node {node}")
        if wanted.relieve is not None:
            with self._recorded("node.relieve", caller, wanted.relieve):
                await self._ask(Relieve(node_id=wanted.relieve))
            done.append(f"in-sync replicas elsewhere lead the partitions of node {wanted.relieve}")
        if wanted.metadata_to is not None:
            with self._recorded("metadata.transfer", caller, wanted.metadata_to):
                await self._ask(TransferMetadata(node_id=wanted.metadata_to))
            done.append("leadership of the metadata is being transferred")
        if not done:
            raise ApiError(400, "invalid_request", "expected metadata_to or relieve")
        return Told(detail="; ".join(done))

    async def elect(self, caller: Caller, wanted: Election) -> Elected:
        self._access.require_cluster(caller, Operation.ALTER)
        partitions = self._partitions(wanted.topic, wanted.partition)
        leadership = self._broker.leadership
        node_id = wanted.unclean_node
        if node_id is not None:
            if wanted.topic is None or wanted.partition is None:
                text = "an unclean election needs a topic and a partition"
                raise ApiError(400, "invalid_request", text)
            chosen = partitions[0]
            actor, about = Actor(caller, "http"), (f"partition {chosen.index}: node {node_id}",)
            topic = f"topic:{wanted.topic}"
            with recorded(self._broker.audit, "leader.elect_unclean", actor, topic, about):
                await future_of(leadership.elect_unclean(chosen, node_id))
            detail = f"node {node_id} leads {_name(chosen)}; what it lacked is lost"
            return Elected(detail=detail, elected=1)
        due = [each for each in partitions if each.leader != each.replicas[0]]
        able = [each for each in due if each.replicas[0] in each.in_sync]
        outcomes = await _begun(able, leadership.elect_preferred)
        elected = sum(each is None for each in outcomes)
        # The partitions may have changed since the elections were planned.
        late = sum(isinstance(each, PreferredLeaderNotAvailable) for each in outcomes)
        over = sum(isinstance(each, ElectionNotNeeded) for each in outcomes)
        expected = (ElectionNotNeeded, PreferredLeaderNotAvailable)
        tried = [
            (partition, each)
            for partition, each in zip(able, outcomes, strict=False)
            if not isinstance(each, expected)
        ]
        self._note_each("leader.elect", caller, tried, lambda each: f"node {each.replicas[0]}")
        failures = [None if isinstance(each, expected) else each for each in outcomes]
        so_far = f"preferred leaders elected: {elected}" if elected else ""
        _check(list(zip(able, failures, strict=False)), so_far)
        unable = len(due) - len(able) + late
        remaining = len(able) - elected - late - over
        text = f"preferred leaders elected: {elected}"
        return Elected(
            detail=f"{text}; not in sync yet: {unable}" if unable else text,
            elected=elected,
            unable=unable,
            remaining=remaining,
        )

    # ---- settings

    def changed_settings(self, caller: Caller) -> ChangedSettings:
        self._access.require_cluster(caller, Operation.DESCRIBE_CONFIGS)
        return ChangedSettings(
            items=tuple(
                ChangedSetting(
                    node_id=None if node == EVERY_NODE else node,
                    name=name,
                    value=None if is_inert(name) else value,
                )
                for node, config in sorted(self._image.node_configs.items())
                for name, value in sorted(config.items())
            )
        )

    async def change_settings(self, caller: Caller, wanted: NewSettings) -> Told:
        self._access.require_cluster(caller, Operation.ALTER_CONFIGS)
        node = EVERY_NODE if wanted.node_id is None else wanted.node_id
        if wanted.node_id is not None and node not in self._image.registrations:
            raise ApiError(404, "unknown_node", f"there is no node {node}")
        for key in (*wanted.values, *wanted.unset):
            # Kafka's clients may store such a key; an operator's is a slip of the pen.
            if is_inert(key):
                require_dynamic(key)

        def alter(config: Mapping[str, str]) -> dict[str, str]:
            left = {key: text for key, text in config.items() if key not in wanted.unset}
            return {**left, **wanted.values}

        details = [f"{key}={text}" for key, text in wanted.values.items()]
        details += [f"{key} unset" for key in wanted.unset]
        where = "all nodes" if wanted.node_id is None else f"node {node}"
        with self._recorded("config.change", caller, node, *details):
            await future_of(self._broker.node_configs.alter(node, alter))
        return Told(detail=f"in force on {where}: {', '.join(details) or 'nothing new'}")

    # ---- replicas

    async def move_replicas(self, caller: Caller, wanted: NewMoves) -> Moves:
        self._access.require_cluster(caller, Operation.ALTER)
        partitions = self._partitions(wanted.topic, wanted.partition)
        if wanted.throttle is not None:
            details = [f"{_THROTTLE}={wanted.throttle}"]
            with self._recorded("config.change", caller, EVERY_NODE, *details):
                await self._throttle(wanted.throttle)
            if not (wanted.nodes or wanted.cancel or wanted.drain is not None):
                return Moves(items=())
        if wanted.cancel:
            return await self._cancel(caller, [each for each in partitions if each.target])
        if wanted.drain is not None and not wanted.nodes:
            plan = drain(self._image, partitions, wanted.drain, may_shrink=wanted.shrink)
        elif wanted.nodes and wanted.drain is None:
            plan = self._spread(wanted, partitions)
        else:
            raise ApiError(400, "invalid_request", "name either nodes, or one node to drain")
        leadership = self._broker.leadership

        async def begin(change: tuple[PartitionMetadata, tuple[int, ...]]) -> None:
            await leadership.move(*change, may_resize=True)

        outcomes = await _begun(plan, begin)
        moved = [partition for partition, _ in plan]
        targets = {partition.partition_id: replicas for partition, replicas in plan}
        self._note_each(
            "replicas.move",
            caller,
            list(zip(moved, outcomes, strict=False)),
            lambda each: f"to nodes {', '.join(map(str, targets[each.partition_id]))}",
        )
        return _moves(moved, outcomes, "begun")

    async def _throttle(self, bytes_per_s: int) -> None:
        def alter(config: Mapping[str, str]) -> dict[str, str]:
            return {**config, _THROTTLE: str(bytes_per_s)}

        configs = self._broker.node_configs
        await future_of(configs.alter(EVERY_NODE, alter))

    def _spread(self, wanted: NewMoves, partitions: list[PartitionMetadata]) -> Plan:
        if wanted.partition is None:
            return spread(self._image, partitions, wanted.nodes, wanted.factor)
        # For one partition the order counts as well: the first node is the preferred leader.
        if wanted.factor not in (None, len(wanted.nodes)):
            text = "one partition is placed on all nodes that are named"
            raise ApiError(400, "invalid_request", text)
        return [(partitions[0], wanted.nodes)]

    async def _cancel(self, caller: Caller, partitions: list[PartitionMetadata]) -> Moves:
        outcomes = await _begun(partitions, self._broker.leadership.cancel_move)
        # A move that has ended in the meantime need not be cancelled.
        ended = [
            each if not isinstance(each, NoReassignmentInProgress) else None for each in outcomes
        ]
        self._note_each(
            "replicas.cancel",
            caller,
            list(zip(partitions, ended, strict=False)),
            lambda each: f"from nodes {', '.join(map(str, each.replicas))}",
        )
        return _moves(partitions, ended, "taken back")

    # ---- shared

    def _recorded(
        self, action: str, caller: Caller, node_id: int, *details: str
    ) -> AbstractContextManager[None]:
        actor = Actor(caller, "http")
        return recorded(self._broker.audit, action, actor, f"node:{node_id}", details or ("",))

    def _note_each(
        self,
        action: str,
        caller: Caller,
        answered: Sequence[tuple[PartitionMetadata, DragomanError | None]],
        detail_of: Callable[[PartitionMetadata], str],
    ) -> None:
        acts = [
            Act(f"topic:{each.topic.name}", f"partition {each.index}: {detail_of(each)}", error)
            for each, error in answered
        ]
        note_each(self._broker.audit, action, Actor(caller, "http"), acts)

    def _partitions(self, topic: str | None, index: int | None) -> list[PartitionMetadata]:
        if topic is None:
            if index is not None:
                raise ApiError(400, "invalid_request", "a partition needs its topic")
            return list(self._image.partitions.values())
        found = self._image.topics.get(topic)
        if found is None:
            raise ApiError(404, "unknown_topic", f"there is no topic {topic!r}")
        if index is None:
            return list(found.partitions)
        if index >= len(found.partitions):
            raise ApiError(404, "unknown_topic", f"topic {topic!r} has no partition {index}")
        return [found.partitions[index]]

    async def _ask(self, request: PartitionRequest | MembershipRequest) -> ControlReply:
        reply = await future_of(self._broker.cluster.access.request(request))
        if reply is None:
            raise OutcomeUnknownError(
                "the node that leads the metadata did not answer; the outcome is unknown"
            )
        if Decision.ACCEPTED not in reply.outcomes:
            raise ApiError(409, "refused", reply.text or "refused")
        return reply


def _shown(items: Iterator[Item]) -> Iterator[Item]:
    """The first items, up to the bound of a response."""
    return islice(items, limits.HTTP_PAGE_ITEMS_MAX)


def _name(partition: PartitionMetadata) -> str:
    return f"{partition.topic.name}-{partition.index}"


def _wants_attention(partition: PartitionMetadata) -> bool:
    return partition.unclean_epoch >= 0 or partition.is_under_replicated


def _status(partition: PartitionMetadata) -> PartitionStatus:
    return PartitionStatus(
        topic=partition.topic.name,
        partition=partition.index,
        leader=partition.leader if partition.leader != NO_LEADER else None,
        replicas=partition.replicas,
        in_sync=partition.in_sync,
        target=partition.target,
        unclean_epoch=partition.unclean_epoch if partition.unclean_epoch >= 0 else None,
    )


async def _begun(
    items: Sequence[Item], begin: Callable[[Item], Coroutine[object, None, None]]
) -> list[DragomanError | None]:
    """Begin the items in order, a few at a time, until the request's time is used up.

    Returns the results of the items that were begun. No item is begun after a refusal.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + limits.HTTP_CHANGES_SECONDS
    outcomes: list[DragomanError | None] = []
    at_once = limits.HTTP_CHANGES_AT_ONCE_MAX
    for index in range(0, min(len(items), limits.HTTP_CHANGES_MAX), at_once):
        is_refused = any(each is not None for each in outcomes[-at_once:])
        if is_refused or (index and loop.time() >= until):
            break
        some = items[index : min(index + at_once, limits.HTTP_CHANGES_MAX)]
        tried = await future_of(gather([start(attempt(begin(each))) for each in some]))
        outcomes += tried
    return outcomes


def _moves(
    partitions: Sequence[PartitionMetadata], outcomes: Sequence[DragomanError | None], done: str
) -> Moves:
    """The response. Raises an error that says how many items were done."""
    answered = list(zip(partitions, outcomes, strict=False))
    begun = [partition for partition, outcome in answered if outcome is None]
    _check(answered, f"{len(begun)} of {len(partitions)} moves were {done}" if begun else "")
    return Moves(items=tuple(map(_status, begun)), remaining=len(partitions) - len(begun))


def _check(answered: Sequence[tuple[PartitionMetadata, DragomanError | None]], so_far: str) -> None:
    """Raises the first error. An unknown outcome after a success is not an error: the caller
    repeats the request, which is idempotent.
    """
    for partition, outcome in answered:
        if outcome is not None and not (so_far and isinstance(outcome, OutcomeUnknownError)):
            raise _interrupted(outcome, partition, so_far)


def _interrupted(error: DragomanError, partition: PartitionMetadata, so_far: str) -> DragomanError:
    """The error, prefixed with what the request had done before."""
    if not so_far:
        return error
    return ApiError(409, "refused", f"{so_far}; {_name(partition)}: {error}")
