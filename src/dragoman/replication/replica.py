"""One partition as the broker sees it: its log, its marks, and the requests that wait on it.

A replica is created when a partition is first used. Producers wait here until their records are
stable (`acks=1`) or below the high watermark (`acks=all`); fetches are parked here until there is
new data. `advance`, which the broker calls after each group commit, wakes both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol, TypeAlias

from dragoman.cluster.metadata import PartitionMetadata
from dragoman.config.overrides import TopicConfig
from dragoman.errors import CorruptionError, DragomanError, OffsetOutOfRangeError
from dragoman.limits import ACKS_WAITING_MAX, FETCHES_PARKED_MAX
from dragoman.log.partition import PartitionLog
from dragoman.plural import plural
from dragoman.replication.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeader,
    Overloaded,
    RecordsNotDeletable,
    UnknownLeaderEpoch,
)

#: Called when records have reached the requested durability, or with an error.
Acknowledge: TypeAlias = Callable[[DragomanError | None], None]
#: In place of an offset: the high watermark.
ALL_COMMITTED = -1


def not_leader(partition: PartitionMetadata) -> NotLeader:
    where = f"{partition.topic.name}-{partition.index}"
    if partition.leader < 0:
        return NotLeader(f"no node leads {where} at the moment")
    return NotLeader(f"node {partition.leader} leads {where}", partition.leader)


class ParkedFetch(Protocol):
    """A fetch that is parked on one or more partitions."""

    def data_arrived(self, replica: Replica) -> None: ...

    def log_start_moved(self, replica: Replica) -> None: ...


class Role(Protocol):
    """The role of this node for a partition with further replicas."""

    #: The log's end when this node began to lead; 0: it does not lead.
    epoch_start: int

    def committed_end(self) -> int:
        """Everything below is committed; never above the log's stable end."""
        ...

    def is_sure(self, refused: Hashable) -> bool:
        """Whether this log is known to have everything acknowledged to clients."""
        ...


class Replica:
    __slots__ = (
        "_acks",
        "_stable_acks",
        "config",
        "is_led",
        "is_moved",
        "log",
        "metadata",
        "on_unreadable",
        "parked",
        "role",
    )

    def __init__(self, metadata: PartitionMetadata, log: PartitionLog, config: TopicConfig) -> None:
        self.metadata = metadata
        self.log = log
        self.config = config
        self._acks: deque[tuple[int, Acknowledge]] | None = None
        #: Producers that wait for this node's own disk only.
        self._stable_acks: deque[tuple[int, Acknowledge]] | None = None
        self.parked: dict[ParkedFetch, None] | None = None
        #: None: this node is the only replica.
        self.role: Role | None = None
        #: Whether clients may use the partition on this node.
        self.is_led = False
        #: Whether this node no longer has a copy, so that the log is being removed.
        self.is_moved = False
        #: Called when a reader met damage. Returns whether the partition has further replicas, one
        #: of which can lead.
        self.on_unreadable: Callable[[Replica, CorruptionError], bool] | None = None
        log.owner = self

    @property
    def leader_epoch(self) -> int:
        return self.metadata.leader_epoch

    @property
    def is_catching_up(self) -> bool:
        """Whether the high watermark is known. A new leader first has to learn how much of its log
        is committed; until then, the end for readers could go backwards (KIP-207).
        """
        role = self.role
        return role is not None and role.epoch_start > self.log.high_watermark

    def is_elsewhere(self, error: CorruptionError) -> bool:
        """A reader met damage. Returns whether another node has the records, so that a retry may
        help.
        """
        return self.on_unreadable is not None and self.on_unreadable(self, error)

    def check_epoch(self, client_epoch: int) -> None:
        """Refuse clients with another leader epoch; -1 means that the client sends none."""
        if client_epoch < 0 or client_epoch == self.metadata.leader_epoch:
            return
        if client_epoch < self.metadata.leader_epoch:
            raise FencedLeaderEpoch(
                f"{self.log.describe()}: leader epoch is {self.metadata.leader_epoch}, "
                f"got {client_epoch}"
            )
        raise UnknownLeaderEpoch(
            f"{self.log.describe()}: leader epoch is {self.metadata.leader_epoch}, "
            f"got {client_epoch}"
        )

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(largest known epoch not after `epoch`, offset after its last record).

        None for a future epoch, or one older than all known ones.
        """
        if epoch < 0 or epoch > self.metadata.leader_epoch:
            return None
        if epoch == self.metadata.leader_epoch:
            return epoch, self.log.log_end_offset
        return self.log.epochs.end_offset(epoch, self.log.log_end_offset)

    @property
    def min_insync(self) -> int:
        """The replicas that must be in sync for a record to be committed: the minimum of the
        metadata, or that of this node's own settings if it is higher.
        """
        return max(self.metadata.min_insync, self.config.min_insync_replicas)

    def check_in_sync(self) -> None:
        """Refuse writes that require all in-sync replicas while these are too few."""
        found, wanted = len(self.metadata.in_sync), self.min_insync
        if found < wanted:
            raise NotEnoughReplicas(
                f"{self.log.describe()}: {plural(found, 'replica')} in sync, "
                f"min.insync.replicas is {wanted}"
            )

    # ---- producers

    def when_committed(self, next_offset: int, acknowledge: Acknowledge) -> None:
        """Call back once everything below `next_offset` is under the high watermark."""
        if next_offset <= self.log.high_watermark:
            acknowledge(None)
            return
        if self._acks is None:
            self._acks = deque()
        elif len(self._acks) >= ACKS_WAITING_MAX:
            acknowledge(Overloaded(f"{self.log.describe()}: too many producers are waiting"))
            return
        self._acks.append((next_offset, acknowledge))

    def when_stable(self, next_offset: int, acknowledge: Acknowledge) -> None:
        """Call back once everything below `next_offset` is on this node's stable storage."""
        if self.role is None:
            self.when_committed(next_offset, acknowledge)
        elif next_offset <= self.log.stable_end:
            acknowledge(None)
        elif self._stable_acks is None:
            self._stable_acks = deque([(next_offset, acknowledge)])
        elif len(self._stable_acks) >= ACKS_WAITING_MAX:
            acknowledge(Overloaded(f"{self.log.describe()}: too many producers are waiting"))
        else:
            self._stable_acks.append((next_offset, acknowledge))

    # ---- progress

    def advance(self) -> None:
        """A stable end moved, here or elsewhere. A sole replica decides the watermark itself."""
        log = self.log
        role = self.role
        log.advance_high_watermark(log.stable_end if role is None else role.committed_end())
        acks = self._acks
        if acks:
            committed = log.high_watermark
            while acks and acks[0][0] <= committed:
                acks.popleft()[1](None)
        if self._stable_acks:
            waiting, stable = self._stable_acks, log.stable_end
            while waiting and waiting[0][0] <= stable:
                waiting.popleft()[1](None)
        self.wake()

    def wake(self) -> None:
        """Wake fetches: there is new data, a mark moved, or the partition is gone."""
        if self.parked:
            parked, self.parked = self.parked, None
            for fetch in parked:
                fetch.data_arrived(self)

    def park(self, fetch: ParkedFetch) -> bool:
        """Notify `fetch` of the next change; False when too many are parked already."""
        if self.parked is None:
            self.parked = {}
        elif len(self.parked) >= FETCHES_PARKED_MAX:
            return False
        self.parked[fetch] = None
        return True

    def unpark(self, fetch: ParkedFetch) -> None:
        if self.parked is not None:
            self.parked.pop(fetch, None)

    def delete_below(self, offset: int) -> int:
        """Delete records below `offset`, or all committed ones for -1; returns the log's new start.

        Raises `OffsetOutOfRangeError` for records that are not committed. Records that were deleted
        before are no error. Durable when it returns.
        """
        log = self.log
        log.move_log_start(self.check_deletable(offset))
        parked, self.parked = self.parked, None
        for fetch in parked or ():
            fetch.log_start_moved(self)
        return log.log_start_offset

    def check_deletable(self, offset: int) -> int:
        """The offset below which `delete_below` would delete. Raises what it raises."""
        log = self.log
        if not self.config.is_retained_by_age_or_size:
            raise RecordsNotDeletable(f"{log.describe()}: cleanup.policy is not delete")
        wanted = log.high_watermark if offset == ALL_COMMITTED else offset
        if not 0 <= wanted <= log.high_watermark:
            raise OffsetOutOfRangeError(
                f"{log.describe()}: offset {offset} is not in 0 .. {log.high_watermark}"
            )
        return wanted

    def expire_waiters(self, end: int, error: DragomanError) -> None:
        """Time out producers of records below `end`."""
        acks = self._acks
        while acks and acks[0][0] <= end:
            acks.popleft()[1](error)

    def fail_waiters(self, error: DragomanError, *, above: int = 0) -> None:
        """Fail waiting producers after a stop, a deletion or the withdrawal of appends. Parked
        fetches are woken: they answer with an error if the partition is gone.

        `above`: producers with offsets up to this one continue to wait; their records are in the
        log.
        """
        acks, self._acks = self._acks, None
        stable_acks, self._stable_acks = self._stable_acks, None
        failed = [*(acks or ()), *(stable_acks or ())]
        if above:
            self._acks = deque(each for each in acks or () if each[0] <= above)
            self._stable_acks = deque(each for each in stable_acks or () if each[0] <= above)
            failed = [each for each in failed if each[0] > above]
        for _, acknowledge in failed:
            acknowledge(error)
        self.wake()
