"""Scenarios on nodes that agree through a real etcd."""

from __future__ import annotations

from differential.scenario import NODES, Pending, Proposal, digest
from dragoman.cluster.etcd.session import Settings
from dragoman.cluster.events import Event
from dragoman.errors import DragomanError, NotControllerError
from nodes.etcd import RealCluster, RealEtcd


class WithEtcd:
    """Three nodes."""

    def __init__(self, etcd: RealEtcd, prefix: str, snapshot_entries: int) -> None:
        settings = Settings(retry_s=0.05, snapshot_entries=snapshot_entries)
        self._etcd = etcd
        self._cluster = RealCluster(prefix, [etcd.port], settings)
        self._events: dict[int, Event] = {}
        for node in NODES:
            self._cluster.start(node)

    def _note(self) -> None:
        for member in self._cluster.members.values():
            for version, event in member.history:
                known = self._events.setdefault(version, event)
                assert known == event, f"nodes differ at version {version}"

    # ---- the stage

    async def lead(self) -> int:
        leader = await self._cluster.led()
        if await self._cluster.read(leader) is not None:
            return await self.lead()
        return leader.quorum.version

    def propose(self, proposal: Proposal, expected: int | None) -> Pending:
        pending = Pending()
        events, leader = list(proposal.events), self._cluster.leader
        assert leader is not None
        member = self._cluster.members.get(proposal.at, leader)

        def answered(error: DragomanError | None) -> None:
            pending(error)
            self._cluster.something_happened()

        def sent_on(error: DragomanError | None) -> None:
            if isinstance(error, NotControllerError) and leader is not member:
                leader.quorum.propose(events, expected).then(answered)
            else:
                answered(error)

        member.quorum.propose(events, expected).then(sent_on)
        return pending

    async def settle(self, pending: list[Pending]) -> None:
        await self._cluster.until(lambda: all(each.is_known for each in pending))

    async def depose(self, *, is_crash: bool) -> None:
        leader = self._cluster.leader
        assert leader is not None
        self._note()
        if is_crash:
            self._etcd.expire(leader.crash())
        else:
            await leader.stop()
        del self._cluster.members[leader.node_id]
        await self._cluster.led()
        self._cluster.start(leader.node_id)

    async def leave(self, node: int) -> None:
        self._note()
        await self._cluster.members.pop(node).stop()

    async def come_back(self, node: int) -> None:
        self._cluster.start(node)

    async def end(self) -> tuple[tuple[Event, ...], set[str]]:
        version = await self.lead()
        await self._cluster.agree(version)
        self._note()
        events = tuple(self._events[number] for number in range(1, version + 1))
        images = {digest(each.image, version) for each in self._cluster.members.values()}
        assert not any(each.failures for each in self._cluster.members.values())
        await self._cluster.stop()
        return events, images
