"""A running node as the HTTP API sees it: its services, its health and its metrics.

Pipelines run outside the node and report to it; their reports are kept in memory for a while.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import msgspec

from dragoman import __version__, limits
from dragoman.api.access import Access, Rights
from dragoman.api.captures import CaptureService
from dragoman.api.cluster import (
    ClusterBroker,
    ClusterNode,
    ClusterService,
    OpenListeners,
    damaged_ranges,
)
from dragoman.api.connections import ConnectionListeners, ConnectionService
from dragoman.api.damage import DamageService
from dragoman.api.declaration import EventStream
from dragoman.api.groups import GroupBroker, GroupService
from dragoman.api.health_checks import HealthChecks
from dragoman.api.keys import CertificateService, KeyService
from dragoman.api.records import RecordBroker, RecordService
from dragoman.api.security import RuleService, SecurityBroker, SecurityService, UserService
from dragoman.api.topics import TopicBroker, TopicService
from dragoman.api.values import Check, PipelineList, PipelineStatus
from dragoman.broker.cluster_key import ClusterKeyService
from dragoman.broker.context import NodeContext
from dragoman.broker.grants import StandingRights
from dragoman.broker.partitions import Partitions
from dragoman.captures.service import Captures
from dragoman.config.settings import Settings
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channels
from dragoman.net.tls.contexts import TlsContexts
from dragoman.net.tls.handshakes import Handshakes
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.audit import AuditLog
from dragoman.security.authorizer import Authorizer
from dragoman.security.logins import Logins
from dragoman.telemetry.catalogue import Stats
from dragoman.world import Clock

_ALIVE = frozenset(("starting", "running", "stopping"))


class PipelineReports:
    def __init__(self, clock: Clock, rights: Rights) -> None:
        self._clock = clock
        self._access = Access(rights)
        #: The last report of each pipeline and when it arrived; the newest last.
        self._reports: dict[str, tuple[float, PipelineStatus]] = {}

    def report_pipeline(self, caller: Caller, status: PipelineStatus) -> None:
        self._access.require(caller, Operation.WRITE, Resource.PIPELINE, status.name)
        self._reports.pop(status.name, None)
        self._reports[status.name] = (self._clock.monotonic(), status)
        if len(self._reports) > limits.PIPELINES_REPORTED_MAX:
            del self._reports[next(iter(self._reports))]

    def list_pipelines(self, caller: Caller) -> PipelineList:
        is_shown = self._access.sees(caller, Resource.PIPELINE)
        now = self._clock.monotonic()
        found = []
        for name, (at, status) in sorted(self._reports.items()):
            if now - at > limits.PIPELINE_MEMORY_S:
                del self._reports[name]
                continue
            if status.state in _ALIVE and now - at > limits.PIPELINE_SILENCE_S:
                problem = f"no report for {now - at:.0f} s"
                status = msgspec.structs.replace(status, state="died", problem=problem)
            if is_shown(name):
                found.append(status)
        return PipelineList(items=tuple(found))


class NodeBroker(TopicBroker, RecordBroker, GroupBroker, ClusterBroker, SecurityBroker, Protocol):
    """The part of the broker that the services, health and metrics use."""

    @property
    def context(self) -> NodeContext: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def logins(self) -> Logins: ...

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def grants(self) -> StandingRights: ...

    @property
    def cluster_key(self) -> ClusterKeyService: ...

    @property
    def audit(self) -> AuditLog: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...

    @property
    def partitions(self) -> Partitions: ...


class NodeListeners(OpenListeners, ConnectionListeners, Protocol):
    @property
    def channels(self) -> Mapping[str, Channels]: ...

    @property
    def budget(self) -> MemoryBudget: ...

    @property
    def contexts(self) -> TlsContexts: ...

    @property
    def handshakes(self) -> Handshakes: ...

    def hidden_from(self, topic: str) -> tuple[str, ...]:
        """Protocols that this node serves and whose clients cannot name the topic."""
        ...


class RunningNode(ClusterNode, Protocol):
    """The part of the node that the view uses. The composition root provides it."""

    @property
    def broker(self) -> NodeBroker: ...

    @property
    def captures(self) -> Captures: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def listeners(self) -> NodeListeners: ...

    @property
    def peer_budget(self) -> MemoryBudget: ...

    @property
    def started_at_wall_ms(self) -> int: ...


class BrokerView:
    """The `NodeView` of a running node."""

    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self.topics = TopicService(node.broker, node.listeners.hidden_from)
        self.records = RecordService(node.broker, node.listeners.budget)
        self.groups = GroupService(node.broker)
        self.cluster = ClusterService(node, lambda: not self.objection())
        self.captures = CaptureService(
            node.broker.context, node.captures, node.broker, node.broker.audit
        )
        self.keys = KeyService(node.broker.cluster_key, node.broker, node.broker.audit)
        self.certificates = CertificateService(
            node.listeners.contexts, node.broker, node.broker.audit
        )
        self.security = SecurityService(node.broker)
        self.rules = RuleService(node.broker)
        self.users = UserService(node.broker)
        self.connections = ConnectionService(node.broker, node.listeners, node.clock)
        self.damage = DamageService(node.broker)
        self.pipelines = PipelineReports(node.clock, node.broker)
        self._health = HealthChecks(node)

    @property
    def _broker(self) -> NodeBroker:
        return self._node.broker

    def is_serving(self) -> bool:
        return self._broker.is_ready and not self._broker.is_stopping

    def objection(self) -> str:
        if self._broker.is_stopping:
            return "the node is stopping"
        if not self._broker.is_ready:
            return "the node is starting"
        if self._broker.store.is_disk_full or not self._broker.cluster.replication.has_room:
            return "the disk is full"
        return ""

    def degradation(self) -> str:
        damage = damaged_ranges(self._broker.store)
        lost = self._broker.store.journal_damage
        parts = []
        if damage:
            first = damage[0]
            parts.append(
                f"{len(damage)} damaged ranges of records, the first in {first.path} at byte "
                f"{first.position} (topic {first.topic}, partition {first.partition}, offset "
                f"{first.first_offset})"
            )
        if lost:
            parts.append(f"acknowledged records were lost: {lost[0]}")
        return "; ".join(parts)

    def fatal_failure(self) -> str:
        return self._health.failure()

    def health_checks(self) -> tuple[Check, ...]:
        return self._health.run()

    def own_names(self) -> Iterator[str]:
        yield os.uname().nodename
        own = self._node.settings.cluster_nodes.get(self._broker.node_id)
        if own is not None:
            yield own.host
        for each in self._node.listeners.opened:
            yield each.bound.host
            if each.advertised is not None:
                yield each.advertised.host

    @property
    def logins(self) -> Logins:
        return self._broker.logins

    @property
    def authorizer(self) -> Authorizer:
        return self._broker.authorizer

    @property
    def metrics_require_login(self) -> bool:
        return self._broker.settings.http_metrics_authentication

    @property
    def accepts_readable_passwords(self) -> bool:
        return self._broker.settings.sasl_insecure_clear_text

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        return self._node.settings.http_allowed_hosts

    def hold_right(self, stream: EventStream) -> Callable[[], None]:
        return self._broker.grants.hold(stream.check, stream.end).release

    def stats(self) -> Stats:
        node, broker = self._node, self._broker
        store = broker.store.stats
        labelled = node.listeners.channels.items()
        handshakes = node.listeners.handshakes
        return {
            "build_info": {(__version__, str(broker.node_id)): 1},
            "ready": int(not self.objection()),
            "uptime_seconds": node.clock.monotonic() - node.started_at,
            "topics": len(broker.image.topics),
            "partitions": len(broker.image.partitions),
            "connections": {(name,): len(each.open) for name, each in labelled},
            "connections_total": {(name,): each.accepted for name, each in labelled},
            "connections_refused_total": {(name,): each.refused for name, each in labelled},
            "tls_handshakes": handshakes.count,
            "tls_handshakes_total": {
                ("completed",): handshakes.completed,
                ("failed",): handshakes.failed - handshakes.displaced,
                ("displaced",): handshakes.displaced,
            },
            "tls_certificate_expiry_seconds": {
                (each.listener,): each.expires_ms / 1000
                for each in node.listeners.contexts.states()
            },
            "received_bytes_total": {(name,): each.bytes_in for name, each in labelled},
            "sent_bytes_total": {(name,): each.bytes_out for name, each in labelled},
            "in_flight_bytes": node.listeners.budget.used,
            "peer_in_flight_bytes": node.peer_budget.used,
            "appended_bytes_total": store.committed_bytes,
            "log_bytes": sum(each.log.size for each in broker.partitions),
            "log_damaged_ranges": len(damaged_ranges(broker.store)),
            "log_damage_found_total": store.damage,
            "journal_groups_total": store.groups,
            "journal_bytes_total": store.committed_bytes,
            **self.captures.stats(),
        }
