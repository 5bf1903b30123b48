"""A task attempt of the sink, which stages its rows in batches.

docs/concepts/exactly-once-writes.md explains the protocol.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple

import pyarrow as pa

from dragoman.checksum import crc32c
from dragoman.client.kafka import (
    BlockingKafkaClient,
    Produced,
    StagedPiece,
    StagingPlace,
    TopicPartition,
)
from dragoman.limits import KAFKA_CLIENT_BUFFER_BYTES_MAX
from dragoman.operating_system import SystemClock, system_random
from dragoman.spark.batches import encode_batches
from dragoman.spark.options import SinkOptions
from dragoman.spark.partitioner import RECORD, Router

#: Rows for this many batches are buffered, so that few batches are smaller than the maximum.
_BATCHES_GATHERED = 4


class _Sent(NamedTuple):
    """A batch that was sent to staging and is not acknowledged yet."""

    where: TopicPartition
    record_count: int
    checksum: bytes
    produced: Future[Produced]


class _Gathered:
    __slots__ = ("rows", "size")

    def __init__(self) -> None:
        self.rows: list[pa.RecordBatch] = []
        self.size = 0


class Attempt:
    """Stages rows with its own producer id. They are invisible until published."""

    def __init__(
        self,
        client: BlockingKafkaClient,
        options: SinkOptions,
        writer_id: str,
        *,
        keep_times: bool = False,
    ) -> None:
        """With `keep_times`, records get the times of the column `timestamp`, else the current
        time.
        """
        self._client = client
        self._options = options
        self._writer_id = writer_id
        columns = (*RECORD, "timestamp") if keep_times else RECORD
        self._router = Router(options.topic, self._partition_count, system_random(), columns)
        self._clock = SystemClock()
        self._place: StagingPlace | None = None
        self._sequence = 0
        self._gathered: dict[TopicPartition, _Gathered] = {}
        self._gathered_bytes = 0
        #: At most one batch is in flight, so that the next one cannot overtake its retry. The next
        #: one is encoded meanwhile.
        self._sent: _Sent | None = None
        self._pieces: dict[TopicPartition, list[StagedPiece]] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        for where, part in self._router.split(rows):
            gathered = self._gathered.setdefault(where, _Gathered())
            gathered.rows.append(part)
            gathered.size += part.nbytes
            self._gathered_bytes += part.nbytes
            if gathered.size >= _BATCHES_GATHERED * self._options.batch_bytes:
                self._send(where)
                self._router.next_partition(where)
        if self._gathered_bytes >= KAFKA_CLIENT_BUFFER_BYTES_MAX:
            self._send_all()

    def finish(self) -> dict[TopicPartition, list[StagedPiece]]:
        """Wait until all rows are durable. Returns the staged pieces by target partition."""
        self._send_all()
        self._wait()
        return self._pieces

    def _partition_count(self, topic: str) -> int:
        return len(self._client.topic(topic, auto_create=True).partitions)

    def _send_all(self) -> None:
        for where in list(self._gathered):
            self._send(where)

    def _send(self, where: TopicPartition) -> None:
        if self._place is None:
            self._place = self._client.open_staging(self._writer_id)
        identity = self._place.identity
        gathered = self._gathered.pop(where)
        self._gathered_bytes -= gathered.size
        for rows in pa.Table.from_batches(gathered.rows).combine_chunks().to_batches():
            for count, batch in encode_batches(
                rows,
                codec=self._options.codec,
                now_ms=self._clock.wall_ms(),
                batch_bytes_max=self._options.batch_bytes,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=self._sequence,
            ):
                self._wait()
                produced = self._client.begin_produce(
                    *self._place.partition, batch, auto_create=False
                )
                self._sent = _Sent(where, count, bytes(batch[17:21]), produced)
                self._sequence = (self._sequence + count) % (1 << 31)

    def _wait(self) -> None:
        """Wait until the batch in flight is durable, and record where it is staged."""
        sent, self._sent = self._sent, None
        if sent is None:
            return
        assert self._place is not None
        offset = sent.produced.result().base_offset
        assert offset >= 0, "the broker knows the offset of a batch that is retried at once"
        end = offset + sent.record_count
        pieces = self._pieces.setdefault(sent.where, [])
        if pieces and pieces[-1].next_offset == offset:
            last = pieces.pop()
            count = last.record_count + sent.record_count
            checksum = crc32c(sent.checksum, last.checksum)
            piece = StagedPiece(last.partition, last.first_offset, end, count, checksum)
        else:
            partition = self._place.partition.partition
            checksum = crc32c(sent.checksum)
            piece = StagedPiece(partition, offset, end, sent.record_count, checksum)
        pieces.append(piece)
