"""Leader epochs of a log, each with the first offset that it wrote.

A follower whose log diverges from its leader's is truncated by comparing epochs, never by comparing
watermarks (KIP-101, KIP-279). The list is short: one entry for each change of leadership.
"""

from __future__ import annotations


class EpochHistory:
    __slots__ = ("_entries", "latest")

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []
        #: The newest epoch, -1 before the first.
        self.latest = -1

    @classmethod
    def of(cls, found: list[tuple[int, int]]) -> EpochHistory:
        """One history from many sources: each epoch begins at the lowest offset in any source."""
        history = cls()
        first: dict[int, int] = {}
        for epoch, offset in found:
            first[epoch] = min(offset, first.get(epoch, offset))
        for epoch in sorted(first):
            history.assign(epoch, first[epoch])
        return history

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, first offset), ascending in both."""
        return self._entries

    @property
    def latest_start(self) -> int:
        """First offset of the newest epoch; -1 before the first."""
        return self._entries[-1][1] if self._entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin `epoch` at `start_offset`."""
        assert epoch > self.latest, f"epoch {epoch} after {self.latest}"
        # An epoch in which nothing was written is replaced by the next one.
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self.latest = epoch

    def load(self, entries: list[tuple[int, int]]) -> None:
        self._entries = list(entries)
        self.latest = self._entries[-1][0] if self._entries else -1

    def truncate(self, end_offset: int) -> None:
        """Forget epochs that start at or after the log's new end."""
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
        self.latest = self._entries[-1][0] if self._entries else -1

    def truncate_above(self, end_offset: int) -> None:
        """Forget epochs that start behind the log's end, whose records never became durable."""
        self.truncate(end_offset + 1)

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """(largest known epoch not above `epoch`, offset after its last record).

        None when every known epoch is newer, or none is known.
        """
        end = log_end_offset
        for known, start in reversed(self._entries):
            if known <= epoch:
                return known, end
            end = start
        return None

    def epoch_at(self, offset: int) -> int:
        """The epoch in which this offset was written; -1 when unknown."""
        for epoch, start in reversed(self._entries):
            if start <= offset:
                return epoch
        return -1
