"""What goes into topics and comes out of them on this node, by protocol.

A handler looks up the flow of a topic once per request or batch, and adds to it. What other nodes
copy, and what the node writes for itself, is not counted. Topics beyond a bound share a flow, so
that no sum ever falls: a topic that has a flow keeps it until it is deleted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, Literal, TypeAlias

from dragoman.limits import TOPIC_FLOWS_MAX
from dragoman.log.batch import Record

#: Stands for all topics beyond the bound.
OTHER: Final = "other"
Direction: TypeAlias = Literal["in", "out"]


class Flow:
    __slots__ = ("records", "size")

    def __init__(self) -> None:
        self.size = 0
        self.records = 0

    def add(self, size: int, records: int) -> None:
        self.size += size
        self.records += records

    def add_records(self, records: Iterable[Record]) -> None:
        """Count decoded records: keys and values."""
        for each in records:
            self.size += len(each.key or b"") + len(each.value or b"")
            self.records += 1


class Flows(dict[str, Flow]):
    """The flows of one protocol in one direction, by topic."""

    def __init__(self, traffic: TopicTraffic) -> None:
        super().__init__()
        self._traffic = traffic
        #: The flow of all topics beyond the bound; also of one that is named like them.
        self.shared = Flow()

    def __missing__(self, topic: str) -> Flow:
        if topic == OTHER or not self._traffic.has_room:
            return self.shared
        flow = self[topic] = Flow()
        return flow


class TopicTraffic:
    def __init__(self) -> None:
        self._flows: dict[tuple[Direction, str], Flows] = {}

    @property
    def has_room(self) -> bool:
        return sum(map(len, self._flows.values())) < TOPIC_FLOWS_MAX

    def received(self, protocol: str) -> Flows:
        """What clients of a protocol write to topics."""
        return self._of("in", protocol)

    def sent(self, protocol: str) -> Flows:
        """What clients of a protocol read from topics."""
        return self._of("out", protocol)

    def _of(self, direction: Direction, protocol: str) -> Flows:
        flows = self._flows.get((direction, protocol))
        if flows is None:
            flows = self._flows[direction, protocol] = Flows(self)
        return flows

    def keep(self, topics: Container[str]) -> None:
        """Forget the flows of all topics but these."""
        for flows in self._flows.values():
            for topic in [each for each in flows if each not in topics]:
                del flows[topic]

    def flows(self) -> dict[tuple[str, Direction, str], Flow]:
        """Every flow, by topic, direction and protocol."""
        found: dict[tuple[str, Direction, str], Flow] = {}
        for (direction, protocol), flows in self._flows.items():
            found |= {(topic, direction, protocol): flow for topic, flow in flows.items()}
            if flows.shared.records:
                found[OTHER, direction, protocol] = flows.shared
        return found
