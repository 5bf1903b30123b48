"""One entry of the table of groups, with its offsets, and the memory bound of all entries.

The ledger of a group keeps its offsets. It applies durable records without checks; `offsets.py`
decides which commits are valid.

Members bring metadata and get assignments, both opaque and up to a megabyte; group ids and the
metadata of offsets stay as long as their groups. The memory of all groups of a node is bounded. An
exact running total would have to follow every way in which members and groups come and go. So only
additions are counted, and when the sum could exceed the bound, all groups are measured again, at
most once a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from dragoman import limits
from dragoman.broker.errors import ForeignGroup, TooManyGroups
from dragoman.broker.groups.messages import GroupDescription, State
from dragoman.broker.groups.records import CommittedOffset, TopicPartition
from dragoman.errors import BrokerError
from dragoman.limits import GROUP_OVERHEAD_BYTES
from dragoman.types import GroupId, MemberId, ProducerId, TopicName
from dragoman.world import Clock

# ---- memory


class GroupMemory:
    """The bound on the memory of all groups of a node."""

    def __init__(self, measure: Callable[[], int], clock: Clock) -> None:
        self._measure = measure
        self._clock = clock
        #: The last measurement, and the additions since.
        self._measured = 0
        self._added = 0
        self._measured_at = -limits.GROUPS_MEASURE_INTERVAL_S

    def take(self, size: int) -> None:
        """Reserve memory; raises `TooManyGroups` when there is too little."""
        most = limits.GROUPS_BYTES_MAX
        is_much = self._added + size > most // 8
        if is_much or self._measured + self._added + size > most:
            self._look()
        if self._measured + self._added + size > most:
            raise TooManyGroups(f"the groups of this node may hold {most} bytes in memory")
        self._added += size

    def _look(self) -> None:
        now = self._clock.monotonic()
        if now - self._measured_at >= limits.GROUPS_MEASURE_INTERVAL_S:
            self._measured_at = now
            self._measured = self._measure()
            self._added = 0


# ---- offsets


class Ledger:
    """The committed offsets of one group, and those that open transactions have staged for it."""

    __slots__ = ("_committed", "_staged", "_unstable", "metadata_size")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._staged: dict[ProducerId, dict[TopicPartition, CommittedOffset]] = {}
        #: Characters of the metadata of committed offsets.
        self.metadata_size = 0
        #: Open transactions per partition.
        self._unstable: Counter[TopicPartition] = Counter()

    def __len__(self) -> int:
        """The numbers of committed and staged offsets."""
        return len(self._committed) + self._unstable.total()

    @property
    def committed(self) -> Mapping[TopicPartition, CommittedOffset]:
        return MappingProxyType(self._committed)

    @property
    def producers(self) -> tuple[ProducerId, ...]:
        """Partitions with an open transaction."""
        return tuple(self._staged)

    def staged(self, producer_id: ProducerId) -> Mapping[TopicPartition, CommittedOffset]:
        return MappingProxyType(self._staged.get(producer_id, {}))

    def is_unstable(self, partition: TopicPartition) -> bool:
        return partition in self._unstable

    def commit(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        old = self._committed.get(partition)
        self.metadata_size += len(offset.metadata) - (0 if old is None else len(old.metadata))
        self._committed[partition] = offset

    def forget(self, partition: TopicPartition) -> None:
        old = self._committed.pop(partition, None)
        if old is not None:
            self.metadata_size -= len(old.metadata)

    def stage(
        self, producer_id: ProducerId, partition: TopicPartition, offset: CommittedOffset
    ) -> None:
        offsets = self._staged.setdefault(producer_id, {})
        if partition not in offsets:
            self._unstable[partition] += 1
        offsets[partition] = offset

    def unstage(self, producer_id: ProducerId, partition: TopicPartition) -> None:
        offsets = self._staged.get(producer_id, {})
        if offsets.pop(partition, None) is None:
            return
        self._unstable[partition] -= 1
        if not self._unstable[partition]:
            del self._unstable[partition]
        if not offsets:
            del self._staged[producer_id]


# ---- groups


class Membership(Protocol):
    """The registry's port to the members of a group, whatever their protocol."""

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
    def member_count(self) -> int: ...

    @property
    def is_idle(self) -> bool:
        """Whether there are no members, and no pending joins."""
        ...

    @property
    def is_registered(self) -> bool:
        """Whether it is kept for a while without members and offsets."""
        ...

    @property
    def held_bytes(self) -> int:
        """An estimate of the members' memory: metadata and assignments."""
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
        """Whether it was never stored, and has no members."""
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
        """An estimate of the group's memory, without offsets that have no metadata."""
        own = GROUP_OVERHEAD_BYTES + len(self.group_id) + self.ledger.metadata_size
        return own if self.membership is None else own + self.membership.held_bytes

    def require_owner(self, owner: str) -> None:
        current = self.owner
        if current is not None and current != owner:
            raise ForeignGroup(self.group_id, current)
