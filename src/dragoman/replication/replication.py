"""The partitions of a node that other nodes hold too: those it leads and those it follows.

`Replication` obeys the image: whenever an event about a partition was applied, the partition
becomes led, followed or neither. Nothing else makes a leader. A node acts for a partition only as
the incarnation under which the controller knows it, so it registers first; when it finds its own
data damaged, it registers again, which takes it out of every in-sync set, and copies the damaged
partitions from their new leaders.

The owner passes on every applied event, every stable group, and every message from a peer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Hashable
from functools import partial

from dragoman.cluster.events import (
    Event,
    Member,
    NodeConfigChanged,
    NodeFenced,
    NodeRegistered,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
)
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata, TopicMetadata
from dragoman.errors import CorruptionError, DragomanError
from dragoman.limits import ACKS_PATIENCE_S
from dragoman.log.partition import PartitionLog
from dragoman.outcome import start
from dragoman.replication.errors import NotLeader, RequestTimedOut
from dragoman.replication.fetch_server import FetchServer, Partitions, Throttle
from dragoman.replication.fetcher import Fetcher
from dragoman.replication.follower import FollowedPartition
from dragoman.replication.leader import LedPartition
from dragoman.replication.life import Life
from dragoman.replication.messages import (
    NONE,
    Decision,
    FetchRequest,
    HandOver,
    Heartbeat,
    InSyncChange,
    InSyncChanges,
    Progress,
)
from dragoman.replication.ports import Answer, Control, Peers, Timing
from dragoman.replication.replica import Replica
from dragoman.world import Scheduler

log = logging.getLogger("dragoman.replication")


class Waiting:
    """A replica that is neither led nor followed: nothing becomes committed."""

    epoch_start = 0

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def committed_end(self) -> int:
        return self._replica.log.high_watermark

    def is_sure(self, _refused: Hashable) -> bool:
        return False


class Replication:
    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        scheduler: Scheduler,
        peers: Peers,
        control: Control,
        open_replica: Callable[[PartitionMetadata], Replica],
        unshared: Callable[[PartitionMetadata], None],
        timing: Timing | None = None,
    ) -> None:
        """`open_replica` gives a partition that other nodes hold too, with its log open. `unshared`
        is called with those that this node holds alone or not at all.
        """
        self.node_id = node_id
        self._image = image
        self._scheduler = scheduler
        self._peers = peers
        self._control = control
        self._open = open_replica
        self._unshared = unshared
        self._timing = timing if timing is not None else Timing()
        #: The incarnation of this node; None until the controller has given one.
        self.member: Member | None = None
        self._life: Life | None = None
        self._is_registering = False
        #: Whether the controller has ever known this node since it started.
        self._was_known = False
        self._replicas: dict[int, Replica] = {}
        self._leading: dict[int, LedPartition] = {}
        self._following: dict[int, FollowedPartition] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._serving = FetchServer(
            Partitions(self._leading.get, self._review_soon, self._unreadable),
            scheduler,
            Throttle(self._timing.moved_bytes_per_s),
        )
        self._reviews: dict[LedPartition, None] = {}
        self._is_review_due = False
        self._is_stopped = False
        #: When the controller last answered a heartbeat.
        self._answered_at = scheduler.time()
        #: Other nodes have taken over: this one is about to stop, or its disk is full.
        self._is_leaving = False
        self._has_no_room = False
        #: There is room again, but events committed meanwhile are not applied yet.
        self._is_returning = False
        #: Called when other nodes have taken over because the disk is full, and when it has room.
        self.on_room: Callable[[bool], None] = _no_news
        #: Called when the controller knows the current incarnation of this node.
        self.on_registered: Callable[[], None] = _nothing
        #: Called with each partition that this node begins to lead, or ceases to lead.
        self.on_led: Callable[[Replica], None] = _no_replica
        self.on_resigned: Callable[[Replica], None] = _no_replica

    @property
    def controller_silence_s(self) -> float:
        """Seconds since the controller last answered this node."""
        return self._scheduler.time() - self._answered_at

    @property
    def led_count(self) -> int:
        """How many partitions this node leads that other nodes hold too."""
        return len(self._leading)

    # ---- start and stop

    def start(self, life: Life) -> None:
        """Open this node's replicas, and register with the controller."""
        self._life = life
        for partition in self._image.partitions.values():
            if self.node_id in partition.replicas and len(partition.replicas) > 1:
                self._replica(partition)
        self._register()
        if not self._timing.is_alone:
            self._beat()
            self._tick()

    def stop(self) -> None:
        """Acknowledge and copy nothing more: the node stops, or its disk has failed."""
        self._is_stopped = True
        for leading in list(self._leading.values()):
            self._resign(leading)
        for partition_id in list(self._following):
            self._unfollow(partition_id)
        self._serving.close()

    async def hand_over(self) -> None:
        """Before a clean stop: make other nodes lead, as far as they can, and stop copying."""
        if self.member is not None:
            await self._control.ask(HandOver(member=self.member))
            self._is_leaving = True
            self._copy_no_more()

    def _copy_no_more(self) -> None:
        """A follower that copied on would rejoin in-sync sets, and delay acknowledgements when it
        stops.
        """
        for partition_id in list(self._following):
            self._unfollow(partition_id)

    @property
    def has_room(self) -> bool:
        """Whether this node replicates: it does not while its disk is full."""
        return not self._has_no_room

    def _look_at_disk(self) -> None:
        """A node that cannot write delays acknowledgements: it hands over until there is room, and
        copies then what it has missed.

        It may not have been able to write the hand-over either: by its image it still leads. It
        returns as another incarnation, whose event is applied after all earlier ones.
        """
        assert self._life is not None
        if self._has_no_room and self._life.has_room:
            if not self._is_returning:
                log.info("there is room on the disk again")
                self._is_returning = True
                self._life.begin_another()
                self.member = None
                self._register()
        elif not self._has_no_room and not self._life.has_room and self.member is not None:
            self._run(self._hand_over_without_room(self.member))

    async def _hand_over_without_room(self, member: Member) -> None:
        reply = await self._control.ask(HandOver(member=member))
        if self._is_stopped or reply is None or self._has_no_room:
            return
        if Decision.ACCEPTED in reply.outcomes:
            self._has_no_room = True
            log.error("the disk is full: other nodes take over until there is room")
            self._copy_no_more()
            self.on_room(False)

    def _register(self) -> None:
        if not self._is_stopped and not self._is_registering:
            self._is_registering = True
            self._run(self._request_registration())

    async def _request_registration(self) -> None:
        assert self._life is not None
        damaged = tuple(
            partition_id
            for partition_id, replica in self._replicas.items()
            if replica.log.is_damaged
        )
        await self._control.ask(self._life.registration(self.node_id, damaged))
        if self._is_stopped:
            return
        # Whatever the reply, the registration counts once its event is applied: retry until then.
        self._is_registering = False
        if self.member is None:
            self._later(self._timing.retry_s, self._register)

    def controller_known(self) -> None:
        """There is a controller: a registration that is due need not wait for its retry."""
        if self._life is not None and self.member is None:
            self._register()

    def _beat(self) -> None:
        if self.member is not None:
            self._run(self._send_heartbeat(self.member))
        self._look_at_disk()
        self._later(self._timing.heartbeat_s, self._beat)

    async def _send_heartbeat(self, member: Member) -> None:
        reply = await self._control.ask(Heartbeat(member=member))
        if reply is not None:
            self._answered_at = self._scheduler.time()
        if not self._is_stopped and reply is not None and Decision.REFUSED in reply.outcomes:
            # Fenced meanwhile, or another process registered as this node.
            self._register()

    def _run(self, work: Coroutine[object, None, None]) -> None:
        start(work).then(_surface)

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._scheduler.call_later(seconds, self._unless_stopped, callback)

    def _unless_stopped(self, callback: Callable[[], None]) -> None:
        if not self._is_stopped:
            callback()

    # ---- events

    def applied(self, event: Event, removed: TopicMetadata | None = None) -> None:
        """Call after every event that was applied to the image."""
        if self._is_stopped or self._life is None:
            return
        match event:
            case PartitionChanged():
                partition = self._image.partitions.get(event.partition_id)
                if partition is not None:
                    self._settle(partition)
            case TopicCreated() | PartitionsAdded() | TopicConfigChanged():
                for partition in self._image.topics_by_id[event.topic_id].partitions:
                    self._settle(partition)
            case NodeConfigChanged():
                # The change may concern the minimum number of in-sync replicas.
                for leading in self._leading.values():
                    leading.agreed()
            case NodeRegistered() if event.node_id == self.node_id:
                self._became(event)
            case NodeFenced() if self.member == Member(event.node_id, event.incarnation):
                self._register()
            case _:
                for gone in removed.partitions if removed is not None else ():
                    self._forget(gone.partition_id)

    def _became(self, event: NodeRegistered) -> None:
        """The controller knows this node as this incarnation."""
        assert self._life is not None
        if not self._life.is_named_by(event):
            # A registration of an earlier life, applied late.
            self.member = None
            self._register()
        else:
            if not self._was_known:
                # Everything that this node had missed is applied.
                self._was_known = True
                self._image.leader_changes = self._image.in_sync_changes = 0
            self.member = Member(event.node_id, event.incarnation)
            self._life.registered()
            if self._is_returning:
                self._is_returning = self._has_no_room = False
                self.on_room(True)
            self.on_registered()
        for partition in self._image.partitions.values():
            self._settle(partition)

    def _settle(self, partition: PartitionMetadata) -> None:
        """Lead or follow the partition, or neither, as the image says."""
        partition_id = partition.partition_id
        is_elsewhere = self.node_id not in partition.replicas
        if is_elsewhere and self.member is None:
            self._pause(partition_id)
            return
        if is_elsewhere or len(partition.replicas) == 1:
            self._forget(partition_id)
            try:
                self._unshared(partition)
            except DragomanError as error:
                self._cannot_lead(partition, error)
            return
        replica = self._replica(partition)
        is_led = self.member in partition.members and partition.leader == self.node_id
        leading = self._leading.get(partition_id)
        if leading is not None:
            is_same = leading.leader_epoch == partition.leader_epoch
            if is_led and is_same and leading.member == self.member:
                leading.agreed()
                return
            self._resign(leading)
        if is_led:
            self._unfollow(partition_id)
            self._lead(replica)
        else:
            self._follow(replica)
        if replica.log.is_damaged:
            self.damaged(replica)

    def _replica(self, partition: PartitionMetadata) -> Replica:
        found = self._replicas.get(partition.partition_id)
        if found is None:
            found = self._replicas[partition.partition_id] = self._open(partition)
            found.role = Waiting(found)
            found.is_led = False
            found.on_unreadable = self.damaged
        return found

    def _pause(self, partition_id: int) -> None:
        """The image says that the partition was moved to other nodes. After a start that may be
        long ago, and the partition back here since: nothing is deleted before the image has this
        node's registration.
        """
        leading = self._leading.get(partition_id)
        if leading is not None:
            self._resign(leading)
        self._unfollow(partition_id)

    def _forget(self, partition_id: int) -> None:
        """The partition was deleted, or this node is its only replica or no longer one of them."""
        leading = self._leading.get(partition_id)
        if leading is not None:
            self._resign(leading)
        self._unfollow(partition_id)
        replica = self._replicas.pop(partition_id, None)
        if replica is not None:
            replica.on_unreadable = None

    # ---- leading

    def leading(self, partition_id: int) -> LedPartition:
        """The partition, if this node leads it. Raises `NotLeader`."""
        found = self._leading.get(partition_id)
        if found is None:
            partition = self._image.partitions.get(partition_id)
            leader = partition.leader if partition is not None else -1
            raise NotLeader(f"node {leader} leads partition {partition_id}", leader)
        return found

    def led(self) -> list[LedPartition]:
        """The partitions with further replicas that this node leads."""
        return list(self._leading.values())

    def follower_ends(self, partition_id: int) -> dict[int, int]:
        """The stable ends of the followers of a partition that this node leads."""
        leading = self._leading.get(partition_id)
        if leading is None:
            return {}
        return {node: max(each.stable_end, 0) for node, each in leading.followers.items()}

    def _lead(self, replica: Replica) -> None:
        assert self.member is not None
        try:
            self.begin_epoch(replica)
        except DragomanError as error:
            self._cannot_lead(replica.metadata, error)
            return
        now = self._scheduler.time()
        leading = LedPartition(replica, self._image, self.member, now)
        leading.on_doubt = partial(self._review_soon, leading)
        self._leading[replica.metadata.partition_id] = leading
        replica.role = leading
        replica.is_led = True
        leading.advance()
        self.on_led(replica)

    def _cannot_lead(self, partition: PartitionMetadata, error: DragomanError) -> None:
        """The disk is full: retry. No other node leads while this one is in sync and alive."""
        where = f"{partition.topic.name}-{partition.index}"
        log.error("%s: cannot be led: %s", where, error)
        self._later(self._timing.retry_s, partial(self._settle_again, partition))

    def _settle_again(self, partition: PartitionMetadata) -> None:
        if self._image.partitions.get(partition.partition_id) is partition:
            self._settle(partition)

    def begin_epoch(self, replica: Replica) -> None:
        """Make the epoch durable, before any request is served in it."""
        replica.log.begin_epoch(replica.metadata.leader_epoch)

    def _resign(self, leading: LedPartition) -> None:
        replica = leading.replica
        del self._leading[replica.metadata.partition_id]
        self._reviews.pop(leading, None)
        replica.role = Waiting(replica)
        replica.is_led = False
        self._serving.resigned(leading)
        # Records that are not committed yet may be in the next leader's log, or not.
        replica.fail_waiters(
            RequestTimedOut(f"{replica.log.describe()}: the leader changed; the outcome is unknown")
        )
        self.on_resigned(replica)

    def _review_soon(self, leading: LedPartition) -> None:
        self._reviews[leading] = None
        if not self._is_review_due:
            self._is_review_due = True
            self._scheduler.call_soon(self._review)

    def _tick(self) -> None:
        """Detect lagging followers and expired waits, which no message reports."""
        now = self._scheduler.time()
        for leading in list(self._leading.values()):
            leading.expire(now, ACKS_PATIENCE_S)
            self._reviews[leading] = None
        self._review()
        self._later(self._timing.lag_s / 2, self._tick)

    def _review(self) -> None:
        self._is_review_due = False
        reviews, self._reviews = self._reviews, {}
        if self.member is None:
            return
        now = self._scheduler.time()
        wanted: list[tuple[LedPartition, InSyncChange]] = []
        for leading in reviews:
            change = leading.wanted_change(now, self._timing.lag_s)
            if change is not None:
                wanted.append((leading, change))
        if wanted:
            self._run(self._request_changes(self.member, wanted))

    async def _request_changes(
        self, member: Member, wanted: list[tuple[LedPartition, InSyncChange]]
    ) -> None:
        changes = tuple(each for _, each in wanted)
        reply = await self._control.ask(InSyncChanges(leader=member, changes=changes))
        if self._is_stopped:
            return
        outcomes = reply.outcomes if reply is not None else ()
        for number, (leading, change) in enumerate(wanted):
            known = number < len(outcomes)
            outcome = outcomes[number] if known else Decision.UNKNOWN
            if leading.answered(change, outcome):
                self._later(self._timing.retry_s, partial(self._review_again, leading))

    def _review_again(self, leading: LedPartition) -> None:
        if self._leading.get(leading.replica.metadata.partition_id) is leading:
            self._review_soon(leading)

    def _unreadable(self, leading: LedPartition, error: CorruptionError) -> None:
        self.damaged(leading.replica, error)

    def damaged(self, replica: Replica, error: DragomanError | None = None) -> bool:
        """A replica's own data is damaged: copy it from another node.

        Called whenever reading a partition has failed. Nothing is deleted before other nodes lead.
        Returns whether another node has the lost records, alive or not at the moment.
        """
        if error is not None and not replica.log.is_damaged:
            replica.log.report(str(error))
        metadata = replica.metadata
        has_copies = any(node != self.node_id for node in (*metadata.in_sync, *metadata.eligible))
        if self._life is None or self.member is None or len(metadata.replicas) < 2:
            return has_copies
        following = self._following.get(metadata.partition_id)
        # A leader that knows this node's end may be adding it to the in-sync set just now.
        is_reported = following is not None and following.reported_stable_end != NONE
        counts = self.member in metadata.members or self.node_id in metadata.eligible or is_reported
        others = any(
            node != self.node_id and node not in self._image.fenced
            for node in (*metadata.in_sync, *metadata.eligible)
        )
        if counts and others:
            self._life.begin_another()
            self.member = None
            # In a later turn: the reader may be in any state.
            self._scheduler.call_soon(self._register)
        return has_copies

    # ---- following

    def _follow(self, replica: Replica) -> None:
        partition = replica.metadata
        partition_id = partition.partition_id
        known = self._following.get(partition_id)
        is_same = known is not None and known.leader_epoch == partition.leader_epoch
        if known is not None and is_same and known.member == self.member:
            return
        self._unfollow(partition_id)
        is_withdrawn = self._is_leaving or self._has_no_room
        if self.member is None or is_withdrawn or partition.leader in (-1, self.node_id):
            return
        following = self._following[partition_id] = FollowedPartition(replica, self.member)
        replica.role = following
        fetcher = self._fetchers.get(partition.leader)
        if fetcher is None:
            fetcher = self._fetchers[partition.leader] = Fetcher(
                partition.leader,
                self._peers,
                self._scheduler,
                self._timing,
                lambda each: self.damaged(each.replica),
            )
        fetcher.add(following, self.member)

    def _unfollow(self, partition_id: int) -> None:
        following = self._following.pop(partition_id, None)
        if following is not None:
            following.replica.role = Waiting(following.replica)
            self._fetchers[following.leader].remove(partition_id)

    # ---- events of the log and of peers

    def written(self, partitions: list[PartitionLog]) -> None:
        """A group of these partitions is being synced; followers sync it at the same time."""
        for partition in partitions:
            leading = self._leading.get(partition.identity.partition_id)
            if leading is not None:
                leading.grown()

    def stable(self, partitions: list[PartitionLog]) -> None:
        """A group with records of these partitions is stable."""
        now = self._scheduler.time()
        for partition in partitions:
            partition_id = partition.identity.partition_id
            leading = self._leading.get(partition_id)
            if leading is not None:
                leading.stable(now)
                continue
            following = self._following.get(partition_id)
            if following is not None:
                following.replica.advance()
                self._fetchers[following.leader].became_stable(following)

    def fetch(self, request: FetchRequest, answer: Answer) -> None:
        """Serve a fetch of a follower. Only for authenticated peers."""
        self._serving.fetch(request, answer)

    def progress(self, message: Progress) -> None:
        self._serving.progress(message)

    def restored(self) -> None:
        """A snapshot has replaced the image, so that any part of it may have changed."""
        if self._life is None or self._is_stopped:
            return
        for partition_id in list(self._replicas):
            if partition_id not in self._image.partitions:
                self._forget(partition_id)
        known = self._image.registrations.get(self.node_id)
        if known is not None and self._life.is_named_by(known):
            self._became(known)
        else:
            self.member = None
            for partition in self._image.partitions.values():
                self._settle(partition)


def _surface(error: DragomanError | None) -> None:
    """Requests to the controller do not fail: an error is one of this node, for its caller."""
    if error is not None:
        raise error


def _no_news(_has_room: bool) -> None:
    return None


def _nothing() -> None:
    return None


def _no_replica(_replica: Replica) -> None:
    return None
