"""The role of a voter, and the effects of the Raft core that its driver carries out."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec

from dragoman.cluster.raft.ports import Snapshot


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
