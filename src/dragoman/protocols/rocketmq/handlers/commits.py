"""Offsets that groups commit, and those that are about to be committed.

The original has committed when the request arrives, and its clients build on that: they commit
without waiting for an answer, and ask next where to begin. A commit here takes until it is durable,
so a request for the offset of a queue waits for the last commit of it that came before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.errors import DragomanError
from dragoman.outcome import Acknowledge, Outcome, succeeded
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.listed_group import OWNER
from dragoman.types import GroupId, Offset, Partition, TopicName

#: Group, topic, queue.
Place: TypeAlias = tuple[str, str, int]


class Commits:
    """Of the requests that came in at this node; each queue has one that all its readers use."""

    def __init__(self, broker: Core) -> None:
        self._broker = broker
        #: Those who wait for the last commit that is under way.
        self._under_way: dict[Place, list[Outcome[None]]] = {}

    def commit(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int],
        done: Acknowledge,
    ) -> None:
        waiting: dict[Place, list[Outcome[None]]] = {(group, topic, queue): [] for queue in offsets}
        self._under_way.update(waiting)

        def finished(error: DragomanError | None) -> None:
            for place, waiters in waiting.items():
                if self._under_way.get(place) is waiters:
                    del self._under_way[place]
            done(error)
            for waiters in waiting.values():
                for each in waiters:
                    each.succeed(None)

        commits = tuple(
            OffsetCommit(topic=TopicName(topic), partition=Partition(queue), offset=Offset(offset))
            for queue, offset in offsets.items()
        )
        request = CommitRequest(group_id=GroupId(group), offsets=commits, owner=OWNER)
        self._broker.coordination.groups.commit_anywhere(request, finished)

    def settled(self, place: Place) -> Outcome[None]:
        """Settled when no commit of the queue that has come so far is under way."""
        waiters = self._under_way.get(place)
        if waiters is None:
            return succeeded(None)
        outcome: Outcome[None] = Outcome()
        waiters.append(outcome)
        return outcome
