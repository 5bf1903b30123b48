"""A partition that this node follows: its fetch positions, and the handling of answers.

A follower's log becomes a prefix of its leader's. It is truncated only where the epoch histories
diverge (KIP-101, KIP-279), never because of a watermark. When the log cannot be trusted, or the
leader has deleted the records that follow it, the partition is copied again from the leader's
start; before that, it has left the in-sync set and is not eligible.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable

from dragoman.cluster.events import Member
from dragoman.errors import CorruptionError
from dragoman.replication.messages import NONE, Fetched, Position, Status
from dragoman.replication.replica import Replica

log = logging.getLogger("dragoman.replication")


class FollowedPartition:
    """The follower's side of one partition, for one leader epoch."""

    epoch_start = 0

    def __init__(self, replica: Replica, member: Member) -> None:
        self.replica = replica
        #: This node's incarnation.
        self.member = member
        self.leader = replica.metadata.leader
        self.leader_epoch = replica.metadata.leader_epoch
        #: The last stable end that was reported to the leader.
        self.reported_stable_end = NONE
        #: Consecutive answers that made no progress.
        self.failures = 0
        #: The leader's high watermark since this log is known to be a prefix of the leader's.
        self._leader_watermark = NONE

    def committed_end(self) -> int:
        """The leader's high watermark, limited to this node's log."""
        log = self.replica.log
        return max(log.high_watermark, min(self._leader_watermark, log.stable_end))

    def is_sure(self, _refused: Hashable) -> bool:
        return False

    def position(self) -> Position:
        partition = self.replica.log
        metadata = self.replica.metadata
        where = (metadata.partition_id, self.leader_epoch)
        if partition.is_damaged:
            return Position(*where, NONE, NONE, NONE, metadata.partition_epoch)
        self.reported_stable_end = stable_end = partition.stable_end
        return Position(*where, *self._end(), stable_end, metadata.partition_epoch)

    def _end(self) -> tuple[int, int]:
        """The next position to fetch, with the epoch of the record before it."""
        partition = self.replica.log
        end = partition.log_end_offset
        has_records = end > partition.log_start_offset
        return end, partition.epochs.epoch_at(end - 1) if has_records else NONE

    def take(self, fetched: Fetched, body: memoryview) -> bool:
        """Apply the leader's answer. False without progress, in which case the fetch is delayed.

        Raises `DragomanError` for a log that cannot be written.
        """
        if fetched.leader_epoch != self.leader_epoch:
            return False
        partition = self.replica.log
        asked = (fetched.offset, fetched.last_epoch)
        is_stale = asked != self._end() and not partition.is_damaged
        match fetched.status:
            case Status.OK if not is_stale:
                if body and not self._append(body):
                    return False
                self._follow_marks(fetched)
                return True
            case Status.OK if self._leader_watermark != NONE:
                self._follow_marks(fetched)
                return True
            case Status.DIVERGING if not is_stale:
                return self._truncate_to_agreed(fetched)
            case Status.OUT_OF_RANGE if not is_stale:
                return self._copy_again(fetched.epoch_end)
            case _:
                return False

    def _append(self, body: memoryview) -> bool:
        partition = self.replica.log
        base_offset = int.from_bytes(body[:8], "big")
        if base_offset < partition.log_end_offset == partition.log_start_offset:
            # The log is empty, and starts within a batch of the leader's.
            return self._copy_again(base_offset)
        if partition.epochs.latest_start >= partition.log_end_offset:
            # This node led an epoch without records; the next batches may be of earlier epochs.
            partition.truncate(partition.log_end_offset)
        # All batches are checked before any is appended.
        partition.append_as_is(body)
        return True

    def _follow_marks(self, fetched: Fetched) -> None:
        partition = self.replica.log
        self._leader_watermark = max(self._leader_watermark, fetched.high_watermark)
        self.replica.advance()
        start = min(fetched.log_start_offset, partition.high_watermark)
        if start > partition.log_start_offset:
            partition.move_log_start(start)

    def _truncate_to_agreed(self, fetched: Fetched) -> bool:
        """Truncate to where the histories agree, as far as this answer can tell."""
        partition = self.replica.log
        start = partition.log_start_offset
        if fetched.epoch_end < start:
            return self._copy_again(fetched.log_start_offset)
        own = partition.epochs.end_offset(fetched.epoch, partition.log_end_offset)
        if own is None:
            # All local records are newer than the epoch, or the leader knows no epoch that old.
            end = fetched.epoch_end if fetched.epoch == NONE else start
        else:
            end = min(own[1], fetched.epoch_end) if own[0] == fetched.epoch else own[1]
        if max(end, start) < partition.log_end_offset:
            log.info(
                "%s: truncated from %d to %d, where it diverges from the log of node %d",
                *(partition.describe(), partition.log_end_offset, end, self.leader),
            )
            self.truncate(max(end, start))
        return True

    def truncate(self, end: int) -> None:
        try:
            self.replica.log.truncate(end)
        except CorruptionError as error:
            self.replica.log.report(str(error))

    def _copy_again(self, offset: int) -> bool:
        """Copy the whole partition again, once it is committed that this copy does not count."""
        partition, metadata = self.replica.log, self.replica.metadata
        if self.member in metadata.members or self.member.node_id in metadata.eligible:
            return False
        log.warning(
            "%s: is copied again from node %d, from offset %d on",
            *(partition.describe(), self.leader, offset),
        )
        partition.restart_at(offset)
        return True
