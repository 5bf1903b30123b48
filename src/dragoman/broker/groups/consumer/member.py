"""One member of a consumer group, whichever of Kafka's two protocols it speaks."""

from __future__ import annotations

from dragoman.broker.groups.consumer.messages import (
    JOIN,
    LEAVE_FOR_NOW,
    NOTHING,
    MemberState,
    Partitions,
    by_topic,
    flattened,
)
from dragoman.broker.groups.consumer.reconcile import Position
from dragoman.broker.groups.records import ClassicFacts, StoredConsumerMember
from dragoman.broker.groups.timer import DeadlineTimer, PhaseTimer
from dragoman.types import MemberId, TopicName


class ConsumerMember:
    __slots__ = (
        "assignor",
        "classic",
        "client_host",
        "client_id",
        "instance_id",
        "member_id",
        "pattern",
        "phase",
        "position",
        "previous_epoch",
        "rack_id",
        "rebalance_timeout_ms",
        "session",
        "session_timeout",
        "target",
        "told",
        "topics",
    )

    def __init__(
        self,
        member_id: MemberId,
        instance_id: str | None,
        session: DeadlineTimer,
        phase: PhaseTimer,
        session_timeout: float,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = 0
        self.topics: frozenset[TopicName] = frozenset()
        self.pattern: str | None = None
        self.assignor: str | None = None
        self.position = Position(JOIN, MemberState.STABLE, NOTHING, NOTHING)
        #: A client that missed the reply with its new epoch still uses this one.
        self.previous_epoch = JOIN
        self.target: Partitions = NOTHING
        #: The assignment it was last told; None when that is not known.
        self.told: Partitions | None = None
        #: None for a member that speaks the second protocol.
        self.classic: ClassicFacts | None = None
        self.session = session
        self.session_timeout = session_timeout
        #: How long it may take to give up partitions, to join again, or to sync.
        self.phase = phase

    @property
    def epoch(self) -> int:
        return self.position.epoch

    @property
    def state(self) -> MemberState:
        return self.position.state

    @property
    def holds(self) -> Partitions:
        """All that nobody else may be given."""
        return self.position.assigned | self.position.revoking

    @property
    def is_away(self) -> bool:
        return self.position.epoch == LEAVE_FOR_NOW

    @property
    def name(self) -> str:
        return self.member_id if self.instance_id is None else self.instance_id

    @property
    def byte_count(self) -> int:
        """Roughly what it takes: characters stand for bytes, which is near enough for a bound."""
        size = len(self.client_id) + len(self.client_host) + len(self.pattern or "")
        size += sum(map(len, self.topics))
        if self.classic is not None:
            size += sum(len(name) + len(metadata) for name, metadata in self.classic.protocols)
        return size

    def touch(self) -> None:
        """A sign of life: the session starts anew."""
        self.session.arm(self.session_timeout)

    def is_settled(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def stop(self) -> None:
        self.session.stop()
        self.phase.end()

    # ---- records

    def stored(self, origin: int) -> StoredConsumerMember:
        return StoredConsumerMember(
            origin=origin,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topics=tuple(sorted(self.topics)),
            pattern=self.pattern,
            assignor=self.assignor,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state,
            assigned=by_topic(self.position.assigned),
            revoking=by_topic(self.position.revoking),
            classic=self.classic,
        )

    def restore(self, stored: StoredConsumerMember) -> None:
        self.rack_id = stored.rack_id
        self.client_id = stored.client_id
        self.client_host = stored.client_host
        self.rebalance_timeout_ms = stored.rebalance_timeout_ms
        self.topics = frozenset(stored.topics)
        self.pattern = stored.pattern
        self.assignor = stored.assignor
        self.previous_epoch = stored.previous_epoch
        self.position = Position(
            stored.epoch,
            MemberState(stored.state),
            flattened(stored.assigned),
            flattened(stored.revoking),
        )
        self.classic = stored.classic

    def take_over(self, old: ConsumerMember) -> None:
        """A static member has come back under a new member id, to what it had under the old."""
        self.rack_id = old.rack_id
        self.rebalance_timeout_ms = old.rebalance_timeout_ms
        self.topics = old.topics
        self.pattern = old.pattern
        self.assignor = old.assignor
        self.position = Position(JOIN, MemberState.STABLE, old.position.assigned, NOTHING)
        self.target = old.target
