"""One entry of the table of groups: offsets, and members of at most one protocol."""

from __future__ import annotations

from typing import Protocol

from dragoman.broker.errors import ForeignGroup
from dragoman.broker.groups.ledger import Ledger
from dragoman.broker.groups.messages import GroupDescription, State
from dragoman.errors import BrokerError
from dragoman.limits import GROUP_OVERHEAD_BYTES
from dragoman.types import GroupId, MemberId, TopicName


class Membership(Protocol):
    """What the registry asks of the members of a group, whatever protocol they speak."""

    #: "classic" for Kafka's first protocol, "consumer" for its second; shown to people.
    kind: str
    #: The protocol whose clients are the members, such as "kafka" or "cursus".
    owner: str

    @property
    def state(self) -> State: ...

    @property
    def since_ms(self) -> int: ...

    @property
    def generation(self) -> int: ...

    @property
    def protocol_type(self) -> str: ...

    @property
    def has_members(self) -> bool: ...

    @property
    def is_idle(self) -> bool:
        """No members, and nobody about to become one."""
        ...

    @property
    def is_registered(self) -> bool:
        """Kept for a while although it has neither members nor offsets."""
        ...

    @property
    def held_bytes(self) -> int:
        """Roughly what its members hold in memory: metadata and assignments."""
        ...

    def describe(self) -> GroupDescription: ...

    def subscriptions(self) -> frozenset[TopicName] | None: ...

    def check_commit(
        self,
        member_id: MemberId,
        generation: int,
        instance_id: str | None,
        *,
        is_transactional: bool,
    ) -> None: ...

    def resume(self) -> None: ...

    def stop(self, error: BrokerError) -> None: ...


class Group:
    """One entry of the table: offsets, and members of at most one protocol."""

    __slots__ = ("group_id", "ledger", "membership")

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.ledger = Ledger()
        self.membership: Membership | None = None

    @property
    def owner(self) -> str | None:
        membership = self.membership
        return membership.owner if membership is not None and membership.has_members else None

    @property
    def is_idle(self) -> bool:
        return self.membership is None or self.membership.is_idle

    @property
    def is_blank(self) -> bool:
        """Nothing about it was ever written down, and nobody is there."""
        return (
            self.is_idle
            and not len(self.ledger)
            and (
                self.membership is None
                or (self.membership.generation == 0 and not self.membership.is_registered)
            )
        )

    @property
    def held_bytes(self) -> int:
        """Roughly what the group holds in memory, offsets without metadata aside."""
        own = GROUP_OVERHEAD_BYTES + len(self.group_id) + self.ledger.metadata_size
        return own if self.membership is None else own + self.membership.held_bytes

    def require_owner(self, owner: str) -> None:
        current = self.owner
        if current is not None and current != owner:
            raise ForeignGroup(self.group_id, current)
