"""Server-side assignors: pure functions from members and topics to target assignments.

`range` cuts every topic into runs of consecutive partitions, one per subscriber in the order of
their names, so topics with as many partitions and the same subscribers are cut alike: partitions
that belong together (joins on the same key) have the same reader.

`uniform` gives every member the same number of partitions, within one where all have the
same topics, and moves as few as it can from where the last target had them.

Both give the same answer for the same input, whatever the order of the members.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from dragoman.broker.groups.consumer.messages import PartitionOf, Partitions
from dragoman.types import MemberId


class Assignee(msgspec.Struct, frozen=True):
    member_id: MemberId
    #: What it is sorted by: the instance id of a static member outlives its member id.
    name: str
    topics: frozenset[bytes]
    #: The last target assignment of the member.
    before: Partitions


#: Partition count by topic id; every topic that an assignee names is in it.
Counts: TypeAlias = Mapping[bytes, int]
Targets: TypeAlias = dict[MemberId, Partitions]
Assignor: TypeAlias = Callable[[Sequence[Assignee], Counts], Targets]


def assign_range(members: Sequence[Assignee], counts: Counts) -> Targets:
    gathered: dict[MemberId, list[PartitionOf]] = {each.member_id: [] for each in members}
    for topic_id, readers in _readers(members).items():
        each_gets, extra = divmod(counts[topic_id], len(readers))
        start = 0
        for place, reader in enumerate(readers):
            end = start + each_gets + (place < extra)
            gathered[reader.member_id] += [(topic_id, index) for index in range(start, end)]
            start = end
    return {member_id: frozenset(found) for member_id, found in gathered.items()}


def assign_uniform(members: Sequence[Assignee], counts: Counts) -> Targets:
    if not members:
        return {}
    first = members[0].topics
    if all(each.topics == first for each in members):
        return _share_equally(members, counts)
    return _Balance(members, counts).targets()


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _in_order(members: Sequence[Assignee]) -> list[Assignee]:
    return sorted(members, key=lambda each: (each.name, each.member_id))


def _readers(members: Sequence[Assignee]) -> dict[bytes, list[Assignee]]:
    """Subscribers of every topic, in order; topics in order, too."""
    found: dict[bytes, list[Assignee]] = {}
    for member in _in_order(members):
        for topic_id in member.topics:
            found.setdefault(topic_id, []).append(member)
    return dict(sorted(found.items()))


# ---- uniform, where all have the same topics


def _share_equally(members: Sequence[Assignee], counts: Counts) -> Targets:
    wanted = [
        (topic_id, index)
        for topic_id in sorted(members[0].topics)
        for index in range(counts[topic_id])
    ]
    free = set(wanted)
    share, extra = divmod(len(wanted), len(members))
    ordered = _in_order(members)
    kept: dict[MemberId, list[PartitionOf]] = {}
    # Members with the most partitions keep one more than the share, while any are left over.
    for member in sorted(ordered, key=lambda each: -len(each.before)):
        current = sorted(member.before & free)[: share + (extra > 0)]
        extra -= len(current) > share
        kept[member.member_id] = current
        free.difference_update(current)
    rest = iter([partition for partition in wanted if partition in free])
    for member in ordered:
        current = kept[member.member_id]
        missing = share - len(current)
        if missing >= 0 and extra > 0:
            missing += 1
            extra -= 1
        current += [next(rest) for _ in range(missing)]
    assert next(rest, None) is None, "shares add up to all partitions"
    return {member_id: frozenset(current) for member_id, current in kept.items()}


# ---- uniform, where topics differ


class _Balance:
    """Every member keeps its partitions; free ones go to the least loaded subscriber; then single
    partitions move from members to subscribers with at least two fewer, until there are none.
    """

    def __init__(self, members: Sequence[Assignee], counts: Counts) -> None:
        self._counts = counts
        self._readers = {
            topic_id: tuple(each.member_id for each in readers)
            for topic_id, readers in _readers(members).items()
        }
        self._load = {each.member_id: 0 for each in _in_order(members)}
        #: By topic, the owner of each index.
        self._holders: dict[bytes, dict[int, MemberId]] = {each: {} for each in self._readers}
        for member in _in_order(members):
            self._keep(member)

    def _keep(self, member: Assignee) -> None:
        for topic_id, index in sorted(member.before):
            if topic_id not in member.topics or index >= self._counts[topic_id]:
                continue
            if index not in self._holders[topic_id]:
                self._give(topic_id, index, member.member_id)

    def _give(self, topic_id: bytes, index: int, member_id: MemberId) -> None:
        self._holders[topic_id][index] = member_id
        self._load[member_id] += 1

    def targets(self) -> Targets:
        self._hand_out()
        while sum(self._even_out(topic_id) for topic_id in self._readers):
            pass
        gathered: dict[MemberId, list[PartitionOf]] = {each: [] for each in self._load}
        for topic_id, holders in self._holders.items():
            for index, member_id in holders.items():
                gathered[member_id].append((topic_id, index))
        return {member_id: frozenset(found) for member_id, found in gathered.items()}

    def _hand_out(self) -> None:
        # Topics with the same subscribers share a heap. Loads only grow here, so an outdated entry
        # is corrected when it is popped.
        heaps: dict[tuple[MemberId, ...], list[tuple[int, MemberId]]] = {}
        for topic_id, readers in sorted(
            self._readers.items(), key=lambda each: (len(each[1]), each[0])
        ):
            heap = heaps.get(readers)
            if heap is None:
                heap = heaps[readers] = [(self._load[each], each) for each in readers]
                heapq.heapify(heap)
            for index in range(self._counts[topic_id]):
                if index not in self._holders[topic_id]:
                    self._give(topic_id, index, self._lightest(heap))

    def _lightest(self, heap: list[tuple[int, MemberId]]) -> MemberId:
        while True:
            load, member_id = heap[0]
            if load == self._load[member_id]:
                return member_id
            heapq.heapreplace(heap, (self._load[member_id], member_id))

    def _even_out(self, topic_id: bytes) -> int:
        """Move partitions of one topic while that evens loads; returns how many."""
        holders, load = self._holders[topic_id], self._load
        had: dict[MemberId, list[int]] = {}
        for index, member_id in sorted(holders.items()):
            had.setdefault(member_id, []).append(index)
        moved = 0
        while had:
            giver = max(had, key=lambda each: (load[each], each))
            taker = min(self._readers[topic_id], key=lambda each: (load[each], each))
            if load[giver] - load[taker] < 2:
                break
            index = had[giver].pop()
            if not had[giver]:
                del had[giver]
            load[giver] -= 1
            self._give(topic_id, index, taker)
            had.setdefault(taker, []).append(index)
            moved += 1
        return moved
