"""What a partition's log must hold: the list that the real one is compared with.

The model knows every batch that was ever accepted and not truncated, what was acknowledged, and the
one change that was under way when the power went. After a crash, `adopt` checks a recovered
partition against all that and continues from the result.
"""

from __future__ import annotations

import msgspec

from dragoman.errors import CorruptionError
from dragoman.log.batch import Record, batches, read_marker, records
from dragoman.log.epochs import EpochHistory
from dragoman.log.partition import PartitionLog
from dragoman.log.producer_states import ProducerStates


class ModelBatch(msgspec.Struct, frozen=True):
    base_offset: int
    next_offset: int
    data: bytes


class MismatchError(AssertionError):
    """The log is not what it has to be."""


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise MismatchError(text)


class ModelLog:
    def __init__(self, name: str, *, is_compacted: bool) -> None:
        self.name = name
        self.is_compacted = is_compacted
        self.batches: list[ModelBatch] = []
        self.acknowledged_end = 0
        self.log_start = 0
        self.epochs = EpochHistory()
        #: Changes that may or may not have happened: the crash came in the middle.
        self.truncating_to: int | None = None
        self.moving_start_to: int | None = None
        self.beginning_epoch: int | None = None
        self._latest_epoch = -1

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self._empty_end

    _empty_end = 0

    # ---- what is done to the log

    def append(self, base_offset: int, next_offset: int, data: bytes, epoch: int) -> None:
        expect(base_offset >= self.end, f"{self.name}: offset {base_offset} given twice")
        self.batches.append(ModelBatch(base_offset, next_offset, data))
        if epoch != self.epochs.latest:
            self.epochs.assign(epoch, base_offset)

    def acknowledge(self, end: int) -> None:
        self.acknowledged_end = max(self.acknowledged_end, end)

    def truncated_ends(self, offset: int) -> tuple[int, int]:
        """Lowest and highest offset at which the log may end after a truncation to `offset`.

        They differ where offsets are missing before the first batch that goes.
        """
        kept = [each for each in self.batches if each.next_offset <= offset]
        cut = [each for each in self.batches if each.next_offset > offset]
        if not cut:
            return self.end, self.end
        lowest = max(kept[-1].next_offset if kept else 0, self.log_start)
        return lowest, max(lowest, min(offset, cut[0].base_offset))

    def cut(self, end: int) -> None:
        """Everything from `end` on is gone."""
        self.batches = [each for each in self.batches if each.next_offset <= end]
        self._empty_end = end
        self.acknowledged_end = min(self.acknowledged_end, end)

    # ---- comparison

    def adopt(self, partition: PartitionLog, *, may_lose_acknowledged: bool) -> None:
        """Check what a restart brought back, and continue from there."""
        end = partition.log_end_offset
        self._check_marks(partition)
        self._settle_truncation(partition)
        floor = 0 if may_lose_acknowledged else self.acknowledged_end
        expect(
            floor <= end <= max(self.end, self.log_start),
            f"{self.name}: acknowledged up to {floor}, accepted up to {self.end}, found {end}",
        )
        self._check_start(partition)
        self._check_epochs(partition, end, may_lose=may_lose_acknowledged)
        self.cut(max(end, self.log_start))
        self.check_content(partition)
        if not may_lose_acknowledged or self.log_start < end:
            # With the records below the log start lost too, what producers wrote is unknown.
            self._check_producers(partition)
        self.acknowledged_end = self.end

    def _check_marks(self, partition: PartitionLog) -> None:
        p = partition
        expect(
            p.log_start_offset
            <= p.last_stable_offset
            <= p.high_watermark
            <= p.stable_end
            <= p.log_end_offset
            or p.last_stable_offset < p.log_start_offset <= p.high_watermark,
            f"{self.name}: marks out of order: {p!r}",
        )

    def _settle_truncation(self, partition: PartitionLog) -> None:
        self._latest_epoch = self.epochs.latest
        if self.truncating_to is None:
            return
        if partition.log_end_offset <= self.truncating_to:
            self.cut(partition.log_end_offset)
            self.epochs.truncate(partition.log_end_offset)
        self.truncating_to = None

    def _check_start(self, partition: PartitionLog) -> None:
        start = partition.log_start_offset
        allowed = {self.log_start}
        if self.moving_start_to is not None:
            allowed.add(self.moving_start_to)
        expect(start in allowed, f"{self.name}: log start {start}, expected one of {allowed}")
        self.log_start = start
        self.moving_start_to = None

    def _check_epochs(self, partition: PartitionLog, end: int, *, may_lose: bool) -> None:
        found = partition.epochs.entries()
        known = list(self.epochs.entries())
        if self.beginning_epoch is not None:
            known.append((self.beginning_epoch, self.end))
        self.beginning_epoch = None
        if may_lose:
            history = EpochHistory()
            history.load(known)
            is_right = all(history.epoch_at(s) == e for e, s in self._visible(found, end))
        else:
            is_right = self._visible(found, end) == self._visible(known, end)
        expect(is_right, f"{self.name}: epochs {found}, expected {known} up to {end}")
        # One that begins just at the end may come from a batch that was not kept, or may have been
        # replaced by another such.
        latest = max([self._latest_epoch, *(epoch for epoch, _ in known)])
        expect(
            all(epoch <= latest and start <= end for epoch, start in found),
            f"{self.name}: epochs {found}, expected {known} up to {end}",
        )
        self.epochs.load(found)

    def _visible(self, epochs: list[tuple[int, int]], end: int) -> list[tuple[int, int]]:
        """The part of a history that matters for records between log start and `end`."""
        ends = {epochs[i - 1]: epochs[i][1] for i in range(1, len(epochs))}
        return [
            (each[0], max(each[1], self.log_start))
            for each in epochs
            if max(each[1], self.log_start) < end and ends.get(each, end + 1) > self.log_start
        ]

    def check_content(self, partition: PartitionLog) -> None:
        if self.is_compacted:
            self._check_records(partition)
            return
        offset = self.log_start
        wanted = [each for each in self.batches if each.next_offset > self.log_start]
        for data in read_all(partition, offset):
            expect(bool(wanted), f"{self.name}: more than was written")
            expect(
                wanted[0].data == data,
                f"{self.name}: wrong bytes for the batch at {wanted[0].base_offset}",
            )
            del wanted[0]
        expect(not wanted, f"{self.name}: batches missing: {[w.base_offset for w in wanted]}")

    def _check_records(self, partition: PartitionLog) -> None:
        """Everything found was written, and what is missing has been superseded."""
        written = {
            each.offset: each for each in self.all_records() if each.offset >= self.log_start
        }
        newest = {each.key: offset for offset, each in written.items()}
        found: dict[int, Record] = {}
        for data in read_all(partition, self.log_start):
            for header, batch in batches(memoryview(data)):
                for record in records(batch, header):
                    if not header.is_control and record.offset >= self.log_start:
                        expect(
                            written.get(record.offset) == record,
                            f"{self.name}: wrong record at {record.offset}",
                        )
                        found[record.offset] = record
        for offset, record in written.items():
            if offset not in found:
                expect(
                    newest[record.key] > offset or record.value is None,
                    f"{self.name}: record {offset} is missing",
                )

    def all_records(self) -> list[Record]:
        return [
            record
            for each in self.batches
            for header, batch in batches(memoryview(each.data))
            for record in records(batch, header)
            if not header.is_control
        ]

    def producers(self) -> ProducerStates:
        """The producer state that follows from the whole history."""
        states = ProducerStates()
        for each in self.batches:
            for header, batch in batches(memoryview(each.data)):
                if header.producer_id < 0:
                    continue
                who = (header.producer_id, header.producer_epoch)
                if header.is_control:
                    marker = read_marker(records(batch, header)[0])
                    states.complete_transaction(
                        *who,
                        header.base_offset,
                        marker.is_commit,
                        header.max_timestamp,
                        marker.coordinator_epoch,
                    )
                else:
                    states.append(
                        *who,
                        header.base_sequence,
                        header.last_offset_delta + 1,
                        header.base_offset,
                        header.max_timestamp,
                        0,
                        header.is_transactional,
                    )
        return states

    def _check_producers(self, partition: PartitionLog) -> None:
        found_states = partition.producers
        if found_states is None:
            found_states = ProducerStates()
        expected_states = self.producers()
        found = {each.producer_id: each for each in found_states.describe()}
        for each in expected_states.describe():
            mine = found.pop(each.producer_id, None)
            if mine == each:
                continue
            # Rebuilt from a log of which a part is gone: then it must say that it may lack some.
            expect(
                self._has_lost(each.producer_id)
                and each.producer_id < found_states.forgotten_below(),
                f"{self.name}: producer {mine}, expected {each}",
            )
        expect(not found, f"{self.name}: unknown producers {found}")
        start, end = self.log_start, self.end
        if not self.is_compacted and not found_states.forgotten_below():
            expect(
                found_states.aborted_between(start, end)
                == expected_states.aborted_between(start, end),
                f"{self.name}: aborted transactions differ",
            )

    def _has_lost(self, producer_id: int) -> bool:
        """Whether something that the producer wrote may be gone from the log."""
        if self.is_compacted:
            return True
        return any(
            header.producer_id == producer_id
            for each in self.batches
            if each.base_offset < self.log_start
            for header, _ in batches(memoryview(each.data))
        )


def read_all(partition: PartitionLog, offset: int) -> list[bytes]:
    """Every batch from `offset` on, one by one, through reads of varying size."""
    found: list[bytes] = []
    end = partition.high_watermark
    size = 1
    while offset < end:
        result = partition.read(offset, size, end)
        if not result.buffers:
            break
        if result.next_offset <= offset:
            raise MismatchError(f"{partition!r}: reading {offset} leads to {result.next_offset}")
        for buffer in result.buffers:
            found.extend(bytes(batch) for _, batch in batches(memoryview(buffer)))
        offset = result.next_offset
        size = 1 + size * 7 % 3000
    return found


def readable(partition: PartitionLog, model: ModelLog) -> tuple[list[ModelBatch], list[ModelBatch]]:
    """(batches served as written, batches refused as damaged). Raises for a wrong byte."""
    served: list[ModelBatch] = []
    refused: list[ModelBatch] = []
    for each in model.batches:
        if each.next_offset <= partition.log_start_offset:
            continue
        if each.base_offset >= partition.high_watermark:
            continue
        offset = max(each.base_offset, partition.log_start_offset)
        try:
            result = partition.read(offset, 1, partition.high_watermark)
        except CorruptionError:
            refused.append(each)
            continue
        data = bytes(result.buffers[0]) if result.buffers else b""
        expect(
            data == each.data,
            f"{model.name}: reading {offset} gave other bytes than were written",
        )
        served.append(each)
    return served, refused
