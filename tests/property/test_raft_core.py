"""Goal: no order of messages, losses, repeats, syncs, crashes and time breaks the core.

Method: a state machine over three cores on storage in memory. Every rule is one step of one node or
of the network; after each, terms have one leader and agreed entries are the same everywhere.
"""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dragoman.cluster.codec import MetadataEntries, event_batch
from dragoman.cluster.events import NodeRegistered
from dragoman.raft.core import Raft
from dragoman.raft.membership import Membership
from dragoman.raft.messages import Message
from dragoman.raft.ports import Role
from dragoman.testing.sim.scheduler import SimScheduler
from simulation.raft.memory import DiskSpeed, Durable, MemoryStorage

NODES = (1, 2, 3)
nodes = st.sampled_from(NODES)


class Voter:
    def __init__(self, node: int, durable: Durable, now: float) -> None:
        self.scheduler = SimScheduler()
        speed = DiskSpeed(Random(node))
        self.storage = MemoryStorage(durable, self.scheduler, speed, lambda: None, lambda: None)
        self.raft = Raft(node, self.storage, MetadataEntries(), Random(node), Membership(NODES))
        self.raft.start(now)


class Quorum(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.voters = {node: Voter(node, Durable(), 0.0) for node in NODES}
        self.wire: list[tuple[int, Message]] = []
        self.leaders: dict[int, int] = {}
        self.agreed: dict[int, bytes] = {}
        self.proposed = 0

    def _collect(self, node: int) -> None:
        voter = self.voters[node]
        self.wire += voter.raft.take_messages()
        voter.raft.take_effects()
        if voter.raft.role is Role.LEADER:
            assert self.leaders.setdefault(voter.raft.term, node) == node

    @rule(node=nodes)
    def time_passes(self, node: int) -> None:
        self.now = max(self.now, self.voters[node].raft.deadline)
        self.voters[node].raft.tick(self.now)
        self._collect(node)

    @rule(node=nodes)
    def sync(self, node: int) -> None:
        self.voters[node].scheduler.advance(1.0)
        self.voters[node].raft.stable(self.now)
        self._collect(node)

    @precondition(lambda self: self.wire)
    @rule(data=st.data(), repeat=st.booleans())
    def deliver(self, data: st.DataObject, repeat: bool) -> None:
        index = data.draw(st.integers(0, len(self.wire) - 1))
        node, message = self.wire[index] if repeat else self.wire.pop(index)
        self.voters[node].raft.receive(message, self.now)
        self._collect(node)

    @precondition(lambda self: self.wire)
    @rule()
    def deliver_all(self) -> None:
        waiting, self.wire = self.wire, []
        for node, message in waiting:
            self.voters[node].raft.receive(message, self.now)
            self._collect(node)

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.wire.pop(data.draw(st.integers(0, len(self.wire) - 1)))

    @rule(node=nodes)
    def propose(self, node: int) -> None:
        leadership = self.voters[node].raft.leadership
        if leadership is not None:
            self.proposed += 1
            event = NodeRegistered(node_id=self.proposed, incarnation=1)
            leadership.append(event_batch([event]))
            self._collect(node)

    @rule(node=nodes, seed=st.integers(0, 9))
    def crash(self, node: int, seed: int) -> None:
        voter = self.voters[node]
        self.voters[node] = Voter(node, voter.storage.crashed(Random(seed)), self.now)

    @rule(node=nodes, lost=nodes)
    def lose_peer(self, node: int, lost: int) -> None:
        self.voters[node].raft.peer_lost(lost, self.now)
        self._collect(node)

    @invariant()
    def agreed_entries_are_the_same_everywhere(self) -> None:
        for voter in self.voters.values():
            for entry in voter.storage.entries:
                if entry.next <= voter.raft.commit:
                    assert self.agreed.setdefault(entry.base, entry.data) == entry.data


TestQuorum = Quorum.TestCase
TestQuorum.settings = settings(stateful_step_count=80)
