"""Reads a planned range on an executor, from stable files if possible, else from the broker."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from dragoman.client.kafka import (
    BlockingKafkaClient,
    Fetched,
    FetchFrom,
    OffsetRangeError,
    TopicPartition,
    UnknownTopicError,
)
from dragoman.limits import SPARK_EMPTY_REPLIES_MAX, SPARK_FETCH_WAIT_MS, SPARK_READ_BYTES
from dragoman.log.batch import LENGTH_PREFIX_BYTES, WALK
from dragoman.spark.logs import id_text, isolation_of, open_client
from dragoman.spark.options import SourceOptions
from dragoman.spark.planner import DataLossError, RangePartition
from dragoman.spark.storage import StoredPiece, read_piece

if TYPE_CHECKING:
    import pyarrow as pa

    from dragoman.spark.batches.decoder import BatchDecoder

log = logging.getLogger("dragoman.spark")


def read_range(
    planned: RangePartition, options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of the records in the range, in offset order."""
    from dragoman.spark.batches.decoder import BatchDecoder

    decoder = BatchDecoder(columns, include_headers="headers" in columns)
    task = _Task(planned, options, decoder)
    try:
        yield from task.batches()
    finally:
        task.close()


class _Task:
    def __init__(
        self, planned: RangePartition, options: SourceOptions, decoder: BatchDecoder
    ) -> None:
        self._planned = planned
        self._options = options
        self._decoder = decoder
        self._client: BlockingKafkaClient | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        position = self._planned.offsets.start
        for piece in self._planned.pieces:
            if piece.start > position:
                yield from self._from_broker(position, piece.start)
            yield from self._from_file(piece)
            position = piece.end
        if position < self._planned.offsets.end:
            yield from self._from_broker(position, self._planned.offsets.end)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _decoded(
        self,
        chunk: memoryview,
        start: int,
        end: int,
        aborted: Sequence[tuple[int, int]],
    ) -> Iterator[pa.RecordBatch]:
        where = self._planned.offsets.where
        yield from self._decoder.decode(
            [chunk],
            topic=where.topic,
            partition=where.partition,
            start=start,
            end=end,
            aborted=aborted,
            committed_only=self._options.committed_only,
        )

    # ---- files

    def _from_file(self, piece: StoredPiece) -> Iterator[pa.RecordBatch]:
        chunks = read_piece(piece)
        try:
            first = next(chunks, None)
        except OSError as error:
            # The file was deleted, or is not visible on this executor.
            log.info("reading from the broker instead: %s", error)
            yield from self._from_broker(piece.start, piece.end)
            return
        while first is not None:
            chunk, offset = first
            if self._planned.lease is not None:
                self._planned.lease.renew()
            # A transaction that ended before the chunk would be mistaken for an open one.
            aborted = [(each[0], each[1]) for each in piece.aborted if each[2] >= offset]
            yield from self._decoded(chunk, piece.start, piece.end, aborted)
            first = next(chunks, None)

    # ---- the broker

    def _from_broker(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        if not self._options.bootstrap:
            yield from self._lost(
                f"offsets {start} to {end - 1} are damaged or not in the directory's files"
            )
            return
        fetches = _Fetches(self._connected(), self._planned, self._options, start, end)
        try:
            with fetches:
                for fetched, position in fetches:
                    aborted = [(each.producer_id, each.first_offset) for each in fetched.aborted]
                    yield from self._decoded(fetched.records, position, end, aborted)
        except OffsetRangeError:
            yield from self._after_loss(fetches.position, end)
        except UnknownTopicError:
            yield from self._lost("the topic was deleted")

    def _after_loss(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Handle records that retention deleted before they were read: read the rest if the options
        permit.
        """
        from dragoman.client.kafka import EARLIEST

        where = self._planned.offsets.where
        first = self._connected().list_offsets({where: EARLIEST})[where].offset
        yield from self._lost(f"offsets {start} to {min(first, end) - 1} were deleted")
        if start < first < end:
            yield from self._from_broker(first, end)

    def _lost(self, problem: str) -> Iterator[pa.RecordBatch]:
        text = f"{self._planned.offsets.where}: {problem}"
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text} (failOnDataLoss=false continues)")
        log.warning("%s; continuing", text)
        return iter(())

    def _connected(self) -> BlockingKafkaClient:
        if self._client is None:
            self._client = open_client(self._options).open()
            self._check_topic(self._client)
        return self._client

    def _check_topic(self, client: BlockingKafkaClient) -> None:
        planned = self._planned.offsets
        found = client.cluster([planned.where.topic]).topics.get(planned.where.topic)
        now = id_text(found.topic_id) if found is not None else "none"
        if planned.topic_id and now != planned.topic_id:
            raise DataLossError(
                f"topic {planned.where.topic!r} was deleted and created again: "
                f"the read was planned for id {planned.topic_id}, the topic now has id {now}"
            )


class _Fetches:
    """Fetch responses for a range; the next one is requested while the previous one is decoded."""

    def __init__(
        self,
        client: BlockingKafkaClient,
        planned: RangePartition,
        options: SourceOptions,
        start: int,
        end: int,
    ) -> None:
        self._client = client
        self._where: TopicPartition = planned.offsets.where
        self._options = options
        self.position = start
        self._end = end
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="dragoman-fetch")

    def __enter__(self) -> _Fetches:
        return self

    def __exit__(self, *_: object) -> None:
        self._ahead.shutdown(wait=True, cancel_futures=True)

    def __iter__(self) -> Iterator[tuple[Fetched, int]]:
        """Responses with records, each with its fetch offset."""
        empty = 0
        pending: Future[Fetched] = self._ahead.submit(self._fetch, self.position)
        while True:
            fetched = pending.result()
            position = self.position
            self.position = max(position, _next_offset(fetched.records))
            if self.position < self._end:
                if self.position == position:
                    empty += 1
                    if self._is_over(fetched, empty):
                        return
                else:
                    empty = 0
                pending = self._ahead.submit(self._fetch, self.position)
            if fetched.records:
                yield fetched, position
            if self.position >= self._end:
                return

    def _is_over(self, fetched: Fetched, empty: int) -> bool:
        """Whether to stop after empty responses: compaction may have removed the last records."""
        if empty < SPARK_EMPTY_REPLIES_MAX:
            return False
        committed = self._options.committed_only and fetched.last_stable_offset >= 0
        limit = fetched.last_stable_offset if committed else fetched.high_watermark
        if limit >= self._end:
            return True
        waited_s = empty * SPARK_FETCH_WAIT_MS / 1000
        if waited_s > self._options.poll_timeout_s:
            raise DataLossError(
                f"{self._where}: expected records up to offset {self._end - 1}, "
                f"the log ends at {limit}"
            )
        return False

    def _fetch(self, offset: int) -> Fetched:
        wanted = {self._where: FetchFrom(offset, SPARK_READ_BYTES)}
        reply = self._client.fetch(
            wanted,
            max_wait_ms=SPARK_FETCH_WAIT_MS,
            max_bytes=SPARK_READ_BYTES,
            isolation=isolation_of(self._options),
        )
        return reply[self._where]


def _next_offset(records: memoryview) -> int:
    """The offset after the last batch; -1 if there is none."""
    position, found = 0, -1
    while len(records) - position >= WALK.size:
        base, length, last_delta = WALK.unpack_from(records, position)
        found = base + last_delta + 1
        if length < 0:
            break
        position += LENGTH_PREFIX_BYTES + length
    return found
