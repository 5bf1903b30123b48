"""The quorum made wrong on purpose, one way at a time: a harness without these proves nothing.

Each mutant replaces one small thing from outside; the product has no switches for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from random import Random
from unittest import mock

from dragoman.cluster.raft import storage as raft_storage
from dragoman.cluster.raft.core import Raft
from dragoman.cluster.raft.leadership import Leadership
from dragoman.cluster.raft.messages import VoteRequest
from dragoman.cluster.raft.ports import NOBODY, Ballot, Snapshot
from dragoman.errors import DecodeError
from dragoman.log import journal
from dragoman.log import store as log_store
from dragoman.log.batch import BatchHeader
from dragoman.log.group_commit import GroupCommit
from dragoman.log.journal import GroupRef, JournalReader
from dragoman.log.store import LogStore
from dragoman.types import Buffer
from dragoman.world import Disk, File, aside_of, write_aside
from power_cuts.mutants import retrying_store
from simulation.raft.cluster import Machine, Plan
from simulation.raft.disk import DiskMachine
from simulation.raft.memory import Durable, MemoryMachine, MemoryStorage
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
    # These need files.
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
        durable.ballot = Ballot(durable.ballot.term, NOBODY)
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


_STORAGES: dict[Mutant, type[MemoryStorage]] = {
    Mutant.NO_SYNC_BEFORE_VOTE: _HastyVotes,
    Mutant.VOTE_NOT_KEPT: _NoVotes,
    Mutant.TERM_NOT_KEPT: _NoTerms,
    Mutant.NO_SYNC_BEFORE_REPORT: _HastyReports,
    Mutant.SNAPSHOT_NOT_SYNCED: _HastySnapshots,
}


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


_CORES: dict[Mutant, type[Raft]] = {
    Mutant.TRUNCATE_ON_MATCH: _TruncatesOnMatch,
    Mutant.PRE_VOTE_BLIND: _BlindPreVotes,
}


def _always(self: Leadership, _end: int = 0) -> bool:
    return True


def _only_one_at_a_time(self: Leadership) -> bool:
    return self._raft.commit > self._raft.membership_offset


# ---- files


def _replace_unsynced(disk: Disk, path: str, data: Buffer) -> None:
    write_aside(disk, path, data)
    disk.rename(aside_of(path), path)


class _TrustingReader(JournalReader):
    """Believes a group whose head it can read."""

    def _group_at(self, file: File, path: str, position: int, end: int) -> GroupRef | None:
        with mock.patch.object(journal, "crc32c", _AnyChecksum):
            return super()._group_at(file, path, position, end)


class _AnyChecksum(int):
    """Equal to whatever it is compared with."""

    def __new__(cls, *_: object) -> _AnyChecksum:
        return super().__new__(cls, 0)

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _note_ballot_in_memory(self: GroupCommit, ballot: Ballot) -> None:
    self._directory.node.ballot = ballot


_STORES: dict[Mutant, Callable[..., LogStore]] = {
    Mutant.SNAPSHOT_FILE_NOT_SYNCED: LogStore,
    Mutant.TORN_IS_VALID: LogStore,
    Mutant.RETRY_AFTER_FAILED_SYNC: retrying_store,
    Mutant.BALLOT_RECYCLED: LogStore,
}


@contextmanager
def mutated(
    mutant: Mutant | None,
) -> Iterator[tuple[Callable[[Random], Machine], type[Raft]]]:
    """Yields what makes machines and cores; while inside, the mutation is in force."""
    if mutant in _STORES:
        with _mutated_files(mutant) as make:
            yield make, Raft
        return
    storage = _STORAGES.get(mutant, MemoryStorage) if mutant else MemoryStorage
    core = _CORES.get(mutant, Raft) if mutant else Raft

    def make_machine(random: Random) -> Machine:
        return MemoryMachine(random, storage)

    match mutant:
        case Mutant.OLD_TERM_BY_COUNT:
            with mock.patch.object(Leadership, "_may_commit", _always):
                yield make_machine, core
        case Mutant.MEMBERS_BEFORE_TERM:
            with mock.patch.object(Leadership, "may_change_membership", _only_one_at_a_time):
                yield make_machine, core
        case _:
            yield make_machine, core


@contextmanager
def _mutated_files(mutant: Mutant) -> Iterator[Callable[[Random], Machine]]:
    def make_machine(random: Random) -> DiskMachine:
        return DiskMachine(random, _STORES[mutant])

    match mutant:
        case Mutant.SNAPSHOT_FILE_NOT_SYNCED:
            with mock.patch.object(raft_storage, "replace_file", _replace_unsynced):
                yield make_machine
        case Mutant.TORN_IS_VALID:
            with mock.patch.object(log_store, "JournalReader", _TrustingReader):
                yield make_machine
        case Mutant.BALLOT_RECYCLED:
            with mock.patch.object(GroupCommit, "_note_ballot", _note_ballot_in_memory):
                yield make_machine
        case _:
            yield make_machine


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
