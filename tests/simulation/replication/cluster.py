"""A cluster in simulation: nodes, the metadata log, clients, and one seeded run with its faults.

Every seed switches on a random subset of faults with random rates (swarm), lets them happen while
clients work, heals everything, and then expects the cluster to be whole within ten seconds.

Fault budget: only one node, the *victim*, ever loses its disk or gets flipped bits, and only while
another one has all that is committed and may lead. What fails then is a bug and not arithmetic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from random import Random
from unittest import mock

import msgspec

from dragoman.broker.replication import messages
from dragoman.broker.replication.decisions import Decisions
from dragoman.broker.replication.leader import LedPartition
from dragoman.broker.replication.messages import ControlReply, InSyncChange
from dragoman.broker.replication.replication import Replication
from dragoman.cluster.events import (
    Event,
    Member,
    PartitionChanged,
    PartitionPlacement,
    TopicCreated,
)
from dragoman.cluster.metadata import MIN_INSYNC
from dragoman.errors import LogStoppedError
from dragoman.log.batch import LENGTH_PREFIX_BYTES, UNCHECKED_PREFIX_BYTES, WALK
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.testing.sim.faults import DiskFaults
from dragoman.testing.sim.scheduler import SimScheduler
from power_cuts.scenario import small_bounds
from simulation.replication.checker import Checker, Violation
from simulation.replication.clients import Consumer, Producer, check_outcomes
from simulation.replication.metadata import CONTROLLER, MetadataLog, check_chain
from simulation.replication.network import Network, ProcessScheduler
from simulation.replication.node import Node
from simulation.surveys import Failure

_FAULT_SECONDS = 20.0
_HEALED_SECONDS_MAX = 10.0
_SESSION_S = 1.0
_MOVED_BYTES_PER_S = 15_000
_DONE = ControlReply(outcomes=())


class Parts(msgspec.Struct):
    """What nodes are made of; mutants put something else in."""

    store: Callable[..., LogStore] = LogStore
    replication: Callable[..., Replication] = Replication


class Outcome(msgspec.Struct, frozen=True):
    seed: int
    seconds: float
    acks: int
    elections: int
    truncations: int
    copied_anew: int
    faults: tuple[str, ...]
    trace: int


class Cluster:
    def __init__(self, seed: int, node_count: int, parts: Parts | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.parts = parts if parts is not None else Parts()
        self.scheduler = SimScheduler(Random(self.random.getrandbits(64)))
        self.network = Network(self.scheduler, Random(self.random.getrandbits(64)))
        self.history: list[str] = []
        self.moved_bytes_per_s = _MOVED_BYTES_PER_S
        #: Offsets of batches whose idempotent producer has not heard of them, by partition and id.
        self.in_doubt: dict[tuple[int, int], int] = {}
        controller = self.new_process(CONTROLLER)
        self.metadata = MetadataLog(
            controller, Random(self.random.getrandbits(64)), self._on_event, _SESSION_S
        )
        self.metadata.on_agreed = self._push
        self.checker = Checker(self)
        self.nodes = [Node(self, number + 1) for number in range(node_count)]
        self.victim = self.random.choice(self.nodes)
        self.metadata.controller.begin()
        self._push_again()

    def new_process(self, number: int) -> ProcessScheduler:
        process = ProcessScheduler(self.scheduler, lambda: None)
        self.network.processes[number] = process
        return process

    def note(self, text: str) -> None:
        self.history.append(f"{self.scheduler.time():8.3f} {text}")

    def _on_event(self, event: Event) -> None:
        self.note(f"event {event}")
        problem = check_chain(self.metadata.image, event)
        if problem is not None:
            raise Violation(problem)
        if isinstance(event, PartitionChanged):
            self.checker.agreed(event)

    def _push(self) -> None:
        for node in self.nodes:
            if node.is_up and node.node_id in self.network.processes:
                node.subscription.push()

    def _push_again(self) -> None:
        """What was lost on the way is sent again."""
        if hasattr(self, "nodes"):
            self._push()
        self.scheduler.call_later(0.3, self._push_again)

    # ---- a run

    def begin(self, config: dict[str, str]) -> None:
        for node in self.nodes:
            node.start()
        self.run_until(lambda: len(self.metadata.image.nodes) == len(self.nodes), 10)
        count = len(self.nodes)
        factors = (3, 3, 2) if count == 3 else (3, 3, 5, 2)
        placements = []
        for index, factor in enumerate(factors):
            replicas = tuple((index + at) % count + 1 for at in range(factor))
            placements.append(PartitionPlacement(index + 1, replicas))
        event = TopicCreated(
            name="t", topic_id=b"t" * 16, partitions=tuple(placements), config=config
        )
        self.metadata.agree_now([event])
        self.producers = [Producer(self, each, is_idempotent=each < 3) for each in range(4)]
        self.consumers = [Consumer(self, 10 + each) for each in range(2)]

    def run_until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        end = self.scheduler.time() + seconds
        while not is_done():
            if self.scheduler.time() >= end:
                return False
            self.scheduler.advance(0.05)
        return True

    def is_whole(self, since: float) -> bool:
        """L1: every partition is led, all replicas are in sync and have all, writes succeed."""
        if not all(each.is_up for each in self.nodes):
            return False
        if any(max(each.acknowledged_at.values(), default=0) < since for each in self.producers):
            return False
        for partition in self.metadata.image.partitions.values():
            if partition.leader < 0 or partition.target:
                return False
            if len(partition.in_sync) != len(partition.replicas):
                return False
            last = max(
                each.acknowledged_at.get(partition.partition_id, 0) for each in self.producers
            )
            if last < since:
                return False
        return True

    def finish(self) -> None:
        since = self.scheduler.time()
        is_whole = self.run_until(lambda: self.is_whole(since), _HEALED_SECONDS_MAX)
        if not is_whole:
            raise Violation(f"L1: not whole {_HEALED_SECONDS_MAX:g} s after healing")
        for client in (*self.producers, *self.consumers):
            client.is_stopped = True
        self.run_until(self._is_settled, 5)
        if not self._is_settled():
            raise Violation("L1: followers do not reach the end")
        self.checker.compare_logs()
        starts = {
            partition.partition_id: max(
                node.replicas[partition.partition_id].log.log_start_offset
                for node in self.nodes
                if node.node_id in partition.replicas
            )
            for partition in self.metadata.image.partitions.values()
        }
        check_outcomes(self.checker, self.producers, starts)

    def _is_settled(self) -> bool:
        if not all(each.is_up for each in self.nodes):
            return False
        for partition in self.metadata.image.partitions.values():
            ends = set()
            for node_id in partition.replicas:
                log = self.nodes[node_id - 1].replicas[partition.partition_id].log
                ends |= {log.log_end_offset, log.stable_end, log.high_watermark}
            if len(ends) > 1:
                return False
        return True


class Faults:
    """What goes wrong in one run: chosen by the seed, one thing at a time or several at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._random = random = Random(cluster.random.getrandbits(64))
        kinds: dict[str, Callable[[], None]] = {
            "power": self._power,
            "power in operation": self._power_in_operation,
            "kill": self._kill,
            "all power": self._all_power,
            "pause": self._pause,
            "cut": self._cut,
            "isolate": self._isolate,
            "stop": self._stop,
            "wipe": self._wipe,
            "flip": self._flip,
            "sync error": self._sync_error,
            "controller": cluster.metadata.replace_controller,
            "delete records": self._delete_records,
            "move": self._move,
            "elect": self._elect,
        }
        names = sorted(kinds)
        self.chosen = sorted(random.sample(names, random.randint(2, 8)))
        self._kinds = {name: kinds[name] for name in self.chosen}
        self._pace = random.choice((0.3, 0.8, 2.0))
        network = cluster.network
        if random.random() < 0.5:
            network.loss_rate = random.choice((0.005, 0.03))
            self.chosen.append("loss")
        if random.random() < 0.5:
            network.late_rate = random.choice((0.005, 0.03))
            self.chosen.append("late")
        if random.random() < 0.3:
            network.slow_s = 0.05
            self.chosen.append("slow network")
        if random.random() < 0.3:
            # What a leader wants is decided on when it may not lead any more.
            network.late_rates[CONTROLLER] = 0.2
            self.chosen.append("late requests")
        for node in cluster.nodes:
            node.is_slow = random.random() < 0.4
        self._flips_indexes = random.random() < 0.5
        self._is_over = False

    def config(self) -> dict[str, str]:
        """With `min.insync.replicas` 1, a disk that is lost before the controller knows, and the
        restart of the only other copy, are more than replication promises to survive."""
        return {MIN_INSYNC: "2"} if {"wipe", "flip"} & set(self.chosen) else {}

    def begin(self) -> None:
        self._next()

    def _next(self) -> None:
        delay = self._random.expovariate(1 / self._pace)
        self._cluster.scheduler.call_later(delay, self._happen)

    def _happen(self) -> None:
        if not self._is_over:
            name = self._random.choice(sorted(self._kinds))
            self._cluster.note(name)
            self._kinds[name]()
            self._next()

    def heal(self) -> None:
        self._is_over = True
        cluster = self._cluster
        cluster.network.heal()
        cluster.network.loss_rate = cluster.network.late_rate = 0.0
        cluster.network.late_rates.clear()
        cluster.moved_bytes_per_s = 0
        cluster.network.slow_s = 0.003
        cluster.note("healed")
        for node in cluster.nodes:
            node.disk.faults = DiskFaults()
            node.disk.crash_at(0)
            if node.scheduler is not None:
                node.scheduler.resume()
            self._come_back(node)

    # ---- nodes

    def _up(self) -> Node | None:
        up = [each for each in self._cluster.nodes if each.is_up]
        return self._random.choice(up) if up else None

    def _come_back(self, node: Node) -> None:
        """Whatever ends a process, somebody starts it again."""
        if not node.is_up:
            node.is_slow = self._random.random() < 0.4
            node.start()
            self._cluster.note(f"node {node.node_id} is back: {node.is_up}")
        if not node.is_up:
            self._later(node)

    def _later(self, node: Node) -> None:
        delay = self._random.choice((0.01, 0.1, 0.5, 3.0))
        self._cluster.scheduler.call_later(delay, self._come_back, node)

    def _power(self) -> None:
        node = self._up()
        if node is not None:
            self._cluster.note(f"node {node.node_id} loses power")
            node.cut_power()
            self._later(node)

    def _power_in_operation(self) -> None:
        node = self._up()
        if node is not None:
            node.disk.crash_at(self._random.randint(1, 60))
            self._watch(node)

    def _watch(self, node: Node) -> None:
        if not node.is_up:
            self._cluster.note(f"node {node.node_id} is down")
            self._later(node)
        else:
            self._cluster.scheduler.call_later(0.1, self._watch, node)

    def _kill(self) -> None:
        node = self._up()
        if node is not None:
            self._cluster.note(f"node {node.node_id} is killed")
            node.kill()
            self._later(node)

    def _all_power(self) -> None:
        for node in self._cluster.nodes:
            if node.is_up:
                node.cut_power()
                self._later(node)

    def _pause(self) -> None:
        node = self._up()
        if node is not None and node.scheduler is not None:
            self._cluster.note(f"node {node.node_id} is paused")
            process = node.scheduler
            process.pause()
            seconds = self._random.choice((0.3, 1.0, 3.0))
            self._cluster.scheduler.call_later(seconds, process.resume)

    def _stop(self) -> None:
        node = self._up()
        if node is not None:
            node.stop()
            self._watch(node)

    # ---- network

    def _cut(self) -> None:
        network = self._cluster.network
        source, target = self._random.sample(range(len(self._cluster.nodes) + 1), 2)
        network.cut(source, target)
        if self._random.random() < 0.5:
            network.cut(target, source)
        self._cluster.scheduler.call_later(self._random.choice((0.5, 2.0, 4.0)), network.heal)

    def _isolate(self) -> None:
        """From everybody, from the controller only, or from the other nodes only; or it is deaf to
        the controller, which hears it all the same."""
        network, count = self._cluster.network, len(self._cluster.nodes)
        node = self._random.randint(1, count)
        if self._random.random() < 0.4:
            network.cut(CONTROLLER, node)
            self._cluster.scheduler.call_later(self._random.choice((2.0, 4.0)), network.heal)
            return
        others = self._random.choice(([*range(count + 1)], [CONTROLLER], [*range(1, count + 1)]))
        for each in others:
            network.cut(node, each)
            network.cut(each, node)
        self._cluster.scheduler.call_later(self._random.choice((1.0, 3.0)), network.heal)

    # ---- disks

    def _is_budget_free(self) -> bool:
        """Somebody else has all that is committed, and may lead."""
        victim = self._cluster.victim.node_id
        return all(
            set(each.in_sync) | set(each.eligible) > {victim}
            for each in self._cluster.metadata.image.partitions.values()
            if victim in each.replicas
        )

    def _wipe(self) -> None:
        node = self._cluster.victim
        if node.is_up and self._is_budget_free():
            self._cluster.note(f"node {node.node_id} loses its disk")
            node.cut_power()
            node.wipe()
            self._later(node)

    def _flip(self) -> None:
        if self._random.random() < 0.6:
            self._flip_now()
            return
        # The others are down, and known to be, when the victim comes back with what it has.
        for node in self._cluster.nodes:
            if node is not self._cluster.victim and node.is_up:
                node.cut_power()
                self._cluster.scheduler.call_later(3.0, self._come_back, node)
        self._cluster.scheduler.call_later(2.0, self._flip_now)

    def _flip_now(self) -> None:
        """Anywhere in a log; half of the time the node goes down as well."""
        node, random = self._cluster.victim, self._random
        if self._is_over or not node.is_up or not self._is_budget_free():
            return
        files = [
            (path, len(data))
            for path, data in node.disk.image().items()
            if path.startswith("partitions/") and path.endswith(".log") and data
        ]
        if not files:
            return
        path, size = random.choice(files)
        index = path.removesuffix(".log") + ".idx"
        image = node.disk.image()
        if not image.get(index):
            return
        if self._flips_indexes:
            # Without its index, the segment is read from end to end at the next start. Headers have
            # no other check, so these stay as they are.
            node.disk.flip(index, random.randrange(min(20, len(image[index]))), random.randrange(8))
            position = _position_in_records(image[path], random)
        else:
            position = random.randrange(size)
        node.disk.flip(path, position, random.randrange(8))
        self._cluster.note(f"node {node.node_id}: a bit of {path} is flipped")
        self._cluster.checker.flipped(node, int(path.split("/")[1].partition("-")[0]))
        if random.random() < 0.5:
            node.cut_power()
            self._cluster.scheduler.call_later(0.05, self._come_back, node)

    def _sync_error(self) -> None:
        node = self._up()
        if node is not None:
            node.disk.faults = DiskFaults(sync_error_rate=self._random.choice((0.02, 0.2)))
            self._cluster.scheduler.call_later(2.0, self._good_disk, node)
            self._watch(node)

    def _good_disk(self, node: Node) -> None:
        node.disk.faults = DiskFaults()

    # ---- operators

    def _delete_records(self) -> None:
        node = self._up()
        if node is None or node.scheduler is None or not hasattr(node, "replication"):
            return
        for leading in list(node.replication._leading.values()):
            node.scheduler.call_soon(self._delete_most, leading.replica.log)

    def _delete_most(self, log: PartitionLog) -> None:
        """Not what a producer may send again: a copy made anew knows only of what is in the log."""
        partition_id = log.identity.partition_id
        in_doubt = [
            offset for (where, _), offset in self._cluster.in_doubt.items() if where == partition_id
        ]
        with suppress(LogStoppedError):
            log.move_log_start(max(0, min([log.high_watermark - 3, *in_doubt])))

    def _elect(self) -> None:
        """Another leader for no reason, as when leaders are balanced."""
        image, controller = self._cluster.metadata.image, self._cluster.metadata.controller
        for partition in image.partitions.values():
            replicas = self._random.sample(partition.replicas, len(partition.replicas))
            move = partial(controller.controller.reassign, partition.partition_id, replicas)
            elect = partial(controller.controller.elect_preferred, partition)
            for decide in (move, elect):
                controller.decide(lambda each=decide: (each(), _DONE), lambda _: None)

    def _move(self) -> None:
        cluster = self._cluster
        image, controller = cluster.metadata.image, cluster.metadata.controller
        if not image.partitions:
            return
        partition = self._random.choice(list(image.partitions.values()))
        nodes = [each.node_id for each in cluster.nodes]
        factor = min(len(partition.replicas), 3)
        replicas = self._random.sample(nodes, factor)
        partition_id = partition.partition_id
        controller.decide(
            lambda: (controller.controller.reassign(partition_id, replicas), _DONE),
            lambda _: None,
        )


def _position_in_records(data: bytes, random: Random) -> int:
    starts = [0]
    while starts[-1] < len(data):
        _, length, _ = WALK.unpack_from(data, starts[-1])
        starts.append(starts[-1] + length + LENGTH_PREFIX_BYTES)
    at = random.randrange(len(starts) - 1)
    return random.randrange(starts[at] + UNCHECKED_PREFIX_BYTES, min(starts[at + 1], len(data)))


# ---- watching what nodes do


@contextmanager
def watched() -> Iterator[None]:
    """Small bounds, no log lines, and the checker told of what nodes do inside."""
    lead, advance = Replication._lead, LedPartition.advance
    truncate, restart_at = PartitionLog.truncate, PartitionLog.restart_at
    change_in_sync = Decisions.change_in_sync

    def checked_lead(self: Replication, replica: object) -> None:
        lead(self, replica)  # type: ignore[arg-type]
        node: Node = self.sim_node  # type: ignore[attr-defined]
        partition_id = replica.metadata.partition_id  # type: ignore[attr-defined]
        found = self._leading.get(partition_id)
        if found is not None:
            found.sim_node = node  # type: ignore[attr-defined]
            node.cluster.checker.leads(node, found)
            node.cluster.checker.watermark(node, found, found.replica.log.high_watermark)

    def checked_advance(self: LedPartition) -> None:
        before = self.replica.log.high_watermark
        advance(self)
        node = getattr(self, "sim_node", None)
        if node is not None:
            node.cluster.checker.watermark(node, self, before)

    def checked_truncate(self: PartitionLog, offset: int) -> None:
        node = _node_of(self)
        end, epochs = self.log_end_offset, list(self.epochs.entries())
        node.cluster.checker.cutting(node, self, offset)
        truncate(self, offset)
        node.cluster.checker.cut(node, self, end, epochs)

    def checked_restart(self: PartitionLog, offset: int) -> None:
        node = _node_of(self)
        end = self.stable_end
        node.cluster.checker.cutting(node, self, 0)
        restart_at(self, offset)
        node.cluster.checker.restarted(node, self, end)

    def checked_change(
        self: Decisions, leader: Member, change: InSyncChange
    ) -> tuple[messages.Decision, list[Event]]:
        """S9: what is granted was wanted by a leader that knew what it changes."""
        outcome, events = change_in_sync(self, leader, change)
        if events:
            known = self._image.partitions[change.partition_id]
            epochs = (known.leader_epoch, known.partition_epoch)
            if (change.leader_epoch, change.partition_epoch) != epochs:
                raise Violation(f"S9: {change} is granted, the epochs are {epochs}")
        return outcome, events

    names = ("dragoman.log", "dragoman.replication")
    before = [logging.getLogger(each).disabled for each in names]
    for each in names:
        logging.getLogger(each).disabled = True
    try:
        with ExitStack() as stack:
            stack.enter_context(small_bounds())
            for owner, name, new in (
                (Replication, "_lead", checked_lead),
                (LedPartition, "advance", checked_advance),
                (Decisions, "change_in_sync", checked_change),
                (PartitionLog, "truncate", checked_truncate),
                (PartitionLog, "restart_at", checked_restart),
            ):
                stack.enter_context(mock.patch.object(owner, name, new))
            yield
    finally:
        for each, was in zip(names, before, strict=True):
            logging.getLogger(each).disabled = was


def _node_of(log: PartitionLog) -> Node:
    found = log.store.on_failure.__self__  # type: ignore[attr-defined]
    assert isinstance(found, Node)
    return found


def run(seed: int, node_count: int = 3, parts: Parts | None = None) -> Outcome:
    """One seeded run, inside `watched`. Raises `Failure`."""
    cluster = Cluster(seed, node_count, parts)
    chosen: list[str] = []
    try:
        faults = Faults(cluster)
        chosen = faults.chosen
        cluster.begin(faults.config())
        faults.begin()
        cluster.run_until(lambda: False, _FAULT_SECONDS)
        faults.heal()
        cluster.finish()
    except Exception as error:
        last = "\n".join(cluster.history[-60:])
        text = f"seed {seed}, {node_count} nodes: {type(error).__name__}: {error}"
        text = f"{text}\nfaults: {', '.join(chosen)}\n{last}"
        raise Failure(text, cluster.scheduler.time()) from error
    checker = cluster.checker
    return Outcome(
        seed=seed,
        seconds=cluster.scheduler.time(),
        acks=checker.acks,
        elections=checker.elections,
        truncations=checker.truncations,
        copied_anew=checker.copied_anew,
        faults=tuple(chosen),
        trace=hash((len(cluster.history), checker.acks, tuple(checker.committed_end.items()))),
    )
