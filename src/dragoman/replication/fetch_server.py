"""The leader's side of replication: one session for each follower node.

A session remembers the follower's position in every partition, so that a fetch names only changed
ones. One fetch is parked at a time; it is answered as soon as a partition has new data, or at its
time-out. A new high watermark alone does not wake it, and leaves with the next answer.

Batches are sent while they are still being synced here, so that all disks work in parallel. If they
are lost here, this node has crashed, and the next leader has another epoch: a follower with more
than the next leader is truncated by epochs, as usual.

Replicas added by a move are throttled; while they exceed the throttle they are *held*, and delay no
other partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragoman.checksum import crc32c
from dragoman.cluster.events import Member
from dragoman.errors import CorruptionError
from dragoman.replication.leader import LedPartition
from dragoman.replication.messages import (
    NONE,
    Fetched,
    FetchReply,
    FetchRequest,
    Position,
    Progress,
    Status,
)
from dragoman.replication.ports import Answer
from dragoman.types import Buffer
from dragoman.world import Handle, Scheduler

_NOTHING: Sequence[Buffer] = ()


class Partitions:
    """What a session needs from the node."""

    def __init__(
        self,
        find: Callable[[int], LedPartition | None],
        review: Callable[[LedPartition], None],
        unreadable: Callable[[LedPartition, CorruptionError], None],
    ) -> None:
        #: Returns the partition, if this node leads it.
        self.find = find
        #: Called when a follower may have become in sync.
        self.review = review
        #: Called when the log could not be read.
        self.unreadable = unreadable


class Session:
    """The session of one follower node. A `Listener` of every partition that it copies."""

    def __init__(
        self,
        partitions: Partitions,
        scheduler: Scheduler,
        throttle: Throttle,
        request: FetchRequest,
    ) -> None:
        self.follower: Member = request.follower
        self.number = request.session
        self._partitions = partitions
        self._scheduler = scheduler
        self._throttle = throttle
        self.seen_at = scheduler.time()
        self._positions: dict[int, Position] = {}
        #: Partitions that were answered; the next fetch gives their new positions.
        self._answered: set[int] = set()
        #: Partitions with data or a status to send.
        self._ready: dict[int, Fetched | None] = {}
        #: Partitions with data that the throttle holds back.
        self._held: dict[int, None] = {}
        self._release_timer: Handle | None = None
        #: Partitions with a new high watermark.
        self._watermarks: dict[int, None] = {}
        self._waiting: tuple[FetchRequest, Answer] | None = None
        self._timer: Handle | None = None

    # ---- requests of the follower

    def fetch(self, request: FetchRequest, answer: Answer) -> None:
        self._answer_now()
        self.seen_at = now = self._scheduler.time()
        for partition_id in request.dropped:
            self._forget(partition_id)
        for position in request.positions:
            self._take(position, now)
        self._waiting = (request, answer)
        if self._ready or request.wait_ms <= 0:
            self._answer_now()
        else:
            self._timer = self._scheduler.call_later(request.wait_ms / 1000, self._answer_now)

    def progress(self, message: Progress) -> None:
        self.seen_at = now = self._scheduler.time()
        for partition_id, leader_epoch, stable_end in message.stable_ends:
            leading = self._partitions.find(partition_id)
            position = self._positions.get(partition_id)
            is_told = position is not None and position.leader_epoch == leader_epoch
            if leading is not None and is_told and leading.leader_epoch == leader_epoch:
                leading.progressed(self.follower, stable_end, now)
                self._review(leading)

    def _take(self, position: Position, now: float) -> None:
        partition_id = position.partition_id
        self._positions.pop(partition_id, None)
        self._answered.discard(partition_id)
        leading = self._partitions.find(partition_id)
        if leading is None:
            self._ready[partition_id] = _not_led(position)
            return
        problem = leading.follow(self.follower, position, self, now)
        if problem is not None:
            leading.listeners.pop(self, None)
            self._ready[partition_id] = problem
            return
        leading.listeners[self] = None
        self._positions[partition_id] = position
        # Sent again even if it was sent before: a late answer was ignored.
        self._watermarks[partition_id] = None
        self._review(leading)
        self._ready.pop(partition_id, None)
        if _has_more(leading, position):
            self._offer(leading, partition_id)

    def _review(self, leading: LedPartition) -> None:
        if leading.wants_review(self.follower):
            self._partitions.review(leading)

    def _forget(self, partition_id: int) -> None:
        self._positions.pop(partition_id, None)
        self._ready.pop(partition_id, None)
        self._held.pop(partition_id, None)
        self._watermarks.pop(partition_id, None)
        leading = self._partitions.find(partition_id)
        if leading is not None:
            leading.listeners.pop(self, None)

    # ---- events of the leader

    def grown(self, partition_id: int) -> None:
        position = self._positions.get(partition_id)
        leading = self._partitions.find(partition_id)
        if position is None or leading is None or partition_id in self._answered:
            return
        if _has_more(leading, position):
            self._offer(leading, partition_id)
            self._answer_ready()

    def _offer(self, leading: LedPartition, partition_id: int) -> None:
        """There is data to copy: now, or when the throttle admits it."""
        if self._room(leading, 1) > 0:
            self._ready.setdefault(partition_id)
        else:
            self._hold(partition_id)

    def _room(self, leading: LedPartition, room: int) -> int:
        """How many of so many bytes of the partition may be sent."""
        if leading.is_added(self.follower):
            return min(room, self._throttle.room(self._scheduler.time()))
        return room

    def _hold(self, partition_id: int) -> None:
        self._held[partition_id] = None
        if self._release_timer is None:
            wait_s = self._throttle.wait_s()
            self._release_timer = self._scheduler.call_later(wait_s, self._release)

    def _release(self) -> None:
        self._release_timer = None
        held, self._held = self._held, {}
        for partition_id in held:
            self.grown(partition_id)

    def committed(self, partition_id: int) -> None:
        self._watermarks[partition_id] = None

    def resigned(self, partition_id: int) -> None:
        """This node stops leading the partition, or leads it in a new epoch."""
        position = self._positions.pop(partition_id, None)
        if position is not None:
            self._watermarks.pop(partition_id, None)
            self._ready[partition_id] = _not_led(position)
            self._answer_now()

    def close(self) -> None:
        """The follower has begun another session, or is gone."""
        for partition_id in list(self._positions):
            self._forget(partition_id)
        self._ready.clear()
        self._answer_now()
        if self._release_timer is not None:
            self._release_timer.cancel()

    # ---- answers

    def _answer_ready(self) -> None:
        if self._ready and self._waiting is not None:
            self._answer_now()

    def _answer_now(self) -> None:
        waiting, self._waiting = self._waiting, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waiting is None:
            return
        request, answer = waiting
        answers: list[Fetched] = []
        body: list[Buffer] = []
        room = request.bytes_max
        ready, self._ready = self._ready, {}
        for partition_id, problem in ready.items():
            if problem is not None:
                answers.append(problem)
                self._answered.add(partition_id)
            elif room > 0:
                fetched, buffers = self._read(partition_id, room)
                if fetched is not None:
                    answers.append(fetched)
                    body += buffers
                    room -= fetched.size
            else:
                self._ready[partition_id] = None
        self._add_watermarks(answers)
        checksum = 0
        for each in body:
            checksum = crc32c(each, checksum)
        reply = FetchReply(
            session=self.number, number=request.number, partitions=tuple(answers), checksum=checksum
        )
        answer(reply, body)

    def _read(self, partition_id: int, room: int) -> tuple[Fetched | None, Sequence[Buffer]]:
        position = self._positions.get(partition_id)
        leading = self._partitions.find(partition_id)
        if position is None or leading is None:
            return None, _NOTHING
        if not _has_more(leading, position):
            return None, _NOTHING
        room = self._room(leading, room)
        if room <= 0:
            self._hold(partition_id)
            return None, _NOTHING
        problem = leading.follow(self.follower, position, self, self.seen_at)
        if problem is not None:
            # Retention has deleted the position.
            self._answered.add(partition_id)
            return problem, _NOTHING
        log = leading.replica.log
        start = max(position.offset, log.log_start_offset)
        try:
            found = log.read(start, room, log.copy_end(start))
        except CorruptionError as error:
            self._partitions.unreadable(leading, error)
            return leading.answer(position, Status.UNREADABLE), _NOTHING
        if leading.is_added(self.follower):
            self._throttle.sent(found.size)
        self._watermarks.pop(partition_id, None)
        self._answered.add(partition_id)
        return leading.answer(position, Status.OK, size=found.size), found.buffers

    def _add_watermarks(self, answers: list[Fetched]) -> None:
        moved, self._watermarks = self._watermarks, {}
        for partition_id in moved:
            position = self._positions.get(partition_id)
            leading = self._partitions.find(partition_id)
            if position is not None and leading is not None:
                answers.append(leading.answer(position, Status.OK))


class FetchServer:
    """The sessions of all followers."""

    def __init__(self, partitions: Partitions, scheduler: Scheduler, throttle: Throttle) -> None:
        self._partitions = partitions
        self._scheduler = scheduler
        self._throttle = throttle
        self._sessions: dict[int, Session] = {}

    def fetch(self, request: FetchRequest, answer: Answer) -> None:
        session = self._sessions.get(request.follower.node_id)
        is_known = session is not None and _key(request) == (session.follower, session.number)
        is_late = session is not None and _key(request) < (session.follower, session.number)
        if is_late or (not is_known and request.number != 0):
            unknown = FetchReply(session=request.session, number=request.number, is_unknown=True)
            answer(unknown, _NOTHING)
            return
        if session is None or not is_known:
            if session is not None:
                session.close()
            session = Session(self._partitions, self._scheduler, self._throttle, request)
            self._sessions[request.follower.node_id] = session
        session.fetch(request, answer)

    def progress(self, message: Progress) -> None:
        session = self._sessions.get(message.follower.node_id)
        if session is not None and (session.follower, session.number) == _key(message):
            session.progress(message)

    def resigned(self, leading: LedPartition) -> None:
        for session in list(leading.listeners):
            assert isinstance(session, Session)
            session.resigned(leading.replica.metadata.partition_id)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()


def _has_more(leading: LedPartition, position: Position) -> bool:
    return position.offset < leading.replica.log.copy_end(position.offset)


def _not_led(position: Position) -> Fetched:
    return Fetched(
        *(position.partition_id, position.leader_epoch, position.offset),
        *(Status.NOT_LEADER, NONE, NONE),
    )


def _key(message: FetchRequest | Progress) -> tuple[Member, int]:
    return message.follower, message.session


# ---- the throttle


_NO_LIMIT = 1 << 62
#: Maximum credit, and the smallest piece: small ones would cost a message each.
_SAVED_S = 1.0
_PIECE_S = 0.1


class Throttle:
    """The throttle of all partitions that a node leads."""

    def __init__(self, bytes_per_s: Callable[[], int]) -> None:
        """`bytes_per_s` may change at any time; 0: no limit."""
        self._bytes_per_s = bytes_per_s
        #: Seconds needed to send the current credit; negative after the credit was exceeded.
        self._saved_s = _SAVED_S
        self._at = 0.0

    def room(self, now: float) -> int:
        """Bytes that may be sent now. The last batch may exceed them."""
        rate = self._bytes_per_s()
        if rate <= 0:
            return _NO_LIMIT
        self._saved_s = min(_SAVED_S, self._saved_s + (now - self._at))
        self._at = now
        return int(self._saved_s * rate) if self._saved_s >= _PIECE_S else 0

    def sent(self, size: int) -> None:
        rate = self._bytes_per_s()
        if rate > 0:
            self._saved_s -= size / rate

    def wait_s(self) -> float:
        """Seconds until `room` is above 0."""
        return max(0.001, _PIECE_S - self._saved_s)
