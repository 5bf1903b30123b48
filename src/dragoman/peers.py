"""The broker's port to the other nodes of the cluster: `Links` over connections.

Five services share the connection between two nodes: votes and entries of the metadata, replication
of partitions, requests to the controller, metadata changes, and remote procedure calls
(`dragoman.rpc`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

import msgspec

from dragoman.broker.changes import Proposal, ProposalReply
from dragoman.broker.cluster_node import ClusterNode
from dragoman.cluster.etcd.quorum import EtcdQuorum
from dragoman.cluster.metadata import MetadataImage
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.config.listeners import Address, parse_address
from dragoman.errors import ClusterError, DecodeError, DragomanError
from dragoman.net.peer_connections import PeerAnswer, PeerConnections, Reply
from dragoman.outcome import Outcome
from dragoman.raft import messages as votes
from dragoman.replication import messages as copies
from dragoman.replication.ports import Controlled, Fetched
from dragoman.rpc import RawReply, Registry, Rpc
from dragoman.types import Buffer
from dragoman.world import Scheduler

log = logging.getLogger("dragoman.peers")
_NOTHING = memoryview(b"")
#: A fetch is parked at the leader; its time-out exceeds the longest wait.
_FETCH_TIMEOUT_S = 5.0
_CONTROL_TIMEOUT_S = 2.0
_CHANGE_TIMEOUT_S = 5.0
_RPC_TIMEOUT_S = 35.0

Struct = TypeVar("Struct", bound=msgspec.Struct)
Read = TypeVar("Read")


class Service(IntEnum):
    VOTES = 1
    COPIES = 2
    CONTROL = 3
    CHANGES = 4
    RPC = 5


class PeerBroker(Protocol):
    """What the services for other nodes need from the broker."""

    #: Called with each node that the controller has fenced.
    on_fenced: list[Callable[[int], None]]
    is_recovered: bool
    node_id: int

    @property
    def is_ready(self) -> bool: ...

    image: MetadataImage
    scheduler: Scheduler

    @property
    def quorum(self) -> RaftQuorum | EtcdQuorum: ...

    cluster: ClusterNode
    rpc: Rpc
    registry: Registry


class Peers:
    """`Links` of a broker. `begin` opens the connections once the broker exists."""

    def __init__(
        self,
        connections: PeerConnections,
        addresses: Callable[[], dict[str, str]],
        founders: Mapping[int, Address],
    ) -> None:
        """`addresses` returns the addresses of this node's listeners."""
        self.connections = connections
        self.addresses = addresses
        self._founders = founders
        self._local_addresses: dict[int, Address] = {}
        self._broker: PeerBroker | None = None
        #: By node, the calls that wait for a reply.
        self._waiting: dict[int, dict[Outcome[RawReply], None]] = {}

    def begin(self, broker: PeerBroker) -> None:
        self._broker = broker
        # The current leader may be known only from entries that are not known to be committed.
        self._local_addresses = peer_addresses(broker.quorum.local_image())
        connections, cluster = self.connections, broker.cluster
        connections.serve(Service.VOTES, _Votes(broker))
        connections.serve(Service.COPIES, _Copies(broker))
        connections.serve(Service.CONTROL, _Control(broker))
        connections.serve(Service.CHANGES, _ForeignChanges(broker))
        connections.serve(Service.RPC, _Calls(broker))
        broker.rpc.transport = self
        broker.on_fenced.append(self._give_up_on)
        connections.on_connected.append(cluster.node_back)
        connections.on_lost.append(cluster.node_lost)
        connections.on_caller_lost.append(cluster.node_lost)
        connections.on_refused.append(cluster.node_gone)
        self.refresh()

    def refresh(self) -> None:
        """Keep connections to the members of the cluster, at their registered addresses or, until
        they register, at the addresses given for them.
        """
        if self._broker is None:
            return
        own = self._broker.node_id
        known = {**self._founders, **self._local_addresses, **peer_addresses(self._broker.image)}
        quorum = self._broker.quorum
        # The leader is a member, even if the local log does not say so yet.
        members = (*quorum.membership.nodes, quorum.leader)
        self.connections.set_peers(
            {
                node: (address.host, address.port)
                for node, address in known.items()
                if node in members and node != own
            }
        )

    # ---- Links

    def send(self, node: int, message: votes.Message) -> None:
        self.connections.send(node, Service.VOTES, votes.encode_message(message))

    def fetch(self, node: int, request: copies.FetchRequest, done: Fetched) -> None:
        def answered(answer: PeerAnswer | ClusterError) -> None:
            reply = _answered(answer, copies.decode_message)
            if isinstance(answer, PeerAnswer) and isinstance(reply, copies.FetchReply):
                done(reply, answer.body)
            else:
                done(None, _NOTHING)

        header = copies.encode_message(request)
        self.connections.request(node, Service.COPIES, header, answered, timeout_s=_FETCH_TIMEOUT_S)

    def report(self, node: int, progress: copies.Progress) -> None:
        self.connections.send(node, Service.COPIES, copies.encode_message(progress))

    def control(self, node: int, request: copies.ControlRequest, done: Controlled) -> None:
        def answered(answer: PeerAnswer | ClusterError) -> None:
            reply = _answered(answer, copies.decode_message)
            done(reply if isinstance(reply, copies.ControlReply) else None)

        header = copies.encode_message(request)
        self.connections.request(
            node, Service.CONTROL, header, answered, timeout_s=_CONTROL_TIMEOUT_S
        )

    def forward(self, node: int, proposal: Proposal) -> Outcome[ProposalReply | None]:
        outcome: Outcome[ProposalReply | None] = Outcome()

        def answered(answer: PeerAnswer | ClusterError) -> None:
            outcome.succeed(_answered(answer, lambda data: _decoded(data, ProposalReply)))

        header = msgspec.msgpack.encode(proposal)
        self.connections.request(
            node, Service.CHANGES, header, answered, timeout_s=_CHANGE_TIMEOUT_S
        )
        return outcome

    def exchange(self, node: int, header: bytes, body: Sequence[Buffer]) -> Outcome[RawReply]:
        """`Transport` of remote procedure calls."""
        outcome: Outcome[RawReply] = Outcome()
        waiting = self._waiting.setdefault(node, {})
        waiting[outcome] = None

        def answered(answer: PeerAnswer | ClusterError) -> None:
            if outcome not in waiting:
                # The call was abandoned.
                return
            del waiting[outcome]
            if isinstance(answer, ClusterError):
                outcome.fail(answer)
            else:
                outcome.succeed(RawReply(answer.header, answer.body))

        self.connections.request(
            node, Service.RPC, header, answered, timeout_s=_RPC_TIMEOUT_S, body=body
        )
        return outcome

    def _give_up_on(self, node: int) -> None:
        """Fail calls to a node that was fenced: a frozen node with open connections might not
        answer before the time-out.
        """
        assert self._broker is not None
        waiting = self._waiting.get(node, {})
        gone = ClusterError(f"node {node} is gone; the outcome is unknown")
        for outcome in waiting:
            # In a later turn: metadata is being applied in this one.
            self._broker.scheduler.call_soon(outcome.fail, gone)
        waiting.clear()

    def directory_of(self, node: int) -> str:
        return self.connections.directory_of(node)


def peer_addresses(image: MetadataImage) -> dict[int, Address]:
    """The peer addresses of nodes: as registered, or as given when the node was added."""
    said = {node: known.addresses.get("peer") for node, known in image.registrations.items()}
    found = {**image.added, **{node: where for node, where in said.items() if where}}
    return {node: parse_address(f"node {node}", where, port_min=1) for node, where in found.items()}


def _decoded(data: memoryview, kind: type[Struct]) -> Struct:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise DecodeError(f"not a {kind.__name__}: {error}") from None


def _answered(answer: PeerAnswer | ClusterError, read: Callable[[memoryview], Read]) -> Read | None:
    """The decoded answer; None without a readable one, because the caller must not wait forever."""
    if isinstance(answer, ClusterError):
        return None
    try:
        return read(answer.header)
    except DecodeError as error:
        log.warning("an answer of another node: %s", error)
        return None


class _Service:
    """Base of services: refuses requests and messages."""

    def __init__(self, broker: PeerBroker) -> None:
        self._broker = broker
        self._cluster = broker.cluster

    def message(self, node: int, header: memoryview) -> None:  # noqa: ARG002
        raise DecodeError("a message where there are only requests")

    def request(
        self,
        node: int,  # noqa: ARG002
        header: memoryview,  # noqa: ARG002
        body: memoryview,  # noqa: ARG002
        reply: Reply,  # noqa: ARG002
    ) -> None:
        raise DecodeError("a request where there are only messages")


class _Votes(_Service):
    def message(self, node: int, header: memoryview) -> None:
        if self._broker.is_recovered:
            self._cluster.received(node, votes.decode_message(header))


class _Copies(_Service):
    def message(self, node: int, header: memoryview) -> None:
        progress = copies.decode_message(header)
        if isinstance(progress, copies.Progress) and progress.follower.node_id == node:
            self._cluster.replication.progress(progress)

    def request(self, node: int, header: memoryview, body: memoryview, reply: Reply) -> None:  # noqa: ARG002
        wanted = copies.decode_message(header)
        if not isinstance(wanted, copies.FetchRequest) or wanted.follower.node_id != node:
            raise DecodeError("not a fetch of that node's own")

        def answer(found: copies.FetchReply, pieces: Sequence[Buffer]) -> None:
            reply(copies.encode_message(found), pieces)

        self._cluster.replication.fetch(wanted, answer)


class _Control(_Service):
    def request(self, node: int, header: memoryview, body: memoryview, reply: Reply) -> None:  # noqa: ARG002
        wanted = copies.decode_message(header)
        if isinstance(
            wanted, copies.FetchRequest | copies.Progress | copies.FetchReply | copies.ControlReply
        ):
            raise DecodeError("not a request to the controller")

        def answer(found: copies.ControlReply | None) -> None:
            if found is None:
                reply(ClusterError("this node is not the controller"), ())
            else:
                reply(copies.encode_message(found), ())

        self._cluster.access.serve(wanted, answer)


class _Calls(_Service):
    def request(self, node: int, header: memoryview, body: memoryview, reply: Reply) -> None:
        if not self._broker.is_ready:
            raise ClusterError("the node is starting")
        self._broker.registry.answer(node, header, body, reply)


class _ForeignChanges(_Service):
    def request(self, node: int, header: memoryview, body: memoryview, reply: Reply) -> None:  # noqa: ARG002
        def answer(found: ProposalReply | DragomanError) -> None:
            assert isinstance(found, ProposalReply)
            reply(msgspec.msgpack.encode(found), ())

        self._cluster.changes.take(_decoded(header, Proposal)).then(answer)
