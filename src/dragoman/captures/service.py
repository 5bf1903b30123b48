"""Captures as clients see them: every node serves requests for every capture.

The definition of a capture is metadata, committed like a topic. Commands to a capture, and its
removal, are requests to the node that runs the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar, Protocol, TypeVar

import msgspec

from dragoman.broker.changes import Changes
from dragoman.broker.cluster_key import ClusterKeyService
from dragoman.broker.context import NodeContext
from dragoman.broker.directory import NO_NODE
from dragoman.broker.errors import (
    CaptureExists,
    CaptureRefused,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotAuthorized,
    NotCoordinator,
    Overloaded,
    UnknownCapture,
)
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.broker.login_secret import with_login_secret
from dragoman.broker.partitions import Partitions
from dragoman.broker.topics import Topics
from dragoman.broker.transactions import ProducerIdentity
from dragoman.captures.addresses import has_secret, server_of
from dragoman.captures.control import Finding, Resume, Rewind, Snapshot, Status
from dragoman.captures.definition import (
    POSITIONS_TOPIC,
    TRANSACTIONAL_PREFIX,
    Definition,
    read_definition,
    secured_definition,
)
from dragoman.captures.positions import Positions
from dragoman.captures.rights import CaptureRights, Rights
from dragoman.captures.stored import ClearDefinitions, Owner, opened, owner_of, shown, stored
from dragoman.captures.supervisor import CaptureRunner, CaptureState, Findings, Supervisor, Tables
from dragoman.captures.topics import Overlap, overlap
from dragoman.cluster.events import (
    LEVELS,
    Capture,
    CaptureChanged,
    CaptureDefined,
    CaptureRemoved,
    ClusterKeyChanged,
    Event,
    RulesChanged,
    SecurityModeChanged,
    UserChanged,
    UserRemoved,
)
from dragoman.errors import ClusterError, ConfigError, DragomanError, NotSentError
from dragoman.limits import (
    CAPTURE_ASK_TIMEOUT_S,
    CAPTURE_DEFINITION_BYTES_MAX,
    CAPTURES_MAX,
    RELAY_PATIENCE_S,
    RELAY_RETRY_S,
)
from dragoman.outcome import Retry, attempt, deadline, gather, start
from dragoman.rpc import Answer, Call, Coordinator, Done, Node, Registry, Request, Rpc
from dragoman.security.access import ANONYMOUS, Principal
from dragoman.security.secrets import ClusterKeys

A = TypeVar("A", bound=Answer)
_TRANSACTION_TIMEOUT_MS = 60_000
#: Events after which other captures may have to run, or the same ones with other rights.
_CHANGES = (
    Capture
    | CaptureRemoved
    | ClusterKeyChanged
    | RulesChanged
    | SecurityModeChanged
    | UserChanged
    | UserRemoved
)
#: The capture is moving to another node, or that node is still starting it.
_RETRY = Retry(
    (CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator, NotSentError),
    interval_s=RELAY_RETRY_S,
    patience_s=RELAY_PATIENCE_S,
)


class CaptureStates(Answer, frozen=True, kw_only=True, tag="CaptureStates"):
    states: tuple[CaptureState, ...] = ()


class DescribeCaptures(Request[CaptureStates], frozen=True, kw_only=True, tag="AskCaptures"):
    """Returns the state of those named captures that the node runs."""

    names: tuple[str, ...]


class CommandCapture(Request[Done], frozen=True, kw_only=True, tag="TellCapture"):
    """Returns when the capture has executed the command, or has started to."""

    retry: ClassVar[Retry | None] = _RETRY
    name: str
    command: Resume | Rewind | Snapshot


class RemoveCapture(Request[Done], frozen=True, kw_only=True, tag="RemoveCapture"):
    """Stops the capture for good, and returns when its removal is committed."""

    retry: ClassVar[Retry | None] = _RETRY
    name: str
    keeps_slot: bool = False


class Transactions(Protocol):
    """The transactions that this node coordinates."""

    def describe(self, transactional_id: str, /) -> object:
        """Raises `BrokerError` for an id that this node does not know."""
        ...

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, current: ProducerIdentity | None, /
    ) -> ProducerIdentity:
        """Abort the transaction that an earlier producer has left open."""
        ...


class Captures:
    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        topics: Topics,
        changes: Changes,
        transactions: Transactions,
        rpc: Rpc,
        keys: ClusterKeys,
        cluster_key: ClusterKeyService,
        rights: Rights,
    ) -> None:
        self._rights = CaptureRights(context.image, rights)
        self._keys = keys
        self._cluster_key = cluster_key
        self._context = context
        self._changes = changes
        self._transactions = transactions
        self._rpc = rpc
        self._positions = Positions(context, partitions, topics)
        self._supervisor = Supervisor(context, self._positions, keys, self._rights)
        #: Serializes changes, because names and slots are checked against other definitions.
        self._lock = KeyedLock()
        cluster_key.clear = ClearDefinitions(context.image, keys)
        cluster_key.locks.append((self._lock, None))

    @property
    def runner(self) -> CaptureRunner:
        """Starts the processes. The composition root sets it on a node that runs captures."""
        return self._supervisor.runner

    @runner.setter
    def runner(self, runner: CaptureRunner) -> None:
        self._supervisor.runner = runner

    # ---- as a part of the broker

    #: The topic whose leaders run the captures.
    name: ClassVar[str] = POSITIONS_TOPIC

    def serve(self, registry: Registry) -> None:
        registry.serve(DescribeCaptures, self._describe)
        registry.serve(CommandCapture, self._command)
        registry.serve(RemoveCapture, self._remove)

    @property
    def partition_count(self) -> int:
        return self._positions.partition_count

    def lead(self, index: int, _leader_epoch: int) -> None:
        self._positions.led.add(index)
        self._supervisor.changed()

    def resign(self, index: int) -> None:
        self._positions.led.discard(index)
        self._supervisor.changed()

    def applied(self, event: Event | None) -> None:
        """A metadata event was applied; None: a snapshot has replaced the metadata."""
        if event is None or isinstance(event, _CHANGES):
            self._supervisor.changed()

    def leader_of(self, name: str) -> int:
        """The node that runs a capture, or `NO_NODE`. Raises `UnknownCapture`."""
        self._existing(name)
        return self._positions.leader_of(name)

    async def ensure(self) -> None:
        """Create the topic of positions unless it exists."""
        await self._positions.ensure()

    # ---- the captures of this node

    def partition_of(self, name: str) -> int:
        """The partition of the topic of positions that holds the position of a capture."""
        return self._positions.partition_of(name)

    def changed(self) -> None:
        """Start and stop processes until this node runs the captures that it should."""
        self._supervisor.changed()

    def states_here(self) -> tuple[CaptureState, ...]:
        """The states of the captures that this node runs."""
        return self._supervisor.all_states()

    async def stop_all(self) -> None:
        """End the processes while the node can still commit their last transactions."""
        await self._supervisor.stop_all()

    def kill_all(self) -> None:
        """End the processes as if the node had been killed."""
        self._supervisor.kill_all()

    # ---- definitions

    async def add(self, definition: Definition, principal: Principal = ANONYMOUS) -> None:
        """Returns when the definition is committed. A node then starts the capture, which runs as
        the principal.
        """
        self._check_runnable()
        owner = self._rights.owner(principal)
        _check_size(msgspec.json.encode(definition))
        incarnation = f"{self._context.random.getrandbits(64):016x}"
        is_sealed = self._context.image.feature_level >= LEVELS[CaptureChanged]

        def decide() -> list[Event]:
            self._check_new(definition)
            self._check_rights(definition, owner)
            if is_sealed:
                return [stored(definition, owner, incarnation, self._keys)]
            encoded = msgspec.json.encode(definition)
            return [
                CaptureDefined(name=definition.name, definition=encoded, incarnation=incarnation)
            ]

        # Checked before the topic is created, too, in case the definition is refused.
        self._secured(definition)
        self._check_new(definition)
        if is_sealed and has_secret(definition.dsn):
            await self._cluster_key.ready()
        self._context.image.check_level(decide())
        await self._positions.ensure()
        await self._change(decide)

    def _check_rights(self, definition: Definition, owner: Owner) -> None:
        objection = self._rights.objection(definition, owner)
        if objection:
            raise NotAuthorized(f"capture {definition.name} would lack a right: {objection}")

    async def run_as(self, name: str, principal: Principal) -> None:
        """Let a capture run as another principal. Returns when that is committed."""
        owner = self._rights.owner(principal)

        def decide() -> list[Event]:
            event = self._existing(name)
            definition = read_definition(event.definition)
            self._check_rights(definition, owner)
            if isinstance(event, CaptureDefined):
                definition = opened(event, self._keys)
                changed = stored(definition, owner, event.incarnation, self._keys)
                return [msgspec.structs.replace(changed, is_paused=event.is_paused)]
            if owner_of(event) == owner:
                return []
            return [msgspec.structs.replace(event, principal=owner.principal, user=owner.user)]

        event = self._existing(name)
        if isinstance(event, CaptureDefined) and has_secret(read_definition(event.definition).dsn):
            await self._cluster_key.ready()
        await self._change(decide)

    def principal(self, name: str) -> str:
        """The principal that a capture runs as, as `KIND:NAME`."""
        return owner_of(self._existing(name)).principal

    def _check_runnable(self) -> None:
        objection = self.runner.objection()
        if objection:
            raise CaptureRefused(objection)

    def _check_new(self, new: Definition) -> None:
        captures = self._context.image.captures
        if new.name in captures:
            raise CaptureExists(f"the capture {new.name} exists already")
        if len(captures) >= CAPTURES_MAX:
            raise Overloaded(f"a cluster has at most {CAPTURES_MAX} captures; remove one first")
        for name, event in captures.items():
            try:
                other = read_definition(event.definition)
            except ConfigError:
                continue
            is_same_server = server_of(other.dsn) == server_of(new.dsn)
            if other.slot_name == new.slot_name and is_same_server:
                raise CaptureExists(
                    f"capture {name} uses the slot {new.slot_name} of that server: a slot serves "
                    "one capture; name another with --slot"
                )
        for name, shared in self._overlaps(new):
            if shared.is_certain:
                raise CaptureRefused(shared.text(name))

    def _overlaps(self, definition: Definition) -> Iterator[tuple[str, Overlap]]:
        """Other captures that write, or may write, to a topic of this capture."""
        for name, event in sorted(self._context.image.captures.items()):
            if name == definition.name:
                continue
            try:
                shared = overlap(definition, read_definition(event.definition))
            except ConfigError:
                continue
            if shared is not None:
                yield name, shared

    def overlaps(self, name: str) -> tuple[str, ...]:
        """Warnings about other captures that may write to topics of this capture."""
        try:
            definition = self.definition(name)
        except DragomanError:
            return ()
        return tuple(shared.text(other) for other, shared in self._overlaps(definition))

    async def set_paused(self, name: str, is_paused: bool) -> None:
        """Returns when the change is committed. The process receives it later."""

        def decide() -> list[Event]:
            event = self._existing(name)
            if event.is_paused == is_paused:
                return []
            return [msgspec.structs.replace(event, is_paused=is_paused)]

        await self._change(decide)

    async def resume(self, name: str) -> None:
        """Resume a paused capture, or retry a failed one at once."""
        await self.set_paused(name, False)
        await self.command(name, Resume())

    def definition(self, name: str) -> Definition:
        """The definition without secrets. Raises `UnknownCapture`, and `ConfigError` for one of a
        newer release.
        """
        return shown(self._existing(name))

    def _existing(self, name: str) -> Capture:
        found = self._context.image.captures.get(name)
        if found is None:
            raise UnknownCapture(f"there is no capture {name!r}")
        return found

    def _secured(self, definition: Definition) -> Definition:
        return secured_definition(definition, self._context.settings.capture_allowed_hosts)

    async def _change(self, decide: Callable[[], list[Event]]) -> None:
        image, random = self._context.image, self._context.random
        async with self._lock.take(None):
            await self._changes.make(lambda: with_login_secret(decide(), image, random))

    # ---- state

    async def states(self, names: Iterable[str]) -> dict[str, CaptureState]:
        """The state of captures, from all nodes that run any of them."""
        by_node: dict[int, list[str]] = {}
        for name in names:
            by_node.setdefault(self._positions.leader_of(name), []).append(name)
        found = await gather([start(self._states_of(*each)) for each in by_node.items()])
        return {state.name: state for states in found for state in states}

    async def _states_of(self, node: int, names: list[str]) -> list[CaptureState]:
        """One state for each name, even if the node does not know it or does not respond."""
        known: dict[str, CaptureState] = {}
        if node == NO_NODE:
            why = "no node runs it: its partition of the positions has no leader"
        else:
            why = "its node is starting it"
            request = DescribeCaptures(names=tuple(names))
            answer = await attempt(
                deadline(
                    start(self._rpc.call(request, Node(node))),
                    self._context.scheduler,
                    CAPTURE_ASK_TIMEOUT_S,
                    _no_answer,
                )
            )
            if isinstance(answer, DragomanError):
                why = f"node {node}, which runs it, does not respond: {answer}"
            else:
                known = {each.name: each for each in answer.states}
        unknown = Status(state="waiting", problem=why)
        return [
            known.get(name) or CaptureState(name=name, node=node, status=unknown) for name in names
        ]

    async def _describe(self, call: Call[DescribeCaptures]) -> CaptureStates:
        return CaptureStates(states=self._supervisor.states(call.request.names))

    # ---- commands

    async def command(self, name: str, command: Resume | Rewind | Snapshot) -> None:
        """Returns when the capture has executed the command, or has started to."""
        await self._call(CommandCapture(name=name, command=command), name)

    async def _command(self, call: Call[CommandCapture]) -> Done:
        name = call.request.name
        self._require_here(name)
        await self._supervisor.command(name, call.request.command)
        return Done()

    async def _call(self, request: Request[A], name: str) -> A:
        """Send a request to the node that runs a capture."""
        try:
            return await self._rpc.call(request, Coordinator(POSITIONS_TOPIC, name))
        except NotSentError as error:
            raise CoordinatorNotAvailable(str(error)) from None

    def _require_here(self, name: str) -> None:
        self._existing(name)
        if not self._positions.is_led(name):
            node = self._positions.leader_of(name)
            raise NotCoordinator(f"node {node} runs capture {name}", node)

    # ---- removal

    async def remove(self, name: str, *, keeps_slot: bool = False) -> None:
        """Returns when the process has ended and the removal is committed. Slot and publication are
        dropped unless `keeps_slot`.
        """
        await self._call(RemoveCapture(name=name, keeps_slot=keeps_slot), name)

    async def _remove(self, call: Call[RemoveCapture]) -> Done:
        """Slot and publication are dropped first. If that fails, nothing is removed and the capture
        continues.
        """
        name = call.request.name
        self._require_here(name)
        if self._supervisor.is_withheld(name):
            raise CaptureRefused(f"capture {name} is being removed already")
        definition = None if call.request.keeps_slot else self._removable(name)
        try:
            await self._supervisor.withhold(name)
            if definition is not None:
                await self._clean_up(definition)
            await self._abort_transaction(name)
            await self._positions.forget(name)
            await self._changes.make(partial(self._decide_removed, name))
        finally:
            self._supervisor.release(name)
        return Done()

    def _removable(self, name: str) -> Definition:
        event = self._existing(name)
        try:
            definition = self._secured(opened(event, self._keys))
            problem = self._rights.objection_to_borrowing(definition, owner_of(event))
        except ConfigError as error:
            problem = str(error)
        if problem:
            raise CaptureRefused(
                f"the slot of capture {name} cannot be dropped: {problem}; --keep-slot removes the"
                " capture and keeps the slot in the database"
            )
        return definition

    async def _clean_up(self, definition: Definition) -> None:
        """Drop slot and publication. Raises `CaptureRefused`."""
        findings = await attempt(self.runner.clean_up(definition))
        if isinstance(findings, DragomanError):
            problem = str(findings)
        else:
            problem = "; ".join(each.what for each in findings if each.level == "problem")
        if problem:
            raise CaptureRefused(
                f"capture {definition.name} was not removed: {problem}; remove it with --keep-slot,"
                f" then run `SELECT pg_drop_replication_slot('{definition.slot_name}')` and"
                f" `DROP PUBLICATION {definition.publication_name}` in the database, which retains"
                " its WAL until then"
            )

    async def _abort_transaction(self, name: str) -> None:
        """Abort the open transaction of a killed process, because readers wait for its end.

        A transaction that another node coordinates is aborted at its timeout.
        """
        transactional_id = TRANSACTIONAL_PREFIX + name
        try:
            self._transactions.describe(transactional_id)
        except DragomanError:
            return
        initialise = self._transactions.init_producer_id
        await attempt(initialise(transactional_id, _TRANSACTION_TIMEOUT_MS, None))

    def _decide_removed(self, name: str) -> list[Event]:
        return [CaptureRemoved(name=name)] if name in self._context.image.captures else []

    # ---- databases

    async def check_existing(self, name: str) -> Findings:
        """Examine the database of a capture, unless the capture may not run: its credentials are
        not used for a user who has lost the right to them.
        """
        event = self._existing(name)
        definition = opened(event, self._keys)
        objection = self._rights.objection(definition, owner_of(event))
        if objection:
            return (Finding("problem", objection),)
        return await self.check(definition)

    async def check(self, definition: Definition) -> Findings:
        """Examine whether a database can be captured."""
        self._check_runnable()
        _check_size(msgspec.json.encode(definition))
        secured = self._secured(definition)
        overlaps = tuple(
            Finding("problem" if shared.is_certain else "warning", shared.text(name))
            for name, shared in self._overlaps(definition)
        )
        return (*await self.runner.check(secured), *overlaps)

    async def tables(self, definition: Definition) -> Tables:
        """The tables of a database that may be captured, whether or not the definition names
        them.
        """
        self._check_runnable()
        _check_size(msgspec.json.encode(definition))
        return await self.runner.tables(self._secured(definition))


def _no_answer() -> DragomanError:
    return ClusterError(f"no response within {CAPTURE_ASK_TIMEOUT_S:.0f} s")


def _check_size(encoded: bytes) -> None:
    if len(encoded) > CAPTURE_DEFINITION_BYTES_MAX:
        raise CaptureRefused(
            f"the definition has {len(encoded)} bytes; at most {CAPTURE_DEFINITION_BYTES_MAX} are"
            " allowed"
        )
