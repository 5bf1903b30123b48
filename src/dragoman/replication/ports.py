"""What replication needs of the world besides time: other nodes, and the controller.

Both may answer late or not at all; a fetch calls back exactly once. A lost connection or a timeout
is `None` or `UNKNOWN`: what was requested may have happened.
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

#: Receives the reply to a fetch and its body, or None when there will be no reply.
TakeReply: TypeAlias = Callable[[FetchReply | None, memoryview], None]
#: Sends a leader's reply: the header, and the pieces of the body.
Answer: TypeAlias = Callable[[FetchReply, Sequence[Buffer]], None]


class Peers(Protocol):
    def fetch(self, node_id: int, request: FetchRequest, done: TakeReply, /) -> None: ...

    def report(self, node_id: int, progress: Progress, /) -> None:
        """May be lost; the next fetch says the same."""
        ...


class Control(Protocol):
    """The way to the controller, on whichever node it runs."""

    async def ask(self, request: ControlRequest) -> ControlReply | None:
        """None: no controller was reached, or the outcome is unknown."""
        ...


def unlimited() -> int:
    return 0


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, and bounds on what is sent."""

    #: How long a member may lag, or be silent, before it leaves the in-sync set.
    lag_s: float = 10.0
    #: How long a fetch waits at the leader.
    wait_s: float = 0.5
    #: The pause before a retry.
    retry_s: float = 0.2
    #: The pause before the first retry of a fetch; it doubles each time, up to `retry_s`. A new
    #: leader often gets a fetch a moment before it knows that it leads.
    fetch_again_s: float = 0.01
    #: How often the node sends the controller a heartbeat.
    heartbeat_s: float = 0.5
    fetch_bytes_max: int = 4 << 20
    #: There are no other nodes and never will be: periodic checks are not needed.
    is_alone: bool = False
    #: How much a leader sends to replicas that are being added; 0: no limit. Called each time, so
    #: that the limit can change during a move.
    moved_bytes_per_s: Callable[[], int] = unlimited
