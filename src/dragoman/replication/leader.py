"""A partition that this node leads: the followers' progress, the high watermark, the in-sync set.

The high watermark is the lowest stable end over the *maximal* in-sync set: the committed one and
every member that this leader has requested since, granted or not. It does not move while fewer than
`min_insync` are in sync, and it never goes back.

Changes of the in-sync set go through the controller, as compare-and-set on the partition's epoch.
Until an event with a newer partition epoch is applied, any of the requested changes may have been
made, so all of them count. An answer alone does not settle that, since an earlier request may still
arrive; only the refusal of a sole request withdraws it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from dragoman.cluster.events import Member
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import CorruptionError
from dragoman.limits import DOUBTS_MAX
from dragoman.replication.errors import RequestTimedOut
from dragoman.replication.messages import (
    NONE,
    Decision,
    Fetched,
    InSyncChange,
    Position,
    Status,
)
from dragoman.replication.replica import Replica

_NEVER = float("-inf")


class Listener(Protocol):
    """A receiver of events about a partition, on behalf of a follower."""

    #: Time of the follower's last request for any partition.
    seen_at: float

    def grown(self, partition_id: int) -> None: ...

    def committed(self, partition_id: int) -> None: ...


class Follower:
    """The progress of a follower in one incarnation."""

    __slots__ = ("caught_up_at", "incarnation", "listener", "stable_end")

    def __init__(self, incarnation: int, listener: Listener) -> None:
        self.incarnation = incarnation
        self.listener = listener
        self.stable_end = NONE
        #: Time until which the follower had all of the leader's records; unused while it still has.
        self.caught_up_at = _NEVER

    def is_lagging(self, leader_end: int, now: float, lag_s: float) -> bool:
        if now - self.listener.seen_at > lag_s:
            return True
        return self.stable_end < leader_end and now - self.caught_up_at > lag_s


class LedPartition:
    """The leader's side of one partition, for one leader epoch."""

    def __init__(self, replica: Replica, image: MetadataImage, member: Member, now: float) -> None:
        """The epoch must be persisted already (`PartitionLog.begin_epoch`)."""
        self.replica = replica
        self.member = member
        self.leader_epoch = replica.metadata.leader_epoch
        self.epoch_start = replica.log.log_end_offset
        self.listeners: dict[Listener, None] = {}
        self.followers: dict[int, Follower] = {}
        #: Replicas, with the partition epoch since which each is known to be one.
        self._replicas = dict.fromkeys(replica.metadata.replicas, 0)
        self._image = image
        self._since = now
        #: The stable end last sent to followers, and the end against which they were measured
        #: before.
        self._end = replica.log.stable_end
        self._mark = (self._end, now)
        #: Members requested in this partition epoch, and the number of requests.
        self._partition_epoch = replica.metadata.partition_epoch
        self._requested: set[Member] = set()
        self._requests = 0
        self._is_asking = False
        #: Log ends by time, for the time-outs of waiting producers.
        self._ends: deque[tuple[float, int]] = deque()
        #: The partition epoch of the last granted change.
        self._granted = NONE
        #: Pending refusals because of the log's state, with the partition epoch from which on a
        #: granted change was requested later.
        self._doubts: dict[Hashable, int] = {}
        #: Called when this node has to verify that it still leads.
        self.on_doubt: Callable[[], None] = _do_nothing

    # ---- followers

    def follow(
        self, follower: Member, position: Position, listener: Listener, now: float
    ) -> Fetched | None:
        """Record a follower's position, or return a status if it is invalid."""
        if position.leader_epoch != self.leader_epoch:
            is_old = position.leader_epoch < self.leader_epoch
            return self.answer(position, Status.FENCED if is_old else Status.NOT_LEADER)
        if position.offset < self.replica.log.log_start_offset:
            start = self.copy_start()
            if position.offset < start:
                return self.answer(position, Status.OUT_OF_RANGE, epoch_end=start)
        diverging = self._divergence(position)
        if diverging is not None:
            return diverging
        since = self._replicas.get(follower.node_id)
        if since is None or position.partition_epoch < since:
            # The sender is no replica, or sent this before it was removed and added again: its log
            # may be empty by now.
            return self.answer(position, Status.NOT_LEADER)
        known = self.followers.get(follower.node_id)
        if known is None or known.incarnation < follower.incarnation:
            known = self.followers[follower.node_id] = Follower(follower.incarnation, listener)
        if known.incarnation == follower.incarnation:
            known.listener = listener
            self._reached(known, min(position.stable_end, position.offset), now)
        return None

    def progressed(self, follower: Member, stable_end: int, now: float) -> None:
        """More of the follower's data is stable."""
        known = self.followers.get(follower.node_id)
        if known is not None and known.incarnation == follower.incarnation:
            self._reached(known, min(stable_end, self.replica.log.log_end_offset), now)

    def _reached(self, follower: Follower, stable_end: int, now: float) -> None:
        if stable_end <= follower.stable_end:
            return
        follower.stable_end = stable_end
        marked_end, marked_at = self._mark
        if stable_end >= marked_end:
            # The follower has all records of the time of the mark, so it lags at most since then.
            follower.caught_up_at = max(follower.caught_up_at, marked_at)
            self._mark = (self._end, now)
        self.advance()

    def copy_start(self) -> int:
        """The base of the first batch; the log may start within it."""
        log = self.replica.log
        start = log.log_start_offset
        try:
            found = log.read(start, 1, log.stable_end).buffers
        except CorruptionError:
            return start
        return int.from_bytes(found[0][:8], "big") if found else start

    def _divergence(self, position: Position) -> Fetched | None:
        """Where the histories diverge, if the follower's last record is not in this log
        (KIP-279).
        """
        log = self.replica.log
        offset, last_epoch = position.offset, position.last_epoch
        if last_epoch == NONE:
            # A log without records agrees with any, unless it begins past this log's end.
            if offset <= log.log_end_offset:
                return None
            return self.answer(position, Status.DIVERGING, epoch_end=log.log_end_offset)
        found = log.epochs.end_offset(last_epoch, log.log_end_offset)
        if found is None:
            entries = log.epochs.entries()
            epoch, end = NONE, entries[0][1] if entries else log.log_start_offset
            is_diverging = offset > end
        else:
            epoch, end = found
            is_diverging = epoch < last_epoch or end < offset
        if not is_diverging:
            return None
        return self.answer(position, Status.DIVERGING, epoch=epoch, epoch_end=end)

    def answer(
        self,
        position: Position,
        status: Status,
        *,
        size: int = 0,
        epoch: int = NONE,
        epoch_end: int = NONE,
    ) -> Fetched:
        log = self.replica.log
        return Fetched(
            position.partition_id,
            self.leader_epoch,
            position.offset,
            status,
            log.high_watermark,
            log.log_start_offset,
            size,
            epoch,
            epoch_end,
            position.last_epoch,
        )

    def is_added(self, follower: Member) -> bool:
        """Whether a move adds this replica, and it is not in sync yet."""
        metadata = self.replica.metadata
        return follower.node_id in metadata.target and follower.node_id not in metadata.in_sync

    # ---- the high watermark

    def maximal(self) -> Iterable[Member]:
        """All members of the in-sync set in any possible outcome of the requests."""
        members = self.replica.metadata.members
        return self._requested.union(members) if self._requested else members

    def committed_end(self) -> int:
        log, metadata = self.replica.log, self.replica.metadata
        watermark = log.high_watermark
        if len(metadata.members) < self.replica.min_insync:
            return watermark
        end = log.stable_end
        for member in self.maximal():
            if member != self.member:
                follower = self.followers.get(member.node_id)
                if follower is None or follower.incarnation != member.incarnation:
                    return watermark
                end = min(end, follower.stable_end)
        return max(end, watermark)

    def advance(self) -> None:
        """A stable end has moved, here or on a follower: more may be committed."""
        log = self.replica.log
        before = log.high_watermark
        self.replica.advance()
        if log.high_watermark != before:
            for each in self.listeners:
                each.committed(self.replica.metadata.partition_id)

    def stable(self, now: float) -> None:
        """The log's own stable end has moved."""
        for follower in self.followers.values():
            if follower.stable_end >= self._end:
                follower.caught_up_at = now
        self._end = self.replica.log.stable_end
        self.advance()
        self.grown()

    def grown(self) -> None:
        """There is more to copy, stable or being synced."""
        for each in list(self.listeners):
            each.grown(self.replica.metadata.partition_id)

    def expire(self, now: float, patience_s: float) -> None:
        """Time out producers, whose outcome is unknown."""
        log, ends = self.replica.log, self._ends
        ends.append((now, log.log_end_offset))
        reached = -1
        while ends and ends[0][0] <= now - patience_s:
            reached = ends.popleft()[1]
        if reached > log.high_watermark:
            text = f"{log.describe()}: not committed within {patience_s:g} s; it may still be"
            self.replica.expire_waiters(reached, RequestTimedOut(text))

    def is_sure(self, refused: Hashable) -> bool:
        """Whether this node still led when, or after, it first had to refuse this.

        A node that was replaced without knowing it may lack records that the client has written to
        the new leader. To find out, it requests the in-sync set unchanged.
        """
        metadata = self.replica.metadata
        if metadata.members == (self.member,) and not metadata.eligible:
            # No other node can lead.
            return True
        wanted = self._doubts.get(refused)
        if wanted is None:
            if len(self._doubts) >= DOUBTS_MAX:
                self._doubts.pop(next(iter(self._doubts)))
            is_under_way = self._requests > 0
            wanted = self._doubts[refused] = self._partition_epoch + is_under_way
        if self._granted >= wanted:
            del self._doubts[refused]
            return True
        self.on_doubt()
        return False

    def _has_doubts(self) -> bool:
        return any(self._granted < wanted for wanted in self._doubts.values())

    # ---- the in-sync set

    def agreed(self) -> None:
        """An event about this partition was applied, and this node still leads it."""
        metadata = self.replica.metadata
        if metadata.partition_epoch != self._partition_epoch:
            self._partition_epoch = metadata.partition_epoch
            self._requested.clear()
            self._requests = 0
            self._is_asking = False
            self._replicas = {
                node: self._replicas.get(node, metadata.partition_epoch)
                for node in metadata.replicas
            }
            for node in [each for each in self.followers if each not in self._replicas]:
                del self.followers[node]
            if self._has_doubts():
                self.on_doubt()
        self.advance()

    def wanted_change(self, now: float, lag_s: float) -> InSyncChange | None:
        """The change to request from the controller. The caller sends it and calls `answered`."""
        if self._is_asking:
            return None
        metadata = self.replica.metadata
        wanted = self._wanted_members(now, lag_s)
        # After requests with an unknown outcome, any granted change settles them.
        if wanted == metadata.members and not self._requested and not self._has_doubts():
            return None
        self._is_asking = True
        self._requests += 1
        self._requested.update(wanted)
        return InSyncChange(
            metadata.partition_id, self.leader_epoch, metadata.partition_epoch, wanted
        )

    def _wanted_members(self, now: float, lag_s: float) -> tuple[Member, ...]:
        end = self.replica.log.stable_end
        members = self.replica.metadata.members
        wanted = []
        for member in members:
            follower = self.followers.get(member.node_id)
            if member == self.member:
                wanted.append(member)
            elif follower is None or follower.incarnation != member.incarnation:
                # A replica may take as long to connect as it may lag.
                if now - self._since <= lag_s:
                    wanted.append(member)
            elif not follower.is_lagging(end, now, lag_s):
                wanted.append(member)
        for node_id, follower in self.followers.items():
            member = Member(node_id, follower.incarnation)
            if member not in members and self._may_join(member, follower, now, lag_s):
                wanted.append(member)
        return tuple(wanted)

    def _may_join(self, member: Member, follower: Follower, now: float, lag_s: float) -> bool:
        image, log = self._image, self.replica.log
        return (
            member.node_id in self.replica.metadata.replicas
            and image.nodes.get(member.node_id) == member.incarnation
            and member.node_id not in image.fenced
            and now - follower.listener.seen_at <= lag_s
            and follower.stable_end >= max(log.high_watermark, self.epoch_start)
        )

    def wants_review(self, follower: Member) -> bool:
        """Whether a replica may have become in sync; cheap enough for every fetch."""
        if self._is_asking or follower in self.replica.metadata.members:
            return False
        known = self.followers.get(follower.node_id)
        log = self.replica.log
        return known is not None and known.stable_end >= max(log.high_watermark, self.epoch_start)

    def answered(self, change: InSyncChange, outcome: Decision) -> bool:
        """The request was granted, or another change came first, whose event will be applied.

        True: the outcome of this or an earlier request is unknown, so another request is needed.
        Until one is granted, nothing is committed without the requested members.
        """
        if outcome is Decision.ACCEPTED:
            self._granted = max(self._granted, change.partition_epoch)
        is_over = change.partition_epoch != self._partition_epoch
        if is_over or outcome in (Decision.ACCEPTED, Decision.CONFLICT):
            return False
        self._is_asking = False
        if outcome is Decision.REFUSED and self._requests == 1:
            self._requested.clear()
            self._requests = 0
            self.advance()
            return False
        return True


def _do_nothing() -> None:
    return None
