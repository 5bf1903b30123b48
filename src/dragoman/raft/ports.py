"""The ports of the Raft core: what it needs of a node, and the effects that it returns.

Everything that changes is *staged*: visible at once, durable later. Log and ballot become durable
in the order in which they were staged. Truncating, compacting and resetting the log, and saving a
snapshot, may block; what they did is durable no later than anything that is staged afterwards.
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
        """As last staged."""
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
        """Term of the record before `end`; 0 when there never was one."""
        ...

    def term_of(self, offset: int) -> int:
        """Term of the record at an offset from `start` - 1 on; -1 when it is not known."""
        ...

    def end_of_term(self, term: int) -> tuple[int, int]:
        """(largest term in the log not above `term`, where its records end); 0, `start` if none."""
        ...

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one that holds `offset`, staged ones too; at least one if any.

        Raises `LogError` when they cannot be read.
        """
        ...

    def append(self, term: int, batch: bytearray) -> None:
        """Give a batch the next offsets. Raises `LogError`, nothing has changed then."""
        ...

    def append_as_is(self, data: Buffer) -> None:
        """Batches that have their places already. Raises `LogError`, nothing has changed then."""
        ...

    def truncate(self, offset: int) -> None:
        """Remove every batch that ends after `offset`."""
        ...

    def committed(self, end: int) -> None:
        """Everything below is agreed on; a leader may know that before its own disk has it."""
        ...

    def compact(self, offset: int) -> None:
        """Forget what lies below; the term of the record just below stays known."""
        ...

    def reset(self, end: int, last_term: int) -> None:
        """Forget everything: the log is empty, starts at `end`, behind a record of that term."""
        ...

    # ---- the snapshot

    @property
    def snapshot(self) -> Snapshot | None: ...

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Durable, in the place of the one before, when this returns."""
        ...


class Entries(Protocol):
    """The entries that the quorum writes for itself, as batches of the log."""

    def term_batch(self, leader: int) -> bytearray:
        """The empty entry with which a leader begins its term."""
        ...

    def membership_batch(self, membership: Membership) -> bytearray: ...

    def membership_in(self, batch: Buffer) -> Membership | None:
        """The membership that an entry changes to; None for any other entry."""
        ...


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a voter is, and how often it snapshots. Times in seconds."""

    heartbeat_s: float = 0.2
    #: A leader is missed after this, and up to the jitter longer.
    election_s: float = 0.75
    election_jitter_s: float = 0.3
    #: A follower whose connection to the leader broke asks the others after up to this long.
    lost_leader_s: float = 0.15
    #: A candidate that did not win tries again after once to twice this, doubled each time.
    retry_s: float = 0.15
    #: A snapshot is wanted when so many records were agreed on since the last one.
    snapshot_records: int = 10_000
    append_bytes_max: int = RAFT_APPEND_BYTES_MAX
    snapshot_piece_bytes: int = RAFT_SNAPSHOT_PIECE_BYTES


# ---- what the core returns


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Committed(msgspec.Struct, frozen=True):
    """Everything below `end` is agreed on."""

    end: int


class RoleChanged(msgspec.Struct, frozen=True):
    """This node's role, term or leader is another; `leader` is -1 while none is known."""

    role: Role
    term: int
    leader: int


class ReadAnswered(msgspec.Struct, frozen=True):
    """State up to `end` has everything that was agreed on when the read came; -1: ask again."""

    token: int
    end: int


class SnapshotWanted(msgspec.Struct, frozen=True):
    """The log has grown: hand the state to `compact`."""


class SnapshotInstalled(msgspec.Struct, frozen=True):
    """The state is this one now, whatever it was."""

    snapshot: Snapshot


Effect: TypeAlias = Committed | RoleChanged | ReadAnswered | SnapshotWanted | SnapshotInstalled
