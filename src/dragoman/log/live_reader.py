"""Live segments at a start: their batches are read into the index, and bad ones are judged.

A bad batch is damage where everything was acknowledged or synced, and torn behind that. Damage is
recorded and stays. Torn bytes are cut off, and so are batches that a truncation removed or that
belong to the segment that follows.
"""

from __future__ import annotations

import logging

from dragoman.checksum import crc32c
from dragoman.log.batch import WALKED_PREFIX_BYTES
from dragoman.log.epochs import EpochHistory
from dragoman.log.partition import PartitionLog
from dragoman.log.salvage import Bad, Found, Sound, read_batches
from dragoman.log.segment import Segment

#: Above every offset and every byte.
NO_LIMIT = 1 << 62
log = logging.getLogger("dragoman.log")


class LiveReader:
    def __init__(
        self,
        partition: PartitionLog,
        segment: Segment,
        epochs: list[tuple[int, int]],
        *,
        limit_offset: int,
        lost_end: int,
        trusted: int,
        indexed: int,
        distrusted: int,
    ) -> None:
        """The leader epochs of the batches are added to `epochs`, with their first offsets."""
        self._partition = partition
        self._segment = segment
        self._epochs_found = epochs
        #: Base of the next segment: batches at or above it were removed by a truncation.
        self._limit_offset = limit_offset
        #: Offset after the bytes that were synced and are missing; 0 for none.
        self._lost_end = lost_end
        #: Below this byte, everything was acknowledged (or synced): bad bytes are damage.
        self._trusted = trusted
        #: Index and running checksum cover everything below this byte already.
        self._indexed = indexed
        #: Below this byte, the bytes may be another file's.
        self._distrusted = distrusted
        self.is_torn = False
        self._epochs: EpochHistory | None = None
        self._epochs_end = 0

    def expect_epochs(self, epochs: EpochHistory, end: int) -> None:
        """Below byte `end`, every batch was written in an epoch of this history."""
        self._epochs = epochs
        self._epochs_end = end

    def _judged(self, found: Found) -> Found:
        """Check what the CRC does not cover: the leader epoch, and the identity of the segment."""
        if found.position < self._distrusted and isinstance(found, Sound):
            end = found.position + found.header.size
            reason = "the file is shortened, and nothing of it can be compared with its index"
            return Bad(found.position, end, found.header.last_offset + 1, reason)
        if self._epochs is None or isinstance(found, Bad) or found.position >= self._epochs_end:
            return found
        header = found.header
        known = self._epochs.epoch_at(header.base_offset)
        if known == header.leader_epoch:
            return found
        reason = f"batch has leader epoch {header.leader_epoch}, expected {known}"
        end = found.position + header.size
        return Bad(found.position, end, header.last_offset + 1, reason)

    def read(self, start: int, borders: list[int]) -> None:
        segment = self._segment
        file = self._partition.store.directory.files.get(segment.log_path)
        for each in read_batches(file, start, segment.size, segment.next_offset, borders):
            found = self._judged(each)
            if segment.next_offset >= self._limit_offset:
                self._cut(found.position, "belong to what a truncation removed")
                break
            if isinstance(found, Sound):
                if found.header.last_offset >= self._limit_offset:
                    self._cut(found.position, "belong to what a truncation removed")
                    break
                self._take(found)
            elif found.position >= self._trusted:
                self._cut(found.position, "were torn")
                self.is_torn = True
                break
            else:
                self._note_damage(found)
        lost_end = self._lost_end
        if lost_end > segment.next_offset:
            segment.damage = (*segment.damage, (segment.next_offset, lost_end, segment.size))
            segment.next_offset = lost_end

    def _take(self, found: Sound) -> None:
        segment = self._segment
        at, header, batch = found
        if header.base_offset > segment.next_offset:
            segment.has_gaps = True
        if at >= self._indexed:
            index = segment.index
            assert index is not None
            relative = header.base_offset - segment.base_offset
            interval = self._partition.config.index_interval_bytes
            prefix = batch[:WALKED_PREFIX_BYTES]
            index.add(relative, at, prefix, header.record_timestamp, interval)
            segment.checksum = crc32c(batch, segment.checksum)
        segment.max_timestamp = max(segment.max_timestamp, header.record_timestamp)
        segment.next_offset = header.last_offset + 1
        self._epochs_found.append((header.leader_epoch, header.base_offset))

    def _cut(self, position: int, why: str) -> None:
        segment = self._segment
        count = segment.size - position
        log.warning("%s: %d bytes %s; cut at %d", segment.log_path, count, why, position)
        self._partition.store.directory.stats.cut_bytes += count
        self._partition.store.directory.files.get(segment.log_path).truncate(position)
        segment.size = segment.written = position

    def _note_damage(self, bad: Bad) -> None:
        """Record the offsets of a bad batch as damage; reading resumes behind them."""
        segment = self._segment
        assert segment.index is not None
        segment.index.seal()
        first = segment.next_offset
        if bad.next_offset < 0:
            known = self._limit_offset if self._limit_offset < NO_LIMIT else 0
            next_good = max(first + 1, known, self._lost_end)
        else:
            next_good = max(first + 1, bad.next_offset)
        where = f"{segment.log_path} at byte {bad.position}: {bad.reason}"
        self._partition.report(f"{where}; offsets {first} to {next_good - 1} are not served")
        segment.damage = (*segment.damage, (first, next_good, bad.position))
        segment.next_offset = next_good
        self._partition.manifest_version += 1
