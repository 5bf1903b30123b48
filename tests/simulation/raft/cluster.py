"""A quorum of simulated nodes, its clients and its misfortunes: one run is one seed.

A seed switches some faults on and others off (swarm), runs for some virtual seconds, then heals
everything and wants to see life within ten seconds. Nodes are made of the real core, driver and
quorum; `Machines` says what they store things on (`memory.py` or `disk.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Protocol

import msgspec

from dragoman.cluster.codec import MetadataEntries
from dragoman.cluster.events import GroupConfigChanged
from dragoman.cluster.metadata import MetadataImage
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.errors import (
    ClusterError,
    DragomanError,
    LogError,
    LogStoppedError,
    OutcomeUnknownError,
)
from dragoman.log.batch import batches
from dragoman.outcome import start
from dragoman.raft.core import Raft
from dragoman.raft.membership import Membership
from dragoman.raft.messages import (
    Message,
    VoteReply,
    VoteRequest,
    decode_message,
    encode_message,
)
from dragoman.raft.ports import RaftStorage, Role, RoleChanged, Settings
from dragoman.testing.sim.scheduler import SimClock, SimScheduler
from dragoman.world import Scheduler
from simulation.harness.runs import Outcome, reported
from simulation.raft.checker import Checker, Operation, expect
from simulation.raft.network import Network, NetworkFaults, NodeScheduler

#: Virtual seconds in which everything has to work again.
_HEALING_S = 10.0
_KEYS = 8


class Machine(Protocol):
    """What a node's storage lies on; outlives the node's lives."""

    def open(
        self, scheduler: Scheduler, on_stable: Callable[[], None], on_failure: Callable[[], None]
    ) -> RaftStorage: ...

    def crash(self) -> None:
        """The power goes."""
        ...

    def slow_down(self, seconds_max: float) -> None:
        """How long a sync may take from now on."""
        ...

    def break_sync(self) -> None:
        """The next sync fails."""
        ...


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a seed does."""

    voters: int
    spares: int
    network: NetworkFaults
    misfortunes: tuple[str, ...]
    #: Seconds between two of them.
    pause_s: float
    proposal_s: float
    snapshot_records: int
    append_bytes_max: int
    clock_drift: float


def draw_plan(random: Random, misfortunes: tuple[str, ...] | None = None) -> Plan:
    every = ("crash", "power cut", "pause", "split", "one way", "isolate leader", "transfer",
             "member", "eager member", "mute leader", "short reign",
             "slow disk", "broken disk", "reset")  # fmt: skip
    chosen = misfortunes or tuple(each for each in every if random.random() < 0.5)
    return Plan(
        voters=random.choice((1, 3, 3, 3, 5, 4)),
        spares=2,
        network=NetworkFaults(
            delay_s=random.choice((0.001, 0.01, 0.05)),
            slow_rate=random.choice((0.0, 0.0, 0.02, 0.1)),
            loss_rate=random.choice((0.0, 0.0, 0.02, 0.2)),
            double_rate=random.choice((0.0, 0.05, 0.3)),
        ),
        misfortunes=chosen,
        pause_s=random.choice((0.3, 1.0, 2.0)),
        proposal_s=random.choice((0.03, 0.1, 0.3)),
        snapshot_records=random.choice((15, 60, 10_000)),
        append_bytes_max=random.choice((1, 300, 1 << 20)),
        clock_drift=random.choice((0.0, 0.01, 0.1)),
    )


class CheckedQuorum(RaftQuorum):
    """Reports what it applies to the checker."""

    owner: SimNode
    applications = 0

    def apply(self, end: int) -> None:
        checker, storage = self.owner.cluster.checker, self._raft.storage
        offset = self.applied
        while offset < end:
            for header, batch in batches(memoryview(storage.read(offset, 1 << 16))):
                if offset <= header.base_offset < end:
                    checker.applying(self.owner.node_id, self._raft.term, header, bytes(batch))
                offset = header.last_offset + 1
        super().apply(end)
        self.applications += 1
        if self.applications % 4 == 0:
            checker.applied(self.owner.node_id, self.applied, self._image, self.version)


class SimNode:
    """One node through all its lives."""

    def __init__(self, cluster: Cluster, node_id: int, machine: Machine) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.machine = machine
        drift = cluster.plan.clock_drift
        self._rate = 1.0 + cluster.random.uniform(-drift, drift)
        self.scheduler = NodeScheduler(cluster.scheduler, self._rate)
        self.is_up = False
        self.quorum: CheckedQuorum
        self.raft: Raft

    def start(self) -> None:
        cluster = self.cluster
        self.scheduler = NodeScheduler(cluster.scheduler, self._rate)
        storage = self.machine.open(self.scheduler, self._stable, self._failed)
        cluster.checker.started(self.node_id, storage)
        is_first = self.node_id <= cluster.plan.voters
        initial = Membership(tuple(range(1, cluster.plan.voters + 1)) if is_first else ())
        self.raft = Raft(
            self.node_id,
            storage,
            MetadataEntries(),
            Random(cluster.random.getrandbits(32)),
            initial,
            Settings(
                snapshot_records=cluster.plan.snapshot_records,
                append_bytes_max=cluster.plan.append_bytes_max,
                snapshot_piece_bytes=300,
            ),
        )
        clock = SimClock(self.scheduler)
        self.quorum = CheckedQuorum(self.raft, MetadataImage(), clock, self.scheduler, self)
        self.quorum.owner = self
        self.quorum.on_role = self._role
        self.is_up = True
        self.quorum.replay()
        self.quorum.start()

    def crash(self) -> None:
        """The power goes, or the process dies; those who wait for an answer get none."""
        if self.is_up:
            self.is_up = False
            self.scheduler.is_dead = True
            self.quorum.driver.stop(OutcomeUnknownError("the node is gone"))
            # Not before the node has returned from whatever it was doing when its disk failed.
            self.cluster.scheduler.call_soon(self.machine.crash)

    def _stable(self) -> None:
        if self.is_up:
            self.quorum.driver.stable()

    def _failed(self) -> None:
        """A sync failed: the node stops itself, and is started again later."""
        self.quorum.fail()
        self.crash()
        self.cluster.restart_later(self)

    def _role(self, changed: RoleChanged) -> None:
        self.cluster.note(f"node {self.node_id}: {changed.role.value} in term {changed.term}")
        if changed.role is Role.LEADER:
            self.cluster.checker.led(self.node_id, changed.term, self.raft.storage)
            self.cluster.strike_leader(self)

    # ---- the peers port

    def send(self, node: int, message: Message) -> None:
        checker = self.cluster.checker
        checker.sent(message)
        if isinstance(message, VoteReply):
            checker.voted(message, node)
        target = self.cluster.nodes.get(node)
        if target is not None:
            data = encode_message(message)
            self.cluster.network.send(self.node_id, node, lambda: target.deliver(data))

    def deliver(self, data: bytes) -> None:
        if self.is_up:
            self.scheduler.run(self._receive, data)

    def _receive(self, data: bytes) -> None:
        message = decode_message(data)
        if isinstance(message, VoteRequest):
            self.cluster.checker.asked(self.node_id, message, self.raft.storage)
        self.quorum.driver.receive(message)


class Cluster:
    def __init__(
        self,
        seed: int,
        make_machine: Callable[[Random], Machine],
        *,
        plan: Plan | None = None,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.plan = plan if plan is not None else draw_plan(self.random)
        self.scheduler = SimScheduler(Random(self.random.getrandbits(32)))
        self.network = Network(
            self.scheduler, Random(self.random.getrandbits(32)), self.plan.network
        )
        self.checker = Checker()
        self.history: list[str] = []
        self.is_healing = False
        #: Proposals by the outcome that their clients saw.
        self.answers = {"agreed": 0, "refused": 0, "unknown": 0}
        self._next_operation = 0
        self.nodes = {
            number: SimNode(self, number, make_machine(Random(self.random.getrandbits(32))))
            for number in range(1, self.plan.voters + self.plan.spares + 1)
        }

    def time(self) -> float:
        return self.scheduler.time()

    def note(self, text: str) -> None:
        self.history.append(f"{self.time():9.4f} {text}")

    # ---- a run

    def play(self, seconds: float) -> Outcome:
        """Raises `Failure`."""
        with reported(self, f"seed {self.seed}", lambda: self.plan):
            self._play(seconds)
        counts = {
            "leaders": len(self.checker.leaders),
            "messages": self.network.delivered,
            "entries agreed on": len(self.checker.agreed),
            **{f"proposals {outcome}": count for outcome, count in self.answers.items()},
        }
        return Outcome(self.time(), counts, self.plan.misfortunes, tuple(self.history))

    def _play(self, seconds: float) -> None:
        for node in self.nodes.values():
            node.start()
        self._propose_again()
        self._misfortune_again()
        self.scheduler.advance(seconds, steps_max=100_000_000)
        self._heal()
        self.scheduler.advance(_HEALING_S, steps_max=100_000_000)
        self._check_life()
        for node in self.nodes.values():
            self.checker.final(node.node_id, node.raft.storage)
        self.checker.final_operations()

    def _heal(self) -> None:
        self.note("everything heals")
        self.is_healing = True
        self.network.heal()
        self.network.faults = NetworkFaults(delay_s=0.002)
        for node in self.nodes.values():
            node.machine.slow_down(0.004)
            node.scheduler.resume()
            if not node.is_up:
                node.start()

    def _check_life(self) -> None:
        leaders = [node for node in self.nodes.values() if node.raft.role is Role.LEADER]
        expect(len(leaders) == 1, f"L1: {len(leaders)} leaders long after healing")
        leader = leaders[0]
        done: list[DragomanError | None] = []
        self._propose_at(leader, done.append)
        self.scheduler.advance(2.0, steps_max=100_000_000)
        expect(done == [None], f"L1: a proposal long after healing ends with {done}")
        end = leader.raft.commit
        for number in leader.raft.membership.nodes:
            applied = self.nodes[number].quorum.applied
            expect(applied >= end - 50, f"L1: node {number} has {applied} of {end}")

    # ---- clients

    def _propose_again(self) -> None:
        wait = self.random.uniform(0.0, 2 * self.plan.proposal_s)
        self.scheduler.call_later(wait, self._propose_again)
        up = [node for node in self.nodes.values() if node.is_up and not node.scheduler.is_paused]
        if not up:
            return
        leaders = [node for node in up if node.raft.role is Role.LEADER]
        node = self.random.choice(leaders if leaders and self.random.random() < 0.9 else up)
        if self.random.random() < 0.2:
            self._read_at(node)
        else:
            expected = node.quorum.version if self.random.random() < 0.5 else None
            self._propose_at(node, lambda _: None, expected)

    def _propose_at(
        self,
        node: SimNode,
        then: Callable[[DragomanError | None], None],
        expected: int | None = None,
    ) -> None:
        self._next_operation += 1
        operation = Operation(self._next_operation, expected)
        self.checker.operations[operation.number] = operation
        key = f"k{self.random.randrange(_KEYS)}"
        # Some take several sectors.
        padding = "x" * self.random.choice((0, 0, 0, 700))
        config = {"operation": str(operation.number), "padding": padding}
        event = GroupConfigChanged(group_id=key, config=config)

        def done(error: DragomanError | None) -> None:
            outcome = _outcome(error)
            self.answers[outcome] += 1
            self.checker.answered(operation, outcome)
            then(error)

        node.quorum.propose([event], expected).then(done)

    def _read_at(self, node: SimNode) -> None:
        floor = self.checker.acknowledged_end
        quorum = node.quorum

        def done(error: DragomanError | None) -> None:
            if error is None:
                expect(quorum.applied >= floor, f"a read at {floor} sees {quorum.applied}")

        start(quorum.read()).then(done)

    # ---- misfortunes

    def _misfortune_again(self) -> None:
        if self.is_healing:
            return
        wait = self.random.uniform(0.0, 2 * self.plan.pause_s)
        self.scheduler.call_later(wait, self._misfortune_again)
        if self.plan.misfortunes:
            self._strike(self.random.choice(self.plan.misfortunes))

    def _strike(self, what: str) -> None:
        random = self.random
        up = [node for node in self.nodes.values() if node.is_up]
        if not up:
            return
        leaders = [each for each in up if each.raft.role is Role.LEADER]
        node = random.choice(leaders if leaders and random.random() < 0.5 else up)
        self.note(f"{what} (node {node.node_id})")
        match what:
            case "crash":
                self._crash(node)
            case "power cut":
                for each in up:
                    self._crash(each)
            case "pause":
                node.scheduler.is_paused = True
                self.later(random.uniform(0.1, 3.0), node.scheduler.resume)
            case "split":
                self.network.split(list(self.nodes))
                self.later(random.uniform(0.3, 5.0), self.network.heal)
            case "one way":
                self.network.cut_one_way(list(self.nodes))
                self.later(random.uniform(0.3, 5.0), self.network.heal)
            case "isolate leader":
                self._isolate(node.node_id)
            case "reset":
                self._reset(node.node_id)
            case "transfer":
                target = random.choice(list(self.nodes))
                with suppress(ClusterError, LogError):
                    node.quorum.driver.transfer(target)
            case "member":
                self.change_membership(node)
            case "eager member" | "short reign":
                # These strike every new leader.
                return
            case "mute leader":
                self._mute(node)
            case "slow disk":
                node.machine.slow_down(random.choice((0.05, 0.5, 2.0)))
                self.later(random.uniform(0.5, 3.0), lambda: node.machine.slow_down(0.004))
            case "broken disk":
                node.machine.break_sync()
            case _:
                raise AssertionError(what)

    def strike_leader(self, node: SimNode) -> None:
        """What happens to a node in the moment in which it begins to lead."""
        if self.is_healing:
            return
        if "eager member" in self.plan.misfortunes:
            node.scheduler.call_soon(self.change_membership, node)
        if "mute leader" in self.plan.misfortunes and self.random.random() < 0.7:
            self._mute(node)
        if "short reign" in self.plan.misfortunes:
            wait = self.random.choice((0.0, self.random.uniform(0.05, 0.8)))
            self.later(wait, lambda: self._isolate(node.node_id))

    def _isolate(self, node_id: int) -> None:
        self.network.isolated.add(node_id)
        seconds = self.random.uniform(0.3, 3.0)
        self.later(seconds, lambda: self.network.isolated.discard(node_id))

    def _mute(self, node: SimNode) -> None:
        self.network.mute(node.node_id, list(self.nodes))
        seconds = self.random.uniform(0.5, 3.0)
        self.later(seconds, lambda: self.network.heal_one(node.node_id))

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.scheduler.call_later(seconds, callback)

    def _crash(self, node: SimNode) -> None:
        node.crash()
        if self.random.random() < 0.5:
            self._reset(node.node_id)
        self.restart_later(node)

    def restart_later(self, node: SimNode) -> None:
        def restart() -> None:
            if not node.is_up:
                self.note(f"node {node.node_id} starts")
                node.start()

        self.later(self.random.choice((0.02, 0.1, self.random.uniform(0.1, 3.0))), restart)

    def _reset(self, node_id: int) -> None:
        """Its connections break, and the others notice."""
        for other in self.nodes.values():
            if other.is_up and other.node_id != node_id:
                other.scheduler.call_later(0.001, self._lose, other, node_id)

    def _lose(self, node: SimNode, lost: int) -> None:
        if node.is_up:
            node.quorum.driver.peer_lost(lost)

    def change_membership(self, node: SimNode) -> None:
        membership = node.raft.membership
        other = self.random.choice(list(self.nodes))
        if other in membership.voters and len(membership.voters) > 1:
            node.quorum.driver.remove(other)
        elif other not in membership.voters:
            start(node.quorum.driver.add(other))


def _outcome(error: DragomanError | None) -> str:
    if error is None:
        return "agreed"
    if isinstance(error, OutcomeUnknownError | LogStoppedError):
        return "unknown"
    return "refused"
