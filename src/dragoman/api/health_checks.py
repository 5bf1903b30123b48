"""The checks of a node's health, one function each: what an operator would look at one by one.

A check is `ok`, a `warning` (the node serves clients, and something wants attention) or `failed`
(clients should use other nodes). Details may name topics and files: `health.py` shows them only to
callers who may describe the cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from dragoman.api.cluster import ClusterBroker, ClusterNode, OpenListeners
from dragoman.api.console_access import NO_USERS
from dragoman.api.damaged_ranges import damaged_ranges
from dragoman.api.values import Check, CheckStatus
from dragoman.cluster.metadata import NO_LEADER
from dragoman.config.settings import Settings
from dragoman.installation import QUERY_MODULES, install_command, missing_modules
from dragoman.limits import (
    CERTIFICATE_WARNING_S,
    CLOCK_JUMP_S,
    DESCRIPTORS_WARNING_SHARE,
    DISK_WARNING_BYTES,
    QUORUM_CONTACT_WARNING_S,
    SLOW_SYNC_MEMORY_S,
)
from dragoman.net.admission import MemoryBudget
from dragoman.net.process_listener import ProcessListener
from dragoman.net.tls.contexts import TlsContexts
from dragoman.operating_system import open_files_max
from dragoman.plural import plural


class CheckedBroker(ClusterBroker, Protocol):
    @property
    def is_ready(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...


class CheckedListeners(OpenListeners, Protocol):
    @property
    def budget(self) -> MemoryBudget: ...

    @property
    def contexts(self) -> TlsContexts: ...


class CheckedNode(ClusterNode, Protocol):
    """What the checks use of the node."""

    @property
    def broker(self) -> CheckedBroker: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def listeners(self) -> CheckedListeners: ...

    @property
    def started_at_wall_ms(self) -> int: ...


class HealthChecks:
    def __init__(self, node: CheckedNode) -> None:
        self._node = node
        #: Counts of partitions, and the version of the metadata that they are of.
        self._counted = (-1, (0, 0, 0))
        self._checks: Sequence[tuple[str, Callable[[], tuple[CheckStatus, str]]]] = (
            ("recovery", self._recovery),
            ("disk", self._disk),
            ("journal", self._journal),
            ("quorum", self._quorum),
            ("listeners", self._listeners),
            ("registration", self._registration),
            ("replication", self._replication),
            ("damage", self._damage),
            ("descriptors", self._descriptors),
            ("memory", self._memory),
            ("certificates", self._certificates),
            ("console", self._console),
            ("clock", self._clock),
        )

    @property
    def _broker(self) -> CheckedBroker:
        return self._node.broker

    def run(self) -> tuple[Check, ...]:
        return tuple(Check(name, *check()) for name, check in self._checks)

    def failure(self) -> str:
        """Why only a new start would help; empty when this one may serve, or soon does."""
        failure = self._broker.store.failure
        return "" if failure is None or self._broker.is_stopping else f"the log failed: {failure}"

    # ---- this node

    def _recovery(self) -> tuple[CheckStatus, str]:
        if self._broker.is_stopping:
            return "failed", "the node is stopping"
        if not self._broker.is_ready:
            return "failed", "the node is starting"
        return "ok", ""

    def _disk(self) -> tuple[CheckStatus, str]:
        store = self._broker.store
        free = store.directory.free_bytes()
        if store.is_disk_full or not self._broker.cluster.replication.has_room:
            return "failed", "the disk is full"
        said = f"{free:,} bytes are free" if free >= 0 else ""
        return "warning" if 0 <= free < DISK_WARNING_BYTES else "ok", said

    def _journal(self) -> tuple[CheckStatus, str]:
        failure = self.failure()
        if failure:
            return "failed", failure
        slow_s = self._broker.store.commits.slow_syncs.recent_s(SLOW_SYNC_MEMORY_S)
        if slow_s:
            return "warning", f"the disk is slow: a sync took {slow_s:.1f} s"
        return "ok", ""

    def _descriptors(self) -> tuple[CheckStatus, str]:
        most, used = open_files_max(), _descriptors_used()
        said = f"{used} of {most} are in use"
        return "warning" if used > most * DESCRIPTORS_WARNING_SHARE else "ok", said

    def _memory(self) -> tuple[CheckStatus, str]:
        budget = self._node.listeners.budget
        said = f"{budget.used:,} of {budget.bytes_max:,} bytes are in flight"
        return "warning" if budget.missing else "ok", said

    def _clock(self) -> tuple[CheckStatus, str]:
        clock = self._node.clock
        passed_s = clock.monotonic() - self._node.started_at
        jump_s = (clock.wall_ms() - self._node.started_at_wall_ms) / 1000 - passed_s
        if abs(jump_s) >= CLOCK_JUMP_S:
            return "warning", f"the clock has jumped by {jump_s:+.0f} s since the start"
        return "ok", ""

    def _damage(self) -> tuple[CheckStatus, str]:
        store = self._broker.store
        ranges, lost = damaged_ranges(store), store.journal_damage
        found = []
        if ranges:
            found.append(
                f"{len(ranges)} damaged ranges of records, the first in {ranges[0].path} at byte "
                f"{ranges[0].position}"
            )
        if lost:
            found.append(f"acknowledged records were lost: {lost[0]}")
        return "warning" if found else "ok", "; ".join(found)

    # ---- its connections

    def _listeners(self) -> tuple[CheckStatus, str]:
        wanted = [each.name for each in self._node.settings.listeners]
        opened = {each.name for each in self._node.listeners.opened}
        missing = [each for each in wanted if each not in opened]
        if missing:
            return "warning", f"not open: {', '.join(missing)}"
        return "ok", f"{len(wanted)} are open"

    def _certificates(self) -> tuple[CheckStatus, str]:
        now_ms, found = self._node.clock.wall_ms(), []
        for each in self._node.listeners.contexts.states():
            left_s = (each.expires_ms - now_ms) / 1000
            if each.problem:
                found.append(f"{each.listener}: {each.problem}")
            elif left_s <= 0:
                found.append(f"{each.listener}: it has expired")
            elif left_s < CERTIFICATE_WARNING_S:
                found.append(f"{each.listener}: it expires in {left_s / 86_400:.0f} days")
        return "warning" if found else "ok", "; ".join(found)

    def _console(self) -> tuple[CheckStatus, str]:
        settings = self._node.settings
        if not any(each.base == "console" for each in settings.listeners):
            return "ok", "it is off"
        found = (each for each in self._node.listeners.opened if each.listener.base == "console")
        console = next(found, None)
        if console is None:
            return "warning", "its listener is not open"
        scheme = "http" if settings.listener_security(console.name).tls == "off" else "https"
        where = f"{scheme}://{console.bound}{settings.console_base_path}/"
        if isinstance(console, ProcessListener) and console.failure:
            return "warning", f"{where}: its process has failed: {console.failure}"
        if not console.bound.is_loopback and not self._broker.image.users:
            return "warning", f"{where}: {NO_USERS}"
        missing = missing_modules(QUERY_MODULES)
        if missing:
            return "ok", f"{where}; SQL needs {', '.join(missing)}: {install_command('console')}"
        return "ok", where

    # ---- the cluster

    def _quorum(self) -> tuple[CheckStatus, str]:
        leader = self._broker.quorum.leader
        if leader == NO_LEADER:
            return "warning", "no leader of the metadata is known"
        if leader == self._broker.node_id:
            return "ok", "this node leads"
        silent_s = self._broker.cluster.replication.controller_silence_s
        said = f"node {leader} leads; it answered {silent_s:.1f} s ago"
        return "warning" if silent_s > QUORUM_CONTACT_WARNING_S else "ok", said

    def _registration(self) -> tuple[CheckStatus, str]:
        image, node = self._broker.image, self._broker.node_id
        if node not in image.nodes:
            return "warning", "the cluster does not know this node yet"
        if node in image.fenced:
            return "warning", "the cluster has fenced this node"
        return "ok", ""

    def _replication(self) -> tuple[CheckStatus, str]:
        replicas, under, offline = self._replica_counts()
        here = plural(replicas, "replica")
        said = f"{here} here, {under} under-replicated, {offline} without a leader"
        return "warning" if under or offline else "ok", said

    def _replica_counts(self) -> tuple[int, int, int]:
        """Replicas on this node; those of partitions that are under-replicated, and offline."""
        version, node = self._broker.quorum.version, self._broker.node_id
        if self._counted[0] != version:
            replicas = under = offline = 0
            for each in self._broker.image.partitions.values():
                if node in each.replicas:
                    replicas += 1
                    under += len(each.in_sync) < len(each.replicas)
                    offline += each.leader == NO_LEADER
            self._counted = (version, (replicas, under, offline))
        return self._counted[1]


def _descriptors_used() -> int:
    """How many descriptors are in use: the system assigns the lowest free number."""
    try:
        number = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return open_files_max()
    os.close(number)
    return number
