"""Replication made wrong on purpose, one way at a time: checks that miss it prove nothing.

Each mutant replaces one small thing from outside; the code itself has no switches for tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from enum import Enum

from dragoman.cluster.events import Member
from dragoman.errors import LogError
from dragoman.log import live_reader, recovery, store
from dragoman.log.directory import DataDirectory
from dragoman.replication.decisions import Decisions, _Draft
from dragoman.replication.follower import FollowedPartition
from dragoman.replication.leader import LedPartition
from dragoman.replication.messages import Position
from dragoman.replication.replica import Replica
from dragoman.replication.replication import Replication
from power_cuts.mutants import (
    CarelessReader,
    TrustingReader,
    cut_instead,
    retrying_store,
    run_job_eagerly,
)
from simulation.harness.runs import Patch, patched
from simulation.replication import node


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
    SAME_EPOCH_AFTER_RESTART = "a leader that restarts continues in its epoch"


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
    return self._requested or self.replica.metadata.members


def _is_another_node(self: _Draft) -> bool:
    return self.leader != self._partition.leader


def _position_after_cut(self: FollowedPartition) -> Position:
    _cut(self)
    return _position(self)


_PATCHES: dict[Mutant, tuple[Patch, ...]] = {
    Mutant.NO_SYNC_BEFORE_ACK: ((DataDirectory, "run_job", run_job_eagerly),),
    Mutant.WATERMARK_TRUNCATION: ((FollowedPartition, "__init__", _cut_to_watermark),),
    Mutant.NO_COMPARE_AND_SET: ((Decisions, "_is_newest", lambda *_: True),),
    Mutant.BELOW_MIN_INSYNC: ((LedPartition, "committed_end", _committed_by_any),),
    Mutant.STALE_INCARNATION: ((Decisions, "is_current", lambda *_: True),),
    Mutant.TORN_IS_VALID: ((store, "JournalReader", TrustingReader),),
    Mutant.DAMAGE_IS_TORN: (
        (store, "JournalReader", CarelessReader),
        (live_reader.LiveReader, "_note_damage", cut_instead),
        (recovery._Opening, "_keep_offsets", lambda _, end: end),
    ),
    Mutant.RETRY_AFTER_FAILED_SYNC: ((node, "LogStore", retrying_store),),
    Mutant.EPOCH_NOT_PERSISTED: ((node, "Replication", _HastyReplication),),
    Mutant.WRITTEN_REPORTED: ((FollowedPartition, "position", _written_position),),
    Mutant.PROPOSED_SET: ((LedPartition, "maximal", _proposed),),
    Mutant.TRUNCATION_ON_FETCH: ((FollowedPartition, "position", _position_after_cut),),
    Mutant.SAME_EPOCH_AFTER_RESTART: ((_Draft, "_is_new_leadership", _is_another_node),),
}


def mutated(mutant: Mutant) -> AbstractContextManager[None]:
    """While inside, the mutation is in force."""
    return patched(_PATCHES[mutant])
