"""The broker core: topics, partitions and those who wait for them, behind one object.

Everything here is synchronous and runs on the loop's thread. What takes time (a durable append, a
metadata change) calls back. Domain types only: protocol handlers translate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dragoman.broker.configs import GroupConfigs, NodeConfigs
from dragoman.broker.coordination import Coordination, GroupDialect
from dragoman.broker.errors import NotLeader, ShuttingDown, UnknownTopic, UnknownTopicId
from dragoman.broker.features import Features
from dragoman.broker.fetch import Fetch, Fetched, FetchLimits, Finish, Wanted
from dragoman.broker.gather import Gatherer
from dragoman.broker.leadership import Leadership
from dragoman.broker.maintenance import Maintenance
from dragoman.broker.publishing import Publishing
from dragoman.broker.quotas import ClientQuotas
from dragoman.broker.replica import Acknowledge, Replica
from dragoman.broker.topics import NewTopic, Topics
from dragoman.cluster.events import (
    ClusterCreated,
    Event,
    NodeConfigChanged,
    NodeRegistered,
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
from dragoman.cluster.quorum import SingleVoter
from dragoman.config.settings import Settings
from dragoman.config.topics import TopicConfig
from dragoman.errors import ConfigError, DiskFullError, DragomanError, LogStoppedError
from dragoman.log.checkpoint import PARTITIONS
from dragoman.log.manifest import Identity
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.security.authorizer import AllowAll, Authorizer
from dragoman.types import TopicName
from dragoman.world import Clock, Random, Scheduler

log = logging.getLogger("dragoman.broker")

METADATA_TOPIC = "__cluster_metadata"
_ESCAPED_NAME_CHARACTERS_MAX = 120


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
    ) -> None:
        """`dialect` reads what members of groups tell each other on the wires that are served."""
        #: As they are now; see `_reconfigure`.
        self.settings = settings
        self.store = store
        self.scheduler = scheduler
        self.clock = clock
        self.random = random
        self.authorizer = authorizer if authorizer is not None else AllowAll()
        self.node_id = settings.node_id
        self.image = MetadataImage()
        self.is_ready = False
        self.is_stopping = False
        #: Told when the node begins to stop: for what waits for no answer, such as streams.
        self.on_stopping: list[Callable[[], None]] = []
        #: Called when a group commit has been acknowledged to all who waited for it.
        self.after_commit: Callable[[], None] = _do_nothing
        #: Told once when the log has failed: the process must stop.
        self.on_fatal: Callable[[OSError], None] = _ignore
        self._replicas: dict[int, Replica] = {}
        self._fetches: dict[Fetch, None] = {}
        store.on_stable = self._stable
        store.on_failure = self._failed
        store.on_refused = self._refused
        self._metadata_log = self._open_metadata_log()
        self.quorum = SingleVoter(self._metadata_log, self.image, self.node_id, clock)
        self.quorum.on_applied = self._applied
        self.topics = Topics(self.image, self.quorum, settings, clock, random)
        self.topics.reserve(METADATA_TOPIC)
        self.node_configs = NodeConfigs(self.image, self.quorum, settings, self.node_id)
        self.group_configs = GroupConfigs(self.image, self.quorum, lambda: self.settings)
        self.quotas = ClientQuotas(self.image, self.quorum)
        self.leadership = Leadership(self.image, self.quorum)
        self.features = Features(self.image, self.quorum)
        self.coordination = Coordination(self, dialect)
        self.publishing = Publishing(self, self.coordination.producer_ids)
        self.gatherer = Gatherer(scheduler, clock)
        self.maintenance = Maintenance(self)

    # ---- start and stop

    def _open_metadata_log(self) -> PartitionLog:
        identity = Identity(
            partition_id=METADATA_PARTITION_ID, topic=METADATA_TOPIC, partition=0, topic_id=""
        )
        config = TopicConfig.build(self.settings, {})
        return self.store.partition(identity, directory_name(identity), config)

    def start(self, done: Acknowledge) -> None:
        """Bring the state back and register this node; then `done`, and clients may come.

        Raises `ConfigError` for the data of another node, `FormatError` and `CorruptionError` for
        metadata that cannot be read; the log is not recovered then and must not be closed as clean.
        """
        self.quorum.replay()
        self._refuse_data_of_another_node()
        for partition_id in self.store.pending_partitions:
            metadata = self.image.partitions.get(partition_id)
            if metadata is not None:
                self.replica(metadata)
        self.store.finish_recovery()
        self._remove_left_overs()
        events: list[Event] = []
        if not self.image.cluster_id:
            events.append(ClusterCreated(cluster_id=new_cluster_id(self.random)))
        incarnation = self.store.node.incarnation
        events.append(NodeRegistered(node_id=self.node_id, incarnation=incarnation))

        def registered(error: DragomanError | None) -> None:
            if error is None:
                self.is_ready = True
                self.coordination.start()
                self.publishing.start()
                self.maintenance.start()
            done(error)

        self.quorum.propose(events, registered)

    def _refuse_data_of_another_node(self) -> None:
        """Its partitions would all be led by a node that is not there."""
        nodes = self.image.nodes
        if nodes and self.node_id not in nodes:
            owner = ", ".join(map(str, sorted(nodes)))
            raise ConfigError(
                f"the data directory belongs to node {owner}, but node.id is {self.node_id}"
            )

    def _remove_left_overs(self) -> None:
        """Directories of topics whose deletion was agreed on but not finished."""
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
        self.store.settle_all()
        for fetch in list(self._fetches):
            fetch.finish_now()
        for replica in list(self._replicas.values()):
            replica.fail_waiters(ShuttingDown("the node is stopping"))
        self.quorum.fail()

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
        found = self._replicas.get(metadata.partition_id)
        if found is not None:
            return found
        if metadata.leader != self.node_id:
            raise NotLeader(
                f"node {metadata.leader} leads {metadata.topic.name}-{metadata.index}",
                metadata.leader,
            )
        config = self.topics.config_of(metadata.topic)
        identity = Identity(
            partition_id=metadata.partition_id,
            topic=metadata.topic.name,
            partition=metadata.index,
            topic_id=metadata.topic.topic_id.hex(),
        )
        opened = self.store.partition(identity, directory_name(identity), config)
        replica = Replica(metadata, opened, config)
        self._replicas[metadata.partition_id] = replica
        return replica

    @property
    def metadata_log(self) -> PartitionLog:
        return self._metadata_log

    def open_replicas(self) -> list[Replica]:
        return list(self._replicas.values())

    # ---- topics

    def ensure_topic(self, new: NewTopic, done: Acknowledge) -> None:
        """Create the topic unless it exists; for topics created on first use."""
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
        for partition in partitions:
            replica = partition.owner
            if isinstance(replica, Replica):
                replica.advance()
            elif partition is self._metadata_log:
                partition.advance_high_watermark(partition.stable_end)
                self.quorum.committed()
        self.after_commit()

    def _refused(self, partition: PartitionLog) -> None:
        replica = partition.owner
        error = DiskFullError("the disk is full")
        if isinstance(replica, Replica):
            replica.fail_waiters(error)
        elif partition is self._metadata_log:
            self.quorum.refused(error)

    def _failed(self, error: OSError) -> None:
        log.critical("the log failed and takes no more writes: %s", error)
        stopped = LogStoppedError(f"the log stopped: {error}; the outcome is unknown")
        for replica in list(self._replicas.values()):
            replica.fail_waiters(stopped)
        self.quorum.fail()
        self.on_fatal(error)

    def _applied(self, event: Event, removed: TopicMetadata | None) -> None:
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
            case TopicCreated() | PartitionsAdded() if self.is_ready:
                self.coordination.topics_changed()
            case _:
                return

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
            replica = self._replicas.pop(partition.partition_id, None)
            if replica is not None:
                self.store.remove_partition(replica.log)
                replica.fail_waiters(UnknownTopic(f"{replica.log.describe()} was deleted"))
        if self.is_ready:
            # Partitions that nobody used since the start have directories, too.
            self._remove_left_overs()
            self.coordination.topic_deleted(TopicName(topic.name))


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


def _ignore(_: OSError) -> None:
    return None
