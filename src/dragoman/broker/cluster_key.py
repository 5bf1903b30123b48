"""The cluster's key: which one is current, whether all nodes have it, and its rotation.

The metadata names the current key. It gets its first one when the first secret is stored: a node on
its own makes a key file for that, the nodes of a cluster must have one. A key becomes current only
when every registered node has it, so each of them can open what any other seals.

    new first key in every key file ─► rotate ─► ClusterKeyChanged ─► each secret is sealed anew

The leader of the metadata seals anew whatever is sealed with another key than the current one. It
looks for such secrets after each change that may have left some, so a rotation that a crash has
interrupted continues by itself. The same work seals what earlier releases stored in clear text.

When nothing is left to seal anew, every node replaces its log of the metadata by a snapshot, so
that no file of it has the old form of a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from contextlib import AsyncExitStack
from itertools import islice
from typing import Final, Protocol

import msgspec

from dragoman.broker.changes import Changes
from dragoman.broker.context import NodeContext
from dragoman.broker.keyed_lock import KeyedLock
from dragoman.cluster.events import (
    LEVELS,
    CaptureChanged,
    CaptureDefined,
    ClusterKeyChanged,
    Event,
    FeatureLevelChanged,
    UserChanged,
)
from dragoman.cluster.metadata import MetadataImage
from dragoman.cluster.sealed import sealed_by_key, sealed_secrets
from dragoman.errors import ClusterError, DragomanError, SecretError
from dragoman.limits import (
    CLUSTER_KEY_ASK_TIMEOUT_S,
    SECRETS_SEALED_AT_ONCE_MAX,
    SECRETS_SEALED_RETRY_S,
)
from dragoman.outcome import attempt, deadline, gather, ignore, start
from dragoman.rpc import Answer, Call, Node, Registry, Request, Rpc
from dragoman.security.audit import AuditLog, noticed
from dragoman.security.key_file import ClusterKey
from dragoman.security.secrets import ClusterKeys
from dragoman.security.users import User
from dragoman.world import Handle

log = logging.getLogger("dragoman.secrets")
_LEVEL: Final = LEVELS[ClusterKeyChanged]
_CURE: Final = (
    "make a key file with `dragoman security key new FILE`, copy it to every node, name it there"
    " with cluster.key.file, and restart the nodes one after the other"
)


class HeldKeys(Answer, frozen=True, kw_only=True, tag="HeldKeys"):
    """The keys in a node's key file: their public check bytes by id, the first one first."""

    checks: dict[str, bytes] = {}
    #: Why the file could not be read again.
    problem: str = ""


class DescribeKeys(Request[HeldKeys], frozen=True, kw_only=True, tag="DescribeKeys"):
    """The node reads its key file again, and returns which keys it has."""


class NodeKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of the keys that a node has, or why that is not known."""

    node: int
    keys: tuple[str, ...] = ()
    problem: str = ""


class KeyStatus(msgspec.Struct, frozen=True, kw_only=True):
    #: The current key; empty until the first secret is stored.
    current: str
    nodes: tuple[NodeKeys, ...]
    #: The number of secrets sealed with each key.
    sealed: dict[str, int]
    #: Secrets that an earlier release has stored in clear text.
    clear: int


class ClearSecrets(Protocol):
    """Secrets of earlier releases in the metadata, in clear text."""

    def count(self) -> int: ...

    def sealed(self, most: int) -> list[Event]:
        """Events that replace up to so many of them by sealed ones. Raises `SecretError`."""
        ...


class NoClearSecrets:
    def count(self) -> int:
        return 0

    def sealed(self, most: int) -> list[Event]:  # noqa: ARG002
        return []


class MetadataLog(Protocol):
    """The part of the metadata quorum that this service needs."""

    @property
    def is_leading(self) -> bool: ...

    def forget_history(self, words: tuple[bytes, ...]) -> None:
        """Replace the history of the metadata by a snapshot, if it has any of these words."""
        ...


class ClusterKeyService:
    def __init__(
        self,
        context: NodeContext,
        keys: ClusterKeys,
        changes: Changes,
        quorum: MetadataLog,
        rpc: Rpc,
        audit: AuditLog,
    ) -> None:
        self._context = context
        self._keys = keys
        self._changes = changes
        self._quorum = quorum
        self._rpc = rpc
        self._audit = audit
        #: Replaced by the service that knows such secrets.
        self.clear: ClearSecrets = NoClearSecrets()
        #: Held by changes of users: one queue for all, because secrets of several are sealed anew
        #: in one change.
        self.user_lock = KeyedLock()
        #: Locks that changes of owners of secrets hold, with the key that stands for all of them.
        self.locks: list[tuple[KeyedLock, Hashable]] = [(self.user_lock, None)]
        self._is_started = False
        self._is_sealing = False
        self._timer: Handle | None = None
        #: Whether secrets were to be sealed anew when last looked.
        self._was_due = False
        self._has_warned = False
        #: Why secrets could not be sealed anew the last time, if they could not.
        self._problem = ""

    def serve(self, registry: Registry) -> None:
        registry.serve(DescribeKeys, self._describe)

    @property
    def _image(self) -> MetadataImage:
        return self._context.image

    # ---- the life of the node

    def start(self) -> None:
        """Begin to seal anew what is due. Raises `SecretError` if this node lacks the cluster's
        key, so that it must not start.
        """
        self._is_started = True
        current = self._image.cluster_key
        if current is not None and not self._context.settings.cluster_key_lost:
            self._keys.require(current.key_id, current.check)
        missing = sorted(set(sealed_by_key(self._image)) - set(self._keys.held))
        if missing:
            log.error(
                "secrets are sealed with key %s, which %s does not have: put it back until"
                " `dragoman security key status` says that nothing is sealed with it",
                ", ".join(missing),
                self._keys.path,
            )
        # The log may still have the old form of secrets whose renewal a crash has interrupted.
        self._was_due = current is not None
        self._look()

    def stop(self) -> None:
        self._is_started = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def applied(self, event: Event | None) -> None:
        """A metadata event was applied; None: a snapshot has replaced the metadata."""
        if event is None or isinstance(event, ClusterKeyChanged | FeatureLevelChanged):
            current = self._image.cluster_key
            self._keys.use("" if current is None else current.key_id)
            if isinstance(event, ClusterKeyChanged) and self._is_started:
                self._check_new(event)
            self._was_due = self._was_due or current is not None
        if self._is_started and self._may_leave_work(event):
            self._look_soon()

    def _may_leave_work(self, event: Event | None) -> bool:
        """Whether there may be a secret to seal anew after an event."""
        match event:
            case UserChanged(user=User(signing_secret=secret)) | CaptureChanged(dsn=secret):
                return secret is not None and secret.key_id != self._keys.current
            case None | ClusterKeyChanged() | FeatureLevelChanged() | CaptureDefined():
                return True
            case _:
                return False

    def _check_new(self, event: ClusterKeyChanged) -> None:
        try:
            self._keys.require(event.key_id, event.check)
        except SecretError as error:
            log.error("%s; secrets stored from now on cannot be used on this node", error)

    # ---- the current key

    async def ready(self) -> None:
        """Returns when a secret can be sealed: the cluster has a key, its first one if necessary.

        Raises `SecretError` with what to do, and `ClusterError` while there are older nodes.
        """
        current = self._image.cluster_key
        if current is not None:
            self._keys.require(current.key_id, current.check)
            return
        self._image.require_level(_LEVEL)
        if not self._keys.held:
            self._keys.load()
        if not self._keys.held:
            if not self._is_alone:
                raise SecretError(f"a cluster needs a key to store secrets: {_CURE}")
            self._keys.make()
            log.info(
                "secrets are sealed with the new key in %s: back it up, and keep it secret",
                self._keys.path,
            )
        await self._make_current(next(iter(self._keys.held.values())), only_first=True)

    async def _make_current(self, key: ClusterKey, *, only_first: bool) -> None:
        await self._require_everywhere(key)

        def decide() -> list[Event]:
            current = self._image.cluster_key
            if current is not None and (only_first or current.key_id == key.key_id):
                return []
            return [ClusterKeyChanged(key_id=key.key_id, check=key.check)]

        await self._changes.make(decide)
        self._audit.record(noticed("cluster.key", detail=f"current: {key.key_id}"))

    async def _require_everywhere(self, key: ClusterKey) -> None:
        """Raises `SecretError` unless every registered node has this key."""
        lacking = [
            f"node {node}: {problem}"
            for node, held in (await self._held()).items()
            if (problem := _problem_with(key, held))
        ]
        if lacking:
            raise SecretError(
                f"key {key.key_id} cannot become current before all nodes have it ("
                f"{'; '.join(lacking)}): copy the key file of node {self._context.node_id} to"
                " cluster.key.file of these nodes; a node that has no such setting is restarted"
                " with it, one that is lost is removed from the cluster"
            )

    async def _held(self) -> dict[int, HeldKeys]:
        nodes = sorted(self._image.nodes) or [self._context.node_id]
        answers = await gather([start(self._ask(node)) for node in nodes])
        return dict(zip(nodes, answers, strict=True))

    async def _ask(self, node: int) -> HeldKeys:
        if node == self._context.node_id:
            return self._held_here()
        answer = await attempt(
            deadline(
                start(self._rpc.call(DescribeKeys(), Node(node))),
                self._context.scheduler,
                CLUSTER_KEY_ASK_TIMEOUT_S,
                _no_answer,
            )
        )
        return HeldKeys(problem=str(answer)) if isinstance(answer, DragomanError) else answer

    async def _describe(self, _call: Call[DescribeKeys]) -> HeldKeys:
        return self._held_here()

    def _held_here(self) -> HeldKeys:
        problem = ""
        try:
            self._keys.load()
        except SecretError as error:
            problem = str(error)
        checks = {key_id: key.check for key_id, key in self._keys.held.items()}
        return HeldKeys(checks=checks, problem=problem)

    # ---- rotation

    async def rotate(self) -> KeyStatus:
        """Make the first key of the key file current, and seal all secrets anew with it. Continues
        an earlier rotation if there is one.

        Raises `SecretError` if a node does not have the key, or the file has no new one.
        """
        self._keys.load()
        current = self._image.cluster_key
        if current is None:
            await self.ready()
        else:
            first = next(iter(self._keys.held.values()), None)
            if first is None or (first.key_id == current.key_id and not self._is_due()):
                raise SecretError(
                    f"the first key of {self._keys.path} is current already: add a new one with"
                    " `dragoman security key new` and copy the file to every node first"
                )
            if first.key_id != current.key_id:
                await self._make_current(first, only_first=False)
        await self._seal_anew()
        return await self.status()

    async def status(self) -> KeyStatus:
        current = self._image.cluster_key
        return KeyStatus(
            current="" if current is None else current.key_id,
            nodes=tuple(
                NodeKeys(node=node, keys=tuple(held.checks), problem=held.problem)
                for node, held in (await self._held()).items()
            ),
            sealed=dict(sealed_by_key(self._image)),
            clear=self.clear.count(),
        )

    # ---- secrets to seal anew

    def _is_due(self) -> bool:
        """Whether a secret is in clear text, or sealed with another key than the current one."""
        current = self._image.cluster_key
        if self.clear.count() and (current is not None or self._may_begin()):
            return True
        if current is None:
            return False
        return any(key_id != current.key_id for key_id in sealed_by_key(self._image))

    def _may_begin(self) -> bool:
        """Whether this node can give the cluster its first key by itself."""
        if self._image.feature_level < _LEVEL:
            return False
        return bool(self._keys.held) or self._is_alone

    @property
    def _is_alone(self) -> bool:
        return not self._context.settings.is_clustered and len(self._image.nodes) <= 1

    def _look_soon(self, delay_s: float = 0.0) -> None:
        if self._timer is None:
            self._timer = self._context.scheduler.call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._is_started:
            return
        if not self._is_due():
            self._warn_of_clear_text()
            if self._was_due:
                self._was_due = False
                self._quorum.forget_history(self._old_forms())
            return
        self._was_due = True
        if self._quorum.is_leading and not self._is_sealing:
            start(self._seal_quietly()).then(ignore)
        self._look_soon(SECRETS_SEALED_RETRY_S * (10 if self._problem else 1))

    def _old_forms(self) -> tuple[bytes, ...]:
        """Words of which an entry of the metadata log has one if it has the old form of a secret:
        the tag of definitions in clear text, and the ids of other keys.
        """
        others = (key_id for key_id in self._keys.held if key_id != self._keys.current)
        return (str(CaptureDefined.__struct_config__.tag).encode(), *map(str.encode, others))

    def _warn_of_clear_text(self) -> None:
        count = self.clear.count()
        if count and not self._has_warned and self._image.feature_level >= _LEVEL:
            self._has_warned = True
            log.warning(
                "the metadata has %d secrets of an earlier release in clear text, until the"
                " cluster has a key: %s",
                count,
                _CURE,
            )

    async def _seal_quietly(self) -> None:
        error = await attempt(self._seal_anew())
        problem = str(error) if isinstance(error, DragomanError) else ""
        if problem and problem != self._problem:
            log.warning("secrets could not be sealed anew yet: %s", problem)
        self._problem = problem

    async def _seal_anew(self) -> None:
        """Returns when every secret is sealed with the current key. Raises `SecretError` for those
        that cannot be opened, after all others.
        """
        self._is_sealing = True
        try:
            await self.ready()
            failures: dict[str, str] = {}
            is_complete = False
            while not is_complete:
                is_complete = await self._seal_some(failures)
            if failures:
                raise SecretError("; ".join(islice(failures.values(), 3)))
        finally:
            self._is_sealing = False

    async def _seal_some(self, failures: dict[str, str]) -> bool:
        """Seal some secrets anew. Returns whether there were none, but for the failures."""
        count = 0

        def decide() -> list[Event]:
            nonlocal count
            events = self._renewals(failures)
            events += self.clear.sealed(SECRETS_SEALED_AT_ONCE_MAX - len(events))
            count = len(events)
            return events

        async with AsyncExitStack() as held:
            for lock, key in self.locks:
                await held.enter_async_context(lock.take(key))
            await self._changes.make(decide)
        if count:
            self._audit.record(noticed("cluster.key", detail=f"{count} secrets sealed anew"))
        return not count

    def _renewals(self, failures: dict[str, str]) -> list[Event]:
        events: list[Event] = []
        current = self._keys.current
        for each in sealed_secrets(self._image):
            if each.secret.key_id == current or each.context in failures:
                continue
            if len(events) == SECRETS_SEALED_AT_ONCE_MAX:
                break
            try:
                plain = self._keys.unseal(each.secret, each.context)
            except SecretError as error:
                failures[each.context] = str(error)
            else:
                events.append(each.replaced(self._keys.seal(plain, each.context)))
        return events


def _problem_with(key: ClusterKey, held: HeldKeys) -> str:
    """Why a node with these keys cannot use this one, or an empty text."""
    found = held.checks.get(key.key_id)
    if found is None:
        return held.problem or f"its key file has {', '.join(held.checks) or 'no key'}"
    return "" if found == key.check else f"it has another key of the id {key.key_id}"


def _no_answer() -> DragomanError:
    return ClusterError(f"no response within {CLUSTER_KEY_ASK_TIMEOUT_S:.0f} s")
