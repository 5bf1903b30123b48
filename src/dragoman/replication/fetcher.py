"""Copying from one leader node: one fetch for all partitions that are followed from it.

The fetch is parked at the leader until there is data. The data of a reply is appended at once, all
partitions in one group of the journal, and the next fetch is sent before the group is stable. Then
the leader gets a report of the new stable ends, which the fetch after that repeats, since a report
may be lost. A partition that is added while a fetch is parked sends a second fetch, which ends the
wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dragoman.checksum import crc32c
from dragoman.cluster.events import Member
from dragoman.errors import DragomanError
from dragoman.replication.follower import FollowedPartition
from dragoman.replication.messages import (
    Fetched,
    FetchReply,
    FetchRequest,
    Position,
    Progress,
)
from dragoman.replication.ports import Peers, Timing
from dragoman.world import Scheduler

log = logging.getLogger("dragoman.replication")
#: A parked fetch, and a second one that ends its wait.
_UNANSWERED_MAX = 2


class Fetcher:
    def __init__(
        self,
        leader: int,
        peers: Peers,
        scheduler: Scheduler,
        timing: Timing,
        on_damage: Callable[[FollowedPartition], object],
    ) -> None:
        self.leader = leader
        self._peers = peers
        self._scheduler = scheduler
        self._timing = timing
        self._on_damage = on_damage
        self._member: Member | None = None
        self._partitions: dict[int, FollowedPartition] = {}
        #: Session numbers grow over the whole life of a node: see `begin`.
        self._session = 0
        self._number = 0
        self._unanswered = 0
        #: Partitions whose position the next request has to send.
        self._changed: dict[int, None] = {}
        self._dropped: dict[int, None] = {}
        self._stable: dict[int, None] = {}
        #: Partitions whose stable end was reported since the last request, which repeats it.
        self._reported: dict[int, None] = {}
        self._is_sending = False
        self._is_reporting = False
        self._is_pausing = False
        self._failures = 0

    # ---- partitions

    def add(self, following: FollowedPartition, member: Member) -> None:
        """Begin to copy, as this incarnation of the node."""
        partition_id = following.replica.metadata.partition_id
        self._partitions[partition_id] = following
        self._changed[partition_id] = None
        self._dropped.pop(partition_id, None)
        if member != self._member:
            self._member = member
            self._begin()
        self._send_soon()

    def remove(self, partition_id: int) -> None:
        self._partitions.pop(partition_id, None)
        self._changed.pop(partition_id, None)
        self._stable.pop(partition_id, None)
        self._dropped[partition_id] = None

    @property
    def is_idle(self) -> bool:
        return not self._partitions

    def became_stable(self, following: FollowedPartition) -> None:
        """Report to the leader, unless the next fetch is about to."""
        self._stable[following.replica.metadata.partition_id] = None
        if not self._is_reporting:
            self._is_reporting = True
            self._scheduler.call_soon(self._report)

    # ---- requests

    def _begin(self) -> None:
        """Begin a new session, discarding the leader's state of the last one."""
        self._session += 1
        self._number = 0
        self._unanswered = 0
        self._changed = dict.fromkeys(self._partitions)
        self._reported.clear()
        self._dropped.clear()

    def _send_soon(self) -> None:
        # At the end of the turn: by then the group may be stable and further partitions added.
        if not self._is_sending:
            self._is_sending = True
            self._scheduler.call_soon(self._send)

    def _send(self) -> None:
        self._is_sending = False
        if self._is_pausing or self._member is None or self._unanswered >= _UNANSWERED_MAX:
            return
        if not self._partitions or (self._unanswered and not self._changed):
            return
        changed, self._changed = self._changed, {}
        if not self._unanswered:
            # A position sent while a request is unanswered would be answered twice.
            changed |= self._reported
            self._reported.clear()
        positions: list[Position] = [
            self._partitions[each].position() for each in changed if each in self._partitions
        ]
        request = FetchRequest(
            follower=self._member,
            session=self._session,
            number=self._number,
            positions=tuple(positions),
            dropped=tuple(self._dropped),
            wait_ms=int(self._timing.wait_s * 1000),
            bytes_max=self._timing.fetch_bytes_max,
        )
        self._dropped.clear()
        self._number += 1
        self._unanswered += 1
        session = self._session
        self._peers.fetch(
            self.leader, request, lambda reply, body: self._replied(session, reply, body)
        )

    def _report(self) -> None:
        self._is_reporting = False
        moved, self._stable = self._stable, {}
        stable_ends: list[tuple[int, int, int]] = []
        for partition_id in moved:
            following = self._partitions.get(partition_id)
            if following is not None and not following.replica.log.is_damaged:
                stable_end = following.replica.log.stable_end
                if stable_end > following.reported_stable_end and partition_id not in self._changed:
                    following.reported_stable_end = stable_end
                    stable_ends.append((partition_id, following.leader_epoch, stable_end))
                    self._reported[partition_id] = None
        if stable_ends and self._member is not None and self._number:
            progress = Progress(
                follower=self._member, session=self._session, stable_ends=tuple(stable_ends)
            )
            self._peers.report(self.leader, progress)

    # ---- answers

    def _replied(self, session: int, reply: FetchReply | None, body: memoryview) -> None:
        if session != self._session:
            return
        self._unanswered -= 1
        if reply is None or reply.is_unknown or crc32c(body) != reply.checksum:
            self._begin()
            self._pause()
            return
        self._failures = 0
        at = 0
        has_less = False
        for fetched in reply.partitions:
            data = body[at : at + fetched.size]
            at += fetched.size
            following = self._partitions.get(fetched.partition_id)
            if following is not None:
                before = following.reported_stable_end
                self._take(following, fetched, data)
                has_less = has_less or following.replica.log.stable_end < before
        if has_less:
            # Earlier reports to the leader are invalid, even if they arrive later.
            self._begin()
        self._send_soon()

    def _take(self, following: FollowedPartition, fetched: Fetched, data: memoryview) -> None:
        try:
            is_of_use = following.take(fetched, data)
        except DragomanError as error:
            if not following.failures:
                log.warning("%s: cannot be copied: %s", following.replica.log.describe(), error)
            is_of_use = False
        if following.replica.log.is_damaged:
            self._on_damage(following)
        if self._partitions.get(fetched.partition_id) is not following:
            return
        if is_of_use:
            following.failures = 0
            self._changed[fetched.partition_id] = None
        else:
            pause_s = self._pause_after(following.failures)
            following.failures += 1
            self._scheduler.call_later(pause_s, self._try_again, following)

    def _try_again(self, following: FollowedPartition) -> None:
        partition_id = following.replica.metadata.partition_id
        if self._partitions.get(partition_id) is following:
            self._changed[partition_id] = None
            self._send_soon()

    def _pause(self) -> None:
        """Retry after a pause: the leader is unreachable or its answers are invalid."""
        if not self._is_pausing:
            self._is_pausing = True
            pause_s = self._pause_after(self._failures)
            self._failures += 1
            self._scheduler.call_later(pause_s, self._resume)

    def _pause_after(self, failures: int) -> float:
        return min(self._timing.fetch_again_s * (1 << min(failures, 10)), self._timing.retry_s)

    def _resume(self) -> None:
        self._is_pausing = False
        self._send_soon()
