"""The broker core: topics, partitions and those who wait for them, behind one object.

Everything here is synchronous and runs on the loop's thread. What takes time (a durable append, a
metadata change) calls back. Domain types only: protocol handlers translate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from dragoman.broker.capturing import Capturing
from dragoman.broker.cluster import Cluster, Links, NoLinks
from dragoman.broker.configs import GroupConfigs, NodeConfigs
from dragoman.broker.coordination import Coordination, GroupDialect
from dragoman.broker.copies import InternalCopies
from dragoman.broker.deferring import Deferring
from dragoman.broker.errors import RequestTimedOut, ShuttingDown, UnknownTopic, UnknownTopicId
from dragoman.broker.features import Features
from dragoman.broker.fetch import Fetch, Fetched, FetchLimits, Finish, Wanted
from dragoman.broker.gather import Gatherer
from dragoman.broker.leadership import Leadership
from dragoman.broker.maintenance import Maintenance
from dragoman.broker.neighbours import Neighbours, NoNeighbours
from dragoman.broker.publishing import Publishing
from dragoman.broker.quotas import ClientQuotas
from dragoman.broker.relaying import Relaying, Told
from dragoman.broker.replica import Acknowledge, Replica, not_leader
from dragoman.broker.topics import NewTopic, Topics
from dragoman.broker.work_queue import WorkQueue
from dragoman.captures.definition import POSITIONS_TOPIC
from dragoman.cluster.etcd.calls import Gateway
from dragoman.cluster.events import (
    CaptureDefined,
    CaptureRemoved,
    Event,
    NodeConfigChanged,
    NodeFenced,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from dragoman.cluster.metadata import (
    METADATA_PARTITION_ID,
    MetadataImage,
    PartitionMetadata,
    TopicMetadata,
)
from dragoman.config.settings import Settings
from dragoman.config.topics import TopicConfig
from dragoman.errors import (
    CorruptionError,
    DiskFullError,
    DragomanError,
    FormatError,
    LogError,
)
from dragoman.log.checkpoint import PARTITIONS
from dragoman.log.manifest import Identity
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.security.authorizer import AllowAll, Authorizer
from dragoman.types import TopicName
from dragoman.world import Clock, HostNames, NumericHosts, Random, Scheduler

log = logging.getLogger("dragoman.broker")

METADATA_TOPIC = "__cluster_metadata"
_ESCAPED_NAME_CHARACTERS_MAX = 120


class Coordinates(Protocol):
    """What works for the leaders of internal topics."""

    def topics(self) -> dict[str, int]: ...

    def led(self, topic: str, index: int, leader_epoch: int) -> None: ...

    def resigned(self, topic: str, index: int) -> None: ...


class Broker:
    def __init__(
        self,
        store: LogStore,
        settings: Settings,
        scheduler: Scheduler,
        clock: Clock,
        random: Random,
        authorizer: Authorizer | None = None,
        dialect: GroupDialect | None = None,
        links: Links | None = None,
        etcd: Gateway | None = None,
    ) -> None:
        """`dialect` reads what members of groups tell each other on the wires that are served;
        `links` lead to the other nodes, if there are any; `etcd` has the metadata, if not they.
        """
        #: As they are now; see `_reconfigure`.
        self.settings = settings
        self.store = store
        self.scheduler = scheduler
        self.clock = clock
        self.random = random
        self.authorizer = authorizer if authorizer is not None else AllowAll()
        self.node_id = settings.node_id
        self.image = MetadataImage()
        #: Whether the log has what the journal had, and may be closed as clean.
        self.is_recovered = False
        #: Whether the cluster knows this node, and clients may come.
        self.is_ready = False
        #: Names that are resolved beside the loop; the server sets one that can.
        self.host_names: HostNames = NumericHosts()
        self.is_stopping = False
        #: Told when the node begins to stop: for what waits for no answer, such as streams.
        self.on_stopping: list[Callable[[], None]] = []
        #: Told of nodes that are taken for gone: what they were asked they may never answer.
        self.on_fenced: list[Callable[[int], None]] = []
        #: Called when a group commit has been acknowledged to all who waited for it.
        self.after_commit: Callable[[], None] = _do_nothing
        #: Told once when the log has failed, or the metadata: the process must stop.
        self.on_fatal: Callable[[OSError | DragomanError], None] = _ignore
        #: Requests that name so many things that they are worked on over several loop turns.
        self.work = WorkQueue(scheduler)
        self._replicas: dict[int, Replica] = {}
        self._fetches: dict[Fetch, None] = {}
        store.on_stable = self._stable
        store.on_failure = self._failed
        store.on_refused = self._refused
        store.on_rolled = self._rolled
        store.on_damage = self._damaged
        self._metadata_log = self._open_metadata_log()
        self.cluster = Cluster(self, self._metadata_log, links or NoLinks(), etcd)
        self.quorum = self.cluster.quorum
        self.quorum.on_applied = self._applied
        self.quorum.on_restored = self._restored
        self.changes = changes = self.cluster.changes
        self.topics = Topics(self.image, changes, settings, clock, random)
        self.topics.reserve(METADATA_TOPIC)
        self.node_configs = NodeConfigs(self.image, changes, settings, self.node_id)
        self.group_configs = GroupConfigs(self.image, changes, lambda: self.settings)
        self.quotas = ClientQuotas(self.image, changes)
        self.leadership = Leadership(self.image, self.cluster)
        self.features = Features(self.image, changes)
        #: The way to other nodes for what clients want of them.
        self.neighbours: Neighbours = NoNeighbours()
        self.coordination = Coordination(self, dialect)
        self.publishing = Publishing(self, self.coordination.producer_ids)
        self.deferring = Deferring(self, self.coordination.producer_ids)
        self.capturing = Capturing(self)
        #: What works for the leaders of internal topics.
        self.coordinating: tuple[Coordinates, ...] = (
            self.coordination,
            self.publishing,
            self.deferring,
            self.capturing,
        )
        self.gatherer = Gatherer(scheduler, clock)
        self.relaying = Relaying(self)
        #: By protocol: takes what other nodes relay for its clients, and a callback for the answer.
        self.relayed: dict[str, Callable[[memoryview, Told], None]] = {}
        #: What the listeners of one protocol share, by protocol.
        self.shared: dict[str, object] = {}
        self.maintenance = Maintenance(self)
        self.cluster.on_newcomer = InternalCopies(self).look

    # ---- start and stop

    def _open_metadata_log(self) -> PartitionLog:
        identity = Identity(
            partition_id=METADATA_PARTITION_ID, topic=METADATA_TOPIC, partition=0, topic_id=""
        )
        config = TopicConfig.build(self.settings, {})
        return self.store.partition(identity, directory_name(identity), config)

    def load(self, done: Acknowledge) -> None:
        """Get what metadata is not in the log; then `done`, perhaps never, and `recover` may be
        called.
        """
        self.cluster.load(done)

    def recover(self) -> None:
        """Bring the log back, and with it what is known of the metadata.

        Raises `ConfigError` for the data of another node, `FormatError` and `CorruptionError` for
        metadata that cannot be read; the log is not recovered then and must not be closed as clean.
        """
        self.cluster.replay()
        self._replay_partitions()
        self.store.finish_recovery()
        self._remove_left_overs()
        self.is_recovered = True

    def start(self, done: Acknowledge) -> None:
        """Have the cluster know this node; then `done`, and clients may come.

        Recovers first, unless that was done, and raises as that does.
        """
        if not self.is_recovered:
            self.recover()

        def ready() -> None:
            if not self.is_ready:
                self.is_ready = True
                self._remove_left_overs()
                self.coordination.start()
                self.publishing.start()
                self._lead_coordinators()
                self.maintenance.start()
                done(None)

        replication = self.cluster.replication
        self.store.on_written = replication.written
        replication.on_led = lambda replica: self._led(replica.metadata)
        replication.on_resigned = lambda replica: self._resigned(replica.metadata)
        self.cluster.start(ready)

    def _replay_partitions(self) -> None:
        """What the journal holds goes into the partitions, whether they are still wanted or not:
        what is agreed on is not known yet, only what this node was told.
        """
        pending = self.store.pending_partitions
        known = self.quorum.local_image() if pending else self.image
        for partition_id in pending:
            metadata = known.partitions.get(partition_id)
            if metadata is not None:
                self._open_log(metadata)

    def _lead_coordinators(self) -> None:
        """Begin to coordinate what this node leads by now."""
        if not self.settings.is_clustered:
            self._coordinate_all()
            return
        for name in self._coordinated():
            topic = self.image.topics.get(name)
            for partition in topic.partitions if topic is not None else ():
                found = self._replicas.get(partition.partition_id)
                if partition.replicas == (self.node_id,) or (found is not None and found.is_led):
                    self._led(partition)

    def _coordinate_all(self) -> None:
        """Alone, this node coordinates everything: it leads all partitions of the internal topics
        that say so, also of those that are yet to be made.
        """
        for part in self.coordinating:
            for name, count in part.topics().items():
                topic = self.image.topics.get(name)
                for index in range(count):
                    epoch = 0 if topic is None else topic.partitions[index].leader_epoch
                    part.led(name, index, epoch)

    def _coordinated(self) -> dict[str, Coordinates]:
        """The internal topics whose leaders coordinate something, and what does."""
        return {name: part for part in self.coordinating for name in part.topics()}

    def _led(self, partition: PartitionMetadata) -> None:
        part = self._coordinated().get(partition.topic.name)
        if part is not None and self.is_ready and self.settings.is_clustered:
            part.led(partition.topic.name, partition.index, partition.leader_epoch)

    def _resigned(self, partition: PartitionMetadata) -> None:
        part = self._coordinated().get(partition.topic.name)
        if part is not None and self.is_ready:
            part.resigned(partition.topic.name, partition.index)

    def _remove_left_overs(self) -> None:
        """Directories of topics whose deletion was agreed on but not finished."""
        if self.store.has_failed():
            return
        for name in self.store.disk.names(PARTITIONS):
            number = name.partition("-")[0]
            if not number.isdecimal():
                continue
            partition_id = int(number)
            is_deleted = METADATA_PARTITION_ID < partition_id < self.image.next_partition_id
            if is_deleted and partition_id not in self.image.partitions:
                log.info("removing %s/%s: its topic was deleted", PARTITIONS, name)
                directory = f"{PARTITIONS}/{name}"
                for each in self.store.disk.names(directory):
                    self.store.disk.remove(f"{directory}/{each}")
                self.store.disk.remove_directory(directory)

    def stop(self) -> None:
        """Give everybody who waits an answer; appends already taken become durable first."""
        self.is_stopping = True
        for each in self.on_stopping:
            each()
        self.maintenance.stop()
        self.coordination.close()
        self.publishing.close()
        self.deferring.close()
        self.store.settle_all()
        for fetch in list(self._fetches):
            fetch.finish_now()
        # First: of records that other nodes may have by now nobody must say that they are refused.
        self.cluster.stop()
        for replica in list(self._replicas.values()):
            replica.fail_waiters(ShuttingDown("the node is stopping"))

    # ---- partitions

    def find(self, topic: str, index: int) -> Replica:
        """The partition, ready to be read and written. Raises `UnknownTopic` or `NotLeader`."""
        metadata = self.image.topics.get(topic)
        if metadata is None or not 0 <= index < len(metadata.partitions):
            raise UnknownTopic(f"there is no partition {index} of topic {topic!r}")
        return self.replica(metadata.partitions[index])

    def find_by_id(self, topic_id: bytes, index: int) -> Replica:
        metadata = self.image.topics_by_id.get(topic_id)
        if metadata is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id.hex()}")
        if not 0 <= index < len(metadata.partitions):
            raise UnknownTopic(f"there is no partition {index} of topic {metadata.name!r}")
        return self.replica(metadata.partitions[index])

    def replica(self, metadata: PartitionMetadata) -> Replica:
        """The partition, if this node leads it. Raises `NotLeader`."""
        found = self._replicas.get(metadata.partition_id)
        if (found is None or not found.is_led) and metadata.replicas == (self.node_id,):
            found = found if found is not None else self.open_replica(metadata)
            self._set_alone(found)
        if found is None or not found.is_led:
            raise not_leader(metadata)
        return found

    def held(self, metadata: PartitionMetadata) -> Replica:
        """This node's copy of a partition, led or not. Raises `NotLeader` when it has none."""
        found = self._replicas.get(metadata.partition_id)
        return found if found is not None else self.replica(metadata)

    def open_replica(self, metadata: PartitionMetadata) -> Replica:
        """This node's copy of a partition, led or not."""
        found = self._replicas.get(metadata.partition_id)
        if found is None:
            config = self.topics.config_of(metadata.topic)
            found = Replica(metadata, self._open_log(metadata), config)
            found.log.config = config
            self._replicas[metadata.partition_id] = found
        return found

    def _open_log(self, metadata: PartitionMetadata) -> PartitionLog:
        identity = Identity(
            partition_id=metadata.partition_id,
            topic=metadata.topic.name,
            partition=metadata.index,
            topic_id=metadata.topic.topic_id.hex(),
        )
        config = self.topics.config_of(metadata.topic)
        # The metadata may be older than the data: whoever holds the partition by now, others may.
        is_shared = self.settings.is_clustered
        return self.store.partition(identity, directory_name(identity), config, is_shared=is_shared)

    def unshared(self, metadata: PartitionMetadata) -> None:
        """This node holds the partition alone from now on, or does not hold it any more."""
        found = self._replicas.get(metadata.partition_id)
        if metadata.replicas == (self.node_id,):
            if found is not None:
                self._set_alone(found)
            if metadata.leader == self.node_id:
                self._led(metadata)
        elif found is not None:
            self._moved_away(found)

    def _moved_away(self, replica: Replica) -> None:
        del self._replicas[replica.metadata.partition_id]
        if replica.is_led:
            replica.is_led = False
            self._resigned(replica.metadata)
        replica.is_moved = True
        where = replica.log.describe()
        # Records that wait may be in the next leader's log, or may not.
        replica.fail_waiters(RequestTimedOut(f"{where} has moved; the outcome is unknown"))
        try:
            # Not removed: it may come back, under the same id.
            replica.log.restart_at(0)
        except DragomanError as error:
            log.warning("%s: keeps records nobody needs: %s", where, error)

    def _set_alone(self, replica: Replica) -> None:
        """Raises what writing to the log does: then it is not led, and to be tried again."""
        replica.role = None
        replica.is_led = False
        if replica.metadata.leader == self.node_id:
            if replica.leader_epoch > max(replica.log.epochs.latest, 0):
                replica.log.begin_epoch(replica.leader_epoch)
            replica.is_led = True
            replica.advance()

    @property
    def metadata_log(self) -> PartitionLog:
        return self._metadata_log

    def open_replicas(self) -> list[Replica]:
        return list(self._replicas.values())

    # ---- topics

    def ensure_topic(self, new: NewTopic, done: Acknowledge) -> None:
        """Create the topic unless it exists; for topics created on first use."""
        if new.name == POSITIONS_TOPIC:
            self.capturing.ensure_topic(done)
        else:
            self.topics.ensure(new, done)

    # ---- fetch

    def fetch(self, wanted: list[Wanted], limits: FetchLimits, finish: Finish) -> Fetch | None:
        """Read now, or when there is enough; None when the answer has been given already."""

        def fetched(found: list[Fetched]) -> None:
            self._fetches.pop(fetch, None)
            finish(found)

        fetch = Fetch(self.scheduler, wanted, limits, fetched)
        self._fetches[fetch] = None
        fetch.start()
        return fetch if fetch in self._fetches else None

    def cancel(self, fetch: Fetch) -> None:
        """The client is gone."""
        self._fetches.pop(fetch, None)
        fetch.cancel()

    # ---- what the log and the quorum report

    def _stable(self, partitions: list[PartitionLog]) -> None:
        # In the order of the log: a topic may be deleted before, or after, it is written to.
        for partition in partitions:
            replica = partition.owner
            if isinstance(replica, Replica):
                if replica.role is None:
                    replica.advance()
            elif partition is self._metadata_log:
                self.cluster.metadata_stable()
        self.cluster.stable(partitions)
        self.after_commit()

    def _rolled(self, partition: PartitionLog) -> None:
        if isinstance(partition.owner, Replica):
            self.maintenance.rolled(partition.owner)

    def _refused(self, partition: PartitionLog) -> None:
        replica = partition.owner
        error = DiskFullError("the disk is full")
        if isinstance(replica, Replica):
            replica.fail_waiters(error, above=partition.log_end_offset)
        elif partition is self._metadata_log:
            self.cluster.metadata_refused()

    def _damaged(self, partition: PartitionLog) -> None:
        """Whatever read the partition: where other nodes hold it, it is copied anew."""
        replica = partition.owner
        if isinstance(replica, Replica) and self.is_ready:
            # Not within the call: the reader may be in the middle of anything.
            self.scheduler.call_soon(self._copy_anew, replica)

    def _copy_anew(self, replica: Replica) -> None:
        if replica.on_unreadable is not None and replica.log.is_damaged:
            error = CorruptionError(replica.log.directory, 0, "damaged")
            replica.on_unreadable(replica, error)

    def give_up(self, error: FormatError) -> None:
        """The cluster has agreed on something that this release does not know."""
        log.critical("%s", error)
        self.cluster.stop()
        self.on_fatal(OSError(str(error)))

    def _failed(self, error: OSError) -> None:
        log.critical("the log failed and takes no more writes: %s", error)
        # First: whatever comes of telling the others, the process must end.
        self.on_fatal(error)
        self.cluster.stop()
        # Not the refusal that later writes get: a sync that failed may have written all the same.
        stopped = RequestTimedOut(f"the log stopped: {error}; the outcome is unknown")
        for replica in list(self._replicas.values()):
            replica.fail_waiters(stopped)

    def _applied(self, event: Event, removed: TopicMetadata | None) -> None:
        self.cluster.applied(event, removed)
        match event:
            case TopicDeleted():
                assert removed is not None
                self._drop_deleted(removed)
            case TopicConfigChanged():
                for partition in self.image.topics_by_id[event.topic_id].partitions:
                    replica = self._replicas.get(partition.partition_id)
                    if replica is not None:
                        self._refresh_config(replica)
            case NodeConfigChanged():
                self._reconfigure()
            case NodeFenced():
                for each in self.on_fenced:
                    each(event.node_id)
            case CaptureDefined() | CaptureRemoved():
                self.capturing.changed()
            case TopicCreated() | PartitionsAdded() if self.is_ready:
                self.coordination.topics_changed()
            case _:
                return

    def _restored(self) -> None:
        """A snapshot has replaced the image, and every object in it."""
        for opened in self.store.open_partitions():
            partition_id = opened.identity.partition_id
            if opened is not self._metadata_log and partition_id not in self.image.partitions:
                self._drop(partition_id)
        for partition_id, replica in self._replicas.items():
            replica.metadata = self.image.partitions[partition_id]
        self._reconfigure()
        self.cluster.restored()
        if self.is_ready:
            self._remove_left_overs()
            self.coordination.topics_changed()
            self.deferring.targets_deleted()
        self.capturing.changed()

    def _refresh_config(self, replica: Replica) -> None:
        replica.config = replica.log.config = self.topics.config_of(replica.metadata.topic)

    def _reconfigure(self) -> None:
        """Settings changed at run time: everybody who keeps some is told."""
        self.settings = self.node_configs.effective()
        self.topics.reconfigure(self.settings)
        self.coordination.reconfigure(self.settings)
        self.maintenance.reconfigured()
        for replica in self._replicas.values():
            self._refresh_config(replica)

    def _drop_deleted(self, topic: TopicMetadata) -> None:
        for partition in topic.partitions:
            self._drop(partition.partition_id)
        if self.is_ready:
            # Partitions that nobody used since the start have directories, too.
            self._remove_left_overs()
            self.coordination.topic_deleted(TopicName(topic.name))
            self.deferring.targets_deleted()

    def _drop(self, partition_id: int) -> None:
        opened = self.store.opened(partition_id)
        if opened is not None and self.settings.is_clustered:
            # The next start may find records in the journal before it knows of the deletion: then
            # they shall not seem to be the rest of a damaged log.
            with suppress(LogError):
                opened.restart_at(0)
        if opened is not None and not self.store.has_failed():
            self.store.remove_partition(opened)
        replica = self._replicas.pop(partition_id, None)
        if replica is not None:
            replica.fail_waiters(UnknownTopic(f"{replica.log.describe()} was deleted"))

    def new_cluster_id(self) -> str:
        return new_cluster_id(self.random)


def directory_name(identity: Identity) -> str:
    """Unique by the id; the rest is for people. A long name is cut: the manifest has it whole."""
    escaped = "".join(
        character if character.isascii() and (character.isalnum() or character in "._-") else "~"
        for character in identity.topic
    )
    cut = escaped[:_ESCAPED_NAME_CHARACTERS_MAX]
    return f"{identity.partition_id}-{cut}-{identity.partition}"


def new_cluster_id(random: Random) -> str:
    """22 characters, as Kafka's: a random UUID in URL-safe base64."""
    import base64

    raw = random.getrandbits(128).to_bytes(16, "big")
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _do_nothing() -> None:
    return None


def _ignore(_: OSError | DragomanError) -> None:
    return None
