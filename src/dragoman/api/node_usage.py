"""What this node measures for lists of topics and groups: the partitions that it leads, and the
groups that it coordinates.
"""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest

from dragoman.api.node_requests import (
    FindEnds,
    FoundEnds,
    GroupCommits,
    GroupsMeasured,
    MeasureGroups,
    MeasureTopics,
    TopicsMeasured,
)
from dragoman.api.node_rpc import NodeHandlers
from dragoman.api.node_topics import MARKS_ITEMS, NodeBroker
from dragoman.broker.groups.group import Group
from dragoman.broker.work_queue import Steps
from dragoman.limits import HTTP_COMMITS_MAX
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import GroupId

#: Cost of a committed offset, in items of the work queue: ten cost one.
_OFFSETS_PER_ITEM = 10


class NodeUsage:
    def __init__(self, broker: NodeBroker) -> None:
        self._broker = broker

    def serve(self, handlers: NodeHandlers) -> None:
        handlers.serve(MeasureTopics, self._measure_topics)
        handlers.serve(MeasureGroups, self._measure_groups)
        handlers.serve(FindEnds, self._find_ends)

    def _shown(self, caller: Caller, resource: Resource, names: set[str]) -> frozenset[str]:
        return self._broker.authorizer.allowed_among(caller, Operation.DESCRIBE, resource, names)

    # ---- topics

    async def _measure_topics(self, request: MeasureTopics) -> TopicsMeasured:
        return await self._broker.work.run(self._measured(request))

    def _measured(self, request: MeasureTopics) -> Steps[TopicsMeasured]:
        broker = self._broker
        shown = self._shown(request.caller, Resource.TOPIC, set(request.topics))
        records, sizes = Counter[str](), Counter[str]()
        for name in sorted(shown):
            topic = broker.image.topics.get(name)
            for each in () if topic is None else topic.partitions:
                if each.leader == broker.node_id:
                    marks = broker.replica_marks.find(each)
                    if marks is not None:
                        records[name] += marks.high_watermark - marks.log_start_offset
                        sizes[name] += marks.size
                    yield MARKS_ITEMS
        groups = Counter[str]()
        known = list(broker.coordination.groups.table)
        seen = self._shown(request.caller, Resource.GROUP, {str(each.group_id) for each in known})
        for group in known:
            if group.group_id in seen:
                committed = group.ledger.committed
                groups.update(shown.intersection(topic for topic, _ in committed))
                yield 1 + len(committed) // _OFFSETS_PER_ITEM
        return TopicsMeasured(records=dict(records), sizes=dict(sizes), groups=dict(groups))

    # ---- groups

    async def _measure_groups(self, request: MeasureGroups) -> GroupsMeasured:
        return await self._broker.work.run(self._of_groups(request))

    def _of_groups(self, request: MeasureGroups) -> Steps[GroupsMeasured]:
        table = self._broker.coordination.groups.table
        listed = {str(each.group_id): each for each in table.listings()}
        shown = self._shown(request.caller, Resource.GROUP, set(listed))
        yield len(listed)
        room = HTTP_COMMITS_MAX
        items = []
        for name in nsmallest(request.limit, (each for each in shown if each > request.after)):
            group = table.get(GroupId(name))
            if group is None:
                continue
            described = table.describe(group.group_id)
            count = len(group.ledger.committed)
            is_whole = count <= room
            room -= count if is_whole else 0
            items.append(
                GroupCommits(
                    group=name,
                    protocol=described.owner or "",
                    state=described.state.value,
                    members=len(described.members),
                    offsets=self._committed(request.caller, group) if is_whole else {},
                    is_whole=is_whole,
                )
            )
            yield 1 + count // _OFFSETS_PER_ITEM
        return GroupsMeasured(items=tuple(items))

    def _committed(self, caller: Caller, group: Group) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for (topic, index), committed in group.ledger.committed.items():
            found.setdefault(topic, {})[index] = committed.offset
        shown = self._shown(caller, Resource.TOPIC, set(found))
        return {topic: offsets for topic, offsets in found.items() if topic in shown}

    async def _find_ends(self, request: FindEnds) -> FoundEnds:
        return await self._broker.work.run(self._ends(request))

    def _ends(self, request: FindEnds) -> Steps[FoundEnds]:
        broker = self._broker
        shown = self._shown(request.caller, Resource.TOPIC, set(request.partitions))
        ends: dict[str, dict[int, int]] = {}
        for name in sorted(shown):
            topic = broker.image.topics.get(name)
            partitions = () if topic is None else topic.partitions
            for index in request.partitions[name]:
                yield MARKS_ITEMS
                if index < len(partitions) and partitions[index].leader == broker.node_id:
                    marks = broker.replica_marks.find(partitions[index])
                    if marks is not None:
                        ends.setdefault(name, {})[index] = marks.high_watermark
        return FoundEnds(ends=ends)
