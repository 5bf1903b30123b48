"""The members of the quorum, and the valid changes of the membership.

Nodes are added and removed one at a time: then every majority of the old set and every majority of
the new one overlap, and no joint phase is needed. A node joins as a learner, which gets the log and
does not vote, and becomes a voter once it has caught up; so adding an empty node never costs
availability.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.errors import ClusterError


class Membership(msgspec.Struct, frozen=True):
    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()

    @property
    def nodes(self) -> tuple[int, ...]:
        return self.voters + self.learners

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def has_majority(self, nodes: Iterable[int]) -> bool:
        return len(set(nodes) & set(self.voters)) >= self.majority

    def agreed(self, ends: dict[int, int]) -> int:
        """The highest end that a majority of the voters has reached."""
        reached = sorted((ends.get(node, 0) for node in self.voters), reverse=True)
        return reached[self.majority - 1] if reached else 0

    def with_learner(self, node: int) -> Membership:
        if node in self.nodes:
            raise ClusterError(f"node {node} belongs to the quorum already")
        return Membership(self.voters, (*self.learners, node))

    def with_voter(self, learner: int) -> Membership:
        if learner not in self.learners:
            raise ClusterError(f"node {learner} is not a learner of the quorum")
        learners = tuple(each for each in self.learners if each != learner)
        return Membership((*self.voters, learner), learners)

    def without(self, node: int) -> Membership:
        if node not in self.nodes:
            raise ClusterError(f"node {node} does not belong to the quorum")
        if self.voters == (node,):
            raise ClusterError(f"node {node} is the last voter")
        voters = tuple(each for each in self.voters if each != node)
        return Membership(voters, tuple(each for each in self.learners if each != node))


class MembershipHistory:
    """The memberships in a snapshot and the entries of a log, committed or not.

    The newest one is in effect as soon as it is in the log.
    """

    def __init__(self, first: Membership) -> None:
        #: (offset of the entry, membership), ascending; the first one is the snapshot's.
        self._entries = [(0, first)]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def newest(self) -> Membership:
        return self._entries[-1][1]

    @property
    def newest_offset(self) -> int:
        return self._entries[-1][0]

    def at(self, end: int) -> Membership:
        """The membership after the entries below `end`."""
        return next(m for offset, m in reversed(self._entries) if offset < end or not offset)

    def possible(self, commit: int) -> list[Membership]:
        """Every membership that may be in effect when at least `commit` is committed."""
        return [self.at(commit), *(each for offset, each in self._entries if offset >= commit)]

    def add(self, offset: int, membership: Membership) -> None:
        self._entries.append((offset, membership))

    def forget(self, end: int) -> None:
        """The log was truncated: entries from `end` on are gone."""
        while len(self._entries) > 1 and self._entries[-1][0] >= end:
            self._entries.pop()

    def begin_at(self, end: int, first: Membership) -> None:
        """A snapshot replaces the entries below `end`."""
        self._entries = [(0, first), *(each for each in self._entries if each[0] >= end)]
