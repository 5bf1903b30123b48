"""Requests to the controller: from this node to the controller, and from any node to this one.

The controller runs on the leader of the metadata. Replication retries its own requests, so they
fail at once while there is no controller. Requests of operators wait for one, and are answered when
this node's image shows the result.

With etcd, a node without a lease gets no new metadata, so the controller does not count its
heartbeats.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol

import msgspec

from dragoman.broker.changes import Changes
from dragoman.broker.context import NodeContext
from dragoman.broker.membership import Membership
from dragoman.cluster.etcd.quorum import EtcdQuorum
from dragoman.cluster.metadata import NO_LEADER
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.limits import CONTROLLER_PATIENCE_S, CONTROLLER_RETRY_S
from dragoman.outcome import Outcome, ignore, pause, start
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
from dragoman.replication.ports import Controlled

log = logging.getLogger("dragoman.cluster")


class ControllerLinks(Protocol):
    def control(self, node_id: int, request: ControlRequest, done: Controlled, /) -> None: ...


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

    def ask(self, request: ControlRequest, done: Controlled) -> None:
        """For replication: `done` receives None at once while no controller can be reached."""
        answered = partial(self._registered, done) if isinstance(request, Registration) else done
        if self.is_controller or self._leader_elsewhere != NO_LEADER:
            self._send(request, answered)
        else:
            self._scheduler.call_soon(answered, None)

    async def request(self, request: PartitionRequest | MembershipRequest) -> ControlReply | None:
        """For operators: waits for a controller, and for the result in this node's image.

        None: the outcome is unknown.
        """
        until = self._scheduler.time() + CONTROLLER_PATIENCE_S
        # After an election the leader does not know the committed end at once.
        while not self.is_controller and self._leader_elsewhere == NO_LEADER:
            if self._scheduler.time() >= until:
                return None
            await pause(self._scheduler, CONTROLLER_RETRY_S)
        outcome: Outcome[ControlReply | None] = Outcome()
        self._send(request, outcome.succeed)
        reply = await outcome
        if reply is not None:
            await self._changes.when_seen(reply.version)
        return reply

    @property
    def _leader_elsewhere(self) -> int:
        leader = self._quorum.leader
        return NO_LEADER if leader == self._node_id else leader

    def _send(self, request: ControlRequest, done: Controlled) -> None:
        if self.is_controller:
            self.serve(request, done)
        else:
            self._links.control(self._leader_elsewhere, request, done)

    def _registered(self, done: Controlled, reply: ControlReply | None) -> None:
        if reply is not None:
            if reply.text and reply.text != self._reported:
                log.error("%s", reply.text)
            self._reported = reply.text
        done(reply)

    # ---- incoming

    def serve(self, request: ControlRequest, answer: Controlled) -> None:
        """Answer a node, perhaps this one; None if this node is not the controller."""
        if not self.is_controller:
            answer(None)
        elif isinstance(request, PartitionRequest | MembershipRequest):
            start(self._serve_operator(request, answer)).then(ignore)
        elif isinstance(request, Registration | Heartbeat) and not self._reaches_etcd(request):
            answer(None)
        elif isinstance(request, Registration) and (objection := self._objection(request)):
            answer(ControlReply(outcomes=(Decision.REFUSED,), text=objection))
        else:
            self._controller.ask(request, answer)

    async def _serve_operator(
        self, request: PartitionRequest | MembershipRequest, answer: Controlled
    ) -> None:
        if isinstance(request, MembershipRequest):
            reply = await self._membership.change(request)
        else:
            outcome: Outcome[ControlReply | None] = Outcome()
            self._controller.ask(request, outcome.succeed)
            reply = await outcome
        if reply is not None:
            reply = msgspec.structs.replace(reply, version=self._quorum.version)
        answer(reply)

    def _reaches_etcd(self, request: Registration | Heartbeat) -> bool:
        node_id = request.node_id if isinstance(request, Registration) else request.member.node_id
        return not isinstance(self._quorum, EtcdQuorum) or node_id in self._quorum.nodes

    def _objection(self, request: Registration) -> str:
        """The reason for refusing a registration; empty: accept it."""
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
