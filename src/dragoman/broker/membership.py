"""Which nodes belong to the cluster: how they join, leave, and hand on the lead of the metadata.

A node is *added* with its address, and learns; once it has all that is agreed on it votes, which
the leader sees to. A node is *removed* from the quorum, which forgets what it voted from, and from
the metadata, unless replicas are still assigned to it: then it may be added again, with another
disk, and gets them back. Runs where the metadata is led.

With etcd nodes join by registering, and there is nobody to hand the lead to: etcd has it. Only a
node that is gone for good has to be removed.
"""

from __future__ import annotations

import logging
from typing import assert_never

from dragoman.cluster.events import Event, NodeAdded, NodeRemoved
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.config.hosts import parse_nodes
from dragoman.errors import ClusterError, ConfigError, DragomanError, OutcomeUnknownError
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
from dragoman.replication.ports import Controlled

log = logging.getLogger("dragoman.cluster")
_ACCEPTED = ControlReply(outcomes=(Decision.ACCEPTED,))
_NAMED_MAX = 5


class QuorumMembership:
    def __init__(self, image: MetadataImage, quorum: RaftQuorum, controller: Controller) -> None:
        self._image = image
        self._quorum = quorum
        self._controller = controller

    def begin(self) -> None:
        """This node leads the metadata: whoever learns shall vote in the end."""
        if not self._quorum.node.raft.is_membership_told:
            self._quorum.node.write_down_membership(_written)
        for node_id in self._quorum.membership.learners:
            self._quorum.node.add(node_id, _promoted)

    def ask(self, request: MembershipRequest, done: Controlled) -> None:
        try:
            match request:
                case AddNode():
                    self._add(request, done)
                case RemoveNode():
                    self._remove(request.node_id, done)
                case TransferMetadata():
                    self._transfer(request.node_id, done)
                case _:
                    assert_never(request)
        except (ClusterError, ConfigError) as error:
            done(_refused(error))

    def is_live(self, node_id: int) -> bool:
        return node_id in self._image.nodes and node_id not in self._image.fenced

    # ---- joining

    def _add(self, request: AddNode, done: Controlled) -> None:
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

        def agreed(reply: ControlReply | None) -> None:
            if reply is not _ACCEPTED:
                done(reply)
                return
            self._quorum.node.add(node_id, _promoted, lambda error: done(_reply(error)))

        self._controller.decide(decide, agreed)

    # ---- leaving

    def _remove(self, node_id: int, done: Controlled) -> None:
        belongs = node_id in self._quorum.membership.nodes
        if not belongs and node_id not in self._image.nodes and node_id not in self._image.added:
            raise ClusterError(f"there is no node {node_id} in the cluster")
        held = self._image.held_by(node_id)
        if held and self.is_live(node_id):
            raise ClusterError(
                f"node {node_id} holds {_named(held)}: move that away first, "
                f"with `dragoman cluster reassign --from {node_id}`"
            )

        def removed(error: DragomanError | None) -> None:
            if error is not None:
                done(_reply(error))
            elif held:
                text = (
                    f"node {node_id} is out of the quorum, and {_named(held)} wait for it: add it "
                    f"again, or have others take that with `dragoman cluster remove {node_id}`"
                )
                done(ControlReply(outcomes=(Decision.ACCEPTED,), text=text))
            else:
                self._controller.decide(lambda: (self._forget(node_id), _ACCEPTED), done)

        if belongs:
            self._check_quorum_without(node_id)
            self._quorum.node.remove(node_id, removed)
        else:
            removed(None)

    def _forget(self, node_id: int) -> list[Event]:
        if self._image.held_by(node_id):
            raise ClusterError(f"node {node_id} has been given a replica meanwhile")
        return [NodeRemoved(node_id=node_id)]

    def _check_quorum_without(self, node_id: int) -> None:
        membership = self._quorum.membership.without(node_id)
        if self._quorum.leader == node_id:
            # It could not tell anybody that it is gone.
            self._transfer(NONE, _ignore)
            raise ClusterError(
                f"node {node_id} leads the metadata and hands that over now: ask again in a moment"
            )
        there = [each for each in membership.voters if self.is_live(each)]
        if not membership.has_majority(there):
            missing = ", ".join(str(each) for each in membership.voters if each not in there)
            raise ClusterError(
                f"without node {node_id} too few could vote: node {missing} is not there; "
                "start it, or remove it first"
            )

    # ---- handing over

    def _transfer(self, node_id: int, done: Controlled) -> None:
        target = self.successor() if node_id == NONE else node_id
        if target == self._quorum.leader:
            done(_ACCEPTED)
        else:
            self._quorum.node.transfer(target, lambda error: done(_reply(error)))

    def successor(self) -> int:
        """The voter to lead the metadata next: the one that has most of it."""
        leader = self._quorum.leader
        ends = self._quorum.ends()
        others = [each for each in self._quorum.membership.voters if each != leader]
        there = [each for each in others if self.is_live(each)] or others
        if not there:
            raise ClusterError("there is no other voter to lead the metadata")
        return max(there, key=lambda each: ends.get(each, 0))


class EtcdMembership:
    """What operators may ask for when the nodes do not vote."""

    def __init__(self, image: MetadataImage, controller: Controller) -> None:
        self._image = image
        self._controller = controller

    def begin(self) -> None:
        """Nobody learns to vote."""

    def ask(self, request: MembershipRequest, done: Controlled) -> None:
        match request:
            case AddNode():
                text = (
                    "the metadata is in etcd, where nodes join by themselves: start node "
                    f"{request.node_id} with the same metadata.etcd settings"
                )
                done(_refused(ClusterError(text)))
            case TransferMetadata():
                text = "the metadata is in etcd: who leads it is decided there"
                done(_refused(ClusterError(text)))
            case RemoveNode():
                node_id = request.node_id
                self._controller.decide(lambda: (self._forget(node_id), _ACCEPTED), done)
            case _:
                assert_never(request)

    def is_live(self, node_id: int) -> bool:
        return node_id in self._image.nodes and node_id not in self._image.fenced

    def _forget(self, node_id: int) -> list[Event]:
        if node_id not in self._image.nodes:
            raise ClusterError(f"there is no node {node_id} in the cluster")
        held = self._image.held_by(node_id)
        if held:
            raise ClusterError(
                f"node {node_id} holds {_named(held)}: move that away first, "
                f"with `dragoman cluster reassign --from {node_id}`"
            )
        if self.is_live(node_id):
            raise ClusterError(f"node {node_id} would come back by itself: stop it first")
        return [NodeRemoved(node_id=node_id)]


def _named(held: list[PartitionMetadata]) -> str:
    names = [f"{each.topic.name}-{each.index}" for each in held]
    more = ", …" if len(names) > _NAMED_MAX else ""
    count = "1 replica" if len(names) == 1 else f"{len(names)} replicas"
    return f"{count} ({', '.join(names[:_NAMED_MAX])}{more})"


def _refused(error: DragomanError) -> ControlReply:
    return ControlReply(outcomes=(Decision.REFUSED,), text=str(error))


def _reply(error: DragomanError | None) -> ControlReply | None:
    if error is None:
        return _ACCEPTED
    return None if isinstance(error, OutcomeUnknownError) else _refused(error)


def _promoted(error: DragomanError | None) -> None:
    if error is not None:
        # The next leader goes on with it.
        log.debug("a node that learns does not vote yet: %s", error)


def _written(error: DragomanError | None) -> None:
    if error is not None:
        log.warning("who votes is not written down yet: %s", error)


def _ignore(_reply: ControlReply | None) -> None:
    return None
