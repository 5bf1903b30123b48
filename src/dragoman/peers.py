"""The other nodes of the cluster, for the broker: `Links` over connections.

Five services share the connection between two nodes: Raft messages of the metadata, replication of
partitions, requests to the controller, changes of the metadata, and remote procedure calls
(`dragoman.rpc`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from dragoman.broker.changes import Proposal, ProposalReply
from dragoman.broker.cluster_node import ClusterNode
from dragoman.cluster.metadata import MetadataImage
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.config.listeners import Address, parse_address
from dragoman.errors import MALFORMED, ClusterError, DecodeError, DragomanError
from dragoman.net.peer_connections import PeerAnswer, PeerConnections, Reply
from dragoman.outcome import Outcome, attempt, ignore, start
from dragoman.raft import messages as votes
from dragoman.replication import messages as copies
from dragoman.replication.ports import TakeReply
from dragoman.rpc import RawReply, Registry, Rpc
from dragoman.types import Buffer
from dragoman.world import Scheduler

if TYPE_CHECKING:
    from dragoman.cluster.etcd.quorum import EtcdQuorum

log = logging.getLogger("dragoman.peers")
_NOTHING = memoryview(b"")
#: Longer than a fetch waits at the leader.
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
    """The parts of the broker that services for other nodes use."""

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
    """`Links` of a broker. Connections are made once `begin` has the broker."""

    def __init__(
        self,
        connections: PeerConnections,
        addresses: Callable[[], dict[str, str]],
        founders: Mapping[int, Address],
    ) -> None:
        """`addresses`: the addresses of this node's own listeners."""
        self.connections = connections
        self.addresses = addresses
        self._founders = founders
        self._local_addresses: dict[int, Address] = {}
        self._broker: PeerBroker | None = None
        #: By node, the calls that wait for a reply.
        self._waiting: dict[int, dict[Outcome[RawReply], None]] = {}

    def begin(self, broker: PeerBroker) -> None:
        self._broker = broker
        # This node may know the leader only from entries that it does not know to be committed.
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
        """Keep connections to the nodes of the cluster: at the addresses that they registered, or
        before that, that they were added with.
        """
        if self._broker is None:
            return
        own = self._broker.node_id
        known = {**self._founders, **self._local_addresses, **peer_addresses(self._broker.image)}
        quorum = self._broker.quorum
        # The leader belongs to the cluster, even if the log here does not have that yet.
        belonging = (*quorum.membership.nodes, quorum.leader)
        self.connections.set_peers(
            {
                node: (address.host, address.port)
                for node, address in known.items()
                if node in belonging and node != own
            }
        )

    # ---- Links

    def send(self, node: int, message: votes.Message) -> None:
        self.connections.send(node, Service.VOTES, votes.encode_message(message))

    def fetch(self, node: int, request: copies.FetchRequest, done: TakeReply) -> None:
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

    async def control(
        self, node: int, request: copies.ControlRequest
    ) -> copies.ControlReply | None:
        header = copies.encode_message(request)
        answer = await self._request(node, Service.CONTROL, header, _CONTROL_TIMEOUT_S)
        reply = _answered(answer, copies.decode_message)
        return reply if isinstance(reply, copies.ControlReply) else None

    def forward(self, node: int, proposal: Proposal) -> Outcome[ProposalReply | None]:
        return start(self._forward(node, proposal))

    async def _forward(self, node: int, proposal: Proposal) -> ProposalReply | None:
        header = msgspec.msgpack.encode(proposal)
        answer = await self._request(node, Service.CHANGES, header, _CHANGE_TIMEOUT_S)
        return _answered(answer, lambda data: _decoded(data, ProposalReply))

    async def _request(
        self, node: int, service: Service, header: bytes, timeout_s: float
    ) -> PeerAnswer | DragomanError:
        outcome: Outcome[PeerAnswer] = Outcome()
        self.connections.request(node, service, header, outcome.settle, timeout_s=timeout_s)
        return await attempt(outcome)

    def exchange(self, node: int, header: bytes, body: Sequence[Buffer]) -> Outcome[RawReply]:
        """`Transport` of remote procedure calls."""
        outcome: Outcome[RawReply] = Outcome()
        waiting = self._waiting.setdefault(node, {})
        waiting[outcome] = None

        def answered(answer: PeerAnswer | ClusterError) -> None:
            if outcome not in waiting:
                # The node was fenced meanwhile, and the call has failed.
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
        """Fail the calls to a node that the controller has fenced: it may be frozen with its
        connections open, and other nodes lead its partitions now.
        """
        assert self._broker is not None
        waiting = self._waiting.get(node, {})
        gone = ClusterError(f"node {node} is gone; the outcome is unknown")
        for outcome in waiting:
            # In a later turn: committed events are being applied.
            self._broker.scheduler.call_soon(outcome.fail, gone)
        waiting.clear()

    def directory_of(self, node: int) -> str:
        return self.connections.directory_of(node)


def peer_addresses(image: MetadataImage) -> dict[int, Address]:
    """The addresses of nodes for each other: as registered, else as given when they were added."""
    registered = {n: known.addresses.get("peer") for n, known in image.registrations.items()}
    found = {**image.added, **{node: where for node, where in registered.items() if where}}
    return {node: parse_address(f"node {node}", where, port_min=1) for node, where in found.items()}


def _decoded(data: memoryview, kind: type[Struct]) -> Struct:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except MALFORMED as error:
        raise DecodeError(f"not a {kind.__name__}: {error}") from None


def _answered(
    answer: PeerAnswer | DragomanError, read: Callable[[memoryview], Read]
) -> Read | None:
    """The answer; None without one, or for one that cannot be read."""
    if isinstance(answer, DragomanError):
        return None
    try:
        return read(answer.header)
    except DecodeError as error:
        log.warning("unreadable answer from another node: %s", error)
        return None


class _Service:
    """Handles messages and requests of other nodes."""

    def __init__(self, broker: PeerBroker) -> None:
        self._broker = broker
        self._cluster = broker.cluster

    def message(self, node: int, header: memoryview) -> None:  # noqa: ARG002
        raise DecodeError("the service takes requests only, not messages")

    def request(
        self,
        node: int,  # noqa: ARG002
        header: memoryview,  # noqa: ARG002
        body: memoryview,  # noqa: ARG002
        reply: Reply,  # noqa: ARG002
    ) -> None:
        raise DecodeError("the service takes messages only, not requests")


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
        start(self._answer(wanted, reply)).then(ignore)

    async def _answer(self, wanted: copies.ControlRequest, reply: Reply) -> None:
        found = await attempt(self._cluster.access.serve(wanted))
        if found is None:
            found = ClusterError("this node is not the controller")
        reply(found if isinstance(found, DragomanError) else copies.encode_message(found), ())


class _Calls(_Service):
    def request(self, node: int, header: memoryview, body: memoryview, reply: Reply) -> None:
        if not self._broker.is_ready:
            raise ClusterError("the node is starting")
        self._broker.registry.answer(node, header, body, reply)


class _ForeignChanges(_Service):
    def request(self, node: int, header: memoryview, body: memoryview, reply: Reply) -> None:  # noqa: ARG002
        start(self._answer(_decoded(header, Proposal), reply)).then(ignore)

    async def _answer(self, proposal: Proposal, reply: Reply) -> None:
        found = await attempt(self._cluster.changes.take(proposal))
        reply(found if isinstance(found, DragomanError) else msgspec.msgpack.encode(found), ())
