"""This node among the nodes of its cluster: the quorum, the controller, and replication.

A single node is a cluster of one: it is the only voter, its own controller, and leads everything.
`Links` connects to the other nodes; nothing here knows how.

With etcd in place of the voters, the node that leads the metadata there is the controller. Two
things differ. Committed metadata is read from etcd before anything is opened. And a node that does
not reach etcd learns nothing new, so the controller counts its heartbeats only while it has a lease
there; epochs, never the lease, decide who may write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from dragoman.broker.changes import Changes, Proposal, ProposalReply
from dragoman.broker.cluster_log import ClusterLog
from dragoman.broker.context import NodeContext
from dragoman.broker.controller_access import ControllerAccess, lost_votes
from dragoman.broker.membership import EtcdMembership, Membership, QuorumMembership
from dragoman.broker.partitions import Partitions
from dragoman.cluster.codec import MetadataEntries
from dragoman.cluster.events import (
    ClusterCreated,
    Event,
    FeatureLevelChanged,
    Member,
    NodeAdded,
    NodeRegistered,
    NodeRemoved,
    PartitionsAdded,
    TermBegan,
    TopicCreated,
    VotersChanged,
)
from dragoman.cluster.metadata import NO_LEADER, TopicMetadata, new_cluster_id
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.cluster.raft_quorum.storage import PartitionStorage
from dragoman.errors import ConfigError, CorruptionError, DragomanError, FormatError
from dragoman.limits import JOIN_PATIENCE_S
from dragoman.log.node import FEATURE_LEVEL
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.outcome import Outcome, ignore, succeeded
from dragoman.raft.core import Raft
from dragoman.raft.membership import Membership as Voters
from dragoman.raft.messages import Message as VoterMessage
from dragoman.raft.ports import Role, RoleChanged
from dragoman.replication.controller import Controller
from dragoman.replication.life import Life
from dragoman.replication.messages import (
    ControlReply,
    ControlRequest,
    FetchRequest,
    Progress,
)
from dragoman.replication.ports import TakeReply, Timing
from dragoman.replication.replication import Replication

if TYPE_CHECKING:
    from dragoman.cluster.etcd.calls import Gateway
    from dragoman.cluster.etcd.quorum import EtcdQuorum

log = logging.getLogger("dragoman.cluster")
_ETCD_CURE = (
    "look at metadata.etcd.endpoints and metadata.etcd.prefix; if it is lost, restore etcd from a "
    "backup that is newer, or give up the records and start with an empty directory"
)


class Links(Protocol):
    """The ways to the other nodes. Each request is answered once, perhaps with None."""

    def send(self, node: int, message: VoterMessage, /) -> None:
        """Send to another voter, without a guarantee of delivery."""
        ...

    def fetch(self, node_id: int, request: FetchRequest, done: TakeReply, /) -> None: ...

    def report(self, node_id: int, progress: Progress, /) -> None: ...

    async def control(self, node_id: int, request: ControlRequest, /) -> ControlReply | None: ...

    def forward(self, node_id: int, proposal: Proposal, /) -> Outcome[ProposalReply | None]: ...

    def directory_of(self, node_id: int, /) -> str:
        """The data directory that a connected node has reported."""
        ...

    def addresses(self) -> dict[str, str]:
        """The addresses of this node's listeners, by name."""
        ...

    def refresh(self) -> None:
        """Nodes have joined, left or moved."""
        ...


class NoLinks:
    """The links of a node without other nodes."""

    def send(self, _node: int, _message: VoterMessage) -> None:
        return None

    def fetch(self, _node: int, _request: FetchRequest, done: TakeReply) -> None:
        done(None, memoryview(b""))

    def report(self, _node: int, _progress: Progress) -> None:
        return None

    async def control(self, _node: int, _request: ControlRequest) -> ControlReply | None:
        return None

    def forward(self, _node: int, _proposal: Proposal) -> Outcome[ProposalReply | None]:
        return succeeded(None)

    def directory_of(self, _node: int) -> str:
        return ""

    def addresses(self) -> dict[str, str]:
        return {}

    def refresh(self) -> None:
        return None


class ClusterNode:
    def __init__(
        self,
        context: NodeContext,
        store: LogStore,
        partitions: Partitions,
        metadata_log: PartitionLog,
        links: Links,
        gateway: Gateway | None,
    ) -> None:
        settings = context.settings
        self._context = context
        self._store = store
        self._image = context.image
        self._scheduler = context.scheduler
        #: Called when the node cannot continue.
        self.on_fatal: Callable[[OSError | DragomanError], None] = _ignore
        #: Called when this node founds the cluster.
        self.on_founded: Callable[[], None] = _nothing
        self._links = links
        self.node_id = settings.node_id
        self._founders = tuple(sorted(settings.cluster_nodes)) or (self.node_id,)
        #: The links of a single node, until others are set.
        self._is_alone = not settings.is_clustered
        self._metadata_log = metadata_log
        self._storage = PartitionStorage(store, metadata_log, context.scheduler)
        #: One of these is the quorum, the other is None.
        self._votes: RaftQuorum | None = None
        self._etcd: EtcdQuorum | None = None
        self.quorum: RaftQuorum | EtcdQuorum
        if gateway is None:
            raft = Raft(
                self.node_id,
                self._storage,
                MetadataEntries(),
                context.random,
                Voters(self._founders),
            )
            self._votes = RaftQuorum(raft, context.image, context.clock, context.scheduler, links)
            self.quorum = self._votes
        else:
            self._etcd = self.quorum = _etcd_quorum(context, gateway)
            self._etcd.on_failed = self._quorum_failed
        self.quorum.on_role = self._role_changed
        #: How often the metadata got another leader, as far as this node saw it.
        self.metadata_leader_changes = 0
        self._counted_leader = NO_LEADER
        self.changes = Changes(self.quorum, context.scheduler, links.forward)
        session_s = settings.broker_session_timeout_ms / 1000
        heartbeat_s = settings.broker_heartbeat_interval_ms / 1000
        is_balanced = settings.auto_leader_rebalance_enable
        self.controller = Controller(
            context.image,
            self.quorum,
            context.scheduler,
            node_id=self.node_id,
            session_s=session_s,
            suspect_s=min(session_s, 1.2 * heartbeat_s),
            is_alone=self._is_alone,
            has_voters=self._votes is not None,
            balance_s=settings.leader_imbalance_check_interval_seconds if is_balanced else 0,
        )
        self.membership: Membership
        if self._votes is not None:
            self.membership = QuorumMembership(context.image, self._votes, self.controller)
        else:
            self.membership = EtcdMembership(context.image, self.controller)
        self.access = ControllerAccess(
            context, self.quorum, self.changes, self.controller, self.membership, links
        )
        self.replication = Replication(
            self.node_id,
            context.image,
            context.scheduler,
            links,
            self.access,
            partitions.open,
            partitions.unshared,
            Timing(
                lag_s=settings.replica_lag_time_max_ms / 1000,
                heartbeat_s=heartbeat_s,
                is_alone=self._is_alone,
                moved_bytes_per_s=lambda: context.settings.leader_replication_throttled_rate,
            ),
        )
        self._log = ClusterLog(context, lambda: self.access.is_controller)
        #: The previous leader of the metadata, as far as this node knows.
        self._last_leader = NO_LEADER
        #: Nodes whose processes are known to have ended.
        self._gone: set[int] = set()
        #: Nodes that were connected at the last attempt.
        self._met: set[int] = set()
        #: Settled when another node leads the metadata; None: no hand-over.
        self._succeeded_by: Outcome[None] | None = None
        self._is_stable_due = False
        self._distrusted: set[int] = set()
        self._is_unreadable = False
        #: Nodes that have ever registered.
        self._known: set[int] = set()
        #: Called on the leader of the metadata when a node registers for the first time, or an
        #: internal topic is new.
        self.on_newcomer: Callable[[], None] = _nothing
        #: Settled when the metadata is loaded from etcd.
        self._loaded: Outcome[None] = Outcome()
        #: Settled when the controller knows this node for the first time.
        self._joined: Outcome[None] = Outcome()

    # ---- start and stop

    def load(self) -> Outcome[None]:
        """Read the metadata from etcd; settled, perhaps never, when it is loaded."""
        if self._etcd is None:
            return succeeded(None)
        self._etcd.on_loaded = partial(self._loaded.succeed, None)
        self._etcd.start()
        return self._loaded

    def _quorum_failed(self, error: DragomanError) -> None:
        if self._loaded.is_settled:
            self.on_fatal(error)
        else:
            self._loaded.fail(error)

    def replay(self) -> None:
        """Restore what is known to be committed. Raises `ConfigError` for a directory that belongs
        to other nodes, or to another cluster, and `CorruptionError` for a damaged log.
        """
        self.quorum.replay()
        if self._votes is not None and self._votes.would_lose_entries:
            text = "entries in front of its snapshot are damaged"
            raise CorruptionError(self._metadata_log.directory, 0, text)
        self._refuse_other_metadata()
        self._refuse_data_of_another_node()
        others = [each for each in self.quorum.membership.voters if each != self.node_id]
        if self._is_alone and others:
            raise ConfigError(
                f"the data directory belongs to a cluster with nodes {', '.join(map(str, others))}:"
                " name all of them with --cluster"
            )

    def _refuse_other_metadata(self) -> None:
        """The topics of the partitions in the directory must be in the metadata that is used:
        topics that it does not know would be taken for deleted.
        """
        node, etcd = self._store.node, self._etcd
        if etcd is None:
            if node.etcd_cluster:
                raise ConfigError(
                    f"the data directory belongs to cluster {node.etcd_cluster}, whose metadata is "
                    "in etcd: start with metadata.quorum = etcd, or --etcd"
                )
            return
        if self._metadata_log.log_end_offset or self._storage.snapshot is not None:
            raise ConfigError(
                "the data directory has metadata of its own, by metadata.quorum = raft: leave it "
                "so, or start with an empty directory"
            )
        found = self._image.cluster_id
        if node.etcd_cluster and found != node.etcd_cluster:
            there = f"that of cluster {found}" if found else "none"
            raise ConfigError(
                f"the data directory belongs to cluster {node.etcd_cluster}, and the metadata in "
                f"etcd is {there}; {_ETCD_CURE}"
            )
        if etcd.applied < node.etcd_entries:
            raise ConfigError(
                f"etcd has lost metadata: it has {etcd.applied} entries, this node has seen "
                f"{node.etcd_entries}; {_ETCD_CURE}"
            )

    def _note_etcd(self) -> None:
        """Note what etcd has; it is stored whenever `node.json` is written."""
        node = self._store.node
        if self._etcd is not None and self._context.is_ready:
            node.etcd_cluster = self._image.cluster_id
            node.etcd_entries = self._etcd.applied

    def _refuse_data_of_another_node(self) -> None:
        directory = self._store.node.directory_id
        nodes = self.quorum.local_image().registrations
        owners = [node for node, known in nodes.items() if known.directory == directory]
        if not owners and self._is_alone:
            # Releases for a single node did not register their directory.
            owners = list(nodes)
        if owners and self.node_id not in owners:
            owner = ", ".join(map(str, sorted(owners)))
            raise ConfigError(
                f"the data directory belongs to node {owner}, but node.id is {self.node_id}"
            )

    def start(self) -> Outcome[None]:
        """Take part. Settled when the controller knows this node: clients may come."""
        settings, store = self._context.settings, self._store
        self.replication.on_registered = self._registered
        life = Life(store, self._links.addresses(), settings.broker_rack)
        if self._etcd is not None:
            self._etcd.register(store.node.incarnation, settings.metadata_etcd_lease_seconds)
        elif self._votes is not None:
            self._votes.on_unreadable = self._unreadable
            self._votes.start()
        self.replication.start(life)
        if self._votes is not None and not self._is_alone:
            self._scheduler.call_later(JOIN_PATIENCE_S, self._report_waiting)
        return self._joined

    def _registered(self) -> None:
        if not self._joined.is_settled:
            self._joined.succeed(None)
        if self._etcd is not None and not self._store.node.etcd_cluster:
            # From now on the directory may hold partitions.
            self._note_etcd()
            self._store.keep_node_state()

    def _report_waiting(self) -> None:
        if self.replication.member is None and self.quorum.leader == NO_LEADER:
            others = [str(each) for each in self.quorum.membership.voters if each != self.node_id]
            log.warning(
                "node %d finds no leader of the metadata: too few of the nodes %s are running, "
                "or this one is to be added first, with `dragoman cluster add %d@HOST:PORT`",
                self.node_id,
                ", ".join(others),
                self.node_id,
            )

    async def hand_over(self) -> None:
        """Before a clean stop: make other nodes lead this node's partitions, as far as they can."""
        await self.replication.hand_over()
        votes, membership = self._votes, self.membership
        if votes is None or not votes.is_leading or len(votes.membership.voters) == 1:
            return
        assert isinstance(membership, QuorumMembership)
        # The next leader of the metadata informs other nodes which partitions they lead now.
        succeeded_by = self._succeeded_by = Outcome()
        membership.hand_over()
        await succeeded_by

    def stop(self) -> None:
        if self._is_stable_due and not self._store.has_failed():
            self._notify_quorum()
        self.replication.stop()
        self.controller.end()
        self.changes.close()
        self.quorum.fail()

    # ---- callbacks of the log

    def metadata_stable(self) -> None:
        """Entries of the metadata are stable. Called in the order of the log, as far as known."""
        self._storage.stable()
        if self._is_alone:
            self._notify_quorum()

    def metadata_refused(self) -> None:
        if self._votes is not None:
            self._votes.driver.log_refused()

    def stable(self, partitions: list[PartitionLog]) -> None:
        """A group is stable: records of these partitions, and perhaps this node's vote."""
        self._storage.stable()
        if self._is_alone:
            self._notify_quorum()
        elif self._votes is not None and not self._is_stable_due:
            # In a later turn: the call may come from the middle of an append, or of a truncation to
            # make room, and events committed then may take the partition away from this node.
            self._is_stable_due = True
            self._scheduler.call_soon(self._notify_quorum)
        self.replication.stable(partitions)

    def _notify_quorum(self) -> None:
        self._is_stable_due = False
        if self._votes is not None:
            self._votes.driver.stable()

    # ---- callbacks of the quorum

    def applied(self, event: Event, removed: TopicMetadata | None) -> None:
        self._log.applied(event)
        self.replication.applied(event, removed)
        if isinstance(event, TermBegan) and self.quorum.is_leading:
            # In a later turn: later entries may be committed already, and are applied first.
            self._scheduler.call_soon(self._lead)
        elif isinstance(event, NodeRegistered | NodeAdded | NodeRemoved | VotersChanged):
            self._links.refresh()
            is_new = isinstance(event, NodeRegistered) and event.node_id not in self._known
            self._known = set(self._image.nodes)
            if self.access.is_controller:
                self.controller.raise_level()
                if is_new:
                    self.on_newcomer()
        elif isinstance(event, FeatureLevelChanged):
            self._use_level()
        elif isinstance(event, TopicCreated | PartitionsAdded) and self.access.is_controller:
            topic = self._image.topics_by_id[event.topic_id]
            self.controller.settle(topic.partitions[:])
            if topic.is_internal:
                # The creation may have been decided before the last node registered.
                self.on_newcomer()
        self._note_etcd()
        self.changes.moved()

    def restored(self) -> None:
        self._use_level()
        self.replication.restored()
        self._known = set(self._image.nodes)
        self._note_etcd()
        self._links.refresh()
        self.changes.moved()

    def _use_level(self) -> None:
        """Raises `FormatError` for a feature level that this release does not know."""
        level = self._image.feature_level
        if level > FEATURE_LEVEL:
            raise FormatError(
                f"the cluster uses feature level {level}, this release knows {FEATURE_LEVEL}: "
                "run a newer one on this node"
            )
        self._store.use_level(level)

    def _unreadable(self, error: FormatError) -> None:
        # In a later turn: the quorum is in the middle of applying entries.
        if not self._is_unreadable:
            self._is_unreadable = True
            self._scheduler.call_soon(self._give_up, error)

    def _give_up(self, error: FormatError) -> None:
        """Stop: the cluster has committed something that this release does not know."""
        log.critical("%s", error)
        self.stop()
        self.on_fatal(OSError(str(error)))

    def _lead(self) -> None:
        votes = self._votes
        is_stopped = votes is not None and votes.driver.is_stopped
        if self.access.is_controller or not self.quorum.has_agreed or is_stopped:
            return
        self.access.is_controller = True
        self.changes.lead(True)
        # With etcd the previous leader may live, and only not reach etcd.
        is_silent = votes is not None and not votes.driver.raft.is_transfer
        self.controller.begin(self._last_leader if is_silent else NO_LEADER)
        self.membership.begin()
        if not self._image.cluster_id:
            created = ClusterCreated(cluster_id=new_cluster_id(self._context.random))
            self.on_founded()
            self.changes.make(lambda: [] if self._image.cluster_id else [created]).then(ignore)
        for node_id in sorted(self._gone):
            self._fence(node_id)
        self.replication.controller_known()

    def _role_changed(self, changed: RoleChanged) -> None:
        if not self._is_alone:
            self._log.role_changed(changed, self._why_elected())
        if changed.leader not in (NO_LEADER, self._counted_leader):
            self._counted_leader = changed.leader
            self.metadata_leader_changes += 1
        if changed.role is not Role.LEADER and self.access.is_controller:
            self.access.is_controller = False
            self.changes.lead(False)
            self.controller.end()
        elif changed.role is Role.LEADER and self._etcd is not None:
            # With votes, this happens when the first entry of the term is committed.
            self._scheduler.call_soon(self._lead)
        if changed.leader not in (NO_LEADER, self.node_id):
            self._last_leader = changed.leader
            succeeded_by, self._succeeded_by = self._succeeded_by, None
            if succeeded_by is not None:
                succeeded_by.succeed(None)
            self.replication.controller_known()
        self.changes.moved()

    def _why_elected(self) -> str:
        """Why this node leads the metadata, if it does."""
        if self._votes is not None and self._votes.driver.raft.is_transfer:
            return "the previous leader handed over"
        if self._last_leader in (NO_LEADER, self.node_id):
            return "there was no leader"
        return f"node {self._last_leader} was silent"

    # ---- callbacks of the links

    def received(self, node_id: int, message: VoterMessage) -> None:
        """Handle a message of another voter."""
        if self._votes is None:
            return
        known = self._image.registrations.get(node_id)
        if known is not None and known.voter_directory not in (
            "",
            self._links.directory_of(node_id),
        ):
            if node_id not in self._distrusted:
                self._distrusted.add(node_id)
                log.error("%s", lost_votes(node_id))
            return
        self._distrusted.discard(node_id)
        self._votes.driver.receive(message)

    def node_lost(self, node_id: int) -> None:
        """The connection to a node broke; the node may still live."""
        if self._votes is not None:
            self._votes.driver.peer_lost(node_id)

    def node_gone(self, node_id: int) -> None:
        """A node refuses connections: its process is gone."""
        self._gone.add(node_id)
        if self.access.is_controller:
            self._fence(node_id)
        if self._etcd is not None and node_id in self._met:
            # Once for each time that it was connected: this node's network may be the one at fault.
            self._met.discard(node_id)
            self._etcd.gone(node_id)

    def node_back(self, node_id: int) -> None:
        self._gone.discard(node_id)
        self._met.add(node_id)

    def _fence(self, node_id: int) -> None:
        if node_id in self._image.nodes:
            self.controller.fence(Member(node_id, self._image.nodes[node_id]))


def _etcd_quorum(context: NodeContext, gateway: Gateway) -> EtcdQuorum:
    # Imported here: other nodes start without it.
    from dragoman.cluster.etcd.quorum import EtcdQuorum

    settings = context.settings
    return EtcdQuorum(
        settings.node_id,
        context.image,
        context.scheduler,
        gateway,
        prefix=settings.metadata_etcd_prefix,
        is_any_version=settings.metadata_etcd_allow_bad_version,
    )


def _nothing() -> None:
    return None


def _ignore(_error: object) -> None:
    return None
