"""Which topics the members of a group read, as the topics are now."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeAlias

from dragoman.broker.groups.consumer.members import ConsumerMember
from dragoman.broker.groups.ports import Catalog
from dragoman.broker.patterns import Patterns
from dragoman.types import TopicName

_Subscription: TypeAlias = tuple[frozenset[TopicName], str | None]


class Subscriptions:
    """Answers are kept until the topics change; members with equal subscriptions share one."""

    __slots__ = ("_catalog", "_patterns", "_resolved", "_revision")

    def __init__(self, catalog: Catalog, patterns: Patterns) -> None:
        self._catalog = catalog
        self._patterns = patterns
        self._revision = -1
        self._resolved: dict[_Subscription, dict[bytes, int]] = {}

    def names(self, member: ConsumerMember) -> frozenset[TopicName]:
        """The topics that a member names, whether they exist or not, and those that match its
        pattern.
        """
        if member.pattern is None:
            return member.topics
        pattern = self._patterns.get(member.pattern)
        matching = pattern.matching(self._catalog.names(), self._catalog.revision)
        return member.topics | matching

    def topics(self, member: ConsumerMember) -> dict[bytes, int]:
        """Partition counts by id of the topics that a member reads. Callers must not change it."""
        if self._revision != self._catalog.revision:
            self._revision = self._catalog.revision
            self._resolved.clear()
        key = (member.topics, member.pattern)
        found = self._resolved.get(key)
        if found is None:
            facts = [self._catalog.find(name) for name in sorted(self.names(member))]
            found = {each.topic_id: each.partition_count for each in facts if each is not None}
            self._resolved[key] = found
        return found

    def all_topics(self, members: Iterable[ConsumerMember]) -> dict[bytes, int]:
        counts: dict[bytes, int] = {}
        seen: set[int] = set()
        for member in members:
            topics = self.topics(member)
            if id(topics) not in seen:
                seen.add(id(topics))
                counts |= topics
        return counts

    def forget_unused(self, members: Iterable[ConsumerMember]) -> None:
        """Subscriptions change; answers to former ones are not kept."""
        used = {(member.topics, member.pattern) for member in members}
        for key in self._resolved.keys() - used:
            del self._resolved[key]


def fingerprint(counts: dict[bytes, int]) -> bytes:
    """Equal for equal topics, also after a restart."""
    digest = hashlib.blake2b(digest_size=16)
    for topic_id, count in sorted(counts.items()):
        digest.update(topic_id)
        digest.update(count.to_bytes(4, "big"))
    return digest.digest()
