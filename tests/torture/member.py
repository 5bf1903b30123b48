"""One member of a consumer group, as a process: it reads, commits, and writes down what it sees.

`python -m torture.member CLIENT PROTOCOL SERVERS DIARY` with a client of `CLIENTS` and a protocol
of `range`, `cooperative-sticky` and `consumer` (KIP-848). SIGTERM makes it leave in good order.

Entries of the diary:

    owns      what it may read from now on, in which generation (member epoch with KIP-848); only
              where it was assigned something is the generation one that the broker has stored:
              clients know the next one before, and a broker that is killed then never had it
    lost      it learnt that its partitions already belong to others
    resumes   what it found committed for new partitions, and when it began to ask
    committed offsets whose commit was acknowledged, and when it began to send them
    refused   a commit that failed, or whose answer never came
    fault     records that came twice or not at all while it owned a partition
    left      it has left the group
"""

from __future__ import annotations

import importlib
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import TypeAlias

from torture.diary import Diary

TOPIC = "work"
GROUP = "tortured"
SESSION_MS = 3_000
HEARTBEAT_MS = 300
#: A member that is busy for so long in a rebalance is left out of it.
REBALANCE_MS = 20_000
COMMIT_INTERVAL_S = 0.15
#: Generation and member id, as the client knows them at the moment.
Place: TypeAlias = tuple[int, str]
ANSWER_S = 4.0


class Book:
    """What one member owns and has read, and the diary of it."""

    def __init__(self, path: str) -> None:
        self.diary = Diary(path)
        self.owned: set[int] = set()
        #: Partition to the next offset it must be given; unknown until it reads a first record.
        self._next: dict[int, int | None] = {}
        self._taken_at: dict[int, float] = {}
        self._uncommitted: dict[int, int] = {}
        self._commit_due = 0.0
        self.is_leaving = False
        signal.signal(signal.SIGTERM, self._leave)

    def _leave(self, _number: int, _frame: FrameType | None) -> None:
        self.is_leaving = True

    def takes(self, partitions: Iterable[int], place: Place) -> None:
        taken = set(partitions)
        self.owned |= taken
        self._next.update(dict.fromkeys(taken, None))
        self._taken_at.update(dict.fromkeys(taken, time.monotonic()))
        self._own("owns", place, is_assigned=True)

    def _own(self, kind: str, place: Place, *, is_assigned: bool = False) -> None:
        generation, member_id = place
        self.diary.write(
            kind,
            generation=generation,
            member_id=member_id,
            partitions=sorted(self.owned),
            is_assigned=is_assigned,
        )

    def gives_up(self, partitions: Iterable[int], place: Place, *, lost: bool = False) -> None:
        for partition in partitions:
            self.owned.discard(partition)
            self._next.pop(partition, None)
            self._uncommitted.pop(partition, None)
        self._own("lost" if lost else "owns", place)

    def is_at_start(self, partition: int) -> bool:
        """It has the partition, and its start is not known yet."""
        return self._next.get(partition, 0) is None

    def resumes(self, started: float, offsets: Mapping[int, int]) -> None:
        self.diary.write("resumes", started=started, offsets=offsets)
        self._next.update(offsets)

    def reads(self, partition: int, offset: int) -> None:
        if partition not in self.owned:
            self.diary.write("fault", what=f"{partition} at {offset} is not owned")
            return
        expected = self._next[partition]
        if expected is None:
            # The client has asked by itself what is committed, and that is where it begins.
            self.resumes(self._taken_at[partition], {partition: offset})
        elif offset != expected:
            self.diary.write("fault", what=f"{partition}: {offset} came, not {expected}")
        self._next[partition] = offset + 1
        self._uncommitted[partition] = offset + 1

    def to_commit(self) -> dict[int, int]:
        """Offsets that should be committed now."""
        if not self._uncommitted or time.monotonic() < self._commit_due:
            return {}
        self._commit_due = time.monotonic() + COMMIT_INTERVAL_S
        return dict(self._uncommitted)

    def committed(self, started: float, offsets: Mapping[int, int], place: Place) -> None:
        self.diary.write("committed", started=started, offsets=offsets, member_id=place[1])
        for partition, offset in offsets.items():
            if self._uncommitted.get(partition) == offset:
                del self._uncommitted[partition]

    def refused(self, started: float, offsets: Mapping[int, int], error: Exception) -> None:
        self.diary.write("refused", started=started, offsets=offsets, error=str(error))


#: A process loads only the library that it uses.
CLIENTS = {
    "confluent": ("torture.confluent_member", "ConfluentMember"),
    "kafka-python": ("torture.kafka_python_member", "PythonMember"),
    "aiokafka": ("torture.aiokafka_member", "AioMember"),
}


def main(client: str, protocol: str, servers: str, diary: str) -> None:
    module, name = CLIENTS[client]
    book = Book(diary)
    getattr(importlib.import_module(module), name)(protocol, servers, book).run()
    book.diary.write("left")


if __name__ == "__main__":
    main(*sys.argv[1:])
