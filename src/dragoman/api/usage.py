"""What topics hold and how far groups are behind, a page of the whole cluster at a time.

Each node measures the partitions that it leads and the groups that it coordinates. A page takes one
request to each node for topics, and two for groups: committed offsets, then the ends of the logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from dragoman.api.access import Access
from dragoman.api.declaration import PageLimit
from dragoman.api.node_requests import (
    A_co,
    FindEnds,
    FoundEnds,
    GroupCommits,
    MeasureGroups,
    MeasureTopics,
    NodeRequest,
)
from dragoman.api.node_rpc import NodeCalls, in_time
from dragoman.api.pages import page_of
from dragoman.api.usage_values import GroupUsage, GroupUsagePage, TopicUsage, TopicUsagePage
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.rpc import Node, Rpc
from dragoman.security.access import Caller, Resource
from dragoman.security.authorizer import Authorizer


class UsageBroker(Protocol):
    """What the service uses of the broker."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def rpc(self) -> Rpc: ...

    @property
    def authorizer(self) -> Authorizer: ...


class UsageService:
    def __init__(self, broker: UsageBroker) -> None:
        self._broker = broker
        self._access = Access(broker)
        self._calls = NodeCalls(broker.rpc)

    # ---- topics

    async def topic_usage(self, caller: Caller, after: str, limit: PageLimit) -> TopicUsagePage:
        image = self._broker.image
        shown = self._access.shown(caller, Resource.TOPIC, image.topics)
        names, following = page_of(shown, after, limit)
        found, silent = await self._ask(MeasureTopics(caller=caller, topics=tuple(names)))
        groups = Counter[str]()
        records = Counter[str]()
        sizes = Counter[str]()
        for answer in found.values():
            groups.update(answer.groups)
            records.update(answer.records)
            sizes.update(answer.sizes)
        items = []
        for name in names:
            topic = image.topics.get(name)
            if topic is None:
                continue
            is_known = not silent & _leaders(topic)
            items.append(
                TopicUsage(
                    name=name,
                    partitions=len(topic.partitions),
                    replication_factor=len(topic.partitions[0].replicas),
                    internal=topic.is_internal,
                    records=records[name] if is_known else None,
                    size_bytes=sizes[name] if is_known else None,
                    groups=groups[name],
                )
            )
        return TopicUsagePage(
            items=tuple(items), next=following, unreachable=tuple(sorted(silent - {NO_LEADER}))
        )

    # ---- groups

    async def group_usage(self, caller: Caller, after: str, limit: PageLimit) -> GroupUsagePage:
        request = MeasureGroups(caller=caller, after=after, limit=limit + 1)
        found, silent = await self._ask(request)
        # While a group changes its coordinator, two nodes may list it.
        groups = {each.group: each for answer in found.values() for each in answer.items}
        names = sorted(groups)
        page = [groups[name] for name in names[:limit]]
        ends = await self._ends(caller, page)
        return GroupUsagePage(
            items=tuple(
                GroupUsage(
                    group=each.group,
                    protocol=each.protocol,
                    state=each.state,
                    members=each.members,
                    topics=tuple(sorted(each.offsets)),
                    lag_records=_lag(each, ends) if each.is_whole else None,
                )
                for each in page
            ),
            next=page[-1].group if len(names) > limit else None,
            unreachable=tuple(sorted(silent - {NO_LEADER})),
        )

    async def _ends(
        self, caller: Caller, groups: Iterable[GroupCommits]
    ) -> Mapping[str, Mapping[int, int]]:
        """The ends of all partitions with a committed offset whose leaders answer."""
        wanted: dict[str, set[int]] = {}
        for each in groups:
            for topic, offsets in each.offsets.items():
                wanted.setdefault(topic, set()).update(offsets)
        by_leader: dict[int, dict[str, tuple[int, ...]]] = {}
        for topic, indexes in wanted.items():
            metadata = self._broker.image.topics.get(topic)
            if metadata is None:
                continue
            led: dict[int, list[int]] = {}
            for index in sorted(indexes):
                if index < len(metadata.partitions):
                    led.setdefault(metadata.partitions[index].leader, []).append(index)
            for leader, some in led.items():
                if leader != NO_LEADER:
                    by_leader.setdefault(leader, {})[topic] = tuple(some)
        answers: list[FoundEnds | DragomanError] = await in_time(
            [
                self._calls.call(FindEnds(caller=caller, partitions=some), Node(leader))
                for leader, some in by_leader.items()
            ]
        )
        ends: dict[str, dict[int, int]] = {}
        for answer in answers:
            if not isinstance(answer, DragomanError):
                for topic, found in answer.ends.items():
                    ends.setdefault(topic, {}).update(found)
        for topic in wanted.keys() - self._broker.image.topics.keys():
            # What was committed in a topic that is deleted is no lag.
            ends[topic] = dict.fromkeys(wanted[topic], 0)
        return ends

    # ---- nodes

    async def _ask(self, request: NodeRequest[A_co]) -> tuple[dict[int, A_co], frozenset[int]]:
        """The answers by node, and the nodes without one; `NO_LEADER` is one of these."""
        nodes = sorted(self._broker.image.nodes)
        answers = await in_time([self._calls.call(request, Node(each)) for each in nodes])
        found = {
            node: answer
            for node, answer in zip(nodes, answers, strict=True)
            if not isinstance(answer, DragomanError)
        }
        return found, frozenset({NO_LEADER, *nodes} - found.keys())


def _leaders(topic: TopicMetadata) -> frozenset[int]:
    return frozenset(each.leader for each in topic.partitions)


def _lag(group: GroupCommits, ends: Mapping[str, Mapping[int, int]]) -> int | None:
    """None when the end of a partition is not known."""
    lag = 0
    for topic, offsets in group.offsets.items():
        for index, offset in offsets.items():
            end = ends.get(topic, {}).get(index)
            if end is None:
                return None
            lag += max(0, end - offset)
    return lag
