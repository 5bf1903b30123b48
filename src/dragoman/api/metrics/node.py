"""A node's snapshot, and the parts that are about its clients and its process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dragoman import __version__
from dragoman.api.metrics.captures import capture_stats
from dragoman.api.metrics.groups import group_stats
from dragoman.api.metrics.histograms import distribution
from dragoman.api.metrics.lag import GroupLag
from dragoman.api.metrics.log import LogMetrics
from dragoman.api.metrics.pipelines import Pipelines, pipeline_stats
from dragoman.api.metrics.replicas import replica_stats
from dragoman.api.readiness import objection
from dragoman.histogram import Times
from dragoman.net.requests import Requests
from dragoman.operating_system import process_usage
from dragoman.telemetry.catalogue import Stats

if TYPE_CHECKING:
    from dragoman.api.node_ports import RunningNode


class NodeMetrics:
    def __init__(self, node: RunningNode) -> None:
        self._node = node
        self._log = LogMetrics(node.broker)
        self._lag = GroupLag(node.broker, self._log)
        #: Requests by HTTP.
        self.requests: Requests[str] = Requests("http", str)
        #: None before the first connection by HTTP, through which pipelines report.
        self.pipelines: Pipelines | None = None

    def snapshot(self) -> Iterator[Stats]:
        """Every metric, and those under the names of other programs."""
        yield from self.own()
        node, aliases = self._node, self._node.settings.metrics_aliases
        if not aliases:
            return
        # Imported here: few nodes need them.
        from dragoman.api.metrics.aliases import kafka_exporter_stats, minibroker_stats

        if "kafka_exporter" in aliases:
            yield from kafka_exporter_stats(node.broker, self._log, self._lag)
        if "minibroker" in aliases:
            yield minibroker_stats(node.broker, node.listeners)

    def own(self) -> Iterator[Stats]:
        """Every metric, under its own name."""
        yield self._of_node()
        yield self._of_connections()
        yield self._of_requests()
        broker = self._node.broker
        yield self._of_topics()
        yield from self._log.stats()
        yield from replica_stats(broker)
        yield from group_stats(broker)
        yield from self._lag.stats()
        yield capture_stats(self._node.captures)
        if self.pipelines is not None:
            yield pipeline_stats(self.pipelines)
        yield {f"process_{name}": value for name, value in process_usage().items()}

    def _of_node(self) -> Stats:
        node, broker = self._node, self._node.broker
        return {
            "build_info": {(__version__, str(broker.node_id)): 1},
            "ready": int(not objection(broker)),
            "uptime_seconds": node.clock.monotonic() - node.started_at,
            "topics": len(broker.image.topics),
            "partitions": len(broker.image.partitions),
            "in_flight_bytes": node.listeners.budget.used,
            "memory_budget_bytes": node.settings.memory_budget_bytes,
            "peer_in_flight_bytes": node.peer_budget.used,
            "loop_lag_seconds": distribution(node.listeners.loop_lag.seconds),
        }

    def _of_connections(self) -> Stats:
        listeners = self._node.listeners
        labelled = listeners.channels.items()
        handshakes = listeners.handshakes
        return {
            "connections": {(name,): len(each.open) for name, each in labelled},
            "connections_accepted_total": {(name,): each.accepted for name, each in labelled},
            "connections_refused_total": {(name,): each.refused for name, each in labelled},
            "received_bytes_total": {(name,): each.bytes_in for name, each in labelled},
            "sent_bytes_total": {(name,): each.bytes_out for name, each in labelled},
            "tls_handshakes": handshakes.count,
            "tls_handshakes_ended_total": {
                ("completed",): handshakes.completed,
                ("failed",): handshakes.failed - handshakes.displaced,
                ("displaced",): handshakes.displaced,
            },
            "tls_certificate_expiry_seconds": {
                (each.listener,): each.expires_ms / 1000 for each in listeners.contexts.states()
            },
        }

    def _of_topics(self) -> Stats:
        flows = self._node.broker.traffic.flows()
        return {
            "topic_bytes_total": {labels: each.size for labels, each in flows.items()},
            "topic_records_total": {labels: each.records for labels, each in flows.items()},
        }

    def _of_requests(self) -> Stats:
        counts: Counter[tuple[str, ...]] = Counter()
        errors: Counter[tuple[str, ...]] = Counter()
        seconds: dict[tuple[str, ...], Times] = {}
        parked: dict[tuple[str, ...], Times] = {}
        for requests in (*self._node.listeners.requests(), self.requests):
            for each in requests.counters():
                labels = (requests.protocol, each.name)
                counts[labels] += each.count
                seconds.setdefault(labels, Times()).merge(each.seconds)
                if each.parked.seconds.count:
                    parked.setdefault(labels, Times()).merge(each.parked.seconds)
                for code, count in each.errors.items():
                    errors[(*labels, requests.code_name(code))] += count
        return {
            "requests_total": counts,
            "request_errors_total": errors,
            "request_seconds": {labels: distribution(each) for labels, each in seconds.items()},
            "parked_request_seconds": {
                labels: distribution(each) for labels, each in parked.items()
            },
        }
