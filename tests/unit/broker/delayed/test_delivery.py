"""Goal: the machine that delivers records continues after every error, and stops on request.

Method: ports that record requests and answer on the test's command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dragoman.broker.delayed.delivery import Delivery
from dragoman.broker.delayed.records import Kind, decode_key, decode_value
from dragoman.broker.delayed.state import Batch, Entry, Phase, StoredPartition
from dragoman.broker.errors import NotLeader, ProducerIdsUnavailable
from dragoman.broker.internal_topic import KeyValue
from dragoman.errors import CorruptionError, DiskFullError, DragomanError
from dragoman.limits import DELAYED_RETRY_S
from dragoman.log.batch import Record, read_header, records
from dragoman.log.producer import DuplicateSequenceError, OutOfOrderSequenceError
from dragoman.outcome import pause
from dragoman.testing.sim.scheduler import SimClock, SimScheduler

TARGET = 7


class Rig:
    """Both ports, with a target that takes what comes."""

    def __init__(self) -> None:
        self.scheduler = SimScheduler()
        self.delivery = Delivery(SimClock(self.scheduler), self.scheduler, self, self)
        self.partition = StoredPartition(0)
        self.written: list[list[KeyValue]] = []
        #: Producer id, sequence and values of each batch that arrived.
        self.arrived: list[tuple[int, int, list[bytes | None]]] = []
        #: Answers to the next calls, by what they are; then all goes well.
        self.troubles: dict[str, list[DragomanError | None]] = {}
        self.deleted = False
        self.meanwhile: Callable[[], None] | None = None
        self._producer_id = 100

    def _trouble(self, name: str) -> None:
        waiting = self.troubles.get(name)
        error = waiting.pop(0) if waiting else None
        if error is not None:
            raise error

    def ready(self, *offsets: int) -> None:
        queue = self.partition.queue(TARGET)
        for offset in offsets:
            self.partition.entries[offset] = Entry(queue, 0, Phase.DUE, 10)
            queue.ready.append(offset)
        self.delivery.begin(self.partition, queue)
        self.scheduler.run_ready()

    def again(self) -> None:
        self.scheduler.advance(DELAYED_RETRY_S)

    @property
    def stored(self) -> Batch | None:
        """What the log says is on its way."""
        found: Batch | None = None
        for changes in self.written:
            for key, value in changes:
                if decode_key(key).kind is Kind.BATCH:
                    found = None if value is None else decode_value(Batch, value)
        return found

    # ---- ports

    async def persist(self, _index: int, changes: Sequence[KeyValue]) -> None:
        await pause(self.scheduler, 0)
        if self.meanwhile is not None:
            self.meanwhile()
        self._trouble("persist")
        self.written.append(list(changes))

    async def new_producer_id(self) -> int:
        self._producer_id += 1
        self._trouble("identify")
        return self._producer_id

    def read_record(self, _index: int, offset: int, timestamp: int) -> Record:
        self._trouble("read")
        return Record(value=b"%d" % offset, timestamp=timestamp)

    def room_for(self, _target_id: int) -> int:
        return 1000

    def is_deleted(self, _target_id: int) -> bool:
        return self.deleted

    def leader_of(self, _target_id: int) -> int:
        return 1

    async def deliver(self, target_id: int, batch: bytearray) -> None:
        assert target_id == TARGET
        self._trouble("deliver")
        header = read_header(batch)
        values = [each.value for each in records(memoryview(batch), header)]
        self.arrived.append((header.producer_id, header.base_sequence, values))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_batches_follow_each_other_under_one_producer_id(rig: Rig) -> None:
    rig.ready(1, 2)
    rig.ready(3)
    assert rig.arrived == [(101, 0, [b"1", b"2"]), (101, 2, [b"3"])]
    assert rig.partition.entries == {}
    assert rig.stored is None


@pytest.mark.parametrize("step", ["identify", "persist", "read", "deliver"])
def test_after_an_error_of_any_step_it_is_tried_again(rig: Rig, step: str) -> None:
    trouble: dict[str, DragomanError] = {
        "identify": ProducerIdsUnavailable("no"),
        "persist": DiskFullError("full"),
        "read": CorruptionError("file", 0, "damaged"),
        "deliver": NotLeader("nobody leads"),
    }
    rig.troubles[step] = [trouble[step]] * 2
    rig.ready(1, 2)
    rig.ready(3)
    assert rig.arrived == []
    rig.again()
    assert rig.arrived == []
    rig.again()
    rig.scheduler.run_ready()
    assert [value for _, _, values in rig.arrived for value in values] == [b"1", b"2", b"3"]
    assert rig.partition.entries == {}
    assert rig.stored is None


def test_a_batch_that_is_there_already_is_done(rig: Rig) -> None:
    rig.troubles["deliver"] = [DuplicateSequenceError(101, 0, 0, 5)]
    rig.ready(1)
    assert rig.partition.entries == {}


def test_that_a_batch_is_done_may_be_hard_to_write(rig: Rig) -> None:
    rig.troubles["persist"] = [None, DiskFullError("full")]
    rig.ready(1)
    rig.ready(2)
    assert list(rig.partition.entries) == [1, 2]
    rig.again()
    assert rig.partition.entries == {}
    assert rig.arrived == [(101, 0, [b"1"]), (101, 1, [b"2"])]


@pytest.mark.parametrize("trouble", ["none", "identify", "persist"])
def test_a_target_that_lost_records_gets_the_batch_under_another_producer_id(
    rig: Rig, trouble: str
) -> None:
    rig.ready(1)
    lost = OutOfOrderSequenceError(101, 0, 0, 1)
    rig.troubles["deliver"] = [lost, lost]
    if trouble == "identify":
        rig.troubles["identify"] = [ProducerIdsUnavailable("no")]
    if trouble == "persist":
        rig.troubles["persist"] = [None, DiskFullError("full")]
    rig.ready(2, 3)
    for _ in range(3):
        rig.again()
    rig.ready(4)
    (_, first, _), (other, second, values), after = rig.arrived
    assert (first, second, values) == (0, 0, [b"2", b"3"])
    assert other > 101
    assert after == (other, 2, [b"4"])


def test_a_decision_that_was_read_back_is_repeated_as_it_was(rig: Rig) -> None:
    queue = rig.partition.queue(TARGET)
    for offset in (1, 2, 3):
        rig.partition.add(offset, Entry(queue, 5, Phase.WAITING, 10))
    queue.batch = Batch(55, 40, 5, (2, 1))
    assert rig.delivery.resume(rig.partition) == 2
    rig.scheduler.run_ready()
    assert rig.arrived == [(55, 40, [b"2", b"1"])]
    assert list(rig.partition.entries) == [3]
    rig.ready(3)
    # A leadership has a producer id of its own.
    assert rig.arrived[1:] == [(101, 0, [b"3"])]


@pytest.mark.parametrize("steps", range(6))
def test_nothing_is_done_when_the_leadership_is_over(rig: Rig, steps: int) -> None:
    rig.troubles["deliver"] = [OutOfOrderSequenceError(101, 0, 0, 1)]
    queue = rig.partition.queue(TARGET)
    for offset in (1, 2):
        rig.partition.entries[offset] = Entry(queue, 0, Phase.DUE, 10)
        queue.ready.append(offset)
    rig.delivery.begin(rig.partition, queue)
    for _ in range(steps):
        if rig.scheduler._ready:
            rig.scheduler._next_ready()._run()
    rig.partition.is_gone = True
    arrived, entries = list(rig.arrived), dict(rig.partition.entries)
    rig.scheduler.advance(60)
    assert (rig.arrived, rig.partition.entries) == (arrived, entries)


def test_a_target_that_is_deleted_while_its_batch_waits(rig: Rig) -> None:
    rig.troubles["deliver"] = [NotLeader("nobody leads")]
    rig.ready(1, 2)
    rig.deleted = True
    rig.troubles["persist"] = [DiskFullError("full")]
    rig.again()
    assert rig.partition.entries
    rig.again()
    assert rig.partition.entries == {}
    assert rig.partition.queues == {}
    assert rig.stored is None
    assert rig.arrived == []


def test_one_that_comes_while_its_target_is_dropped_is_dropped_too(rig: Rig) -> None:
    rig.deleted = True

    def come() -> None:
        rig.meanwhile = None
        rig.partition.add(9, Entry(rig.partition.queue(TARGET), 5, Phase.WAITING, 10))

    rig.meanwhile = come
    rig.ready(1)
    assert rig.partition.entries == {}
    assert rig.partition.queues == {}
    removed = [decode_key(key).number for changes in rig.written for key, _ in changes]
    assert removed == [TARGET, 1, TARGET, 9]
