"""Reads the metadata in etcd, and follows its changes.

A *look* reads everything at one revision: which node leads, which nodes live, and all entries that
are missing here, from the snapshot on if need be. The watch starts behind it and brings later
changes. When the watch ends, a look finds what it has missed; and because a dead connection may be
silent, there is a look every few seconds anyway. The watch makes it fast, looks make it correct.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Coroutine
from typing import Protocol, TypeVar

import msgspec

from dragoman.checksum import crc32c
from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.calls import CallFailedError, Calls, Stream
from dragoman.cluster.etcd.layout import (
    Head,
    Holder,
    Keys,
    SnapshotHead,
    after,
    read_head,
    read_holder,
    read_snapshot_head,
)
from dragoman.cluster.etcd.session import Settings
from dragoman.errors import ClusterError, ConfigError
from dragoman.limits import ETCD_PAGE_ENTRIES
from dragoman.world import Handle, Scheduler

log = logging.getLogger("dragoman.etcd")
Answer = TypeVar("Answer")


class Held(msgspec.Struct, frozen=True):
    """A key that is bound to a lease: the leader's or a node's."""

    holder: Holder
    lease: int
    #: The revision that made the key.
    created: int


class Seen(msgspec.Struct, frozen=True):
    """The result of a look, all of one revision."""

    revision: int
    head: Head
    #: The revision in which the head was written; 0: never.
    head_revision: int
    leader: Held | None
    nodes: dict[int, Held]
    snapshot: SnapshotHead | None
    snapshot_revision: int


class Follower(Protocol):
    """Receives the history. Its methods may raise `DragomanError`, for `Calls.on_error`."""

    @property
    def applied(self) -> int:
        """The number of entries that are applied."""
        ...

    def take(self, number: int, value: bytes) -> None:
        """Apply an entry, unless it is applied already."""
        ...

    def restore(self, entries: int, state: bytes) -> None: ...

    def question(self, ranges: tuple[m.Operation, ...]) -> m.Transaction:
        """The transaction of a look: it reads these ranges, and may do more."""
        ...

    def seen(self, seen: Seen, *, is_newest: bool) -> None:
        """A look has ended and its entries are applied; the watch may have brought newer ones."""
        ...

    def unseen(self, failure: m.Failure) -> None:
        """A look failed; it will be retried."""
        ...

    def leader_seen(self, leader: Held | None) -> None: ...

    def node_seen(self, node: int, held: Held | None) -> None: ...


class History:
    def __init__(
        self,
        calls: Calls,
        keys: Keys,
        scheduler: Scheduler,
        settings: Settings,
        follower: Follower,
        *,
        is_any_version: bool = False,
    ) -> None:
        self._calls = calls
        self._keys = keys
        self._scheduler = scheduler
        self._settings = settings
        self._follower = follower
        self._is_any_version = is_any_version
        #: Revision up to which leaders and nodes are known.
        self.revision = 0
        self._is_looking = False
        self._is_look_due = False
        self._is_reported = False
        self._timer: Handle | None = None
        self._stream: Stream | None = None
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._close_stream()

    # ---- a look

    def look(self) -> None:
        if self._is_looking or self._is_stopped:
            self._is_look_due = True
            return
        self._is_looking = True
        self._is_look_due = False
        self._calls.run(self._look())

    async def _look(self) -> None:
        try:
            if self._stream is None and not self._is_any_version:
                # Another member of etcd may answer than before.
                version = await self._answer(self._calls.version())
                check_version(version.etcdserver)
            seen, is_news = await self._read()
        except CallFailedError as error:
            self._look_failed(error.failure)
        else:
            self._looked(seen, is_news=is_news)

    async def _answer(self, call: Coroutine[object, None, Answer]) -> Answer:
        """The answer to a call. Raises `CallFailedError`, also if it comes after the stop."""
        answer = await call
        if self._is_stopped:
            raise CallFailedError(m.Failure("this node stops"))
        return answer

    def _ranges(self) -> tuple[m.Operation, ...]:
        keys, applied = self._keys, self._follower.applied
        return m.ranges(
            m.Range(key=keys.head),
            m.Range(key=keys.leader),
            m.Range(key=keys.snapshot),
            m.Range(key=keys.nodes, range_end=after(keys.nodes)),
            m.Range(key=keys.entry(applied), range_end=after(keys.log), limit=ETCD_PAGE_ENTRIES),
        )

    async def _read(self) -> tuple[Seen, bool]:
        """Read everything, and apply the entries.

        Also returns whether the last page had entries that the watch had not brought.
        """
        # Revision and entries known by now: etcd never goes back behind them.
        known_revision, known_entries = self.revision, self._follower.applied
        question = self._follower.question(self._ranges())
        answer = await self._answer(self._calls.transaction(question))
        revision = answer.header.revision
        head, leader, snapshot, nodes, entries = answer.found()
        seen = Seen(
            revision=revision,
            head=read_head(head.kvs[0].value) if head.kvs else Head(),
            head_revision=head.kvs[0].mod_revision if head.kvs else 0,
            leader=held(leader.kvs[0]) if leader.kvs else None,
            nodes={self._keys.number_of(each.key): held(each) for each in nodes.kvs},
            snapshot=read_snapshot_head(snapshot.kvs[0].value) if snapshot.kvs else None,
            snapshot_revision=snapshot.kvs[0].mod_revision if snapshot.kvs else 0,
        )
        if revision < known_revision or seen.head.entries < known_entries:
            raise ClusterError(
                f"etcd has lost metadata: it has {seen.head.entries} entries at revision "
                f"{revision}, this node has seen {known_entries} at {known_revision}"
            )
        if seen.snapshot is not None and seen.snapshot.entries > self._follower.applied:
            await self._read_snapshot(revision, seen.snapshot)
            entries = await self._page(revision)
        while True:
            before = self._follower.applied
            for kv in entries.kvs:
                self._take(kv)
            applied, count = self._follower.applied, seen.head.entries
            if applied >= count:
                return seen, applied > before
            if not entries.more:
                raise ClusterError(f"etcd has lost metadata: no entry {applied} of {count}")
            entries = await self._page(revision)

    async def _page(self, revision: int) -> m.RangeAnswer:
        """Further entries. Fails if etcd compacted the revision; the next look reads another."""
        first, end = self._keys.entry(self._follower.applied), after(self._keys.log)
        page = m.Range(key=first, range_end=end, limit=ETCD_PAGE_ENTRIES, revision=revision)
        return await self._answer(self._calls.range(page))

    async def _read_snapshot(self, revision: int, head: SnapshotHead) -> None:
        """Read the pieces one after the other, and restore the snapshot."""
        pieces: list[bytes] = []
        for number in range(head.pieces):
            piece = m.Range(key=self._keys.piece(head.entries, number), revision=revision)
            found = await self._answer(self._calls.range(piece))
            pieces.append(found.kvs[0].value if found.kvs else b"")
        state = b"".join(pieces)
        if crc32c(state) != head.checksum:
            raise ClusterError(f"the snapshot of {head.entries} entries in etcd is damaged")
        # The watch may have brought more meanwhile.
        if head.entries > self._follower.applied:
            self._follower.restore(head.entries, state)

    def _looked(self, seen: Seen, *, is_news: bool) -> None:
        self._is_looking = self._is_reported = False
        if is_news:
            # The watch should have delivered this entry.
            self._close_stream()
        is_newest = seen.revision >= self.revision
        self.revision = max(self.revision, seen.revision)
        if self._stream is None:
            keys, start = self._keys.watched, seen.revision + 1
            self._stream = self._calls.watch(keys, start, self._watch_answered)
        self._look_later(0.0 if self._is_look_due else self._settings.look_s)
        self._follower.seen(seen, is_newest=is_newest)

    def _look_failed(self, failure: m.Failure) -> None:
        self._is_looking = False
        if not self._is_stopped:
            if not self._is_reported:
                log.warning("etcd: %s", failure.message)
            self._is_reported = True
            self._look_later(self._settings.retry_s)
            self._follower.unseen(failure)

    def _look_later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_stopped:
            self._timer = self._scheduler.call_later(seconds, self.look)

    # ---- the watch

    def _watch_answered(self, answer: m.WatchAnswer | m.Failure) -> None:
        if isinstance(answer, m.Failure) or answer.canceled:
            self._close_stream()
            self._look_later(self._settings.retry_s)
            return
        known = self.revision
        if not answer.events and not answer.created:
            # A progress notification. Other headers may be ahead of the events they come with.
            self.revision = max(known, answer.header.revision)
        for event in answer.events:
            kv = event.kv
            is_deleted = event.type == "DELETE"
            if self._is_stopped:
                return
            if kv.key.startswith(self._keys.log):
                if not is_deleted:
                    self._take(kv)
            elif kv.mod_revision > known:
                self._change(kv, is_deleted=is_deleted)
            self.revision = max(self.revision, kv.mod_revision)

    def _change(self, kv: m.KeyValue, *, is_deleted: bool) -> None:
        if kv.key == self._keys.leader:
            self._follower.leader_seen(None if is_deleted else held(kv))
        elif kv.key.startswith(self._keys.nodes):
            node = self._keys.number_of(kv.key)
            self._follower.node_seen(node, None if is_deleted else held(kv))

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # ---- entries

    def _take(self, kv: m.KeyValue) -> None:
        number = self._keys.number_of(kv.key)
        if number > self._follower.applied:
            # The watch is ahead of a look that is under way: the next look brings what is missing.
            self.look()
        elif number == self._follower.applied:
            self._follower.take(number, kv.value)


def held(kv: m.KeyValue) -> Held:
    return Held(holder=read_holder(kv.value), lease=kv.lease, created=kv.create_revision)


# ---- versions of etcd


_OLDEST = {(3, 4): 23, (3, 5): 6}


def check_version(text: str) -> None:
    """Raises `ConfigError` for a version that may lose data, or for a text that is no version."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise ConfigError(f"metadata.etcd.endpoints: no etcd answers, but one of version {text!r}")
    major, minor, patch = map(int, found.groups())
    if (major, minor) >= min(_OLDEST) and patch >= _OLDEST.get((major, minor), 0):
        return
    raise ConfigError(
        f"etcd {text} may lose metadata: 3.4.23, 3.5.6 or newer is needed "
        "(for tests, metadata.etcd.allow.bad.version=true lets it be used)"
    )
