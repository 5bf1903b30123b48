"""The ports of the Raft core: the storage that it needs, and the effects that it returns.

Every change is *staged*: visible at once, durable later. Log and ballot become durable in the order
in which they were staged. Truncating, compacting and resetting the log, and saving a snapshot, may
block; these changes are durable no later than anything staged afterwards.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

from dragoman.limits import RAFT_APPEND_BYTES_MAX, RAFT_SNAPSHOT_PIECE_BYTES
from dragoman.log.node import Ballot
from dragoman.raft.membership import Membership
from dragoman.raft.snapshots import Snapshot
from dragoman.types import Buffer

NO_NODE = -1


class RaftStorage(Protocol):
    # ---- term and vote

    @property
    def ballot(self) -> Ballot:
        """The last staged ballot."""
        ...

    @property
    def is_ballot_stable(self) -> bool: ...

    def stage_ballot(self, ballot: Ballot) -> None: ...

    # ---- the log: batches back to back, from `start` to `end`

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def stable_end(self) -> int:
        """Everything below is on stable storage."""
        ...

    @property
    def last_term(self) -> int:
        """Term of the record before `end`; 0 for a log that never had a record."""
        ...

    def term_of(self, offset: int) -> int:
        """Term of the record at an offset from `start` - 1 on; -1 when it is unknown."""
        ...

    def end_of_term(self, term: int) -> tuple[int, int]:
        """(largest term in the log not above `term`, where its records end); 0, `start` if none."""
        ...

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one with `offset` on, staged ones included; at least one if any.

        Raises `LogError` when they cannot be read.
        """
        ...

    def append(self, term: int, batch: bytearray) -> None:
        """Assign the next offsets to a batch and append it. Raises `LogError` without changes."""
        ...

    def append_as_is(self, data: Buffer) -> None:
        """Append batches with assigned offsets. Raises `LogError` without changes."""
        ...

    def truncate(self, offset: int) -> None:
        """Remove every batch that ends after `offset`."""
        ...

    def committed(self, end: int) -> None:
        """Everything below is committed; a leader may know that before its own disk has it."""
        ...

    def compact(self, offset: int) -> None:
        """Drop the records below; the term of the record just below stays known."""
        ...

    def forget(self, offset: int) -> None:
        """`compact`, so that no file keeps the dropped records."""
        ...

    def reset(self, end: int, last_term: int) -> None:
        """Drop all records: the log is empty and starts at `end`, after a record of that term."""
        ...

    # ---- the snapshot

    @property
    def snapshot(self) -> Snapshot | None: ...

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Durable when this returns; replaces the previous snapshot."""
        ...


class Entries(Protocol):
    """The quorum's own entries, as batches of the log."""

    def term_batch(self, leader: int) -> bytearray:
        """The empty entry with which a leader begins its term."""
        ...

    def membership_batch(self, membership: Membership) -> bytearray: ...

    def membership_in(self, batch: Buffer) -> Membership | None:
        """The membership in an entry; None for any other entry."""
        ...


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Time-outs of a voter, and its snapshot interval. Times in seconds."""

    heartbeat_s: float = 0.2
    #: Election time-out after the last contact with the leader; the jitter is added to it.
    election_s: float = 0.75
    election_jitter_s: float = 0.3
    #: Maximum delay before a follower whose connection to the leader was lost starts a pre-vote.
    lost_leader_s: float = 0.15
    #: Delay of the next attempt of a losing candidate: once to twice this, doubled each time.
    retry_s: float = 0.15
    #: Number of committed records since the last snapshot that make a new one due.
    snapshot_records: int = 10_000
    append_bytes_max: int = RAFT_APPEND_BYTES_MAX
    snapshot_piece_bytes: int = RAFT_SNAPSHOT_PIECE_BYTES


# ---- effects


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Committed(msgspec.Struct, frozen=True):
    """Everything below `end` is committed."""

    end: int


class RoleChanged(msgspec.Struct, frozen=True):
    """This node's role, term or leader has changed; `leader` is -1 while none is known."""

    role: Role
    term: int
    leader: int


class ReadAnswered(msgspec.Struct, frozen=True):
    """State up to `end` has everything committed when the read arrived; -1: retry."""

    token: int
    end: int


class SnapshotWanted(msgspec.Struct, frozen=True):
    """The log has grown: pass the state to `compact`."""


class SnapshotInstalled(msgspec.Struct, frozen=True):
    """The state is replaced by this one."""

    snapshot: Snapshot


Effect: TypeAlias = Committed | RoleChanged | ReadAnswered | SnapshotWanted | SnapshotInstalled
