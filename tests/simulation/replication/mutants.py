"""Replication made wrong on purpose, one way at a time: checks that miss it prove nothing.

Each mutant replaces one small thing from outside; the code itself has no switches for tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from typing import Any
from unittest import mock

from dragoman.broker.replica import Replica
from dragoman.broker.replication.decisions import Decisions, _Draft
from dragoman.broker.replication.follower import FollowedPartition
from dragoman.broker.replication.leader import LedPartition
from dragoman.broker.replication.messages import Position
from dragoman.broker.replication.replication import Replication
from dragoman.cluster.events import Member
from dragoman.errors import LogError
from dragoman.log import journal, live_reader, recovery, store
from dragoman.log.directory import DataDirectory
from dragoman.log.journal import GroupRef, JournalReader
from dragoman.world import File
from power_cuts.mutants import _CarelessReader, _cut_instead, retrying_store, run_job_eagerly
from simulation.replication.cluster import Parts


class Mutant(Enum):
    NO_SYNC_BEFORE_ACK = "no fsync before the follower's ack"
    WATERMARK_TRUNCATION = "truncation to the watermark"
    NO_COMPARE_AND_SET = "in-sync change without compare-and-set"
    BELOW_MIN_INSYNC = "watermark moves below min.insync.replicas"
    STALE_INCARNATION = "stale incarnation accepted"
    TORN_IS_VALID = "torn tail treated as valid"
    DAMAGE_IS_TORN = "damage treated as torn tail"
    RETRY_AFTER_FAILED_SYNC = "retry after a failed fsync"
    EPOCH_NOT_PERSISTED = "leader serves before its epoch is persisted"
    WRITTEN_REPORTED = "follower reports the written end as stable"
    PROPOSED_SET = "watermark over the proposed set"
    TRUNCATION_ON_FETCH = "truncation on every fetch"
    SAME_EPOCH_AFTER_RESTART = "a leader that comes back goes on in its epoch"


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Parts]:
    """Yields what nodes are made of; while inside, the mutation is in force."""
    patches: list[tuple[Any, str, Any]] = []
    parts = Parts()
    match mutant:
        case Mutant.NO_SYNC_BEFORE_ACK:
            patches.append((DataDirectory, "run_job", run_job_eagerly))
        case Mutant.WATERMARK_TRUNCATION:
            patches.append((FollowedPartition, "__init__", _cut_to_watermark))
        case Mutant.NO_COMPARE_AND_SET:
            patches.append((Decisions, "_is_newest", lambda *_: True))
        case Mutant.BELOW_MIN_INSYNC:
            patches.append((LedPartition, "committed_end", _committed_by_any))
        case Mutant.STALE_INCARNATION:
            patches.append((Decisions, "is_current", lambda *_: True))
        case Mutant.TORN_IS_VALID:
            patches.append((store, "JournalReader", _TrustingReader))
        case Mutant.DAMAGE_IS_TORN:
            patches.append((store, "JournalReader", _CarelessReader))
            patches.append((live_reader.LiveReader, "_note_damage", _cut_instead))
            patches.append((recovery._Opening, "_keep_offsets", lambda _, end: end))
        case Mutant.RETRY_AFTER_FAILED_SYNC:
            parts.store = retrying_store
        case Mutant.EPOCH_NOT_PERSISTED:
            parts.replication = _HastyReplication
        case Mutant.WRITTEN_REPORTED:
            patches.append((FollowedPartition, "position", _written_position))
        case Mutant.PROPOSED_SET:
            patches.append((LedPartition, "maximal", _proposed))
        case Mutant.TRUNCATION_ON_FETCH:
            patches.append((FollowedPartition, "position", _position_after_cut))
        case Mutant.SAME_EPOCH_AFTER_RESTART:
            patches.append((_Draft, "_is_new_leadership", _is_another_node))
    with ExitStack() as stack:
        for owner, name, new in patches:
            stack.enter_context(mock.patch.object(owner, name, new))
        yield parts


_follow = FollowedPartition.__init__


def _cut_to_watermark(self: FollowedPartition, replica: Replica, member: Member) -> None:
    _follow(self, replica, member)
    _cut(self)


def _cut(following: FollowedPartition) -> None:
    log = following.replica.log
    if not log.is_damaged:
        with suppress(LogError):
            following.truncate(max(log.high_watermark, log.log_start_offset))


def _committed_by_any(self: LedPartition) -> int:
    metadata = self.replica.metadata
    before, metadata.min_insync = metadata.min_insync, 0
    try:
        return _committed_end(self)
    finally:
        metadata.min_insync = before


_committed_end = LedPartition.committed_end


class _TrustingReader(JournalReader):
    """Believes every group that begins like one."""

    def _group_at(self, file: File, path: str, position: int, end: int) -> GroupRef | None:
        head = file.read(journal._GROUP.size, position)
        if len(head) < journal._GROUP.size:
            return None
        magic, _, length, count, generation, sequence, checkpoint = journal._GROUP.unpack(head)
        if magic != journal._MAGIC or position + journal._GROUP.size + length > end:
            return None
        size = journal._GROUP.size + length
        return GroupRef(path, position, size, count, generation, sequence, checkpoint)


class _HastyReplication(Replication):
    def begin_epoch(self, replica: Replica) -> None:
        log, epoch = replica.log, replica.metadata.leader_epoch
        if epoch != log.epochs.latest:
            log.epochs.assign(epoch, log.log_end_offset)


_position = FollowedPartition.position


def _written_position(self: FollowedPartition) -> Position:
    found = _position(self)
    return Position(
        found.partition_id,
        found.leader_epoch,
        found.offset,
        found.last_epoch,
        found.offset,
        found.partition_epoch,
    )


def _proposed(self: LedPartition) -> Iterable[Member]:
    return self._asked or self.replica.metadata.members


def _is_another_node(self: _Draft) -> bool:
    return self.leader != self._partition.leader


def _position_after_cut(self: FollowedPartition) -> Position:
    _cut(self)
    return _position(self)
