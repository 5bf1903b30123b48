"""`RaftQuorum`: the metadata quorum behind its port; committed events become the image.

The version counts applied events, on every node alike. A proposal may state the version that it was
made for; the leader refuses it when another event came in between, committed or not: if that event
is never committed, neither can the proposal be, which follows it in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dragoman.cluster.codec import encode_image, event_batch, events_in, restore_image
from dragoman.cluster.events import Event, TermBegan, TopicDeleted
from dragoman.cluster.metadata import MetadataImage, TopicMetadata
from dragoman.cluster.raft_quorum.driver import Peers, RaftDriver
from dragoman.errors import (
    ClusterError,
    FormatError,
    OutcomeUnknownError,
    VersionConflictError,
)
from dragoman.log.batch import batches
from dragoman.outcome import Outcome, failed
from dragoman.raft.core import Raft
from dragoman.raft.membership import Membership
from dragoman.raft.ports import RoleChanged
from dragoman.raft.snapshots import Snapshot
from dragoman.world import Clock, Scheduler

_READ_BYTES = 1 << 20


class RaftQuorum:
    def __init__(
        self, raft: Raft, image: MetadataImage, clock: Clock, scheduler: Scheduler, peers: Peers
    ) -> None:
        self._raft = raft
        self._image = image
        self._clock = clock
        self.driver = RaftDriver(raft, scheduler, peers, self)
        self.version = 0
        #: Every entry below is applied to the image.
        self.applied = 0
        #: An offset of the log and the version there, for proposals with an expected version.
        self._tail = (0, 0)
        #: Called for every event right after it is applied, with the topic that it removed.
        self.on_applied: Callable[[Event, TopicMetadata | None], None] = _nothing
        #: Called when a snapshot has replaced the image, so that any part of it may have changed.
        self.on_restored: Callable[[], None] = _no_change
        #: Called when the quorum has committed an event that this release does not know.
        self.on_unreadable: Callable[[FormatError], None] = _raise
        #: Called when this node's role, the term or the leader changes.
        self.on_role: Callable[[RoleChanged], None] = _no_role

    @property
    def leader(self) -> int:
        return self._raft.leader

    @property
    def is_leading(self) -> bool:
        return self._raft.leadership is not None

    @property
    def has_agreed(self) -> bool:
        """Whether this node leads and the image has everything committed before."""
        leadership = self._raft.leadership
        return leadership is not None and leadership.has_agreed

    @property
    def membership(self) -> Membership:
        return self._raft.membership

    @property
    def term(self) -> int:
        return self._raft.term

    @property
    def committed_end(self) -> int:
        """Every entry below is known to be committed."""
        return self._raft.commit

    def ends(self) -> dict[int, int]:
        """The log ends of the nodes, as far as this node knows them."""
        known = {self._raft.node_id: self._raft.storage.end}
        if self._raft.leadership is not None:
            known |= self._raft.leadership.ends()
        return known

    def local_image(self) -> MetadataImage:
        """The image of the whole local log, committed or not, to which this node's files may refer.

        Deletions are left out unless they are known to be committed.
        """
        image = MetadataImage()
        snapshot = self._raft.storage.snapshot
        start = self._raft.storage.start
        if snapshot is not None:
            restore_image(image, snapshot.state)
            start = snapshot.end
        for next_offset, events in self._entries(start, self._raft.storage.end):
            is_committed = next_offset <= self.applied
            for event in events:
                if is_committed or not isinstance(event, TopicDeleted):
                    image.apply(event)
        return image

    # ---- start and stop

    def replay(self) -> None:
        """Restore what is known to be committed, before anything is written.

        That is the snapshot and, on the only voter, the whole log.
        """
        snapshot = self._raft.storage.snapshot
        if snapshot is not None:
            self.install(snapshot)
        if self._raft.membership.voters == (self._raft.node_id,):
            self.apply(self._raft.storage.end)

    @property
    def would_lose_entries(self) -> bool:
        """Whether `start` would drop entries that no other voter has."""
        is_alone = self._raft.membership.voters == (self._raft.node_id,)
        return is_alone and self._raft.would_drop_entries()

    def start(self) -> None:
        """Join the quorum, once the log may be written."""
        self.driver.start()

    def fail(self) -> None:
        """The node or its log stopped: proposals in flight may still be committed."""
        self.driver.stop(OutcomeUnknownError("the node stopped; the outcome is unknown"))

    # ---- the port

    def check_level(self, events: list[Event]) -> None:
        """Raises `ClusterError` for events that some node could not read."""
        self._image.check_level(events)

    def propose(self, events: list[Event], expected_version: int | None = None) -> Outcome[None]:
        if expected_version is not None and self._raft.leadership is not None:
            version = self.version_at_end()
            if version != expected_version:
                text = f"the metadata has version {version}, not {expected_version}"
                return failed(VersionConflictError(text))
        try:
            self.check_level(events)
        except ClusterError as error:
            return failed(error)
        return self.driver.propose(event_batch(events, self._clock.wall_ms()))

    async def read(self) -> None:
        """Returns when the image has everything that was committed before this call.

        Raises `NotControllerError`, with the leader, on any other node.
        """
        end = await self.driver.read()
        assert end <= self.applied

    def version_at_end(self) -> int:
        end, version = self._tail
        if end < self.applied:
            end, version = self.applied, self.version
        for next_offset, events in self._entries(end, self._raft.storage.end):
            end, version = next_offset, version + sum(map(_counts, events))
        self._tail = (end, version)
        return version

    def _entries(self, start: int, end: int) -> Iterator[tuple[int, list[Event]]]:
        offset = start
        while offset < end:
            for header, batch in batches(memoryview(self._raft.storage.read(offset, _READ_BYTES))):
                if header.base_offset >= end:
                    return
                if header.base_offset >= offset:
                    yield header.last_offset + 1, events_in(batch)
                offset = header.last_offset + 1

    def forget_history(self, words: tuple[bytes, ...]) -> None:
        if self._remembers(words):
            self.driver.forget_history()

    def _remembers(self, words: tuple[bytes, ...]) -> bool:
        storage = self._raft.storage
        if storage.snapshot is not None and _has_any(storage.snapshot.state, words):
            return True
        offset = storage.start
        while offset < self.applied:
            data = storage.read(offset, _READ_BYTES)
            if _has_any(data, words):
                return True
            headers = [header for header, _ in batches(memoryview(data))]
            offset = headers[-1].last_offset + 1
        return False

    # ---- the state machine

    def apply(self, end: int) -> None:
        try:
            self._apply(end)
        except FormatError as error:
            self.on_unreadable(error)

    def _apply(self, end: int) -> None:
        for next_offset, events in self._entries(self.applied, end):
            self.applied = next_offset
            for event in events:
                removed = self._image.apply(event)
                self.version += _counts(event)
                self.on_applied(event, removed)

    def install(self, snapshot: Snapshot) -> None:
        try:
            self.version = restore_image(self._image, snapshot.state)
            self.applied = snapshot.end
            self.on_restored()
        except FormatError as error:
            self.on_unreadable(error)

    def save(self) -> tuple[int, bytes]:
        return self.applied, encode_image(self._image, self.version)

    def role_changed(self, changed: RoleChanged) -> None:
        # The log above the committed end may have been replaced.
        self._tail = (0, 0)
        self.on_role(changed)


def _has_any(data: bytes, words: tuple[bytes, ...]) -> bool:
    return any(word in data for word in words)


def _counts(event: Event) -> int:
    return 0 if isinstance(event, TermBegan) else 1


def _nothing(_event: Event, _removed: TopicMetadata | None) -> None:
    return None


def _raise(error: FormatError) -> None:
    raise error


def _no_change() -> None:
    return None


def _no_role(_changed: RoleChanged) -> None:
    return None
