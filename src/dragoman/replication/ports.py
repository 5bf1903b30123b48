"""What replication needs of the world besides time: other nodes, and the controller.

Both may answer late or not at all; whoever asks is called back exactly once, never from inside the
call. A connection that fails, or a time-out, is `None` or `UNKNOWN`: what was asked for may have
happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from dragoman.replication.messages import (
    ControlReply,
    ControlRequest,
    FetchReply,
    FetchRequest,
    Progress,
)
from dragoman.types import Buffer

#: The reply and its body, or None when there will be none.
Fetched: TypeAlias = Callable[[FetchReply | None, memoryview], None]
#: How a leader answers: header, and the pieces of the body.
Answer: TypeAlias = Callable[[FetchReply, Sequence[Buffer]], None]
Controlled: TypeAlias = Callable[[ControlReply | None], None]


class Peers(Protocol):
    def fetch(self, node_id: int, request: FetchRequest, done: Fetched, /) -> None: ...

    def report(self, node_id: int, progress: Progress, /) -> None:
        """May be lost; the next fetch says the same."""
        ...


class Control(Protocol):
    """The way to the controller, wherever it is."""

    def ask(self, request: ControlRequest, done: Controlled) -> None: ...


def unlimited() -> int:
    return 0


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, and bounds on what is sent."""

    #: How long a member may be behind, or silent, before it leaves the in-sync set.
    lag_s: float = 10.0
    #: How long a fetch waits at the leader.
    wait_s: float = 0.5
    #: Until something that failed is tried again.
    retry_s: float = 0.2
    #: The same for a fetch that failed once; doubled each time, up to that. A new leader is often
    #: asked a moment before it knows that it leads.
    fetch_again_s: float = 0.01
    #: How often the node shows the controller that it is there.
    heartbeat_s: float = 0.5
    fetch_bytes_max: int = 4 << 20
    #: There are no other nodes and never will be: nothing has to be looked at from time to time.
    is_alone: bool = False
    #: How much a leader sends to replicas that are being added; 0: no limit. Asked each time, so
    #: that it can be changed while something is moved.
    moved_bytes_per_s: Callable[[], int] = unlimited
