"""Membership of the cluster: nodes join, leave, and hand over the leadership of the metadata.

A node that is *added* with its address becomes a learner of the quorum; the leader makes it a voter
once it has all committed entries. A node that is *removed* leaves the quorum, which forgets its
data directory, and the metadata, unless replicas are still assigned to it: then it may be added
again, with another disk, and gets them back. All of this runs on the leader of the metadata.

With etcd, nodes join by registering, and etcd alone decides which node leads. Only a node that is
gone for good has to be removed.
"""

from __future__ import annotations

import logging
from typing import Protocol, assert_never

from dragoman.cluster.events import Event, NodeAdded, NodeRemoved
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.config.hosts import parse_nodes
from dragoman.errors import ClusterError, DragomanError, OutcomeUnknownError
from dragoman.outcome import start
from dragoman.plural import plural
from dragoman.replication.controller import Controller
from dragoman.replication.messages import (
    NONE,
    AddNode,
    ControlReply,
    Decision,
    MembershipRequest,
    RemoveNode,
    TransferMetadata,
)

log = logging.getLogger("dragoman.cluster")
_ACCEPTED = ControlReply(outcomes=(Decision.ACCEPTED,))
_NAMED_MAX = 5


class Membership(Protocol):
    def begin(self) -> None:
        """This node leads the metadata, and its image has everything committed before."""
        ...

    async def change(self, request: MembershipRequest) -> ControlReply | None:
        """None: the outcome is unknown."""
        ...


class QuorumMembership:
    def __init__(self, image: MetadataImage, quorum: RaftQuorum, controller: Controller) -> None:
        self._image = image
        self._quorum = quorum
        self._controller = controller

    def begin(self) -> None:
        """Continue, as a new leader, what the previous leader may not have completed."""
        if not self._quorum.driver.raft.is_membership_recorded:
            self._quorum.driver.record_membership().then(_recorded)
        for node_id in self._quorum.membership.learners:
            start(self._promote(node_id)).then(_promoted)

    async def change(self, request: MembershipRequest) -> ControlReply | None:
        try:
            match request:
                case AddNode():
                    return await self._add(request)
                case RemoveNode():
                    return await self._remove(request.node_id)
                case TransferMetadata():
                    return self._transfer(request.node_id)
                case _:
                    assert_never(request)
        except OutcomeUnknownError:
            return None
        except DragomanError as error:
            return _refused(error)

    # ---- joining

    async def _add(self, request: AddNode) -> ControlReply | None:
        node_id = request.node_id
        address = str(parse_nodes([f"{node_id}@{request.address}"])[node_id])
        if node_id in self._quorum.membership.voters:
            raise ClusterError(f"node {node_id} belongs to the cluster already")
        others = {n: each for n, each in self._image.added.items() if n != node_id}
        others |= {
            n: each.addresses.get("peer", "")
            for n, each in self._image.registrations.items()
            if n != node_id
        }
        for other, where in others.items():
            if where == address:
                raise ClusterError(f"node {other} is at {address}")

        def decide() -> tuple[list[Event], ControlReply]:
            if self._image.added.get(node_id) == address:
                return [], _ACCEPTED
            return [NodeAdded(node_id=node_id, address=address)], _ACCEPTED

        reply = await self._controller.decide(decide)
        if reply is _ACCEPTED:
            await self._promote(node_id)
        return reply

    async def _promote(self, node_id: int) -> None:
        """Returns when the node is a learner; it becomes a voter once it has caught up."""
        promoted = await self._quorum.driver.add(node_id)
        promoted.then(_promoted)

    # ---- leaving

    async def _remove(self, node_id: int) -> ControlReply | None:
        belongs = node_id in self._quorum.membership.nodes
        if not belongs and node_id not in self._image.nodes and node_id not in self._image.added:
            raise ClusterError(f"there is no node {node_id} in the cluster")
        held = self._image.held_by(node_id)
        if held and self._image.is_live(node_id):
            raise ClusterError(
                f"node {node_id} holds {_named(held)}: move that away first, "
                f"with `dragoman cluster reassign --from {node_id}`"
            )
        if belongs:
            self._check_quorum_without(node_id)
            await self._quorum.driver.remove(node_id)
        if not held:
            return await self._controller.decide(lambda: (self._forget(node_id), _ACCEPTED))
        text = (
            f"node {node_id} is out of the quorum, and {_named(held)} wait for it: add it "
            f"again, or have others take that with `dragoman cluster remove {node_id}`"
        )
        return ControlReply(outcomes=(Decision.ACCEPTED,), text=text)

    def _forget(self, node_id: int) -> list[Event]:
        if self._image.held_by(node_id):
            raise ClusterError(f"node {node_id} was assigned a replica meanwhile")
        return [NodeRemoved(node_id=node_id)]

    def _check_quorum_without(self, node_id: int) -> None:
        membership = self._quorum.membership.without(node_id)
        if self._quorum.leader == node_id:
            # A leader that is removed could not notify the other nodes.
            self._transfer(NONE)
            raise ClusterError(
                f"node {node_id} leads the metadata and is handing that over: retry in a moment"
            )
        live = [each for each in membership.voters if self._image.is_live(each)]
        if not membership.has_majority(live):
            missing = ", ".join(str(each) for each in membership.voters if each not in live)
            raise ClusterError(
                f"without node {node_id} too few could vote: node {missing} is not there; "
                "start it, or remove it first"
            )

    # ---- handing over

    def _transfer(self, node_id: int) -> ControlReply:
        target = self.successor() if node_id == NONE else node_id
        if target != self._quorum.leader:
            self._quorum.driver.transfer(target)
        return _ACCEPTED

    def hand_over(self) -> None:
        """Before a clean stop of the leader. Raises `ClusterError`."""
        self._quorum.driver.transfer(self.successor())

    def successor(self) -> int:
        """The voter to lead the metadata next: the live one whose log is longest."""
        leader = self._quorum.leader
        ends = self._quorum.ends()
        others = [each for each in self._quorum.membership.voters if each != leader]
        live = [each for each in others if self._image.is_live(each)] or others
        if not live:
            raise ClusterError("there is no other voter to lead the metadata")
        return max(live, key=lambda each: ends.get(each, 0))


class EtcdMembership:
    """Requests of operators when the metadata is in etcd."""

    def __init__(self, image: MetadataImage, controller: Controller) -> None:
        self._image = image
        self._controller = controller

    def begin(self) -> None:
        """Nothing to continue: there are no learners."""

    async def change(self, request: MembershipRequest) -> ControlReply | None:
        match request:
            case AddNode():
                text = (
                    "the metadata is in etcd, where nodes join by themselves: start node "
                    f"{request.node_id} with the same metadata.etcd settings"
                )
                return _refused(ClusterError(text))
            case TransferMetadata():
                text = "the metadata is in etcd, which decides who leads it"
                return _refused(ClusterError(text))
            case RemoveNode():
                node_id = request.node_id
                return await self._controller.decide(lambda: (self._forget(node_id), _ACCEPTED))
            case _:
                assert_never(request)

    def _forget(self, node_id: int) -> list[Event]:
        if node_id not in self._image.nodes:
            raise ClusterError(f"there is no node {node_id} in the cluster")
        held = self._image.held_by(node_id)
        if held:
            raise ClusterError(
                f"node {node_id} holds {_named(held)}: move that away first, "
                f"with `dragoman cluster reassign --from {node_id}`"
            )
        if self._image.is_live(node_id):
            raise ClusterError(f"node {node_id} would come back by itself: stop it first")
        return [NodeRemoved(node_id=node_id)]


def _named(held: list[PartitionMetadata]) -> str:
    names = [f"{each.topic.name}-{each.index}" for each in held]
    more = ", …" if len(names) > _NAMED_MAX else ""
    return f"{plural(len(names), 'replica')} ({', '.join(names[:_NAMED_MAX])}{more})"


def _refused(error: DragomanError) -> ControlReply:
    return ControlReply(outcomes=(Decision.REFUSED,), text=str(error))


def _promoted(result: DragomanError | None) -> None:
    if result is not None:
        # The next leader continues with it.
        log.debug("a learner is not a voter yet: %s", result)


def _recorded(result: DragomanError | None) -> None:
    if result is not None:
        log.warning("the log has no membership yet: %s", result)
