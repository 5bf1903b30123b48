"""What the core needs from a node: a log, a ballot, a snapshot. It knows neither files nor time.

Everything that changes is *staged*: visible at once, durable later. Log and ballot become durable
in the order in which they were staged. Truncating, compacting and resetting the log, and saving a
snapshot, may block; what they did is durable no later than anything that is staged afterwards.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from dragoman.cluster.raft.membership import Membership
from dragoman.limits import RAFT_APPEND_BYTES_MAX, RAFT_SNAPSHOT_PIECE_BYTES
from dragoman.log.node import Ballot
from dragoman.types import Buffer

__all__ = ["NOBODY", "Ballot", "RaftStorage", "Settings", "Snapshot"]

NOBODY = -1


class Snapshot(msgspec.Struct, frozen=True):
    """The state that all entries below `end` add up to."""

    end: int
    #: Term of the last of those entries.
    last_term: int
    membership: Membership
    state: bytes


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
