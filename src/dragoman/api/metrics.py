"""Where the metrics of a node come from.

Whatever does the work counts it in plain integers; a snapshot reads them, a part at a time. Each
part is small, or yields an empty one between its steps, so that a scrape never holds the loop for
long (`telemetry/snapshot.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dragoman import __version__
from dragoman.api.captures import CaptureService
from dragoman.api.cluster import damaged_ranges
from dragoman.operating_system import process_usage
from dragoman.telemetry.catalogue import Stats

if TYPE_CHECKING:
    from dragoman.api.node import RunningNode


class NodeMetrics:
    def __init__(
        self, node: RunningNode, captures: CaptureService, is_ready: Callable[[], bool]
    ) -> None:
        self._node = node
        self._captures = captures
        self._is_ready = is_ready

    def snapshot(self) -> Iterator[Stats]:
        yield self._of_node()
        yield self._of_connections()
        yield self._of_log()
        yield self._captures.stats()
        yield {f"process_{name}": value for name, value in process_usage().items()}

    def _of_node(self) -> Stats:
        node, broker = self._node, self._node.broker
        return {
            "build_info": {(__version__, str(broker.node_id)): 1},
            "ready": int(self._is_ready()),
            "uptime_seconds": node.clock.monotonic() - node.started_at,
            "topics": len(broker.image.topics),
            "partitions": len(broker.image.partitions),
            "in_flight_bytes": node.listeners.budget.used,
            "peer_in_flight_bytes": node.peer_budget.used,
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

    def _of_log(self) -> Stats:
        broker = self._node.broker
        stats = broker.store.stats
        return {
            "appended_bytes_total": stats.committed_bytes,
            "log_bytes": sum(each.log.size for each in broker.partitions),
            "log_damaged_ranges": len(damaged_ranges(broker.store)),
            "log_damage_found_total": stats.damage,
            "journal_groups_total": stats.groups,
            "journal_bytes_total": stats.committed_bytes,
        }
