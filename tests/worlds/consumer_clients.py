"""Clients of consumer groups as models, and the topics they read.

Each model does what a careful client does and no more: it gives up partitions before it reports
that, takes assigned ones at once, and repeats its whole state when it cannot know what reached the
broker. What it reads right now is `owned`; two clients that read the same partition while the
coordinator takes both for members are a fault of the coordinator.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

from dragoman.broker.errors import (
    FencedInstance,
    IllegalGeneration,
    MemberIdRequired,
    UnknownMember,
)
from dragoman.broker.groups import (
    Groups,
    HeartbeatReply,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    LeavingMember,
    Parked,
    Synced,
    SyncRequest,
    TopicFacts,
)
from dragoman.errors import BrokerError, DragomanError
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka.handlers.consumer_protocol import KafkaGroupDialect
from dragoman.protocols.kafka.messages import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopic,
)
from dragoman.security.access import Caller

DIALECT = KafkaGroupDialect()


class FakeCatalog:
    """Topics that come, go and grow when a test changes them."""

    def __init__(self) -> None:
        self.revision = 0
        self.topics: dict[str, TopicFacts] = {}
        self._ids = itertools.count(1)
        self.is_limited = False
        #: By principal, the topics that it may not describe.
        self.hidden: dict[str, frozenset[str]] = {}

    def hide(self, principal: str, *names: str) -> None:
        """Rules are enforced and deny a principal these topics, and no others."""
        self.is_limited = True
        self.hidden[principal] = frozenset(names)
        self.revision += 1

    def describable(self, caller: Caller, names: Collection[str]) -> frozenset[str]:
        return frozenset(names) - self.hidden.get(caller.name, frozenset())

    def generalized(self, caller: Caller) -> Caller:
        return Caller(caller.principal)

    def create(self, name: str, partitions: int) -> bytes:
        topic_id = next(self._ids).to_bytes(16, "big")
        self.topics[name] = TopicFacts(name, topic_id, partitions)
        self.revision += 1
        return topic_id

    def grow(self, name: str, partitions: int) -> None:
        self.topics[name] = TopicFacts(name, self.topics[name].topic_id, partitions)
        self.revision += 1

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.revision += 1

    def find(self, name: str) -> TopicFacts | None:
        return self.topics.get(name)

    def find_by_id(self, topic_id: bytes) -> TopicFacts | None:
        return next((each for each in self.topics.values() if each.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self.topics

    def partitions(self, *names: str) -> frozenset[tuple[bytes, int]]:
        facts = [self.topics[name] for name in names if name in self.topics]
        return frozenset((each.topic_id, i) for each in facts for i in range(each.partition_count))

    def named(self, partitions: Iterable[tuple[bytes, int]]) -> str:
        """`t-0 t-1`, for people."""
        found = [(self.find_by_id(topic_id), index) for topic_id, index in partitions]
        texts = sorted((topic.name if topic else "gone", index) for topic, index in found)
        return " ".join(f"{name}-{index}" for name, index in texts) or "nothing"


def subscription(
    topics: Iterable[str], owned: Iterable[tuple[str, list[int]]] = (), version: int = 1
) -> bytes:
    """The metadata of a member of the first protocol."""
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=[
            ConsumerProtocolSubscriptionTopic(topic=name, partitions=indexes)
            for name, indexes in owned
        ],
    )
    return codec.encode_versioned(message, version)


class ConsumerClient:
    """A member of the second protocol."""

    def __init__(self, name: str, group: str, instance_id: str | None = None) -> None:
        self.group = group
        self.name = name
        self.incarnation = 1
        self.instance_id = instance_id
        self.topics: frozenset[str] = frozenset()
        self.pattern: str | None = None
        self.epoch = 0
        self.is_running = False
        #: It reads these.
        self.owned: frozenset[tuple[bytes, int]] = frozenset()
        #: It was assigned these, and no others.
        self.assigned: frozenset[tuple[bytes, int]] = frozenset()
        self.reported: frozenset[tuple[bytes, int]] | None = None
        self.must_tell_all = True
        self.waits = False
        self.errors: list[str] = []
        self._round = 0

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.incarnation}"

    def start(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """A process starts: a new member id, and nothing known."""
        assert not self.is_running
        self.incarnation += 1
        self.topics, self.pattern = frozenset(topics), pattern
        self.is_running = True
        self._begin_anew()

    def crash(self) -> None:
        self.is_running = False
        self.waits = False
        self._round += 1
        self.owned = frozenset()

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self.must_tell_all = True

    def give_up(self) -> None:
        """It has finished with what it must not read any more."""
        self.owned &= self.assigned

    def _begin_anew(self) -> None:
        self.epoch = 0
        self.owned = self.assigned = frozenset()
        self.reported = None
        self.must_tell_all = True

    def heartbeat(self, groups: Groups, *, lose_reply: bool = False) -> None:
        if not self.is_running or self.waits:
            return
        self._round += 1
        this_round = self._round
        tells_all = self.must_tell_all or self.epoch == 0
        tells_owned = tells_all or self.owned != self.reported
        request = HeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=30_000 if tells_all else None,
            topics=self.topics if tells_all else None,
            pattern=(self.pattern or "") if tells_all else None,
            owned=self.owned if tells_owned else None,
            client_id=self.name,
        )
        owned, topics = self.owned, self.topics
        self.waits = True

        def reply(result: HeartbeatReply | DragomanError) -> None:
            if this_round != self._round:
                return
            self.waits = False
            if lose_reply:
                self.must_tell_all = True
            elif isinstance(result, HeartbeatReply):
                self._take(result, owned if tells_owned else self.reported)
                # It may have subscribed anew while it waited.
                self.must_tell_all = topics != self.topics
            else:
                self._refused(result)

        groups.consumer_heartbeat(request, reply)

    def _take(self, reply: HeartbeatReply, reported: frozenset[tuple[bytes, int]] | None) -> None:
        assert reply.epoch >= self.epoch, "a member's epoch goes back"
        self.epoch = reply.epoch
        self.reported = reported
        if reply.assignment is not None:
            self.assigned = reply.assignment
            self.owned |= reply.assignment

    def _refused(self, error: DragomanError) -> None:
        self.errors.append(error.code)
        self.must_tell_all = True
        if error.code in ("fenced_member_epoch", "unknown_member", "group_not_found"):
            self._begin_anew()
        elif isinstance(error, FencedInstance):
            # Another process has this instance now: a client gives up.
            self.crash()

    def forget_reply(self) -> None:
        """The coordinator is gone, and with it every reply that had not come."""
        if self.waits:
            self.waits = False
            self._round += 1
            self.must_tell_all = True

    def leave(self, groups: Groups, *, for_now: bool = False) -> None:
        """The process ends in good order. What becomes of the request is not waited for."""
        if self.epoch > 0 and self.is_running:
            groups.consumer_heartbeat(
                HeartbeatRequest(
                    group_id=self.group,
                    member_id=self.member_id,
                    epoch=-2 if for_now and self.instance_id is not None else -1,
                    instance_id=self.instance_id,
                ),
                lambda _: None,
            )
        self.crash()


class ClassicClient:
    """A member of the first protocol that gives up everything before it joins.

    While the group is a classic one, it may have to lead: then it deals out partitions in turn.
    """

    def __init__(self, name: str, group: str) -> None:
        self.group = group
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.topics: frozenset[str] = frozenset()
        self.is_running = False
        self.state = "out"
        self.owned: frozenset[tuple[bytes, int]] = frozenset()
        self.parked: Parked[Joined] | Parked[Synced] | None = None
        self._round = 0

    def start(self, topics: Iterable[str], _pattern: str | None = None) -> None:
        assert not self.is_running
        self.topics = frozenset(topics)
        self.is_running = True
        self._out(forgets_id=True)

    def _out(self, *, forgets_id: bool) -> None:
        self.owned = frozenset()
        self.state = "out"
        self.generation = -1
        if forgets_id:
            self.member_id = ""

    def crash(self) -> None:
        self.is_running = False
        self._round += 1
        self._out(forgets_id=True)
        parked, self.parked = self.parked, None
        if parked is not None:
            parked.abandon()

    def leave(self, groups: Groups, *, for_now: bool = False) -> None:
        if self.member_id and self.is_running:
            groups.leave(self.group, [LeavingMember(member_id=self.member_id)])
        self.crash()

    def subscribe(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        if self.state == "stable":
            self._out(forgets_id=False)

    def give_up(self) -> None:
        return

    def forget_reply(self) -> None:
        if self.state in ("joining", "syncing"):
            self._round += 1
            self.parked = None
            self._out(forgets_id=False)

    def heartbeat(self, groups: Groups, *, lose_reply: bool = False) -> None:
        """One step of whatever comes next."""
        if not self.is_running:
            return
        if self.state == "out":
            self._join(groups)
        elif self.state == "stable":
            try:
                groups.heartbeat(self.group, self.member_id, self.generation)
            except (UnknownMember, IllegalGeneration) as error:
                self._out(forgets_id=isinstance(error, UnknownMember))
            except BrokerError:
                self._out(forgets_id=False)

    def _join(self, groups: Groups) -> None:
        self.state = "joining"
        self._round += 1
        this_round = self._round

        def reply(result: Joined | DragomanError) -> None:
            if this_round != self._round:
                return
            self.parked = None
            if isinstance(result, Joined):
                self.member_id = result.member_id
                self.generation = result.generation
                self._sync(groups, result)
                return
            if isinstance(result, MemberIdRequired):
                self.member_id = result.member_id
            self._out(forgets_id=isinstance(result, UnknownMember))

        parked = groups.join(
            JoinRequest(
                group_id=self.group,
                member_id=self.member_id,
                client_id=self.name,
                protocol_type="consumer",
                protocols=(("range", subscription(self.topics)),),
                session_timeout_ms=45_000,
                rebalance_timeout_ms=30_000,
                requires_known_member_id=True,
            ),
            reply,
        )
        if parked is not None and this_round == self._round and self.state == "joining":
            self.parked = parked

    def _sync(self, groups: Groups, joined: Joined) -> None:
        self.state = "syncing"
        self._round += 1
        this_round = self._round

        def reply(result: Synced | DragomanError) -> None:
            if this_round != self._round:
                return
            self.parked = None
            if isinstance(result, Synced):
                self.state = "stable"
                self.owned = self._read(groups, result.assignment)
            else:
                self._out(forgets_id=isinstance(result, UnknownMember))

        assignments: tuple[tuple[str, bytes], ...] = ()
        if joined.leader == joined.member_id:
            assignments = _dealt(groups, joined)
        parked = groups.sync(
            SyncRequest(
                group_id=self.group,
                member_id=self.member_id,
                generation=self.generation,
                assignments=assignments,
            ),
            reply,
        )
        if parked is not None and this_round == self._round and self.state == "syncing":
            self.parked = parked

    def _read(self, groups: Groups, assignment: bytes) -> frozenset[tuple[bytes, int]]:
        catalog = catalog_of(groups)
        named = DIALECT.read_assignment(assignment) if assignment else ()
        assert named is not None
        return frozenset(
            (catalog.topics[name].topic_id, index)
            for name, indexes in named
            if name in catalog.topics
            for index in indexes
        )


def catalog_of(groups: Groups) -> FakeCatalog:
    catalog = groups._ports.catalog
    assert isinstance(catalog, FakeCatalog)
    return catalog


def _dealt(groups: Groups, joined: Joined) -> tuple[tuple[str, bytes], ...]:
    readers: dict[str, list[str]] = {}
    for member in joined.members:
        read = DIALECT.read_subscription(member.metadata)
        assert read is not None
        for topic in read.topics:
            readers.setdefault(topic, []).append(member.member_id)
    found: dict[str, dict[str, list[int]]] = {each.member_id: {} for each in joined.members}
    for topic, members in sorted(readers.items()):
        facts = catalog_of(groups).find(topic)
        for index in range(0 if facts is None else facts.partition_count):
            found[members[index % len(members)]].setdefault(topic, []).append(index)
    metadata = subscription(())
    return tuple(
        (member_id, DIALECT.write_assignment(metadata, list(topics.items())))
        for member_id, topics in found.items()
    )


__all__ = [
    "DIALECT",
    "ClassicClient",
    "ConsumerClient",
    "FakeCatalog",
    "subscription",
]
