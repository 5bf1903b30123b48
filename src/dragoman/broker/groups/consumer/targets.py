"""Who should read what: the target assignment of a consumer group, and the topics it was made for.

An assignor makes the targets of all members for one epoch. They stay until the members, their
subscriptions or their topics change. The fingerprint of the topics is stored with the group, so
that a new coordinator notices what changed before it took over.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from dragoman.broker.groups.consumer.assignors import ASSIGNORS, Assignee
from dragoman.broker.groups.consumer.members import ConsumerMember, ConsumerRoster
from dragoman.broker.groups.consumer.subscriptions import Subscriptions
from dragoman.broker.groups.ports import GroupPorts
from dragoman.types import TopicName

#: A revision that no catalog has.
UNKNOWN: Final = -1


class TargetAssignment:
    __slots__ = ("_catalog", "_settings", "_subscriptions", "fingerprint", "revision")

    def __init__(self, ports: GroupPorts) -> None:
        self._settings = ports.settings
        self._catalog = ports.catalog
        self._subscriptions = Subscriptions(ports.catalog, ports.patterns)
        #: The topics that the targets were made for.
        self.fingerprint = b""
        #: The state of the catalog in which those topics were looked up last.
        self.revision = UNKNOWN

    def topic_names(self, roster: ConsumerRoster) -> frozenset[TopicName]:
        """Topics that the members want to read."""
        return frozenset().union(*(self._subscriptions.names(each) for each in roster))

    def have_topics_changed(self, roster: ConsumerRoster) -> bool:
        """Whether the topics are others than those that the targets were made for. False when they
        have been looked up before.

        After a fail-over, members with a pattern keep their targets until all of them have sent a
        heartbeat: only then is it known which topics each of them may describe.
        """
        if self._catalog.revision == self.revision:
            return False
        self.revision = self._catalog.revision
        if self._catalog.is_limited and any(each.has_unknown_rights for each in roster):
            return False
        return self._subscriptions.fingerprint(roster) != self.fingerprint

    def assign(self, roster: ConsumerRoster) -> list[ConsumerMember]:
        """Give every member its target. Returns those whose target has changed."""
        self._subscriptions.forget_unused(roster)
        counts = self._subscriptions.all_topics(roster)
        assignees = [
            Assignee(
                member.member_id,
                member.name,
                frozenset(self._subscriptions.topics(member)),
                member.target,
            )
            for member in roster
        ]
        targets = ASSIGNORS[self.assignor(roster)](assignees, counts)
        changed = [each for each in roster if targets[each.member_id] != each.target]
        for member in changed:
            member.target = targets[member.member_id]
        self.revision = self._catalog.revision
        self.fingerprint = self._subscriptions.fingerprint(roster)
        return changed

    def assignor(self, roster: ConsumerRoster) -> str:
        """The one that most members request; the first of the settings when none requests any."""
        names = self._settings.group_consumer_assignors
        votes = Counter(
            member.assignor for member in roster if member.assignor in names
        ).most_common()
        if not votes:
            return names[0]
        best = [name for name, count in votes if count == votes[0][1]]
        return min(str(name) for name in best)
