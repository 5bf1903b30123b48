"""Scenarios on voters of our own: nodes of the Raft simulation, without misfortunes of its own."""

from __future__ import annotations

from collections.abc import Iterable

from differential.scenario import Pending, Proposal, digest
from dragoman.cluster.events import Event, TermBegan
from dragoman.errors import DragomanError, NotControllerError
from dragoman.outcome import start
from dragoman.raft.ports import Role
from simulation.raft.checker import Checker
from simulation.raft.cluster import Cluster, Plan, SimNode
from simulation.raft.disk import DiskMachine
from simulation.raft.network import NetworkFaults

_SECONDS_MAX = 60


class FreeChecker(Checker):
    """Knows nothing of the simulation's own clients."""

    def _advance(self, events: Iterable[Event]) -> None:
        for event in events:
            self._image.apply(event)
            self._version += not isinstance(event, TermBegan)


class Voters:
    """One voter or three. With one, whatever befalls a node befalls it."""

    def __init__(self, voters: int, snapshot_records: int, seed: int = 1) -> None:
        plan = Plan(
            voters=voters,
            spares=0,
            network=NetworkFaults(),
            misfortunes=(),
            pause_s=1.0,
            proposal_s=1.0,
            snapshot_records=snapshot_records,
            append_bytes_max=1 << 20,
            clock_drift=0.0,
        )
        self._cluster = Cluster(seed, DiskMachine, plan=plan)
        self._cluster.checker = FreeChecker()
        self._events: dict[int, Event] = {}
        for node in self._cluster.nodes.values():
            self._start(node)

    def _node(self, number: int) -> SimNode:
        nodes = self._cluster.nodes
        return nodes.get(number, nodes[1])

    def _start(self, node: SimNode) -> None:
        node.start()
        quorum = node.quorum

        def applied(event: Event, _removed: object) -> None:
            if not isinstance(event, TermBegan):
                known = self._events.setdefault(quorum.version, event)
                assert known == event, f"nodes differ at version {quorum.version}"

        quorum.on_applied = applied

    def _advance_until(self, is_so) -> None:
        for _ in range(_SECONDS_MAX * 20):
            if is_so():
                return
            self._cluster.scheduler.advance(0.05)
        raise TimeoutError("the voters do not get on")

    def _leader(self) -> SimNode | None:
        for node in self._cluster.nodes.values():
            if node.is_up and node.raft.role is Role.LEADER:
                return node
        return None

    # ---- the stage

    async def lead(self) -> int:
        self._advance_until(lambda: self._leader() is not None)
        leader = self._leader()
        assert leader is not None
        read = Pending()
        start(leader.quorum.read()).then(read)
        self._advance_until(lambda: read.is_known)
        if read.error is not None:
            return await self.lead()
        return leader.quorum.version

    def propose(self, proposal: Proposal, expected: int | None) -> Pending:
        pending = Pending()
        events, node, leader = list(proposal.events), self._node(proposal.at), self._leader()
        assert leader is not None

        def sent_on(error: DragomanError | None) -> None:
            if isinstance(error, NotControllerError) and leader is not node:
                leader.quorum.propose(events, expected).then(pending)
            else:
                pending(error)

        (node if node.is_up else leader).quorum.propose(events, expected).then(sent_on)
        return pending

    async def settle(self, pending: list[Pending]) -> None:
        self._advance_until(lambda: all(each.is_known for each in pending))

    async def depose(self, *, is_crash: bool) -> None:
        leader = self._leader()
        assert leader is not None
        others = [each for each in self._cluster.nodes if each != leader.node_id]
        if is_crash or not others:
            leader.crash()
            self._cluster.scheduler.advance(0.1)
            self._advance_until(lambda: self._leader() is not None or not others)
            self._start(leader)
        else:
            term = leader.raft.term
            leader.quorum.driver.transfer(others[0])
            self._advance_until(
                lambda: (now := self._leader()) is not None and now.raft.term > term
            )

    async def leave(self, node: int) -> None:
        self._node(node).crash()
        self._cluster.scheduler.advance(0.1)
        if len(self._cluster.nodes) == 1:
            self._start(self._node(node))

    async def come_back(self, node: int) -> None:
        if not self._node(node).is_up:
            self._start(self._node(node))

    async def end(self) -> tuple[tuple[Event, ...], set[str]]:
        nodes = self._cluster.nodes.values()
        version = await self.lead()
        self._advance_until(lambda: all(each.quorum.version == version for each in nodes))
        events = tuple(self._events[number] for number in range(1, version + 1))
        return events, {digest(each.quorum._image, version) for each in nodes}
