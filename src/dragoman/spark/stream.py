"""The streaming side of the source.

One object in a process beside the driver states where the topics end; copies of it read on
executors. The size of a micro-batch is decided here, since Spark's own limits cannot be combined.

Partitions share a bound in records or bytes in proportion to their lag, as in Spark's Kafka source;
a partition with any lag advances by at least one record. Bytes are counted in the log: exactly, up
to a range of the sparse index, if files are stable and visible, and otherwise estimated from the
partition's average record size.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dragoman.client.kafka import ClientError, CommittedOffset, TopicPartition
from dragoman.spark import planner
from dragoman.spark.failures import plainly
from dragoman.spark.logs import AnyLog, BrokerLog, open_logs
from dragoman.spark.offsets import Offsets, Position, Topic, starting_offsets
from dragoman.spark.options import SourceOptions
from dragoman.spark.planner import DataLossError, Lease, RangePartition
from dragoman.spark.storage import StoredLog, StoredPartition
from dragoman.spark.typed_reader import TypedReader

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("dragoman.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._reader = TypedReader(options, schema)
        self._clear()

    def _clear(self) -> None:
        """Initialize the state of the object beside the driver, which copies on executors lack."""
        self._logs: tuple[AnyLog, StoredLog | None] | None = None
        self._initial: dict[str, Any] | None = None
        self._frozen: Offsets | None = None
        self._byte_bound: ByteBound | None = None
        self._last_batch_at = time.monotonic()
        #: Leases on files, with the position at which their batch ends.
        self._leases: list[tuple[Position, Lease]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_reader": self._reader}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._clear()

    # ---- called on the driver

    def _opened(self) -> tuple[AnyLog, StoredLog | None]:
        if self._logs is None:
            self._logs = open_logs(self._options)
        return self._logs

    @plainly
    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            log, _ = self._opened()
            topics = planner.chosen_topics(log, self._options.topics)
            starts = starting_offsets(
                log,
                planner.partitions_of(topics),
                self._options.starting,
                is_late_start_allowed=self._options.is_late_start_allowed,
            )
            self._initial = Position(starts, _ids(topics)).to_json()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        position = Position.from_json(start)
        topics = self._same_topics(position)
        ends = self._target(topics)
        starts = {where: position.offsets.get(where, 0) for where in ends}
        back = self._lost(starts, ends)
        ends = {where: max(end, starts[where]) for where, end in ends.items()}
        if not isinstance(limit, ReadAllAvailable):
            if self._is_too_little(starts, ends):
                return start
            ends = self._admitted(topics, starts, ends)
        moved = {where: end for where, end in ends.items() if end > starts[where]} | back
        if not moved:
            return start
        self._last_batch_at = time.monotonic()
        return Position(position.offsets | moved, position.topic_ids | _ids(topics)).to_json()

    @plainly
    def reportLatestOffset(self) -> dict[str, Any]:
        log, _ = self._opened()
        topics = planner.chosen_topics(log, self._options.topics)
        return Position(log.latest(planner.partitions_of(topics)), _ids(topics)).to_json()

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        log, _ = self._opened()
        topics = planner.chosen_topics(log, self._options.topics)
        self._frozen = log.latest(planner.partitions_of(topics))

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = Position.from_json(start), Position.from_json(end)
        topics = self._same_topics(after)
        log, stored = self._opened()
        ends = {where: offset for where, offset in after.offsets.items() if where.topic in topics}
        # A partition that was added in the meantime is read from its first record.
        starts = {where: before.offsets.get(where, 0) for where in ends}
        moved = {where: start for where, start in starts.items() if start < ends[where]}
        if not moved:
            return []
        starts |= planner.without_lost(
            moved,
            log.earliest(moved),
            log.latest(moved),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        planned, lease = planner.plan(
            planner.ranges_between(topics, starts, ends), self._options, stored
        )
        if lease is not None:
            self._leases.append((after, lease))
        return planned

    @plainly
    def commit(self, end: dict[str, Any]) -> None:
        """Release files and report progress. Spark skips this call for the last batch, so it must
        do no more.
        """
        position = Position.from_json(end)
        done = [each for each in self._leases if _is_reached(each[0], position)]
        for each in done:
            each[1].release()
            self._leases.remove(each)
        log, _ = self._opened()
        if self._options.group_id and isinstance(log, BrokerLog):
            committed = {where: CommittedOffset(at) for where, at in position.offsets.items()}
            try:
                log.client.commit_offsets(self._options.group_id, committed)
            except ClientError as error:
                logger.warning(
                    "progress is not committed to group %s: %s", self._options.group_id, error
                )

    def stop(self) -> None:
        for _, lease in self._leases:
            lease.release()
        self._leases.clear()
        if self._logs is not None:
            self._logs[0].close()
            self._logs = None

    # ---- called on executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())
        return self._reader.read(partition)

    # ---- steps

    def _same_topics(self, position: Position) -> dict[str, Topic]:
        """The current topics. Raises `DataLossError` for a topic that is not the same as in the
        checkpoint.
        """
        log, _ = self._opened()
        topics = planner.chosen_topics(log, self._options.topics)
        for name, topic_id in position.topic_ids.items():
            now = topics.get(name)
            if now is None:
                self._refuse_loss(f"topic {name!r} with id {topic_id} was deleted")
            elif topic_id and now.topic_id != topic_id:
                raise DataLossError(
                    f"topic {name!r} was deleted and created again: the checkpoint is of id "
                    f"{topic_id}, the topic now has id {now.topic_id}, where these offsets are "
                    "meaningless; start over with a new checkpoint"
                )
        return topics

    def _refuse_loss(self, problem: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{problem} (failOnDataLoss=false continues without it)")

    def _target(self, topics: dict[str, Topic]) -> Offsets:
        """Where to read to: the frozen ends of an AvailableNow run, else the current ends."""
        log, _ = self._opened()
        if self._frozen is not None:
            return self._frozen
        return log.latest(planner.partitions_of(topics))

    def _lost(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Partitions that end before the stream's position, and where they end.

        If the options allow it, the stream continues from that end, because otherwise it would skip
        records that are written in between. Raises `DataLossError` if they do not.
        """
        log, _ = self._opened()
        behind = {where: end for where, end in ends.items() if end < starts[where]}
        for _ in range(self._options.end_retries):
            if not behind:
                break
            # A replica that has just become leader may not know the high watermark yet.
            time.sleep(self._options.retry_pause_s)
            again = log.latest(behind)
            behind = {where: end for where, end in again.items() if end < starts[where]}
        for where, end in behind.items():
            problem = f"{where}: the stream is at offset {starts[where]}, the log ends at {end}"
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{problem} (failOnDataLoss=false continues from there)")
            logger.warning("%s; continuing from there", problem)
        return behind

    def _is_too_little(self, starts: Offsets, ends: Offsets) -> bool:
        wanted = self._options.min_offsets
        if wanted is None or self._frozen is not None:
            return False
        if time.monotonic() - self._last_batch_at >= self._options.max_delay_s:
            return False
        return sum(ends[where] - starts[where] for where in ends) < wanted

    def _admitted(self, topics: dict[str, Topic], starts: Offsets, ends: Offsets) -> Offsets:
        options = self._options
        if options.max_offsets is not None:
            ends = within_records(starts, ends, options.max_offsets)
        if options.max_bytes is not None:
            log, stored = self._opened()
            if self._byte_bound is None:
                self._byte_bound = ByteBound(log, stored, options)
            ends = self._byte_bound.within(starts, ends, _ids(topics), options.max_bytes)
        return ends


def _ids(topics: dict[str, Topic]) -> dict[str, str]:
    return {topic.name: topic.topic_id for topic in topics.values()}


def _is_reached(wanted: Position, reached: Position) -> bool:
    return all(reached.offsets.get(where, 0) >= end for where, end in wanted.offsets.items())


#: Requesting sizes makes brokers open idle partitions, so it is done rarely.
_AVERAGES_AGE_MAX_S = 60.0
#: Estimate for brokers that do not report sizes.
_RECORD_BYTES = 100.0


def within_records(starts: Offsets, ends: Offsets, records_max: int) -> Offsets:
    waiting = {where: ends[where] - starts[where] for where in ends}
    total = sum(waiting.values())
    if total <= records_max:
        return ends
    return {
        where: starts[where] + min(count, max(1, records_max * count // total)) if count else end
        for (where, end), count in zip(ends.items(), waiting.values(), strict=True)
    }


class ByteBound:
    """The bound in bytes. Keeps average record sizes between micro-batches."""

    def __init__(self, log: AnyLog, stored: StoredLog | None, options: SourceOptions) -> None:
        self._log = log
        self._stored = stored
        self._committed_only = options.committed_only
        self._averages: dict[TopicPartition, float] = {}
        self._averages_at = time.monotonic() - _AVERAGES_AGE_MAX_S

    def within(
        self, starts: Offsets, ends: Offsets, ids: dict[str, str], bytes_max: int
    ) -> Offsets:
        if time.monotonic() - self._averages_at >= _AVERAGES_AGE_MAX_S:
            self._averages = self._fetch_averages(list(ends))
            self._averages_at = time.monotonic()
        held = {
            where: None if self._stored is None else self._stored.partition(where, ids[where.topic])
            for where in ends
        }
        sizes = {
            where: self._size(where, held[where], starts[where], end) for where, end in ends.items()
        }
        total = sum(sizes.values())
        if total <= bytes_max:
            return ends
        found = {}
        for where, end in ends.items():
            start, share = starts[where], bytes_max * sizes[where] / total
            cut = self._cut(where, held[where], start, end, share)
            found[where] = min(end, max(cut, start + 1))
        return found

    def _size(
        self, where: TopicPartition, held: StoredPartition | None, start: int, end: int
    ) -> float:
        stable = 0
        if held is not None and start < end:
            stable_end = min(end, held.end(committed_only=self._committed_only))
            stable = held.bytes_between(start, stable_end)
            start = max(start, stable_end)
        return stable + max(0, end - start) * self._average(where)

    def _cut(
        self,
        where: TopicPartition,
        held: StoredPartition | None,
        start: int,
        end: int,
        share: float,
    ) -> int:
        if held is not None:
            stable_end = min(end, held.end(committed_only=self._committed_only))
            if start < stable_end:
                size = held.bytes_between(start, stable_end)
                if size > share:
                    return held.offset_after(start, stable_end, int(share))
                start, share = stable_end, share - size
        return start + int(share / self._average(where))

    def _average(self, where: TopicPartition) -> float:
        return self._averages.get(where, _RECORD_BYTES)

    def _fetch_averages(self, partitions: list[TopicPartition]) -> dict[TopicPartition, float]:
        if not isinstance(self._log, BrokerLog):
            return {}
        try:
            sizes = {
                where: size
                for directory in self._log.directories(partitions)
                for where, size in directory.sizes.items()
                if size > 0
            }
            first, last = self._log.earliest(sizes), self._log.latest(sizes)
        except ClientError:
            return {}
        return {where: size / max(1, last[where] - first[where]) for where, size in sizes.items()}
