"""Whole transactions of the database in transactions of the log, gathered while one is on its way.

The log answers on the test's command.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from dragoman.cdc import writer as module
from dragoman.cdc.events import EventRecord
from dragoman.cdc.position import Position
from dragoman.cdc.writer import LogWriter
from dragoman.client.kafka import TopicPartition
from dragoman.log.batch import Record, build_batch, check_batch, records
from dragoman.log.compression import Codec
from dragoman.protocols.kafka.client.transactions import Batch

POSITIONS = TopicPartition("positions", 3)
#: What a record is in these tests: where it goes and what is in it.
Written = tuple[int, bytes]


class Log:
    """In place of a producer. Each commit makes what was written since the last one visible."""

    def __init__(self) -> None:
        self.is_open = False
        self.writes: list[list[Written]] = []
        self.transactions: list[tuple[list[Written], int]] = []
        self._since: list[Written] = []
        self._lsn = -1
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.error: Exception | None = None

    def batch(self, made: Sequence[Record], _codec: Codec | None = None) -> Batch:
        return Batch(len(made), lambda *producer: build_batch(made))

    async def write(self, batches: Mapping[TopicPartition, Batch]) -> None:
        self.is_open = True
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        came = []
        for where, batch in batches.items():
            view = memoryview(batch.build(1, 2, 3))
            for record in records(view, check_batch(view)):
                assert record.value is not None
                if where == POSITIONS:
                    assert record.key == b"shop"
                    self._lsn = module_position(record.value)
                else:
                    came.append((where.partition, record.value))
        self.writes.append(came)
        self._since += came

    async def commit(self) -> None:
        await self.may_answer.wait()
        self.transactions.append((self._since, self._lsn))
        self._since, self.is_open = [], False


def module_position(value: bytes) -> int:
    import msgspec

    return msgspec.json.decode(value, type=Position).lsn


def record(value: str, partition: int = 0) -> EventRecord:
    return EventRecord("t", partition, b"k", value.encode(), b"\0", 5)


class Desk:
    def __init__(self) -> None:
        self.log = Log()
        self.confirmed: list[int] = []
        self.writer = LogWriter(
            self.log,  # type: ignore[arg-type]
            "shop",
            POSITIONS,
            Position(lsn=0),
            confirm=lambda position: self.confirmed.append(position.lsn),
            now_ms=lambda: 1,
        )
        self.running = asyncio.create_task(self.writer.run())

    def transaction(self, lsn: int, *values: str) -> None:
        self.writer.add([record(value) for value in values])
        self.writer.commit(Position(lsn=lsn))


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    await turns()
    yield made
    made.running.cancel()
    await asyncio.gather(made.running, return_exceptions=True)


async def turns() -> None:
    """Whatever can happen by itself has happened then."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_transaction_is_confirmed_when_the_log_has_it(desk: Desk) -> None:
    desk.log.may_answer.clear()
    desk.transaction(10, "a", "b")
    await turns()
    assert desk.confirmed == []
    assert not desk.writer.is_idle
    desk.log.may_answer.set()
    await desk.writer.idle()
    assert desk.log.transactions == [([(0, b"a"), (0, b"b")], 10)]
    assert desk.confirmed == [10]
    assert desk.writer.is_idle


async def test_what_is_committed_meanwhile_goes_into_the_next_one_together(desk: Desk) -> None:
    desk.log.may_answer.clear()
    desk.transaction(10, "a")
    await turns()
    desk.transaction(20, "b")
    desk.writer.add([record("c"), record("d", 1)])
    desk.writer.commit(Position(lsn=30))
    desk.writer.add([record("open")])
    desk.log.may_answer.set()
    await turns()
    assert desk.log.transactions == [
        ([(0, b"a")], 10),
        ([(0, b"b"), (0, b"c"), (1, b"d")], 30),
    ]
    assert desk.confirmed == [10, 30]


async def test_large_transaction_is_written_before_its_end_and_is_visible_with_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CAPTURE_SPILL_BYTES", 100)
    desk.log.may_answer.clear()
    desk.transaction(10, "a")
    await turns()
    large = ["x" * 60, "y" * 60]
    desk.writer.add([record(value) for value in large])
    desk.log.may_answer.set()
    await turns()
    # What was complete is not held up by what is not.
    assert desk.log.transactions == [([(0, b"a")], 10)]
    assert len(desk.log.writes) == 2
    assert desk.log.is_open
    desk.writer.add([record("end")])
    desk.writer.commit(Position(lsn=20))
    desk.transaction(30, "b")
    await turns()
    expected = [*((0, value.encode()) for value in large), (0, b"end"), (0, b"b")]
    assert desk.log.transactions[1:] == [(expected, 30)]
    assert desk.confirmed == [10, 30]


async def test_nothing_more_is_taken_in_than_there_is_room_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CAPTURE_HELD_BYTES_MAX", 100)
    desk.log.may_answer.clear()
    await desk.writer.room()
    desk.transaction(10, "x" * 200)
    waiting = asyncio.create_task(desk.writer.room())
    await turns()
    assert not waiting.done()
    desk.log.may_answer.set()
    await waiting
    assert desk.confirmed == [10]


async def test_large_batches_are_cut_and_keep_their_order(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KAFKA_CLIENT_BATCH_BYTES", 100)
    values = [f"{index:060}" for index in range(5)]
    desk.writer.add([record(value) for value in values])
    desk.writer.add([record("other", 1)])
    desk.writer.commit(Position(lsn=10))
    await desk.writer.idle()
    ((found, lsn),) = desk.log.transactions
    assert lsn == 10
    assert [value for partition, value in found if not partition] == [
        value.encode() for value in values
    ]
    # The first round has a batch for each partition.
    assert [len(each) for each in desk.log.writes] == [2, 1, 1, 1, 1]


async def test_batches_fit_topics_created_by_others(desk: Desk) -> None:
    desk.writer.batch_bytes["t"] = 200
    desk.transaction(10, *(f"{index:060}" for index in range(6)))
    await desk.writer.idle()
    assert [len(each) for each in desk.log.writes] == [2, 2, 2]


async def test_position_that_moves_without_events_is_written_once_in_a_while(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lsn in (10, 20):
        desk.writer.advance(Position(lsn=lsn))
    await turns()
    assert desk.log.transactions == []
    monkeypatch.setattr(module, "CAPTURE_IDLE_POSITION_S", 0.001)
    desk.writer._wake.set()
    while not desk.confirmed:
        await asyncio.sleep(0)
    assert desk.log.transactions == [([], 20)]


async def test_position_without_events_goes_along_with_what_waits(desk: Desk) -> None:
    desk.log.may_answer.clear()
    desk.transaction(10, "a")
    await turns()
    desk.transaction(20, "b")
    desk.writer.advance(Position(lsn=25))
    desk.log.may_answer.set()
    await turns()
    assert desk.confirmed == [10, 25]


async def test_end_waits_for_the_last_position(desk: Desk) -> None:
    desk.writer.advance(Position(lsn=10))
    await desk.writer.idle()
    assert desk.confirmed == [10]


async def test_events_beside_transactions_leave_open_ones_alone(desk: Desk) -> None:
    desk.transaction(10, "a")
    await desk.writer.idle()
    desk.writer.add([record("open")])
    desk.writer.insert([record("beside")])
    await turns()
    assert desk.log.transactions[1:] == [([(0, b"beside")], 10)]
    desk.writer.commit(Position(lsn=20))
    await turns()
    assert desk.log.transactions[2:] == [([(0, b"open")], 20)]


async def test_events_beside_a_transaction_that_is_partly_written_wait_for_its_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CAPTURE_SPILL_BYTES", 50)
    desk.writer.add([record("x" * 60)])
    await turns()
    desk.writer.insert([record("beside")])
    await turns()
    assert desk.log.transactions == []
    desk.writer.commit(Position(lsn=20))
    await turns()
    assert desk.log.transactions == [([(0, b"x" * 60), (0, b"beside")], 20)]


async def test_refusal_of_the_log_ends_the_writing(desk: Desk) -> None:
    desk.log.error = RuntimeError("refused")
    desk.transaction(10, "a")
    with pytest.raises(RuntimeError, match="refused"):
        await desk.running
    assert desk.confirmed == []
