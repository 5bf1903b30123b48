"""`EtcdQuorum`: the metadata quorum behind its port, stored in an etcd instead of replicated by
Raft.

It replaces `RaftQuorum` where an etcd is available. The committed metadata is in etcd
(`layout.py`); every node reads it and applies it to its image, in order (`history.py`). The node
whose key is bound to a live lease in etcd leads (`session.py`). Only that node proposes
(`leadership.py`), and others redirect to it, as with Raft. Versions count events, as with Raft.

**How a node uses it** (`broker/cluster_node.py`).

- The node's disk has no metadata log. `start` reads the metadata from etcd, and `on_loaded` is
  called when the image is complete; only then can partitions be opened. While etcd is unreachable,
  a node cannot start.
- `register` is called once the node has recovered and serves requests: from then on other nodes see
  it as live, and it may lead. A quorum that was not registered only follows.
- `nodes` lists the live nodes, as far as etcd can tell. It grants no right to write: decisions
  based on it become events, and the epochs in the events fence.
- `on_role` is called once the image has every entry of earlier leaders. The term is the revision of
  etcd that created the leader's key: it only grows, with gaps.
- `propose`, `read`, `version` and `leader` are those of the port. A proposal on a replaced leader
  fails with `NotControllerError`: it was not accepted. `OutcomeUnknownError` means that etcd has
  not answered for `Settings.outcome_s`, or that the quorum stopped first; the leadership then ends,
  because the next decision requires a known outcome.
- `on_failed` gets a `ConfigError` for an unusable etcd, a `FormatError` for metadata of a newer
  release, and a `ClusterError` when etcd has lost metadata that this node has seen, or when the
  same node was started again elsewhere. The quorum has stopped by then.
- A clean stop is `stop()`, then `await client.finish(1.0)`: the lease is revoked, and another node
  can lead at once. Otherwise the lease expires, or a node that notices the end of the process
  revokes it (`gone`).
- The voters are etcd's: `VotersChanged` and `TermBegan` do not occur.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman.cluster.codec import encode_image, restore_image
from dragoman.cluster.etcd import messages as m
from dragoman.cluster.etcd.calls import Calls, Gateway
from dragoman.cluster.etcd.history import Held, History, Seen
from dragoman.cluster.etcd.layout import Entry, Holder, Keys, read_entry, read_head, to_json
from dragoman.cluster.etcd.leadership import Leadership
from dragoman.cluster.etcd.session import Session, Settings
from dragoman.cluster.etcd.snapshots import SnapshotWriter
from dragoman.cluster.events import Event
from dragoman.cluster.metadata import MetadataImage, TopicMetadata
from dragoman.errors import (
    ClusterError,
    DragomanError,
    LogStoppedError,
    NotControllerError,
    OutcomeUnknownError,
)
from dragoman.limits import METADATA_PROPOSALS_MAX, RAFT_SNAPSHOT_BYTES_MAX
from dragoman.outcome import Outcome, attempt, failed
from dragoman.raft.membership import Membership
from dragoman.raft.ports import NO_NODE, Role, RoleChanged
from dragoman.world import Scheduler

_NOT_LEADING = "this node does not lead the quorum any more"


class _Read(msgspec.Struct, eq=False):
    term: int
    outcome: Outcome[None]
    #: Entries that have to be applied; None: not known yet.
    end: int | None = None


class EtcdQuorum:
    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        scheduler: Scheduler,
        gateway: Gateway,
        *,
        prefix: str,
        is_any_version: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._scheduler = scheduler
        self._settings = settings if settings is not None else Settings()
        self._calls = Calls(gateway, self._settings.call_s)
        self._calls.on_error = self._failed
        self._keys = Keys(prefix)
        self._history = History(
            self._calls,
            self._keys,
            scheduler,
            self._settings,
            self,
            is_any_version=is_any_version,
        )
        self._session: Session | None = None
        self._leadership: Leadership | None = None
        #: Ended leaderships with outcomes that are not known yet.
        self._ended: list[Leadership] = []
        #: The last known holder of the leader's key.
        self._holder: Held | None = None
        #: The last snapshot, even if it failed: its number of entries, and the revision that
        #: created it.
        self._snapshot_entries = 0
        self._snapshot_revision = 0
        self._is_snapshotting = False
        self._reads: list[_Read] = []
        self._is_loaded = False
        self._is_stopped = False
        self.version = 0
        #: Number of entries in the image.
        self.applied = 0
        self.role = Role.FOLLOWER
        self.term = 0
        self.leader = NO_NODE
        #: Incarnations of the live nodes, as far as etcd can tell.
        self.nodes: dict[int, int] = {}
        #: Called for every event right after it is applied, with the topic that it removed.
        self.on_applied: Callable[[Event, TopicMetadata | None], None] = _nothing
        #: Called when a snapshot has replaced the image, so that any part of it may have changed.
        self.on_restored: Callable[[], None] = _no_change
        #: Called when this node's role, the term or the leader changes.
        self.on_role: Callable[[RoleChanged], None] = _no_role
        #: Called once, when the image has all metadata that etcd had at this node's start.
        self.on_loaded: Callable[[], None] = _no_change
        #: Called with the incarnation of a live node, with None for a suspected one.
        self.on_node: Callable[[int, int | None], None] = _no_node
        #: Called after a fatal error; the quorum has stopped.
        self.on_failed: Callable[[DragomanError], None] = _no_failure

    # ---- start and stop

    def register(self, incarnation: int, ttl_s: int) -> None:
        """Announce this node as live, and let it lead."""
        assert self._session is None
        if self._is_stopped:
            return
        holder = Holder(self._node_id, incarnation)
        self._session = Session(
            self._calls, self._keys, self._scheduler, self._settings, holder, ttl_s
        )
        self._session.on_change = self._session_changed
        self._session.start()

    def replay(self) -> None:
        """Nothing: this node's disk has no metadata."""

    def start(self) -> None:
        """Read the metadata from etcd, and follow it."""
        self._history.look()

    def stop(self, error: DragomanError | None = None) -> None:
        """Stop proposing and applying; pending calls fail with `error`."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._history.stop()
        if self._session is not None:
            self._session.stop()
        if error is None:
            error = OutcomeUnknownError("the node stops; the metadata change may still happen")
        over = [*self._ended, self._leadership]
        self._leadership = None
        self._ended.clear()
        self.role, self.leader = Role.FOLLOWER, NO_NODE
        for each in over:
            if each is not None:
                each.stop(error)
        self._fail_reads(error)

    def fail(self) -> None:
        """The log has stopped, so this node must not lead."""
        self.stop(LogStoppedError("the log stopped; the outcome is unknown"))

    def gone(self, node: int) -> None:
        """The process of a node has ended: if it led, revoke its lease instead of waiting for it to
        expire.

        If the process is alive after all, it loses its leadership and nothing else.
        """
        if self._holder is not None and self._holder.holder.node == node and not self._is_stopped:
            self._calls.revoke(self._holder.lease)

    # ---- the port

    @property
    def is_leading(self) -> bool:
        return self._leadership is not None

    @property
    def has_agreed(self) -> bool:
        """Whether this node leads and the image has everything committed before."""
        return self.is_leading

    @property
    def membership(self) -> Membership:
        """All nodes as learners: none of them votes."""
        return Membership((), tuple(sorted(self._image.nodes)))

    def ends(self) -> dict[int, int]:
        """The progress of this node; that of others is unknown."""
        return {self._node_id: self.applied}

    def local_image(self) -> MetadataImage:
        """The image, to which this node's files may refer."""
        return self._image

    def version_at_end(self) -> int:
        return self.version if self._leadership is None else self._leadership.version_at_end

    def check_level(self, events: list[Event]) -> None:
        """Raises `ClusterError` for events that some node could not read."""
        self._image.check_level(events)

    def propose(self, events: list[Event], expected_version: int | None = None) -> Outcome[None]:
        if self._leadership is None:
            return failed(NotControllerError(self.leader))
        try:
            self.check_level(events)
        except ClusterError as error:
            return failed(error)
        return self._leadership.propose(events, expected_version)

    async def read(self) -> None:
        """Returns when the image has everything that was committed before this call.

        Raises `NotControllerError`, with the leader, on any other node.
        """
        if self._leadership is None:
            raise NotControllerError(self.leader)
        if len(self._reads) >= METADATA_PROPOSALS_MAX:
            raise ClusterError("too many reads of the metadata are waiting")
        read = _Read(self.term, Outcome())
        self._reads.append(read)
        self._calls.run(self._find_end(read))
        await read.outcome

    async def _find_end(self, read: _Read) -> None:
        """Ask etcd how many entries have to be applied to answer a read."""
        ranges = m.ranges(m.Range(key=self._keys.leader), m.Range(key=self._keys.head))
        answer = await attempt(self._calls.transaction(m.Transaction(success=ranges)))
        if read not in self._reads:
            # Failed meanwhile: this node does not lead any more.
            return
        if isinstance(answer, DragomanError):
            self._reads.remove(read)
            read.outcome.fail(OutcomeUnknownError(f"etcd gave no answer: {answer}"))
            return
        leader, head = answer.found()
        if not leader.kvs or leader.kvs[0].create_revision != read.term:
            self._reads.remove(read)
            read.outcome.fail(OutcomeUnknownError(_NOT_LEADING))
            return
        read.end = read_head(head.kvs[0].value).entries if head.kvs else 0
        self._answer_reads()

    # ---- callbacks of the history

    def take(self, number: int, value: bytes) -> None:
        self._apply(number, read_entry(value))

    def _apply(self, number: int, entry: Entry) -> None:
        if number != self.applied:
            # The entry was applied before.
            assert number < self.applied
            return
        self.applied += 1
        for event in entry.events:
            removed = self._image.apply(event)
            self.version += 1
            self.on_applied(event, removed)
        self._answer_reads()

    def restore(self, entries: int, state: bytes) -> None:
        self.version = restore_image(self._image, state)
        self.applied = entries
        self.on_restored()
        self._answer_reads()

    def question(self, ranges: tuple[m.Operation, ...]) -> m.Transaction:
        """Look; if there is no leader, the same transaction takes the leadership if it is still
        vacant.
        """
        session = self._session
        if self._holder is not None or session is None or not session.lease or not self._is_loaded:
            return m.Transaction(success=ranges)
        value = to_json(session.holder)
        put = m.Put(key=self._keys.leader, value=value, lease=session.lease)
        return m.Transaction(
            compare=(m.created(self._keys.leader, 0),),
            success=(*m.puts(put), *ranges),
            failure=ranges,
        )

    def seen(self, seen: Seen, *, is_newest: bool) -> None:
        if seen.snapshot is not None:
            self._snapshot_entries = max(self._snapshot_entries, seen.snapshot.entries)
            self._snapshot_revision = max(self._snapshot_revision, seen.snapshot_revision)
        if is_newest:
            self._see_nodes(seen)
            self._holder = seen.leader
        if not self._is_loaded:
            self._is_loaded = True
            self.on_loaded()
        is_leading = self._leadership is not None and self._leadership.term == self._own_term()
        if self._own_term() and self._holder == seen.leader and not is_leading:
            self._lead(seen)
        self._update_role()

    def unseen(self, failure: m.Failure) -> None:
        if failure.code == m.NOT_FOUND and self._session is not None:
            # The look would have taken the leadership for an expired lease.
            self._session.lost()

    def leader_seen(self, leader: Held | None) -> None:
        self._holder = leader
        self._update_role()

    def node_seen(self, node: int, held: Held | None) -> None:
        incarnation = None if held is None else held.holder.incarnation
        if self.nodes.get(node) == incarnation:
            return
        if incarnation is None:
            del self.nodes[node]
        else:
            self.nodes[node] = incarnation
        self.on_node(node, incarnation)

    def _failed(self, error: DragomanError) -> None:
        if not self._is_stopped:
            # Regardless of the error, sent proposals may have been committed.
            self.stop(OutcomeUnknownError(f"the node stops: {error}"))
            self.on_failed(error)

    def _see_nodes(self, seen: Seen) -> None:
        for node in [*self.nodes, *seen.nodes]:
            self.node_seen(node, seen.nodes.get(node))
        session, own = self._session, seen.nodes.get(self._node_id)
        if session is None or not session.lease or seen.revision < session.revision:
            return
        if own is not None and own.holder.incarnation > session.holder.incarnation:
            raise ClusterError(f"another process runs as node {self._node_id}, started later")
        if own is None or own.lease != session.lease:
            session.lost()

    # ---- leadership

    def _own_term(self) -> int:
        """The term in which this node holds the leader's key; 0: it does not hold it."""
        session, holder = self._session, self._holder
        if session is None or holder is None or not session.lease:
            return 0
        if holder.lease != session.lease:
            return 0
        return holder.created

    def _session_changed(self) -> None:
        self._update_role()
        if self._session is not None and self._session.lease:
            self._history.look()

    def _lead(self, seen: Seen) -> None:
        """No other node writes in this term, so it begins with the state in the look."""
        assert seen.leader is not None
        ours = (self.applied, self.version)
        if ours != (seen.head.entries, seen.head.version):
            raise ClusterError(f"metadata in etcd is inconsistent: {seen.head}, here {ours}")
        term = seen.leader.created
        self._leadership = Leadership(
            self._calls,
            self._keys,
            self._scheduler,
            self._settings,
            term,
            (seen.head, seen.head_revision),
            committed=self._committed,
            deposed=lambda: self._deposed(term),
        )

    def _deposed(self, term: int) -> None:
        """The request for leadership was refused: start over with a new session."""
        is_current = self._leadership is not None and self._leadership.term == term
        if is_current and self._session is not None:
            self._session.lost()
        self._history.look()

    def _update_role(self) -> None:
        """Derive role, term and leader from the holder of the leader's key."""
        if self._is_stopped:
            return
        holder, leadership = self._holder, self._leadership
        is_own = holder is not None and holder.holder.node == self._node_id
        is_leading = leadership is not None and leadership.term == self._own_term()
        if is_leading:
            role, leader = Role.LEADER, self._node_id
        elif holder is None or is_own:
            role, leader = Role.FOLLOWER, NO_NODE
        else:
            role, leader = Role.FOLLOWER, holder.holder.node
        term = self.term if holder is None else holder.created
        before = (self.role, self.term, self.leader)
        self.role, self.term, self.leader = role, term, leader
        if leadership is not None and not is_leading:
            self._leadership = None
            leadership.end(leader)
            self._ended = [each for each in (*self._ended, leadership) if each.is_busy]
            self._fail_reads(OutcomeUnknownError(_NOT_LEADING))
        if before != (role, term, leader):
            self.on_role(RoleChanged(role, term, leader))
        session = self._session
        lease = 0 if session is None else session.lease
        if holder is not None and is_own and lease not in (0, holder.lease):
            # The key of an earlier session, perhaps of an earlier process, prevents others from
            # leading.
            self._calls.revoke(holder.lease)
        if holder is None and lease:
            # Deferred: the current call may come from a look.
            self._scheduler.call_soon(self._history.look)

    def _committed(self, number: int, entry: Entry) -> None:
        self._apply(number, entry)
        due = self._snapshot_entries + self._settings.snapshot_entries
        if self.applied >= due and not self._is_snapshotting and self._leadership is not None:
            self._calls.run(self._snapshot(self._leadership.term))

    async def _snapshot(self, term: int) -> None:
        entries, state = self.applied, encode_image(self._image, self.version)
        if len(state) > RAFT_SNAPSHOT_BYTES_MAX:
            return
        self._is_snapshotting = True
        self._snapshot_entries = entries
        before = self._snapshot_revision
        revision = await SnapshotWriter(
            self._calls, self._keys, term, before, entries, state
        ).write()
        # After a failure, too, the next snapshot is due after as many entries.
        self._is_snapshotting = False
        self._snapshot_revision = max(self._snapshot_revision, revision)

    def forget_history(self, words: tuple[bytes, ...]) -> None:  # noqa: ARG002
        """The leader replaces the entries in etcd by a snapshot. etcd itself keeps old values until
        it is compacted and defragmented.
        """
        is_behind = self._snapshot_entries < self.applied
        if is_behind and not self._is_snapshotting and self._leadership is not None:
            self._calls.run(self._snapshot(self._leadership.term))

    # ---- reads

    def _answer_reads(self) -> None:
        ready = [each for each in self._reads if each.end is not None and each.end <= self.applied]
        for each in ready:
            self._reads.remove(each)
        for each in ready:
            each.outcome.succeed(None)

    def _fail_reads(self, error: DragomanError) -> None:
        waiting, self._reads = self._reads, []
        for each in waiting:
            each.outcome.fail(error)


def _nothing(_event: Event, _removed: TopicMetadata | None) -> None:
    return None


def _no_change() -> None:
    return None


def _no_role(_changed: RoleChanged) -> None:
    return None


def _no_node(_node: int, _incarnation: int | None) -> None:
    return None


def _no_failure(_error: DragomanError) -> None:
    return None
