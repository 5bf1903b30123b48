"""What the node cannot read, for health, metrics and the operations about damage."""

from __future__ import annotations

from dragoman.api.values import DamagedRange
from dragoman.log.damage import lost_ranges
from dragoman.log.store import LogStore


def damaged_ranges(store: LogStore) -> list[DamagedRange]:
    """The offsets of open partitions that the node cannot read."""
    return [
        DamagedRange(
            topic=partition.identity.topic,
            partition=partition.identity.partition,
            first_offset=each.first,
            next_offset=each.next_good,
            path=each.path,
            position=each.position,
        )
        for partition in store.open_partitions()
        if partition.is_damaged
        for each in lost_ranges(partition)
    ]
