"""What a worker has measured so far, and the sum of several."""

from __future__ import annotations

import msgspec

from dragoman.cli.load.latencies import Latencies
from dragoman.client.kafka import KafkaError
from dragoman.errors import DragomanError


class Tally(msgspec.Struct):
    records: int = 0
    bytes: int = 0
    batches: int = 0
    latencies: Latencies = msgspec.field(default_factory=Latencies)
    #: By Kafka's name, or by the class of an error of the connection.
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    #: Records that were due and were never sent.
    unsent_records: int = 0
    #: From the end of the warm-up until the last of the counted replies.
    seconds: float = 0.0
    #: Processor time of each worker, as a share of one core.
    cpu: list[float] = msgspec.field(default_factory=list)

    def add(self, *, records: int, size: int, seconds: float) -> None:
        self.records += records
        self.bytes += size
        self.batches += 1
        self.seconds = max(self.seconds, seconds)

    def add_error(self, error: DragomanError) -> None:
        name = error.name if isinstance(error, KafkaError) else type(error).__name__
        self.count_error(name)

    def count_error(self, name: str, count: int = 1) -> None:
        if count:
            self.errors[name] = self.errors.get(name, 0) + count

    def merge(self, other: Tally) -> None:
        self.records += other.records
        self.bytes += other.bytes
        self.batches += other.batches
        self.latencies.merge(other.latencies)
        for name, count in other.errors.items():
            self.count_error(name, count)
        self.unsent_records += other.unsent_records
        self.seconds = max(self.seconds, other.seconds)
        self.cpu += other.cpu


def total(tallies: list[Tally]) -> Tally:
    found = Tally()
    for each in tallies:
        found.merge(each)
    return found
