"""Requests to the controller: from this node to any, and from any node to this one.

The controller runs on the leader of the metadata. Replication repeats its requests by itself, so
they fail at once while there is no controller. Requests of operators wait for one, and return when
the image of this node has the decision.

With etcd, a node without a lease gets no new metadata, so the controller does not count its
heartbeats.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from dragoman.broker.changes import Changes
from dragoman.broker.context import NodeContext
from dragoman.broker.membership import Membership
from dragoman.cluster.metadata import NO_LEADER
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.limits import CONTROLLER_PATIENCE_S, CONTROLLER_RETRY_S
from dragoman.outcome import pause
from dragoman.replication.controller import Controller
from dragoman.replication.messages import (
    ControlReply,
    ControlRequest,
    Decision,
    Heartbeat,
    MembershipRequest,
    PartitionRequest,
    Registration,
)

if TYPE_CHECKING:
    from dragoman.cluster.etcd.quorum import EtcdQuorum

log = logging.getLogger("dragoman.cluster")


class ControllerLinks(Protocol):
    async def control(self, node_id: int, request: ControlRequest, /) -> ControlReply | None: ...


class ControllerAccess:
    def __init__(
        self,
        context: NodeContext,
        quorum: RaftQuorum | EtcdQuorum,
        changes: Changes,
        controller: Controller,
        membership: Membership,
        links: ControllerLinks,
    ) -> None:
        self._node_id = context.settings.node_id
        self._image = context.image
        self._scheduler = context.scheduler
        self._quorum = quorum
        self._changes = changes
        self._controller = controller
        self._membership = membership
        self._links = links
        #: This node leads the metadata, and its image has everything committed before.
        self.is_controller = False
        self._reported = ""

    # ---- outgoing

    async def ask(self, request: ControlRequest) -> ControlReply | None:
        """For replication: None in the next turn while no controller can be reached."""
        if not self._knows_controller:
            await pause(self._scheduler, 0)
            return None
        reply = await self._send(request)
        if reply is not None and isinstance(request, Registration):
            if reply.text and reply.text != self._reported:
                log.error("%s", reply.text)
            self._reported = reply.text
        return reply

    async def request(self, request: PartitionRequest | MembershipRequest) -> ControlReply | None:
        """For operators: waits for a controller, and for the result in this node's image.

        None: the outcome is unknown.
        """
        until = self._scheduler.time() + CONTROLLER_PATIENCE_S
        # After an election the leader does not know at once what was committed before.
        while not self._knows_controller:
            if self._scheduler.time() >= until:
                return None
            await pause(self._scheduler, CONTROLLER_RETRY_S)
        reply = await self._send(request)
        if reply is not None:
            await self._changes.when_seen(reply.version)
        return reply

    @property
    def _knows_controller(self) -> bool:
        return self.is_controller or self._quorum.leader not in (NO_LEADER, self._node_id)

    async def _send(self, request: ControlRequest) -> ControlReply | None:
        if self.is_controller:
            return await self.serve(request)
        return await self._links.control(self._quorum.leader, request)

    # ---- incoming

    async def serve(self, request: ControlRequest) -> ControlReply | None:
        """The reply to a node, perhaps this one; None if this node is not the controller."""
        if not self.is_controller:
            return None
        if isinstance(request, PartitionRequest | MembershipRequest):
            return await self._serve_operator(request)
        if isinstance(request, Registration | Heartbeat) and not self._reaches_etcd(request):
            return None
        if isinstance(request, Registration) and (objection := self._objection(request)):
            return ControlReply(outcomes=(Decision.REFUSED,), text=objection)
        return await self._controller.ask(request)

    async def _serve_operator(
        self, request: PartitionRequest | MembershipRequest
    ) -> ControlReply | None:
        if isinstance(request, MembershipRequest):
            reply = await self._membership.change(request)
        else:
            reply = await self._controller.ask(request)
        if reply is None:
            return None
        return msgspec.structs.replace(reply, version=self._quorum.version)

    def _reaches_etcd(self, request: Registration | Heartbeat) -> bool:
        node_id = request.node_id if isinstance(request, Registration) else request.member.node_id
        return isinstance(self._quorum, RaftQuorum) or node_id in self._quorum.nodes

    def _objection(self, request: Registration) -> str:
        """Why a node may not register; empty if it may."""
        node_id = request.node_id
        known = self._image.registrations.get(node_id)
        if isinstance(self._quorum, RaftQuorum):
            if node_id not in self._quorum.membership.nodes:
                return (
                    f"node {node_id} does not belong to the cluster: "
                    f"`dragoman cluster add {node_id}@HOST:PORT` adds it"
                )
            if known is not None and known.voter_directory not in ("", request.directory):
                return lost_votes(node_id)
        level = self._image.feature_level
        if request.feature_level < level:
            return (
                f"node {node_id} knows feature level {request.feature_level} and the cluster uses "
                f"{level}: run a newer release on it"
            )
        if request.feature_level_min > level:
            return (
                f"node {node_id} needs feature level {request.feature_level_min} and the cluster "
                f"uses {level}: run a release in between, on all nodes, first"
            )
        return ""


def lost_votes(node_id: int) -> str:
    return (
        f"node {node_id} has another data directory than the one it voted from: take it out of "
        f"the cluster with `dragoman cluster remove {node_id} --keep-replicas`, then add it again"
    )
