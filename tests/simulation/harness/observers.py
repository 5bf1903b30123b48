"""Reports what replication does inside to the checker, and makes bounds so small that all are met.

Every scheduler of a simulated process has the process as `process`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from dragoman.cluster.metadata import METADATA_PARTITION_ID
from dragoman.log.partition import PartitionLog
from dragoman.replication.leader import LedPartition
from dragoman.replication.replica import Replica
from dragoman.replication.replication import Replication
from power_cuts.scenario import quiet_small_world
from simulation.harness.runs import Patch, patched

#: An owner, the name of one of its methods, and what is called instead: with that method, the
#: object and the arguments.
Observer: TypeAlias = tuple[type, str, Callable[..., Any]]


def _lead(lead: Any, self: Replication, replica: Replica) -> None:
    lead(self, replica)
    found = self._leading.get(replica.metadata.partition_id)
    if found is not None:
        process = found.process = self._scheduler.process  # type: ignore[attr-defined]
        process.cluster.checker.leads(process, found)
        process.cluster.checker.watermark(process, found, found.replica.log.high_watermark)


def _advance(advance: Any, self: LedPartition) -> None:
    before = self.replica.log.high_watermark
    advance(self)
    process = getattr(self, "process", None)
    if process is not None:
        process.cluster.checker.watermark(process, self, before)


def _truncate(truncate: Any, self: PartitionLog, offset: int) -> None:
    if self.identity.partition_id == METADATA_PARTITION_ID:
        truncate(self, offset)
        return
    process = self.store.directory.scheduler.process  # type: ignore[attr-defined]
    checker = process.cluster.checker
    end, epochs = self.log_end_offset, list(self.epochs.entries())
    checker.cutting(process, self, offset)
    truncate(self, offset)
    checker.cut(process, self, end, epochs)


def _restart_at(restart_at: Any, self: PartitionLog, offset: int) -> None:
    if self.identity.partition_id == METADATA_PARTITION_ID:
        restart_at(self, offset)
        return
    process = self.store.directory.scheduler.process  # type: ignore[attr-defined]
    checker = process.cluster.checker
    end = self.stable_end
    checker.cutting(process, self, 0)
    restart_at(self, offset)
    checker.restarted(process, self, end)
    # A node that no longer holds the partition forgets its replica, and would not be asked again.
    checker.emptied(process, self.identity.partition_id)


_OBSERVERS: tuple[Observer, ...] = (
    (Replication, "_lead", _lead),
    (LedPartition, "advance", _advance),
    (PartitionLog, "truncate", _truncate),
    (PartitionLog, "restart_at", _restart_at),
)


@contextmanager
def observed(observers: Iterable[Observer] = (), patches: Iterable[Patch] = ()) -> Iterator[None]:
    around = [
        (owner, name, _around(getattr(owner, name), new))
        for owner, name, new in (*_OBSERVERS, *observers)
    ]
    with quiet_small_world(), patched([*around, *patches]):
        yield


def _around(original: Any, new: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        return new(original, self, *args)

    return method
