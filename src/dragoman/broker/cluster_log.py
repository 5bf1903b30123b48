"""What happens in the cluster, as lines of this node's log: leaders of the metadata, nodes, in-sync
sets, the feature level.

A node that dies changes hundreds of partitions in one turn of the loop. Up to a few get a line
each; more are counted in one line, by what happened and to which node. Only changes that concern
this node are logged: it has a replica, or it is the controller. Lines are limited in rate, because
a node that comes and goes would fill the log.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from dragoman.broker.context import NodeContext
from dragoman.cluster.events import (
    Event,
    FeatureLevelChanged,
    NodeFenced,
    NodeRegistered,
    PartitionChanged,
)
from dragoman.cluster.metadata import NO_LEADER, PartitionMetadata, Placed
from dragoman.limits import PARTITION_LOG_LINES_MAX
from dragoman.log_limiter import LogLimiter
from dragoman.raft.ports import RoleChanged

log = logging.getLogger("dragoman.cluster")


class ClusterLog:
    def __init__(self, context: NodeContext, is_controller: Callable[[], bool]) -> None:
        self._context = context
        self._image = context.image
        self._is_controller = is_controller
        #: One for each kind of line, so that lines of one kind do not keep out another.
        self._elections, self._nodes, self._sets = (
            LogLimiter(log, context.scheduler) for _ in range(3)
        )
        #: Partitions that changed in this turn, with what they were before.
        self._changed: list[tuple[PartitionMetadata, Placed]] = []
        self._leader = NO_LEADER
        self._term = 0

    # ---- the metadata

    def role_changed(self, changed: RoleChanged, why: str) -> None:
        """`why` this node leads, if it does."""
        before, self._leader = self._leader, changed.leader
        is_new_term, self._term = changed.term != self._term, changed.term
        if before == changed.leader and (changed.leader == NO_LEADER or not is_new_term):
            return
        fields: dict[str, object] = {"term": changed.term, "leader": changed.leader}
        if changed.leader == NO_LEADER:
            _say(
                self._elections,
                logging.WARNING,
                "metadata has no leader",
                fields | {"before": before},
            )
        elif changed.leader == self._context.node_id:
            _say(
                self._elections, logging.INFO, "this node leads the metadata", fields | {"why": why}
            )
        else:
            _say(self._elections, logging.INFO, "another node leads the metadata", fields)

    # ---- events

    def applied(self, event: Event) -> None:
        """An event was applied to the image."""
        if not self._context.is_ready:
            # Events of the past, which a start applies again.
            return
        match event:
            case PartitionChanged():
                self._note(event)
            case NodeFenced():
                fields: dict[str, object] = {"node": event.node_id}
                if event.node_id != self._context.node_id:
                    _say(self._nodes, logging.WARNING, "node fenced", fields)
                elif not self._context.is_stopping:
                    _say(self._nodes, logging.WARNING, "this node is fenced", fields)
            case NodeRegistered() if event.node_id != self._context.node_id:
                fields = {"node": event.node_id, "incarnation": event.incarnation}
                _say(self._nodes, logging.INFO, "node registered", fields)
            case FeatureLevelChanged():
                _say(
                    self._nodes,
                    logging.INFO,
                    "feature level raised",
                    {"feature_level": event.level},
                )
            case _:
                pass

    def _note(self, event: PartitionChanged) -> None:
        partition = self._image.partitions.get(event.partition_id)
        if partition is None or not (
            self._context.node_id in partition.replicas or self._is_controller()
        ):
            return
        if not self._changed:
            # After the other events of the turn: they say which nodes are fenced.
            self._context.scheduler.call_soon(self._flush)
        self._changed.append((partition, self._image.replaced))

    def _flush(self) -> None:
        changed, self._changed = self._changed, []
        shown = [each for each in changed if self._what(*each)]
        if len(shown) > PARTITION_LOG_LINES_MAX:
            counts = Counter(what for each in shown for what in self._what(*each))
            why = ", ".join(f"{what} ({count})" for what, count in counts.items())
            fields: dict[str, object] = {"partitions": len(shown), "why": why}
            _say(self._sets, _level(shown), "in-sync sets changed", fields)
            return
        for partition, before in shown:
            fields = {
                "topic": partition.topic.name,
                "partition": partition.index,
                "in_sync": list(partition.in_sync),
                "before": list(before.in_sync),
                "leader": partition.leader,
                "why": ", ".join(self._what(partition, before)),
            }
            _say(self._sets, _level([(partition, before)]), "in-sync set changed", fields)

    def _what(self, partition: PartitionMetadata, before: Placed) -> list[str]:
        """What happened to a partition, in words that are the same for many partitions."""
        fenced = self._image.fenced
        found = [
            f"node {node} is fenced" if node in fenced else f"node {node} lagged or left"
            for node in before.in_sync
            if node not in partition.in_sync
        ]
        found += [
            f"node {node} caught up" for node in partition.in_sync if node not in before.in_sync
        ]
        if partition.leader == NO_LEADER != before.leader:
            found.append("no leader is left")
        elif partition.leader != before.leader:
            found.append(f"node {partition.leader} leads")
        return found


def _say(limiter: LogLimiter, level: int, text: str, fields: dict[str, object]) -> None:
    if limiter.admits(level):
        log.log(level, text, extra=fields)


def _level(changed: list[tuple[PartitionMetadata, Placed]]) -> int:
    """A set that shrinks, or a partition without a leader, wants attention."""
    for partition, before in changed:
        if len(partition.in_sync) < len(before.in_sync) or partition.leader == NO_LEADER:
            return logging.WARNING
    return logging.INFO
