"""Which topics the members of a group read, as topics and rights are now.

A member names topics, which were checked with its request, or gives a pattern. While rules are
enforced, a pattern matches only topics that the member may describe, so that no member learns of
others or is assigned partitions that it cannot read. Kafka decides once for a pattern, with the
rights of the member whose heartbeat resolves it; here every member has its own rights.

A member is known by its last heartbeat. One that was restored from its record and has sent none
since keeps the topics of its target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from dragoman.broker.groups.consumer.members import ConsumerMember
from dragoman.broker.groups.ports import Catalog
from dragoman.broker.patterns import Patterns
from dragoman.security.access import Caller
from dragoman.types import MemberId, TopicName

#: Members with equal rights share an answer; one with unknown rights has its own.
_Viewer: TypeAlias = Caller | MemberId | None
_Subscription: TypeAlias = tuple[frozenset[TopicName], str | None, _Viewer]


class _Resolved(msgspec.Struct, frozen=True):
    names: frozenset[TopicName]
    #: Partition counts by topic id.
    topics: dict[bytes, int]
    #: A digest of the topics if the pattern matches others that the member may not describe.
    limits: bytes


class Subscriptions:
    """Answers are kept until topics or rights change; members with equal subscriptions and rights
    share one.
    """

    __slots__ = ("_catalog", "_counts", "_patterns", "_resolved", "_revision")

    def __init__(self, catalog: Catalog, patterns: Patterns) -> None:
        self._catalog = catalog
        self._patterns = patterns
        self._revision = -1
        self._resolved: dict[_Subscription, _Resolved] = {}
        #: Partition counts by topic id, shared by all subscriptions to the same topics.
        self._counts: dict[frozenset[TopicName], dict[bytes, int]] = {}

    def names(self, member: ConsumerMember) -> frozenset[TopicName]:
        """The topics that a member names, whether they exist or not, and those that match its
        pattern.
        """
        return self._resolve(member).names

    def topics(self, member: ConsumerMember) -> dict[bytes, int]:
        """Partition counts by id of the topics that a member reads. Callers must not change it."""
        return self._resolve(member).topics

    def all_topics(self, members: Iterable[ConsumerMember]) -> dict[bytes, int]:
        counts: dict[bytes, int] = {}
        seen: set[int] = set()
        for member in members:
            topics = self.topics(member)
            if id(topics) not in seen:
                seen.add(id(topics))
                counts |= topics
        return counts

    def fingerprint(self, members: Iterable[ConsumerMember]) -> bytes:
        """Equal for equal topics of all and of each member, also after a restart."""
        members = list(members)
        digest = hashlib.blake2b(digest_size=16)
        for topic_id, count in sorted(self.all_topics(members).items()):
            digest.update(topic_id)
            digest.update(count.to_bytes(4, "big"))
        # The topics of all members say enough unless rights limit those of a member.
        limited = [(each.name, self._resolve(each).limits) for each in members]
        for name, limits in sorted(limited):
            if limits:
                digest.update(hashlib.blake2b(name.encode(), digest_size=16).digest() + limits)
        return digest.digest()

    def forget_unused(self, members: Iterable[ConsumerMember]) -> None:
        """Subscriptions change; answers to former ones are not kept."""
        used = set(map(self._key, members))
        for key in self._resolved.keys() - used:
            del self._resolved[key]
        self._counts.clear()

    def _key(self, member: ConsumerMember) -> _Subscription:
        viewer: _Viewer = None
        if member.pattern is not None and self._catalog.is_limited:
            caller = member.caller
            viewer = member.member_id if caller is None else self._catalog.generalized(caller)
        return member.topics, member.pattern, viewer

    def _resolve(self, member: ConsumerMember) -> _Resolved:
        if self._revision != self._catalog.revision:
            self._revision = self._catalog.revision
            self._resolved.clear()
            self._counts.clear()
        key = self._key(member)
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = self._resolve_anew(member, key)
        return found

    def _resolve_anew(self, member: ConsumerMember, key: _Subscription) -> _Resolved:
        names, pattern, viewer = key
        is_limited = False
        if pattern is not None:
            matching = self._patterns.get(pattern).matching(
                self._catalog.names(), self._catalog.revision
            )
            visible = self._visible(member, matching, viewer)
            is_limited = visible != matching
            names |= visible
        topics = self._counts.get(names)
        if topics is None:
            facts = [self._catalog.find(name) for name in sorted(names)]
            topics = {each.topic_id: each.partition_count for each in facts if each is not None}
            self._counts[names] = topics
        limits = b""
        if is_limited:
            limits = hashlib.blake2b(b"".join(sorted(topics)), digest_size=16).digest()
        return _Resolved(names, topics, limits)

    def _visible(
        self, member: ConsumerMember, matching: frozenset[TopicName], viewer: _Viewer
    ) -> frozenset[TopicName]:
        if viewer is None:
            return matching
        if isinstance(viewer, Caller):
            return matching & self._catalog.describable(viewer, matching)
        targets = {topic_id for topic_id, _ in member.target}
        known = map(self._catalog.find_by_id, targets)
        return matching & {each.name for each in known if each is not None}
