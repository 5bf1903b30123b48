"""Captures as the rest of the broker sees them, on any node.

What there is to run follows from the metadata and from which partitions of the topic of positions
this node leads; whenever one of them changes, processes are started and stopped until they fit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from dragoman.broker.capturing.ports import CaptureRunner, NoRunner, TakeFindings, Wanted
from dragoman.broker.capturing.removing import Removal
from dragoman.broker.capturing.supervising import Supervised
from dragoman.broker.errand import Errand, TakeNode
from dragoman.broker.errors import (
    CaptureExists,
    CaptureRefused,
    CoordinatorLoading,
    NotCoordinator,
    Overloaded,
    UnknownCapture,
)
from dragoman.broker.neighbours import (
    Answer,
    AskCaptures,
    CaptureState,
    CaptureStates,
    RemoveCapture,
    TellCapture,
)
from dragoman.broker.placement import NOBODY, coordinator_partition
from dragoman.broker.replica import Acknowledge
from dragoman.broker.steps import AllOf
from dragoman.broker.topics import NewTopic
from dragoman.broker.turns import Turns
from dragoman.captures.addresses import server_of
from dragoman.captures.control import Finding, Resume, Rewind, Snapshot, Status
from dragoman.captures.definition import POSITIONS_TOPIC, Definition, read_definition
from dragoman.captures.overlap import Overlap, overlap
from dragoman.captures.policy import secured
from dragoman.cluster.events import CaptureDefined, Event
from dragoman.config.hosts import host_matches
from dragoman.errors import ClusterError, ConfigError, DragomanError
from dragoman.limits import CAPTURE_ASK_TIMEOUT_S, CAPTURE_DEFINITION_BYTES_MAX, CAPTURES_MAX
from dragoman.outcome import start

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.captures")
TakeStates: TypeAlias = Callable[[dict[str, CaptureState]], None]
_PARTITIONS = 8
#: Small segments, since only the last record of each capture is of use, and the one that is being
#: written is never compacted. Markers, one for each transaction, need not be kept for a day: what
#: reads positions reads the last ones, at once.
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "delete.retention.ms": "60000",
}


class Capturing:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: The composition root has a better one.
        self.runner: CaptureRunner = NoRunner()
        broker.topics.reserve(POSITIONS_TOPIC)
        #: Partitions that this node leads: it runs the captures that belong to them.
        self._led: set[int] = set()
        self._running: dict[str, Supervised] = {}
        #: Those that this node should run and cannot: why.
        self._unreadable: dict[str, str] = {}
        self._removing: set[str] = set()
        #: Changes of what there is take turns: names and slots are looked at before.
        self._turns = Turns()
        self._is_due = False
        self._is_closed = False

    # ---- which node runs what

    def topics(self) -> dict[str, int]:
        """Partitions of the internal topic whose leaders run captures."""
        return {POSITIONS_TOPIC: self._partition_count}

    def led(self, topic: str, index: int, _leader_epoch: int) -> None:
        if topic == POSITIONS_TOPIC:
            self._led.add(index)
            self.changed()

    def resigned(self, topic: str, index: int) -> None:
        if topic == POSITIONS_TOPIC:
            self._led.discard(index)
            self.changed()

    @property
    def _partition_count(self) -> int:
        topic = self._broker.image.topics.get(POSITIONS_TOPIC)
        return len(topic.partitions) if topic is not None else _PARTITIONS

    def partition_of(self, name: str) -> int:
        return coordinator_partition(name, self._partition_count)

    def node_of(self, name: str) -> int:
        """The node that runs a capture, or `NOBODY`."""
        index = self.partition_of(name)
        topic = self._broker.image.topics.get(POSITIONS_TOPIC)
        if topic is not None:
            return topic.partitions[index].leader
        return self._broker.node_id if index in self._led else NOBODY

    async def ensure_topic(self) -> None:
        """Make the topic of positions unless there is one."""
        factor = self._broker.settings.transaction_state_log_replication_factor
        new = NewTopic(
            name=POSITIONS_TOPIC,
            partition_count=_PARTITIONS,
            replication_factor=self._broker.context.internal_factor(factor),
            config=dict(_CONFIG),
            is_internal=True,
        )
        await self._broker.topics.ensure(new)

    # ---- what this node runs

    def changed(self) -> None:
        """Captures were defined, changed or removed, or are another node's now."""
        if not self._is_due and not self._is_closed:
            self._is_due = True
            self._broker.scheduler.call_soon(self._fit)

    def _fit(self) -> None:
        self._is_due = False
        if self._is_closed or isinstance(self.runner, NoRunner):
            return
        wanted = {
            name: event
            for name, event in self._broker.image.captures.items()
            if self.partition_of(name) in self._led and name not in self._removing
        }
        self._unreadable = {n: why for n, why in self._unreadable.items() if n in wanted}
        for name, running in self._running.items():
            if name not in wanted and not running.is_stopping:
                self._stop(name)
        for name, event in wanted.items():
            self._fit_one(name, event)

    def _fit_one(self, name: str, event: CaptureDefined) -> None:
        try:
            definition = self._secured(read_definition(event.definition))
            wanted = Wanted(definition, event.is_paused, event.incarnation)
        except ConfigError as error:
            if name not in self._unreadable:
                log.error("capture %s cannot run here: %s", name, error)
            self._unreadable[name] = str(error)
            return
        running = self._running.get(name)
        if running is None:
            running = Supervised(self._broker.scheduler, self.runner, wanted)
            self._running[name] = running
            running.start()
        elif not running.is_stopping and running.wanted != wanted:
            if running.wanted._replace(is_paused=wanted.is_paused) == wanted:
                running.set_paused(wanted.is_paused)
            else:
                self._stop(name)

    def _stop(self, name: str, done: Callable[[], None] | None = None) -> None:
        running = self._running[name]

        def stopped() -> None:
            if self._running.get(name) is running:
                del self._running[name]
            if done is not None:
                done()
            self.changed()

        # Not within the call: whoever goes through the running ones does not expect it.
        self._broker.scheduler.call_soon(running.stop, stopped)

    def stop_all(self, done: Callable[[], None]) -> None:
        """The node stops: processes end while it is still there for their last transaction."""
        self._is_closed = True
        steps = [partial(_stopped, each) for each in self._running.values()]
        AllOf(len(steps), lambda _error: done()).run(steps)

    def kill_all(self) -> None:
        """As if the node were killed."""
        self._is_closed = True
        for each in self._running.values():
            each.abandon()

    # ---- what there is

    def add(self, definition: Definition, done: Acknowledge) -> None:
        """`done` comes when it is agreed on; some node begins soon."""
        objection = self.runner.objection()
        encoded = msgspec.json.encode(definition)
        if objection:
            done(CaptureRefused(objection))
            return
        if len(encoded) > CAPTURE_DEFINITION_BYTES_MAX:
            done(_too_large())
            return

        incarnation = f"{self._broker.random.getrandbits(64):016x}"
        event = CaptureDefined(name=definition.name, definition=encoded, incarnation=incarnation)

        def decide() -> list[Event]:
            self._check_new(definition)
            return [event]

        def made(error: DragomanError | None) -> None:
            if error is None:
                self._change(decide, done)
            else:
                done(error)

        try:
            # Before a topic is made for nothing.
            self._secured(definition)
            self._broker.image.check_level([event])
            self._check_new(definition)
        except DragomanError as error:
            done(error)
        else:
            start(self.ensure_topic()).then(made)

    def _check_new(self, new: Definition) -> None:
        captures = self._broker.image.captures
        if new.name in captures:
            raise CaptureExists(f"there is a capture {new.name} already")
        if len(captures) >= CAPTURES_MAX:
            raise Overloaded(f"there are {len(captures)} captures, as many as there may be")
        for name, event in captures.items():
            try:
                other = read_definition(event.definition)
            except ConfigError:
                continue
            is_same_server = server_of(other.dsn) == server_of(new.dsn)
            if other.slot_name == new.slot_name and is_same_server:
                raise CaptureExists(
                    f"capture {name} uses the slot {new.slot_name} of that server: a slot is for "
                    "one capture; choose another with --slot"
                )
        for name, shared in self._overlaps(new):
            if shared.is_certain:
                raise CaptureRefused(shared.text(name))

    def _overlaps(self, definition: Definition) -> Iterator[tuple[str, Overlap]]:
        """Other captures that write to a topic of this one, or may."""
        for name, event in sorted(self._broker.image.captures.items()):
            if name == definition.name:
                continue
            try:
                shared = overlap(definition, read_definition(event.definition))
            except ConfigError:
                continue
            if shared is not None:
                yield name, shared

    def overlaps(self, name: str) -> tuple[str, ...]:
        """Warnings about other captures that may write to topics of this one."""
        try:
            definition = self.definition(name)
        except DragomanError:
            return ()
        return tuple(shared.text(other) for other, shared in self._overlaps(definition))

    def set_paused(self, name: str, is_paused: bool, done: Acknowledge) -> None:
        """`done` comes when it is agreed on; the process hears of it soon."""

        def decide() -> list[Event]:
            event = self._existing(name)
            if event.is_paused == is_paused:
                return []
            return [msgspec.structs.replace(event, is_paused=is_paused)]

        self._change(decide, done)

    def resume(self, name: str, done: Acknowledge) -> None:
        """Also for one that has not been paused but has failed: it is tried again, at once."""

        def agreed(error: DragomanError | None) -> None:
            if error is None:
                self.tell(name, Resume(), done)
            else:
                done(error)

        self.set_paused(name, False, agreed)

    def definition(self, name: str) -> Definition:
        """Raises `UnknownCapture`, and `ConfigError` for what a newer release has defined."""
        return read_definition(self._existing(name).definition)

    def _existing(self, name: str) -> CaptureDefined:
        found = self._broker.image.captures.get(name)
        if found is None:
            raise UnknownCapture(f"there is no capture {name!r}")
        return found

    def _change(self, decide: Callable[[], list[Event]], done: Acknowledge) -> None:
        start(self._change_in_turn(decide)).then(done)

    async def _change_in_turn(self, decide: Callable[[], list[Event]]) -> None:
        async with self._turns.take(None):
            await self._broker.changes.make(decide)

    # ---- asking and telling, wherever it runs

    def states(self, names: Iterable[str], done: TakeStates) -> None:
        """How captures are, of all nodes that run some."""
        found: dict[str, CaptureState] = {}
        by_node: dict[int, list[str]] = {}
        for name in names:
            by_node.setdefault(self.node_of(name), []).append(name)
        steps = [partial(self._ask, node, each, found) for node, each in by_node.items()]
        AllOf(len(steps), lambda _error: done(found)).run(steps)

    def _ask(
        self, node: int, names: list[str], found: dict[str, CaptureState], done: Acknowledge
    ) -> None:
        def take(states: tuple[CaptureState, ...], why: str = "its node has just begun") -> None:
            found.update({each.name: each for each in states})
            for name in names:
                found.setdefault(name, _unknown(name, node, why))
            done(None)

        def answered(answer: Answer | DragomanError) -> None:
            if not waiting:
                return
            waiting.pop().cancel()
            if isinstance(answer, Answer):
                assert isinstance(answer.reply, CaptureStates)
                take(answer.reply.states)
            else:
                take((), f"node {node}, which runs it, does not answer: {answer}")

        if node == self._broker.node_id:
            take(self.states_here(names))
        elif node == NOBODY:
            take((), "no node runs it at the moment: its partition of the positions has no leader")
        else:
            late = ClusterError(f"nothing came within {CAPTURE_ASK_TIMEOUT_S:.0f} s")
            timer = self._broker.scheduler.call_later(CAPTURE_ASK_TIMEOUT_S, answered, late)
            waiting = [timer]
            request = AskCaptures(names=tuple(names))
            self._broker.neighbours.ask(node, request, (), answered)

    def states_here(self, names: Iterable[str]) -> tuple[CaptureState, ...]:
        node = self._broker.node_id
        found = []
        for name in names:
            running = self._running.get(name)
            if running is not None:
                found.append(
                    CaptureState(
                        name=name,
                        node=node,
                        status=running.status,
                        restarts=running.restarts,
                        rows=running.rows,
                    )
                )
            elif name in self._unreadable:
                status = Status(state="failed", problem=self._unreadable[name])
                found.append(CaptureState(name=name, node=node, status=status))
        return tuple(found)

    def running_here(self) -> tuple[CaptureState, ...]:
        return self.states_here(self._running)

    def tell(self, name: str, command: Resume | Rewind | Snapshot, done: Acknowledge) -> None:
        """`done` comes when the capture has done it, or has begun to."""
        request = TellCapture(name=name, command=command)
        here = partial(self.tell_here, name, command)
        Errand(
            self._broker, partial(self._find, name), here, lambda: (request, ()), _nothing, done
        ).run()

    def tell_here(self, name: str, command: Resume | Rewind | Snapshot, done: Acknowledge) -> None:
        self._require_here(name)
        running = self._running.get(name)
        if running is None:
            if name in self._unreadable:
                raise CaptureRefused(self._unreadable[name])
            raise CoordinatorLoading(f"capture {name} is about to start")
        if isinstance(command, Resume):
            running.set_paused(False)
            done(None)
        else:
            running.tell(command, done)

    def remove(self, name: str, keeps_slot: bool, done: Acknowledge) -> None:
        """`done` comes when its process has ended and it is agreed that there is no such capture.
        Its slot and publication go with it, unless they are to be kept.
        """
        request = RemoveCapture(name=name, keeps_slot=keeps_slot)
        here = partial(self.remove_here, name, keeps_slot)
        Errand(
            self._broker, partial(self._find, name), here, lambda: (request, ()), _nothing, done
        ).run()

    def remove_here(self, name: str, keeps_slot: bool, done: Acknowledge) -> None:
        self._require_here(name)
        if name in self._removing:
            raise CaptureRefused(f"capture {name} is being removed already")
        definition = None if keeps_slot else self._removable(name)
        self._removing.add(name)

        def removed(error: DragomanError | None) -> None:
            self._removing.discard(name)
            self.changed()
            done(error)

        removal = Removal(self._broker, self.runner, name, definition, removed)
        if name in self._running:
            self._stop(name, removal.run)
        else:
            removal.run()

    def _removable(self, name: str) -> Definition:
        try:
            return self._secured(self.definition(name))
        except ConfigError as error:
            raise CaptureRefused(
                f"the slot of capture {name} cannot be dropped from here: {error}; --keep-slot"
                " removes the capture and leaves the slot in the database"
            ) from None

    def _find(self, name: str, done: TakeNode) -> None:
        try:
            self._existing(name)
        except DragomanError as error:
            done(error)
        else:
            done(self.node_of(name))

    def _require_here(self, name: str) -> None:
        self._existing(name)
        if self.partition_of(name) not in self._led:
            node = self.node_of(name)
            raise NotCoordinator(f"node {node} runs capture {name}", node)

    # ---- looking at databases

    def check(self, definition: Definition, done: TakeFindings) -> None:
        objection = self.runner.objection()
        if objection:
            done(CaptureRefused(objection))
            return
        if len(msgspec.json.encode(definition)) > CAPTURE_DEFINITION_BYTES_MAX:
            done(_too_large())
            return
        try:
            secured_one = self._secured(definition)
        except ConfigError as error:
            done(error)
            return
        own = tuple(
            Finding("problem" if shared.is_certain else "warning", shared.text(name))
            for name, shared in self._overlaps(definition)
        )

        def found(findings: tuple[Finding, ...] | DragomanError) -> None:
            done(findings if isinstance(findings, DragomanError) else (*findings, *own))

        self.runner.check(secured_one, found)

    def _secured(self, definition: Definition) -> Definition:
        """With its address as it is to be used. Raises `ConfigError` for one that must not be."""
        allowed = self._broker.settings.capture_allowed_hosts
        may_reach = partial(_is_allowed, allowed) if allowed else None
        return msgspec.structs.replace(definition, dsn=secured(definition.dsn, may_reach))


def _too_large() -> CaptureRefused:
    return CaptureRefused(f"a definition may have {CAPTURE_DEFINITION_BYTES_MAX} bytes")


def _is_allowed(allowed: tuple[str, ...], host: str) -> bool:
    return host_matches(host, allowed)


def _stopped(running: Supervised, done: Acknowledge) -> None:
    running.stop(lambda: done(None))


def _unknown(name: str, node: int, why: str) -> CaptureState:
    return CaptureState(name=name, node=node, status=Status(state="waiting", problem=why))


def _nothing(_answer: Answer) -> None:
    return None
