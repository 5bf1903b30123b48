"""The broker's own topics get more copies when nodes join that were not there before.

A topic is made with as many copies as there are nodes then. What the broker keeps for itself
(groups, transactions) would stay at that: when the first group came before all nodes of a new
cluster did, and when a single node has become a cluster. So the node that leads the metadata gives
these topics their copies when they are made and when a node registers for the first time. Not
later: whoever takes copies away, on the way back to one node, is not to fight with this. Topics of
users are theirs; `dragoman cluster status` names those with few copies.
"""

from __future__ import annotations

import logging

from dragoman.broker.context import NodeContext
from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.leadership import Leadership
from dragoman.broker.reassignment import Plan, widen
from dragoman.errors import DragomanError
from dragoman.outcome import ignore, start

log = logging.getLogger("dragoman.cluster")


class InternalCopies:
    def __init__(self, context: NodeContext, leadership: Leadership) -> None:
        self._context = context
        self._leadership = leadership
        self._is_due = False

    def look(self) -> None:
        """There is a new node or internal topic, and this node leads the metadata."""
        if not self._is_due:
            self._is_due = True
            self._context.scheduler.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due = False
        image = self._context.image
        plan: Plan = []
        for topic in image.topics.values():
            if topic.is_internal:
                plan += widen(image, topic.partitions, self._wanted(topic.name))
        if plan:
            log.info("%d partitions of internal topics get more copies", len(plan))
            start(self._move(plan)).then(ignore)

    def _wanted(self, topic: str) -> int:
        settings = self._context.settings
        if topic == OFFSETS_TOPIC:
            return settings.offsets_topic_replication_factor
        return settings.transaction_state_log_replication_factor

    async def _move(self, plan: Plan) -> None:
        """One after the other: there may be a hundred of them."""
        try:
            for partition, replicas in reversed(plan):
                await self._leadership.move(partition, replicas, may_resize=True)
        except DragomanError as error:
            log.warning("internal topics keep few copies: %s", error)
