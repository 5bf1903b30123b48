"""Agreement on metadata events: the port, and the quorum of one voter.

The metadata log is an ordinary partition. On a single node, agreed means stable in its own log, so
proposing is appending; several voters replicate the same partition by Raft behind the same port.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from dragoman.cluster.events import Event, decode_event, encode_event
from dragoman.cluster.metadata import MetadataImage, TopicMetadata
from dragoman.errors import ClusterError, DragomanError, LogStoppedError
from dragoman.limits import METADATA_PROPOSALS_MAX
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.log.partition import PartitionLog
from dragoman.world import Clock

Done = Callable[[DragomanError | None], None]


class MetadataQuorum(Protocol):
    @property
    def version(self) -> int:
        """How many events have been applied."""
        ...

    @property
    def leader(self) -> int:
        """Node that accepts proposals, -1 while there is none."""
        ...

    def propose(self, events: list[Event], done: Done) -> None:
        """Agree on events, in order. `done` comes after they are applied to the image.

        An error means they were not accepted, unless it says that the outcome is unknown.
        """
        ...


class SingleVoter:
    """A quorum of one: this node."""

    def __init__(self, log: PartitionLog, image: MetadataImage, node_id: int, clock: Clock) -> None:
        self._log = log
        self._image = image
        self._clock = clock
        self.leader = node_id
        self.version = 0
        #: Called for every event right after it is applied, also while the log is read back, with
        #: the topic that it removed.
        self.on_applied: Callable[[Event, TopicMetadata | None], None] = _nothing
        self._waiting: deque[tuple[int, list[Event], Done]] = deque()

    def replay(self) -> None:
        """Apply everything in the log; at start, before anything is proposed."""
        for record in self._log.iterate(self._log.log_start_offset, self._log.high_watermark):
            assert record.value is not None
            self._apply(decode_event(record.value))

    def propose(self, events: list[Event], done: Done) -> None:
        if len(self._waiting) >= METADATA_PROPOSALS_MAX:
            done(ClusterError("too many metadata changes are waiting"))
            return
        now_ms = self._clock.wall_ms()
        batch = build_batch(
            [Record(value=encode_event(event), timestamp=now_ms) for event in events]
        )
        try:
            appended = self._log.append(batch, read_header(batch), 0)
        except DragomanError as error:
            done(error)
            return
        self._waiting.append((appended.next_offset, events, done))

    def committed(self) -> None:
        """The metadata log's high watermark moved: apply what is agreed now."""
        while self._waiting and self._waiting[0][0] <= self._log.high_watermark:
            _, events, done = self._waiting.popleft()
            for event in events:
                self._apply(event)
            done(None)

    def fail(self) -> None:
        """The log stopped: whether the events survived will be known after a restart."""
        while self._waiting:
            _, _, done = self._waiting.popleft()
            done(LogStoppedError("the log stopped; the outcome is unknown"))

    def refused(self, error: DragomanError) -> None:
        """The log took appends back: their events never happened, and their offsets come again."""
        kept = [each for each in self._waiting if each[0] <= self._log.log_end_offset]
        lost = [each for each in self._waiting if each[0] > self._log.log_end_offset]
        self._waiting = deque(kept)
        for _, _, done in lost:
            done(error)

    def _apply(self, event: Event) -> None:
        removed = self._image.apply(event)
        self.version += 1
        self.on_applied(event, removed)


def _nothing(_event: Event, _removed: TopicMetadata | None) -> None:
    return None
