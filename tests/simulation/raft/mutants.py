"""The quorum made wrong on purpose, one way at a time: a harness without these proves nothing.

Each mutant replaces one small thing from outside; the product has no switches for tests.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import Enum

from dragoman.cluster.raft_quorum import storage as raft_storage
from dragoman.errors import DecodeError
from dragoman.log import store as log_store
from dragoman.log.batch import BatchHeader
from dragoman.log.group_commit import GroupCommit
from dragoman.log.node import Ballot
from dragoman.raft.core import Raft
from dragoman.raft.leadership import Leadership
from dragoman.raft.messages import VoteRequest
from dragoman.raft.ports import NO_NODE
from dragoman.raft.snapshots import Snapshot
from dragoman.types import Buffer
from dragoman.world import Disk, aside_of, write_aside
from power_cuts.mutants import TrustingReader, retrying_store
from simulation.harness.runs import Patch, patched
from simulation.raft import cluster, disk, memory
from simulation.raft.cluster import Plan
from simulation.raft.memory import Durable, MemoryStorage
from simulation.raft.network import NetworkFaults


class Mutant(Enum):
    NO_SYNC_BEFORE_VOTE = "no sync before a vote leaves"
    VOTE_NOT_KEPT = "vote not persisted"
    TERM_NOT_KEPT = "term not persisted"
    NO_SYNC_BEFORE_REPORT = "no sync before a follower reports"
    OLD_TERM_BY_COUNT = "entry of an old term committed by counting"
    TRUNCATE_ON_MATCH = "truncation on a match"
    PRE_VOTE_BLIND = "pre-vote granted without a look at the log"
    MEMBERS_BEFORE_TERM = "membership changed before the term's first entry is agreed on"
    SNAPSHOT_NOT_SYNCED = "snapshot installed without a sync"
    SNAPSHOT_FILE_NOT_SYNCED = "snapshot file renamed without a sync"
    TORN_IS_VALID = "torn end of the journal taken for valid"
    RETRY_AFTER_FAILED_SYNC = "retry after a failed sync"
    BALLOT_RECYCLED = "journal used again before node.json has the ballot"


# ---- storage


class _HastyVotes(MemoryStorage):
    @property
    def is_ballot_stable(self) -> bool:
        return True


class _NoVotes(MemoryStorage):
    def captured(self) -> Durable:
        durable = super().captured()
        durable.ballot = Ballot(durable.ballot.term, NO_NODE)
        return durable

    @property
    def is_ballot_stable(self) -> bool:
        return self.durable.ballot.term == self.ballot.term


class _NoTerms(MemoryStorage):
    def captured(self) -> Durable:
        durable = super().captured()
        durable.ballot = Ballot()
        return durable

    @property
    def is_ballot_stable(self) -> bool:
        return True


class _HastyReports(MemoryStorage):
    @property
    def stable_end(self) -> int:
        return self.end

    @stable_end.setter
    def stable_end(self, _end: int) -> None:
        return None


class _HastySnapshots(MemoryStorage):
    """A snapshot becomes durable with a group that comes a while later."""

    def save_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

        def synced() -> None:
            self.durable.snapshot = snapshot

        self._scheduler.call_later(1.0, synced)


# ---- rules


class _TruncatesOnMatch(Raft):
    def _is_held(self, header: BatchHeader) -> bool:
        return header.last_offset < self.commit

    def _make_way(self, header: BatchHeader) -> None:
        base = header.base_offset
        if base < self.storage.end:
            self.storage.truncate(base)
            self._memberships.forget(self.storage.end)
        if base != self.storage.end:
            raise DecodeError("a gap")


class _BlindPreVotes(Raft):
    def _is_log_current(self, request: VoteRequest) -> bool:
        return request.is_pre_vote or super()._is_log_current(request)


def _only_one_at_a_time(self: Leadership) -> bool:
    return self._raft.commit > self._raft.membership_offset


# ---- files


def _replace_unsynced(disk: Disk, path: str, data: Buffer) -> None:
    write_aside(disk, path, data)
    disk.rename(aside_of(path), path)


def _note_ballot_in_memory(self: GroupCommit, ballot: Ballot) -> None:
    self._directory.node.ballot = ballot


_PATCHES: dict[Mutant, tuple[Patch, ...]] = {
    Mutant.NO_SYNC_BEFORE_VOTE: ((memory, "MemoryStorage", _HastyVotes),),
    Mutant.VOTE_NOT_KEPT: ((memory, "MemoryStorage", _NoVotes),),
    Mutant.TERM_NOT_KEPT: ((memory, "MemoryStorage", _NoTerms),),
    Mutant.NO_SYNC_BEFORE_REPORT: ((memory, "MemoryStorage", _HastyReports),),
    Mutant.OLD_TERM_BY_COUNT: ((Leadership, "_may_commit", lambda *_: True),),
    Mutant.TRUNCATE_ON_MATCH: ((cluster, "Raft", _TruncatesOnMatch),),
    Mutant.PRE_VOTE_BLIND: ((cluster, "Raft", _BlindPreVotes),),
    Mutant.MEMBERS_BEFORE_TERM: ((Leadership, "may_change_membership", _only_one_at_a_time),),
    Mutant.SNAPSHOT_NOT_SYNCED: ((memory, "MemoryStorage", _HastySnapshots),),
    Mutant.SNAPSHOT_FILE_NOT_SYNCED: ((raft_storage, "replace_file", _replace_unsynced),),
    Mutant.TORN_IS_VALID: ((log_store, "JournalReader", TrustingReader),),
    Mutant.RETRY_AFTER_FAILED_SYNC: ((disk, "LogStore", retrying_store),),
    Mutant.BALLOT_RECYCLED: ((GroupCommit, "_note_ballot", _note_ballot_in_memory),),
}
#: The others are shown by storage in memory, which is quicker.
NEED_FILES = frozenset(
    {
        Mutant.SNAPSHOT_FILE_NOT_SYNCED,
        Mutant.TORN_IS_VALID,
        Mutant.RETRY_AFTER_FAILED_SYNC,
        Mutant.BALLOT_RECYCLED,
    }
)


def mutated(mutant: Mutant) -> AbstractContextManager[None]:
    """While inside, the mutation is in force."""
    return patched(_PATCHES[mutant])


def _plan(misfortunes: tuple[str, ...], **others: object) -> Plan:
    values: dict[str, object] = {
        "voters": 3,
        "spares": 0,
        "network": NetworkFaults(delay_s=0.05),
        "misfortunes": misfortunes,
        "pause_s": 1.0,
        "proposal_s": 0.03,
        "snapshot_records": 10_000,
        "append_bytes_max": 1 << 20,
        "clock_drift": 0.0,
        **others,
    }
    return Plan(**values)  # type: ignore[arg-type]


#: What brings out mutants that the usual mixture shows too rarely; right code survives it too.
PLANS = {
    # Leaders that write, vanish and come back: figure 8 of the Raft paper.
    Mutant.OLD_TERM_BY_COUNT: _plan(("short reign",), pause_s=5.0, append_bytes_max=1),
    # Late and doubled messages, and leaders that die before they notice.
    Mutant.TRUNCATE_ON_MATCH: _plan(
        ("crash", "pause", "isolate leader", "mute leader"),
        network=NetworkFaults(delay_s=0.05, slow_rate=0.2, slow_s=0.5, double_rate=0.1),
        pause_s=0.3,
        append_bytes_max=300,
    ),
    # Every new leader changes the membership at once, and half of the others do not hear it.
    Mutant.MEMBERS_BEFORE_TERM: _plan(
        ("eager member", "mute leader"),
        voters=4,
        spares=1,
        network=NetworkFaults(delay_s=0.01),
        proposal_s=2.0,
    ),
    Mutant.SNAPSHOT_FILE_NOT_SYNCED: _plan(("crash", "power cut"), snapshot_records=15),
    Mutant.TORN_IS_VALID: _plan(("crash", "power cut", "slow disk"), pause_s=0.5),
    Mutant.RETRY_AFTER_FAILED_SYNC: _plan(("broken disk", "power cut"), pause_s=0.5),
    # Little to do, so that checkpoints come without a journal file being full.
    Mutant.BALLOT_RECYCLED: _plan(("crash", "power cut"), pause_s=6.0, proposal_s=4.0),
}
