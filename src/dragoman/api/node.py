"""A running node as the HTTP API sees it: its services, its health and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from dragoman.api.captures import CaptureService
from dragoman.api.client_quotas import ClientQuotaService
from dragoman.api.cluster import ClusterService
from dragoman.api.damaged_ranges import damaged_ranges
from dragoman.api.declaration import EventStream
from dragoman.api.figures import FigureService
from dragoman.api.groups import GroupService
from dragoman.api.health_checks import HealthChecks
from dragoman.api.keys import CertificateService, KeyService
from dragoman.api.metrics.listing import MetricService
from dragoman.api.metrics.node import NodeMetrics
from dragoman.api.node_lists import OwnLists
from dragoman.api.node_ports import NodeBroker, RunningNode
from dragoman.api.quotas import CallerQuotas
from dragoman.api.readiness import has_metadata_leader, objection
from dragoman.api.records import RecordService
from dragoman.api.security import RuleService, SecurityService, UserService
from dragoman.api.topics import TopicService
from dragoman.api.usage import UsageService
from dragoman.api.values import Check
from dragoman.net.requests import Requests
from dragoman.operating_system import platforms
from dragoman.security.authorizer import Authorizer
from dragoman.security.logins import Logins
from dragoman.telemetry.catalogue import Stats


class ObservedNode(RunningNode, Protocol):
    @property
    def metrics(self) -> NodeMetrics: ...

    def own_lists(self) -> OwnLists: ...


class BrokerView:
    """The `NodeView` of a running node."""

    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self.caller_quotas = CallerQuotas(node.broker)
        self.topics = TopicService(node.broker, node.listeners.hidden_from)
        self.records = RecordService(node.broker, node.listeners.budget)
        self.groups = GroupService(node.broker)
        self.usage = UsageService(node.broker)
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
        self.quotas = ClientQuotaService(node.broker)
        self.connections, self.damage, self.delayed, self.pipelines = node.own_lists()
        self._health = HealthChecks(node)
        node.metrics.pipelines = self.pipelines
        self.figures = FigureService(node.broker)
        self.metrics = MetricService(self.stats, node.broker)

    @property
    def _broker(self) -> NodeBroker:
        return self._node.broker

    @property
    def requests(self) -> Requests[str]:
        return self._node.metrics.requests

    def is_serving(self) -> bool:
        return self._broker.is_ready and not self._broker.is_stopping

    def objection(self) -> str:
        return objection(self._broker)

    def degradation(self, *, with_files: bool) -> str:
        damage = damaged_ranges(self._broker.store)
        lost = self._broker.store.journal_damage
        parts = []
        if not has_metadata_leader(self._broker):
            parts.append("no leader of the metadata is in reach")
        if (damage or lost) and not with_files:
            parts.append("the data directory is damaged")
            return "; ".join(parts)
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
        yield platforms.machine_name()
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

    def stats(self) -> Iterator[Stats]:
        return self._node.metrics.snapshot()
