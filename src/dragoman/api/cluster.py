"""What operators ask of the cluster through the HTTP API: who belongs to it, leads, and holds what.

Whatever is asked goes to the node that leads the metadata, wherever it is; every refusal says what
to do instead.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

import msgspec

from dragoman import limits
from dragoman.api.errors import ApiError
from dragoman.api.values import (
    Elected,
    Election,
    FewCopies,
    ListenerStatus,
    Moves,
    NewMoves,
    NewNode,
    NodeStatus,
    PartitionStatus,
    Told,
    Transfer,
)
from dragoman.broker import planning
from dragoman.broker.broker import Broker
from dragoman.broker.errors import (
    ElectionNotNeeded,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
)
from dragoman.broker.replication.messages import (
    AddNode,
    ControlReply,
    ControlRequest,
    Decision,
    Relieve,
    RemoveNode,
    TransferMetadata,
)
from dragoman.cluster.metadata import EVERY_NODE, NO_LEADER, PartitionMetadata
from dragoman.errors import DragomanError, OutcomeUnknownError
from dragoman.net.future import future_of
from dragoman.outcome import Outcome, attempt, gather, start

Item = TypeVar("Item")


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What is not as it should be."""

    leaderless: int
    under_replicated: int
    unclean: int
    attention: tuple[PartitionStatus, ...]
    copies: int
    few_copies: tuple[FewCopies, ...]


class ClusterOperations:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._image = broker.image

    # ---- how it is

    def nodes(self, own_listeners: tuple[ListenerStatus, ...]) -> tuple[NodeStatus, ...]:
        membership = self._broker.quorum.membership
        partitions = self._image.partitions.values()
        held = Counter(node for each in partitions for node in each.replicas)
        led = Counter(each.leader for each in partitions)
        known = {*self._image.nodes, *membership.nodes, self._broker.node_id}
        found = []
        for node_id in sorted(known):
            registered = self._image.registrations.get(node_id)
            addresses = registered.addresses if registered is not None else {}
            others = tuple(
                ListenerStatus(name=name, bound=address, advertised=address)
                for name, address in addresses.items()
            )
            is_voter = node_id in membership.voters
            role = "voter" if is_voter else "learner" if node_id in membership.learners else "none"
            if self._broker.settings.metadata_quorum == "etcd":
                role = "etcd"
            found.append(
                NodeStatus(
                    node_id=node_id,
                    alive=self._broker.cluster.membership.is_live(node_id),
                    listeners=_own(own_listeners, addresses)
                    if node_id == self._broker.node_id
                    else others,
                    rack=registered.rack if registered is not None else "",
                    role=role,  # type: ignore[arg-type]
                    feature_level=registered.feature_level if registered is not None else None,
                    replicas=held[node_id],
                    leads=led[node_id],
                )
            )
        return tuple(found)

    def trouble(self) -> Trouble:
        partitions = list(self._image.partitions.values())
        # Whoever waits for moves finds them here, however much else there is.
        moving = (each for each in partitions if each.target)
        others = (each for each in partitions if not each.target and _wants_attention(each))
        noted = chain(moving, others)
        return Trouble(
            leaderless=sum(each.leader == NO_LEADER for each in partitions),
            under_replicated=sum(map(_is_under_replicated, partitions)),
            unclean=sum(each.unclean_epoch >= 0 for each in partitions),
            attention=tuple(map(_status, islice(noted, limits.HTTP_PAGE_ITEMS_MAX))),
            copies=self._copies(),
            few_copies=tuple(islice(self._few_copies(), limits.HTTP_PAGE_ITEMS_MAX)),
        )

    def _copies(self) -> int:
        """As many as can be had now, of those that topics get by default."""
        live = len(self._image.nodes.keys() - self._image.fenced)
        return min(live, self._broker.topics.default_factor(live))

    def _few_copies(self) -> Iterator[FewCopies]:
        wanted = self._copies()
        for name, topic in self._image.topics.items():
            copies = min(len(each.target or each.replicas) for each in topic.partitions)
            if copies < wanted:
                yield FewCopies(topic=name, copies=copies)

    # ---- who belongs to it

    async def add_node(self, node: NewNode) -> Told:
        await self._ask(AddNode(node_id=node.node_id, address=node.address))
        return Told(detail=f"node {node.node_id} may join; it votes once it has caught up")

    async def remove_node(self, node_id: int) -> Told:
        reply = await self._ask(RemoveNode(node_id=node_id))
        detail = reply.text or f"node {node_id} does not belong to the cluster any more"
        return Told(detail=detail, waiting_replicas=len(self._image.held_by(node_id)))

    # ---- who leads

    async def transfer(self, wanted: Transfer) -> Told:
        told = []
        if wanted.relieve is not None:
            await self._ask(Relieve(node_id=wanted.relieve))
            told.append(f"others lead what node {wanted.relieve} led, as far as they are in sync")
        if wanted.metadata_to is not None:
            await self._ask(TransferMetadata(node_id=wanted.metadata_to))
            told.append("the lead of the metadata is being handed over")
        if not told:
            raise ApiError(400, "invalid_request", "nothing is asked for: metadata_to or relieve")
        return Told(detail="; ".join(told))

    async def elect(self, wanted: Election) -> Elected:
        partitions = self._partitions(wanted.topic, wanted.partition)
        leadership = self._broker.leadership
        node_id = wanted.unclean_node
        if node_id is not None:
            if wanted.topic is None or wanted.partition is None:
                raise ApiError(400, "invalid_request", "name one partition for an unclean election")
            chosen = partitions[0]
            await future_of(leadership.elect_unclean(chosen, node_id))
            detail = f"node {node_id} leads {_name(chosen)}; what it lacked is lost"
            return Elected(detail=detail, elected=1)
        due = [each for each in partitions if each.leader != each.replicas[0]]
        able = [each for each in due if each.replicas[0] in each.in_sync]
        outcomes = await _begun(able, leadership.elect_preferred)
        elected = sum(each is None for each in outcomes)
        # They may have changed since they were looked at.
        late = sum(isinstance(each, PreferredLeaderNotAvailable) for each in outcomes)
        over = sum(isinstance(each, ElectionNotNeeded) for each in outcomes)
        expected = (ElectionNotNeeded, PreferredLeaderNotAvailable)
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

    # ---- who holds what

    async def move(self, wanted: NewMoves) -> Moves:
        partitions = self._partitions(wanted.topic, wanted.partition)
        if wanted.throttle is not None:
            await self._throttle(wanted.throttle)
            if not (wanted.nodes or wanted.cancel or wanted.drain is not None):
                return Moves(items=())
        if wanted.cancel:
            return await self._cancel([each for each in partitions if each.target])
        if wanted.drain is not None and not wanted.nodes:
            plan = planning.drain(self._image, partitions, wanted.drain, may_shrink=wanted.shrink)
        elif wanted.nodes and wanted.drain is None:
            plan = self._spread(wanted, partitions)
        else:
            raise ApiError(400, "invalid_request", "name either nodes, or one node to drain")
        leadership = self._broker.leadership

        async def begin(change: tuple[PartitionMetadata, tuple[int, ...]]) -> None:
            await leadership.move(*change, may_resize=True)

        return _moves([each for each, _ in plan], await _begun(plan, begin), "begun")

    async def _throttle(self, bytes_per_s: int) -> None:
        def alter(config: Mapping[str, str]) -> dict[str, str]:
            return {**config, "leader.replication.throttled.rate": str(bytes_per_s)}

        configs = self._broker.node_configs
        await future_of(configs.alter(EVERY_NODE, alter))

    def _spread(self, wanted: NewMoves, partitions: list[PartitionMetadata]) -> planning.Plan:
        if wanted.partition is None:
            return planning.spread(self._image, partitions, wanted.nodes, wanted.factor)
        # Said for one partition, the order counts as well: the first one is to lead.
        if wanted.factor not in (None, len(wanted.nodes)):
            raise ApiError(400, "invalid_request", "one partition is held by all nodes named")
        return [(partitions[0], wanted.nodes)]

    async def _cancel(self, partitions: list[PartitionMetadata]) -> Moves:
        outcomes = await _begun(partitions, self._broker.leadership.cancel_move)
        # One that has ended meanwhile needs not be taken back.
        ended = [
            each if not isinstance(each, NoReassignmentInProgress) else None for each in outcomes
        ]
        return _moves(partitions, ended, "taken back")

    # ---- shared

    def _partitions(self, topic: str | None, index: int | None) -> list[PartitionMetadata]:
        if topic is None:
            if index is not None:
                raise ApiError(400, "invalid_request", "a partition is named without its topic")
            return list(self._image.partitions.values())
        found = self._image.topics.get(topic)
        if found is None:
            raise ApiError(404, "unknown_topic", f"there is no topic {topic!r}")
        if index is None:
            return list(found.partitions)
        if index >= len(found.partitions):
            raise ApiError(404, "unknown_topic", f"topic {topic!r} has no partition {index}")
        return [found.partitions[index]]

    async def _ask(self, request: ControlRequest) -> ControlReply:
        answer: Outcome[ControlReply | None] = Outcome()
        self._broker.cluster.ask(request, answer.succeed)
        reply = await future_of(answer)
        if reply is None:
            raise OutcomeUnknownError(
                "the node that leads the metadata did not answer; the outcome is unknown"
            )
        if Decision.ACCEPTED not in reply.outcomes:
            raise ApiError(409, "refused", reply.text or "refused")
        return reply


def _own(
    listeners: tuple[ListenerStatus, ...], addresses: Mapping[str, str]
) -> tuple[ListenerStatus, ...]:
    """With where other nodes reach this one, also if it listens on all addresses."""
    return tuple(
        msgspec.structs.replace(each, advertised=each.advertised or addresses.get("peer"))
        if each.name == "peer"
        else each
        for each in listeners
    )


def _name(partition: PartitionMetadata) -> str:
    return f"{partition.topic.name}-{partition.index}"


def _is_under_replicated(partition: PartitionMetadata) -> bool:
    """Whether a replica is missing that is not just on its way."""
    return any(node not in partition.in_sync for node in partition.before or partition.replicas)


def _wants_attention(partition: PartitionMetadata) -> bool:
    return partition.unclean_epoch >= 0 or _is_under_replicated(partition)


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
    """Begin items in turn, some at a time, for as long as a request may take; what became of those
    that there was time for. After one that was refused nothing more is begun.
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
    """The answer. Raises an error that says how far it came."""
    answered = list(zip(partitions, outcomes, strict=False))
    begun = [partition for partition, outcome in answered if outcome is None]
    _check(answered, f"{len(begun)} of {len(partitions)} moves were {done}" if begun else "")
    return Moves(items=tuple(map(_status, begun)), remaining=len(partitions) - len(begun))


def _check(answered: Sequence[tuple[PartitionMetadata, DragomanError | None]], so_far: str) -> None:
    """Raises the first error that is one. What may or may not have happened, after other things
    did, is none: it is asked for again, and nothing happens twice.
    """
    for partition, outcome in answered:
        if outcome is not None and not (so_far and isinstance(outcome, OutcomeUnknownError)):
            raise _interrupted(outcome, partition, so_far)


def _interrupted(error: DragomanError, partition: PartitionMetadata, so_far: str) -> DragomanError:
    """The error, which says how far the request has come if it has."""
    if not so_far:
        return error
    return ApiError(409, "refused", f"{so_far}; {_name(partition)}: {error}")
