"""The metadata image: the state that results from all applied events; the same on every node."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias, assert_never

import msgspec

from dragoman.cluster.events import (
    FIRST_LEVEL,
    LEVEL_IN_FORCE,
    Capture,
    CaptureChanged,
    CaptureDefined,
    CaptureRemoved,
    ClientQuotaChanged,
    ClusterCreated,
    ClusterKeyChanged,
    Event,
    FeatureLevelChanged,
    GroupConfigChanged,
    LeaderChanged,
    LoginSecretSet,
    Member,
    NodeAdded,
    NodeConfigChanged,
    NodeFenced,
    NodeRegistered,
    NodeRemoved,
    PartitionChanged,
    PartitionPlacement,
    PartitionsAdded,
    ProducerIdsReserved,
    RulesChanged,
    SecurityModeChanged,
    TermBegan,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    UserChanged,
    UserRemoved,
    VotersChanged,
    level_needed,
)
from dragoman.errors import ClusterError
from dragoman.security.rules import Rule
from dragoman.security.users import User
from dragoman.world import Random

#: The partition id of the metadata log; ordinary partitions are numbered from 1.
METADATA_PARTITION_ID = 0
METADATA_TOPIC = "__cluster_metadata"
#: Means every node, in place of a node id.
EVERY_NODE = -1
#: The entity of a quota: kinds and names, sorted by kind.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
NO_LEADER = -1
MIN_INSYNC = "min.insync.replicas"
#: The mode of a cluster that has never changed it: everything is allowed.
SECURITY_MODE_FIRST = "open"


class Placed(NamedTuple):
    """The leader of a partition and the nodes in sync."""

    leader: int
    in_sync: tuple[int, ...]


class PartitionMetadata:
    __slots__ = (
        "before",
        "eligible",
        "in_sync",
        "index",
        "leader",
        "leader_epoch",
        "members",
        "min_insync",
        "partition_epoch",
        "partition_id",
        "replicas",
        "target",
        "topic",
        "unclean_epoch",
    )

    def __init__(self, topic: TopicMetadata, index: int, placement: PartitionPlacement) -> None:
        self.topic = topic
        self.index = index
        self.partition_id = placement.partition_id
        self.replicas = placement.replicas
        #: The first replica leads until an event changes it.
        self.leader = placement.replicas[0]
        self.leader_epoch = 0
        #: The in-sync set: nodes with their incarnations, and the nodes alone.
        self.members: tuple[Member, ...] = ()
        self.in_sync = placement.replicas
        #: Replicas out of sync that have every committed record (KIP-966).
        self.eligible: tuple[int, ...] = ()
        #: Replicas after the move in progress, if there is one.
        self.target: tuple[int, ...] = ()
        #: Replicas before the move in progress.
        self.before: tuple[int, ...] = ()
        self.partition_epoch = 0
        #: The newest leadership that may have begun without committed records; -1: none.
        self.unclean_epoch = -1
        #: Minimum number of in-sync replicas for a commit.
        self.min_insync = 1

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is out of sync, apart from one that a move has just added."""
        return any(node not in self.in_sync for node in self.before or self.replicas)

    def set_in_sync(self, members: tuple[Member, ...]) -> None:
        self.members = members
        self.in_sync = tuple(each.node_id for each in members)

    def set_min_insync(self, default: str | None) -> None:
        """`default` is the cluster's configuration, if it has the key."""
        wanted = self.topic.config.get(MIN_INSYNC, default)
        if wanted is None:
            # While a partition gets its first copies, it cannot have more replicas in sync than
            # before.
            self.min_insync = 2 if len(self.before or self.replicas) >= 3 else 1
        else:
            self.min_insync = int(wanted)
        if len(self.members) >= self.min_insync:
            # From now on, committed records may be missing on other replicas.
            self.eligible = ()


class TopicMetadata:
    __slots__ = ("config", "created_ms", "is_internal", "name", "partitions", "topic_id")

    def __init__(self, event: TopicCreated) -> None:
        self.name = event.name
        self.topic_id = event.topic_id
        self.config = event.config
        self.is_internal = event.is_internal
        self.created_ms = event.created_ms
        self.partitions: list[PartitionMetadata] = []


class MetadataImage:
    def __init__(self) -> None:
        self.cluster_id = ""
        self.topics: dict[str, TopicMetadata] = {}
        self.topics_by_id: dict[bytes, TopicMetadata] = {}
        self.partitions: dict[int, PartitionMetadata] = {}
        #: Number of replicas of each node, those of moves in progress included.
        self.replica_counts: Counter[int] = Counter()
        #: Newest incarnation and registration of every node.
        self.nodes: dict[int, int] = {}
        self.registrations: dict[int, NodeRegistered] = {}
        #: Peer addresses of added nodes, until they register.
        self.added: dict[int, str] = {}
        #: Nodes without a session.
        self.fenced: set[int] = set()
        #: What the last `PartitionChanged` has replaced.
        self.replaced = Placed(NO_LEADER, ())
        #: Partitions with a move in progress.
        self.moving: dict[int, PartitionMetadata] = {}
        self.next_partition_id = METADATA_PARTITION_ID + 1
        self.next_producer_id = 0
        #: Settings changed at run time, by node; those for every node under `EVERY_NODE`.
        self.node_configs: dict[int, dict[str, str]] = {}
        #: Overrides of groups that have any.
        self.group_configs: dict[str, dict[str, str]] = {}
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        #: Committed feature levels; other features have the level of this release.
        self.features: dict[str, int] = {}
        #: Captures of databases, by name.
        self.captures: dict[str, Capture] = {}
        #: The committed metadata quorum; empty while the nodes use the one they were started with.
        self.voters: tuple[int, ...] = ()
        self.learners: tuple[int, ...] = ()
        self.users: dict[str, User] = {}
        #: What logins of unknown users look like is made from it; empty before the first user.
        self.login_secret = b""
        #: The access rules, in the order in which they were added.
        self.rules: dict[Rule, None] = {}
        self.security_mode = SECURITY_MODE_FIRST
        #: The cluster's key that encrypts secrets; None: there is no secret.
        self.cluster_key: ClusterKeyChanged | None = None
        #: Changes with users, rules and the mode.
        self.security_revision = 0
        #: Changes with the rules, by one with each event.
        self.rules_revision = 0
        #: Changes whenever a topic is created, deleted or extended.
        self.topics_revision = 0
        #: Changes of leaders and in-sync sets, for metrics; not part of the state.
        self.leader_changes = 0
        self.in_sync_changes = 0

    # ---- feature levels

    @property
    def feature_level(self) -> int:
        """The feature level of the cluster, which all its nodes support."""
        return self.features.get(LEVEL_IN_FORCE, FIRST_LEVEL)

    def known_levels(self) -> dict[int, int]:
        """The highest level that all nodes support, live or not. Nodes that have not reported
        theirs count with the first level.
        """
        levels = dict.fromkeys((*self.voters, *self.learners, *self.added), FIRST_LEVEL)
        return levels | {node: known.feature_level for node, known in self.registrations.items()}

    def check_level(self, events: Iterable[Event]) -> None:
        """Raises `ClusterError` for events that some node could not read."""
        self.require_level(level_needed(events))

    def require_level(self, needed: int) -> None:
        """Raises `ClusterError` while the cluster uses a lower feature level."""
        if needed > self.feature_level:
            levels = self.known_levels()
            older = ", ".join(str(node) for node in sorted(levels) if levels[node] < needed)
            raise ClusterError(
                f"this needs feature level {needed} and the cluster uses {self.feature_level}: "
                + (f"upgrade node {older} first" if older else "all nodes know it, soon")
            )

    def apply(self, event: Event) -> TopicMetadata | None:
        """Returns the topic that the event removed, if any."""
        match event:
            case ClusterCreated():
                self.cluster_id = event.cluster_id
            case TopicCreated():
                topic = TopicMetadata(event)
                self.topics[topic.name] = topic
                self.topics_by_id[topic.topic_id] = topic
                self._add_partitions(topic, event.partitions)
            case TopicDeleted():
                self.topics_revision += 1
                topic = self.topics_by_id.pop(event.topic_id)
                del self.topics[topic.name]
                for partition in topic.partitions:
                    del self.partitions[partition.partition_id]
                    self.replica_counts.subtract(partition.replicas)
                    self.moving.pop(partition.partition_id, None)
                return topic
            case PartitionsAdded():
                self._add_partitions(self.topics_by_id[event.topic_id], event.partitions)
            case TopicConfigChanged():
                topic = self.topics_by_id[event.topic_id]
                topic.config = event.config
                self._set_min_insync(topic.partitions)
            case LeaderChanged():
                self._change_leader(event)
            case PartitionChanged():
                self._change_partition(event)
            case ProducerIdsReserved():
                self.next_producer_id = max(self.next_producer_id, event.next_id)
            case NodeAdded():
                self.added[event.node_id] = event.address
            case NodeRemoved():
                self._forget_node(event.node_id)
            case NodeRegistered():
                self.nodes[event.node_id] = event.incarnation
                self.registrations[event.node_id] = event
                self.fenced.discard(event.node_id)
            case NodeFenced():
                if self.nodes.get(event.node_id) == event.incarnation:
                    self.fenced.add(event.node_id)
            case NodeConfigChanged():
                self.node_configs[event.node_id] = event.config
                if event.node_id == EVERY_NODE:
                    self._set_min_insync(self.partitions.values())
            case GroupConfigChanged():
                if event.config:
                    self.group_configs[event.group_id] = event.config
                else:
                    self.group_configs.pop(event.group_id, None)
            case ClientQuotaChanged():
                self._change_quota(event)
            case FeatureLevelChanged():
                self.features[event.feature] = event.level
            case CaptureDefined() | CaptureChanged():
                self.captures[event.name] = event
            case CaptureRemoved():
                self.captures.pop(event.name, None)
            case UserChanged():
                self.security_revision += 1
                self.users[event.user.name] = event.user
            case UserRemoved():
                self.security_revision += 1
                self.users.pop(event.name, None)
            case LoginSecretSet():
                self.login_secret = event.secret
            case RulesChanged():
                self.security_revision += 1
                self.rules_revision += 1
                for rule in event.removed:
                    self.rules.pop(rule, None)
                self.rules.update(dict.fromkeys(event.added))
            case SecurityModeChanged():
                self.security_revision += 1
                self.security_mode = event.mode
            case ClusterKeyChanged():
                self.cluster_key = event
            case VotersChanged():
                self._change_voters(event)
            case TermBegan():
                pass
            case _:
                assert_never(event)
        return None

    def _forget_node(self, node_id: int) -> None:
        for known in (self.nodes, self.registrations, self.added, self.node_configs):
            known.pop(node_id, None)
        self.fenced.discard(node_id)

    def is_live(self, node_id: int) -> bool:
        """Whether the node is registered and not fenced."""
        return node_id in self.nodes and node_id not in self.fenced

    def held_by(self, node_id: int) -> list[PartitionMetadata]:
        """The partitions with a replica on a node, those of moves in progress included."""
        return [each for each in self.partitions.values() if node_id in each.replicas]

    def _change_voters(self, event: VotersChanged) -> None:
        self.voters, self.learners = event.voters, event.learners
        belonging = event.voters + event.learners
        for node_id, known in self.registrations.items():
            if node_id not in belonging:
                # With any new directory, the node votes from there; its address is the one given
                # now.
                where = {name: each for name, each in known.addresses.items() if name != "peer"}
                forgotten = msgspec.structs.replace(known, voter_directory="", addresses=where)
                self.registrations[node_id] = forgotten

    def _change_quota(self, event: ClientQuotaChanged) -> None:
        if event.quotas:
            self.client_quotas[event.entity] = event.quotas
        else:
            self.client_quotas.pop(event.entity, None)

    def _add_partitions(
        self, topic: TopicMetadata, placements: tuple[PartitionPlacement, ...]
    ) -> None:
        self.topics_revision += 1
        for placement in placements:
            partition = PartitionMetadata(topic, len(topic.partitions), placement)
            topic.partitions.append(partition)
            self.partitions[placement.partition_id] = partition
            self.replica_counts.update(placement.replicas)
            live = [node for node in placement.replicas if node not in self.fenced]
            if live:
                partition.leader = live[0]
            self._set_members(partition, live or placement.replicas)
            self._set_min_insync([partition])
            # Ids are never reused, not even those of deleted partitions.
            self.next_partition_id = max(self.next_partition_id, placement.partition_id + 1)

    def _change_leader(self, event: LeaderChanged) -> None:
        partition = self.partitions.get(event.partition_id)
        if partition is None:
            return
        assert event.partition_epoch > partition.partition_epoch
        assert event.leader_epoch >= partition.leader_epoch
        partition.leader = event.leader
        partition.leader_epoch = event.leader_epoch
        partition.partition_epoch = event.partition_epoch
        self._set_members(partition, event.in_sync)

    def _change_partition(self, event: PartitionChanged) -> None:
        partition = self.partitions.get(event.partition_id)
        if partition is None:
            return
        assert event.partition_epoch == partition.partition_epoch + 1
        assert event.leader_epoch >= partition.leader_epoch
        self.replaced = Placed(partition.leader, partition.in_sync)
        self.leader_changes += event.leader != partition.leader
        self.in_sync_changes += event.in_sync != partition.members
        self.set_holders(event)
        if event.is_unclean:
            self.partitions[event.partition_id].unclean_epoch = event.leader_epoch

    def set_holders(self, event: PartitionChanged) -> None:
        """Set the state of a partition to that of the event."""
        partition = self.partitions[event.partition_id]
        partition.leader = event.leader
        partition.leader_epoch = event.leader_epoch
        partition.partition_epoch = event.partition_epoch
        self.replica_counts.subtract(partition.replicas)
        self.replica_counts.update(event.replicas)
        partition.replicas = event.replicas
        partition.eligible = event.eligible
        partition.target = event.target
        partition.before = event.before
        partition.set_in_sync(event.in_sync)
        self._set_min_insync([partition])
        if event.target:
            self.moving[event.partition_id] = partition
        else:
            self.moving.pop(event.partition_id, None)

    def _set_members(self, partition: PartitionMetadata, nodes: Sequence[int]) -> None:
        partition.set_in_sync(tuple(Member(node, self.nodes.get(node, 0)) for node in nodes))

    def _set_min_insync(self, partitions: Iterable[PartitionMetadata]) -> None:
        default = self.node_configs.get(EVERY_NODE, {}).get(MIN_INSYNC)
        for partition in partitions:
            partition.set_min_insync(default)


def new_cluster_id(random: Random) -> str:
    """22 characters, as Kafka's: a random UUID in URL-safe base64."""
    raw = random.getrandbits(128).to_bytes(16, "big")
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
