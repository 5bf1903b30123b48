"""What the transaction coordinator costs by itself: its ports answer at once and store nothing.

Run: PYTHONPATH=src python tests/benchmarks/bench_transactions.py
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from time import perf_counter

from dragoman.broker.transactions import (
    Markers,
    ProducerIdentity,
    ProducerIds,
    StateRecord,
    TransactionCoordinator,
)
from dragoman.operating_system import SystemClock
from dragoman.outcome import Outcome, start, succeeded
from dragoman.types import Partition, TopicName


class Ports:
    def __init__(self) -> None:
        self.record_bytes = 0
        self.log: list[StateRecord] = []
        self.reserved = 0

    def persist(self, records: Sequence[StateRecord]) -> Outcome[None]:
        self.log.extend(records)
        self.record_bytes += sum(len(each.value or b"") for each in records)
        return succeeded(None)

    def write_markers(self, markers: Markers) -> Outcome[None]:
        return succeeded(None)

    def allocate(self) -> Outcome[range]:
        self.reserved += 1000
        return succeeded(range(self.reserved - 1000, self.reserved))


def coordinator(ports: Ports) -> TransactionCoordinator:
    made = TransactionCoordinator(
        SystemClock(), ports.persist, ports.write_markers, ProducerIds(ports.allocate)
    )
    made.resume()
    return made


def identity(made: TransactionCoordinator, name: str) -> ProducerIdentity:
    answers: list[object] = []
    start(made.init_producer_id(name, 60_000, None)).then(answers.append)
    assert isinstance(answers[0], ProducerIdentity)
    return answers[0]


def partition(number: int) -> tuple[TopicName, Partition]:
    return TopicName("orders"), Partition(number)


def whole_transactions(count: int, members: int) -> float:
    """Seconds for enrolling `members` partitions at once, committing and completing."""
    made = coordinator(Ports())
    producer = identity(made, "bench")
    partitions = [partition(number) for number in range(members)]
    answers: list[object] = []
    started = perf_counter()
    for _ in range(count):
        start(made.enrol_implicitly("bench", producer, partitions, ())).then(answers.append)
        start(made.end("bench", producer, True, False)).then(answers.append)
    elapsed = perf_counter() - started
    assert all(each is None or each == producer for each in answers)
    return elapsed / count


def one_by_one(members: int) -> tuple[float, int]:
    """Seconds to enrol partitions one at a time, and the bytes this writes."""
    ports = Ports()
    made = coordinator(ports)
    producer = identity(made, "bench")
    started = perf_counter()
    for number in range(members):
        start(made.enrol_implicitly("bench", producer, (partition(number),), ())).then(_ignore)
    return perf_counter() - started, ports.record_bytes


def verification(count: int) -> float:
    made = coordinator(Ports())
    producer = identity(made, "bench")
    start(made.add_partitions("bench", producer, [partition(number) for number in range(10)])).then(
        _ignore
    )
    wanted = partition(5)
    started = perf_counter()
    for _ in range(count):
        made.verify_partition("bench", producer, wanted)
    return (perf_counter() - started) / count


def scans(ids: int) -> tuple[float, float, float]:
    """Seconds for a time-out scan and an expiry scan that find nothing, and for a restart."""
    ports = Ports()
    made = coordinator(ports)
    for number in range(ids):
        identity(made, f"id-{number}")
    started = perf_counter()
    made.abort_timed_out()
    scanned = perf_counter()
    made.expire_idle()
    expired = perf_counter()
    again = TransactionCoordinator(
        SystemClock(), ports.persist, ports.write_markers, ProducerIds(ports.allocate)
    )
    for record in ports.log:
        again.load(record.key, record.value)
    again.resume()
    return scanned - started, expired - scanned, perf_counter() - expired


def _ignore(answer: object) -> None:
    assert answer is None


def main() -> None:
    print(f"{platform.python_implementation()} {platform.python_version()}, {sys.platform}")
    print(f"transaction, 1 partition       {whole_transactions(5000, 1) * 1e6:9.1f} us")
    print(f"transaction, 10 partitions     {whole_transactions(5000, 10) * 1e6:9.1f} us")
    print(f"verification before a produce  {verification(200_000) * 1e6:9.2f} us")
    seconds, size = one_by_one(1000)
    print(f"1000 partitions one by one     {seconds * 1e3:9.1f} ms, {size} bytes of records")
    timeouts, expiry, restart = scans(10_000)
    print(f"time-out scan of 10,000 idle   {timeouts * 1e6:9.1f} us")
    print(f"expiry scan of 10,000 idle     {expiry * 1e6:9.1f} us")
    print(f"restart with 10,000 ids        {restart * 1e3:9.1f} ms")


if __name__ == "__main__":
    main()
