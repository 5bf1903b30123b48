"""Reports to the checker what nodes do inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dragoman.cluster.events import Event, Member
from dragoman.replication import messages
from dragoman.replication.decisions import Decisions
from dragoman.replication.messages import InSyncChange
from simulation.harness.observers import observed
from simulation.harness.runs import Violation


def _change_in_sync(
    change_in_sync: Any, self: Decisions, leader: Member, change: InSyncChange
) -> tuple[messages.Decision, list[Event]]:
    """S9: what is granted was wanted by a leader that knew what it changes."""
    outcome, events = change_in_sync(self, leader, change)
    if events:
        known = self._image.partitions[change.partition_id]
        epochs = (known.leader_epoch, known.partition_epoch)
        if (change.leader_epoch, change.partition_epoch) != epochs:
            raise Violation(f"S9: {change} is granted, the epochs are {epochs}")
    return outcome, events


@contextmanager
def watched() -> Iterator[None]:
    with observed([(Decisions, "change_in_sync", _change_in_sync)]):
        yield
