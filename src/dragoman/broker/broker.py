"""The broker core: topics, partitions and requests that wait on them, behind one object.

Everything here is synchronous and runs on the loop's thread. Slow operations (a durable append, a
metadata change) call back. Domain types only: protocol handlers translate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from dragoman.broker.accumulator import RecordAccumulator
from dragoman.broker.cluster_key import ClusterKeyService
from dragoman.broker.cluster_node import ClusterNode, Links, NoLinks
from dragoman.broker.configs import Features, GroupConfigs, NodeConfigs
from dragoman.broker.context import NodeContext
from dragoman.broker.coordination import Coordination
from dragoman.broker.delayed import DelayedRecords
from dragoman.broker.directory import Directory, KeyedTopic
from dragoman.broker.errors import RequestTimedOut, ShuttingDown
from dragoman.broker.fetch import Fetches
from dragoman.broker.foundation import Foundation
from dragoman.broker.global_table import GlobalTables
from dragoman.broker.grants import StandingRights
from dragoman.broker.groups.coordinator import GroupCoordinator, GroupDialect
from dragoman.broker.groups.remote_members import GroupMembers, RemoteMembers
from dragoman.broker.leader_queues import LeaderQueues
from dragoman.broker.leadership import InternalCopies, Leadership
from dragoman.broker.maintenance import Maintenance
from dragoman.broker.partitions import Partitions, directory_name
from dragoman.broker.quotas import ClientQuotas
from dragoman.broker.readers import Readers
from dragoman.broker.refusal_names import ERROR_BY_NAME
from dragoman.broker.replica_ends import ReplicaEndFinder
from dragoman.broker.replica_marks import ReplicaMarks
from dragoman.broker.staged_writes import StagedWrites
from dragoman.broker.throttles import Throttles
from dragoman.broker.topic_traffic import TopicTraffic
from dragoman.broker.topics import Topics
from dragoman.broker.transactions.service import Transactions
from dragoman.broker.work_queue import WorkQueue
from dragoman.cluster.events import (
    ClientQuotaChanged,
    Event,
    NodeConfigChanged,
    NodeFenced,
    PartitionsAdded,
    RulesChanged,
    SecurityModeChanged,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    UserChanged,
    UserRemoved,
)
from dragoman.cluster.metadata import (
    METADATA_PARTITION_ID,
    METADATA_TOPIC,
    SECURITY_MODE_FIRST,
    MetadataImage,
    PartitionMetadata,
    TopicMetadata,
)
from dragoman.config.consistency import super_users
from dragoman.config.overrides import TopicConfig
from dragoman.config.settings import Settings
from dragoman.errors import DiskFullError, DragomanError
from dragoman.log.manifest import Identity
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.outcome import Outcome
from dragoman.replication.replica import Replica
from dragoman.rpc import Refusals, Registry, Rpc
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.audit import AUDIT_FILE, AuditFile, AuditLog, denial
from dragoman.security.authorizer import AUDIT, Authorizer, RuleAuthorizer
from dragoman.security.logins import Logins
from dragoman.security.passwords import PasswordHasher
from dragoman.security.rules import EVERY
from dragoman.security.secrets import ClusterKeys
from dragoman.types import TopicName
from dragoman.world import (
    Clock,
    Disk,
    DiskSecrets,
    HostNames,
    NumericHosts,
    Random,
    Scheduler,
    SecretSource,
)

if TYPE_CHECKING:
    from dragoman.broker.access import AccessControl
    from dragoman.cluster.etcd.calls import Gateway

log = logging.getLogger("dragoman.broker")


class Extension(KeyedTopic, Protocol):
    """A service outside the broker, for the leaders of its internal topic."""

    def serve(self, registry: Registry, /) -> None:
        """Register the handlers of its requests."""
        ...

    def applied(self, event: Event | None, /) -> None:
        """A metadata event was applied; None: a snapshot has replaced the metadata."""
        ...


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
        hasher: PasswordHasher | None = None,
        secret_source: SecretSource | None = None,
        audit_file: AuditFile | None = None,
    ) -> None:
        """`dialect` decodes the member metadata of the served protocols; `links` connect to the
        other nodes, if any; `etcd` is given if it stores the metadata; `hasher` hashes passwords,
        inline by default. Keys and the audit log are on the disk of the log by default.

        Raises `SecretError` for a cluster key file that cannot be used.
        """
        self.context = context = NodeContext(settings, scheduler, clock, random)
        self.store = store
        self.scheduler = scheduler
        self.clock = clock
        self.random = random
        self.node_id = settings.node_id
        self.image = image = context.image
        self.rule_authorizer = RuleAuthorizer(
            image,
            super_users(settings),
            allow_everyone=settings.allow_everyone_if_no_acl_found,
        )
        #: Decides for the protocols; tests replace it.
        self.authorizer: Authorizer = authorizer or self.rule_authorizer
        context.authorizer = self.authorizer
        secrets = secret_source or DiskSecrets(store.disk)
        self.keys = ClusterKeys(secrets, settings.cluster_key_file, random)
        self.keys.load()
        self.audit = AuditLog(
            audit_file or audit_file_of(settings, store.disk), self.node_id, scheduler, clock
        )
        self.audit.is_on = self._is_audited
        self._takes_logins = _is_locked(settings)
        self._has_console = any(each.base == "console" for each in settings.listeners)
        self.rule_authorizer.on_refused = self._note_refusal
        self.logins = Logins(image, lambda: self.settings, scheduler, clock, random, hasher)
        self.logins.unseal = self.keys.unseal
        self.logins.record = self.audit.record
        #: Whether the journal has been replayed, so that the log may be closed cleanly.
        self.is_recovered = False
        #: Resolves no names by default; the server replaces it.
        self.host_names: HostNames = NumericHosts()
        #: Called when the node begins to stop, for streams and others without a pending answer.
        self.on_stopping: list[Callable[[], None]] = []
        #: Called with each node that was fenced and may never answer its requests.
        self.on_fenced: list[Callable[[int], None]] = []
        #: Called when settings were changed at run time.
        self.on_reconfigured: list[Callable[[], None]] = []
        #: Called after the callbacks of a group commit.
        self.after_commit: Callable[[], None] = _do_nothing
        #: Called once when the log or the metadata has failed: the process must stop.
        self.on_fatal: Callable[[OSError | DragomanError], None] = _ignore
        #: Requests with many items, spread over several loop turns.
        self.work = WorkQueue(scheduler)
        self.grants = StandingRights(self.work)
        self.throttles = Throttles(image, clock, scheduler)
        self.partitions = partitions = Partitions(context, store)
        partitions.on_led = self._led
        partitions.on_resigned = self._resigned
        self.fetches = Fetches(scheduler)
        self.traffic = TopicTraffic()
        self.registry = Registry(Refusals(ERROR_BY_NAME))
        self.directory = Directory(context)
        self.rpc = Rpc(self.node_id, self.registry, self.directory, scheduler)
        self.rpc.is_stopping = lambda: context.is_stopping
        store.on_stable = self._stable
        store.on_failure = self._failed
        store.on_refused = self._refused
        store.on_rolled = self._rolled
        store.on_damage = self._damaged
        self.metadata_log = self._open_metadata_log()
        self.cluster = ClusterNode(
            context, store, partitions, self.metadata_log, links or NoLinks(), etcd
        )
        self.cluster.on_fatal = lambda error: self.on_fatal(error)
        self.quorum = self.cluster.quorum
        self.quorum.on_applied = self._applied
        self.quorum.on_restored = self._restored
        self.changes = changes = self.cluster.changes
        self.topics = Topics(image, changes, settings, clock, random, self.audit)
        self.topics.reserve(METADATA_TOPIC)
        self.node_configs = NodeConfigs(image, changes, settings, self.node_id)
        self.group_configs = GroupConfigs(image, changes, lambda: self.settings)
        self.quotas = ClientQuotas(image, changes, self.audit)
        self.leadership = Leadership(image, self.cluster.access)
        self.features = Features(image, changes)
        self.cluster_key = ClusterKeyService(
            context, self.keys, changes, self.quorum, self.rpc, self.audit
        )
        self.cluster_key.serve(self.registry)
        self.foundation = Foundation(
            context, changes, self.keys, self.logins.hasher, self.audit, secrets
        )
        self.cluster.on_founded = self.foundation.founded
        self.coordination = self._coordination(dialect)
        producer_ids = self.coordination.transactions.producer_ids
        self.staged_writes = StagedWrites(context, partitions, self.topics, producer_ids, self.rpc)
        self.staged_writes.serve(self.registry)
        self.directory.add(self.staged_writes.log)
        self.delayed = DelayedRecords(context, partitions, self.topics, producer_ids, self.rpc)
        self.delayed.serve(self.registry)
        self.directory.add(self.delayed.store.log)
        self._extensions: list[Extension] = []
        self.accumulator = RecordAccumulator(scheduler, clock)
        self.leader_queues = LeaderQueues(context, partitions, self.accumulator, self.rpc)
        self.leader_queues.serve(self.registry)
        self.readers = Readers(context, partitions, self.fetches, self.rpc, store.expansions)
        self.readers.serve(self.registry)
        self.replica_ends = ReplicaEndFinder(
            context, partitions, self.cluster.replication.follower_ends, self.rpc
        )
        self.replica_ends.serve(self.registry)
        self.replica_marks = ReplicaMarks(context, store, partitions)
        #: By protocol, the state that its listeners share.
        self.shared: dict[str, object] = {}
        self.tables = GlobalTables(
            context, partitions, self.topics, self.readers, self.leader_queues
        )
        self.maintenance = Maintenance(context, store, partitions, self._needs_producers)
        self.cluster.on_newcomer = InternalCopies(context, self.leadership).look

    @cached_property
    def access(self) -> AccessControl:
        """Administration of rules, users and the security mode."""
        # Imported here: few nodes receive such requests.
        from dragoman.broker.access import AccessControl

        return AccessControl(
            self.image,
            self.changes,
            self.rule_authorizer,
            self.audit,
            self.keys,
            self.cluster_key,
            self.work,
            self.clock,
            self.random,
        )

    @property
    def settings(self) -> Settings:
        """The current settings, with changes at run time."""
        return self.context.settings

    @property
    def is_ready(self) -> bool:
        """Whether the cluster has registered this node, so that it serves clients."""
        return self.context.is_ready

    @property
    def is_stopping(self) -> bool:
        return self.context.is_stopping

    def _note_refusal(
        self, caller: Caller, operation: Operation, resource: Resource, name: str | None
    ) -> None:
        is_enforced = self.image.security_mode != AUDIT
        which = EVERY if name is None else name
        self.audit.record(denial(caller, operation, resource, which, is_enforced=is_enforced))

    def _is_audited(self) -> bool:
        """Whether the audit log is written: an operator has named its file, or has locked the
        node in any way.
        """
        # A console takes logins once there are users, whatever the settings of listeners say.
        takes_logins = self._takes_logins or (self._has_console and bool(self.image.users))
        return takes_logins or self.image.security_mode != SECURITY_MODE_FIRST

    def _coordination(self, dialect: GroupDialect | None) -> Coordination:
        context, rpc, registry = self.context, self.rpc, self.registry
        groups = GroupCoordinator(
            context, self.partitions, self.topics, rpc, self.group_configs.of, dialect
        )
        groups.serve(registry)
        RemoteMembers(context, groups).serve(registry)
        transactions = Transactions(
            context, self.partitions, self.topics, self.changes, rpc, groups, self._incarnation
        )
        transactions.serve(registry)
        self.group_members = GroupMembers(context, self.directory, rpc, groups, self._incarnation)
        return Coordination(context, self.directory, groups, transactions)

    def _incarnation(self) -> int:
        return self.store.node.incarnation

    def attach(self, extension: Extension) -> None:
        """Register an extension as coordinator of its topic, observer of the metadata, and server
        of its requests. Called before the start.
        """
        self._extensions.append(extension)
        self.directory.add(extension)
        extension.serve(self.registry)

    # ---- start and stop

    def _open_metadata_log(self) -> PartitionLog:
        identity = Identity(
            partition_id=METADATA_PARTITION_ID, topic=METADATA_TOPIC, partition=0, topic_id=""
        )
        config = TopicConfig.build(self.settings, {})
        return self.store.partition(identity, directory_name(identity), config)

    def load(self) -> Outcome[None]:
        """Read metadata outside the log; settled, perhaps never, before `recover`."""
        return self.cluster.load()

    def recover(self) -> None:
        """Recover the log, and with it the known metadata.

        Raises `ConfigError` for the data of another node, `FormatError` and `CorruptionError` for
        unreadable metadata; the log is not recovered then and must not be closed cleanly.
        """
        self.cluster.replay()
        self._replay_partitions()
        self.store.finish_recovery()
        self.partitions.remove_leftovers()
        self.is_recovered = True

    async def start(self) -> None:
        """Register with the cluster. Returns when the controller knows this node: clients may come.

        Recovers first, unless that was done, and raises what `recover` raises.
        """
        if not self.is_recovered:
            self.recover()
        if _takes_logins(self.settings):
            self.logins.prepare()
        replication = self.cluster.replication
        self.store.on_written = replication.written
        replication.on_led = lambda replica: self._led(replica.metadata)
        replication.on_resigned = lambda replica: self._resigned(replica.metadata)
        await self.cluster.start()
        self.cluster_key.start()
        await self.foundation.begin()
        self.context.is_ready = True
        self.partitions.remove_leftovers()
        self.coordination.start()
        self.staged_writes.start()
        self._lead_coordinators()
        self.maintenance.start()

    def _replay_partitions(self) -> None:
        """Replay the journal into the partitions, even into those whose deletion may not be
        committed. What is known to be deleted stays deleted: the rest of its records in the journal
        would look like a damaged log.
        """
        pending = self.store.pending_partitions
        known = self.quorum.local_image() if pending else self.image
        for partition_id in pending:
            metadata = known.partitions.get(partition_id)
            if metadata is not None:
                self.partitions.open_log(metadata)

    def _lead_coordinators(self) -> None:
        """Begin to coordinate the partitions that this node leads now."""
        if not self.settings.is_clustered:
            self._coordinate_all()
            return
        for name in self.directory.internal_topics:
            topic = self.image.topics.get(name)
            for partition in topic.partitions if topic is not None else ():
                found = self.partitions.opened(partition.partition_id)
                if partition.replicas == (self.node_id,) or (found is not None and found.is_led):
                    self._led(partition)

    def _coordinate_all(self) -> None:
        """A single node coordinates every internal topic with coordinators, even before the topic
        exists.
        """
        for internal in self.directory.internal_topics.values():
            topic = self.image.topics.get(internal.name)
            for index in range(internal.partition_count):
                epoch = 0 if topic is None else topic.partitions[index].leader_epoch
                internal.lead(index, epoch)

    def _led(self, partition: PartitionMetadata) -> None:
        internal = self.directory.internal_topics.get(partition.topic.name)
        if internal is not None and self.is_ready and self.settings.is_clustered:
            internal.lead(partition.index, partition.leader_epoch)

    def _resigned(self, partition: PartitionMetadata) -> None:
        internal = self.directory.internal_topics.get(partition.topic.name)
        if internal is not None and self.is_ready:
            internal.resign(partition.index)

    def stop(self) -> None:
        """Answer all waiting requests; accepted appends become durable first."""
        self.context.is_stopping = True
        for each in self.on_stopping:
            each()
        self.maintenance.stop()
        self.coordination.close()
        self.staged_writes.close()
        self.delayed.close()
        self.store.settle_all()
        self.fetches.finish_all()
        self.cluster_key.stop()
        self.audit.close()
        # First, because other nodes may have replicated the records, which must not be reported as
        # refused.
        self.cluster.stop()
        self.partitions.fail_all(ShuttingDown("the node is stopping"))

    def _needs_producers(self, partition_id: int) -> bool:
        is_publishing = self.staged_writes.is_publishing_to(partition_id)
        return is_publishing or self.delayed.is_delivering_to(partition_id)

    # ---- callbacks of the log and the quorum

    def _stable(self, partitions: list[PartitionLog]) -> None:
        # In log order: a topic may be deleted before, or after, records are written to it.
        for partition in partitions:
            replica = partition.owner
            if isinstance(replica, Replica):
                if replica.role is None:
                    replica.advance()
            elif partition is self.metadata_log:
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
        elif partition is self.metadata_log:
            self.cluster.metadata_refused()

    def _damaged(self, partition: PartitionLog) -> None:
        """After any failed read: a partition with further replicas is copied from one of them."""
        replica = partition.owner
        if isinstance(replica, Replica) and self.is_ready:
            # In a later turn: the reader may be in any state.
            self.scheduler.call_soon(self.partitions.replicate_anew, replica)

    def _failed(self, error: OSError) -> None:
        log.critical("the log failed and takes no more writes: %s", error)
        # First, so that the process ends even if a later callback fails.
        self.on_fatal(error)
        self.cluster.stop()
        # Not the refusal of later writes: a write whose sync failed may still be on the disk.
        stopped = RequestTimedOut(f"the log stopped: {error}; the outcome is unknown")
        self.partitions.fail_all(stopped)

    def _applied(self, event: Event, removed: TopicMetadata | None) -> None:
        if log.isEnabledFor(logging.DEBUG) and self.is_ready:
            log.debug("metadata changed", extra=_what_changed(event, self.image))
        self.cluster.applied(event, removed)
        if isinstance(event, RulesChanged):
            # First, because what follows may ask the authorizer again.
            self.rule_authorizer.rules_changed(event.added, event.removed)
        match event:
            case TopicDeleted():
                assert removed is not None
                self._drop_deleted(removed)
            case TopicConfigChanged():
                self.partitions.refresh_configs(self.image.topics_by_id[event.topic_id].partitions)
            case NodeConfigChanged():
                self._reconfigure()
                self.grants.changed()
            case UserChanged():
                self.logins.user_changed(event.user.name)
                self.grants.changed()
            case UserRemoved():
                self.logins.user_changed(event.name)
                self.grants.changed()
            case RulesChanged() | SecurityModeChanged():
                self.grants.changed()
            case ClientQuotaChanged():
                self.throttles.changed()
            case NodeFenced():
                for each in self.on_fenced:
                    each(event.node_id)
            case TopicCreated() | PartitionsAdded() if self.is_ready:
                self.coordination.groups.topics_changed()
            case _:
                pass
        self.cluster_key.applied(event)
        self.foundation.applied(event)
        for extension in self._extensions:
            extension.applied(event)

    def _restored(self) -> None:
        """A snapshot has replaced the image, and every object in it."""
        self.traffic.keep(self.image.topics)
        self.partitions.restored()
        self._reconfigure()
        self.logins.all_changed()
        self.cluster.restored()
        if self.is_ready:
            self.partitions.remove_leftovers()
            self.coordination.groups.topics_changed()
            self.delayed.targets_deleted()
        self.throttles.changed()
        self.grants.changed()
        self.cluster_key.applied(None)
        self.foundation.applied(None)
        for extension in self._extensions:
            extension.applied(None)

    def expect_settings(self) -> None:
        """Use the settings that the local log has, until `settings_known`."""
        self.node_configs.expect(self.quorum.local_image())
        self._reconfigure()

    def settings_known(self) -> None:
        """This node has joined the cluster and knows what is committed."""
        self.node_configs.expect(None)
        self._reconfigure()

    def _reconfigure(self) -> None:
        """Settings were changed at run time: update the copies."""
        names = _names(self.settings)
        self.context.settings = self.node_configs.effective()
        self._takes_logins = _is_locked(self.settings)
        self.topics.reconfigure(self.settings)
        self.coordination.reconfigure(self.settings)
        self.maintenance.reconfigured()
        self.partitions.refresh_configs()
        for each in self.on_reconfigured:
            each()
        if _names(self.settings) != names:
            self.logins.names_changed()

    def _drop_deleted(self, topic: TopicMetadata) -> None:
        self.traffic.keep(self.image.topics)
        self.partitions.drop(topic)
        if self.is_ready:
            # Partitions that were not used since the start have directories, too.
            self.partitions.remove_leftovers()
            self.coordination.groups.topic_deleted(TopicName(topic.name))
            self.delayed.targets_deleted()


def audit_file_of(settings: Settings, disk: Disk, path: str = AUDIT_FILE) -> AuditFile:
    """The audit log with the bounds of the settings, in a directory."""
    return AuditFile(
        disk=disk,
        path=path,
        file_bytes=settings.audit_log_bytes,
        files=settings.audit_log_files,
    )


def _what_changed(event: Event, image: MetadataImage) -> dict[str, object]:
    """Fields of a line about an event. Its other values may be secrets, or long."""
    fields: dict[str, object] = {"event": type(event).__name__}
    partition = image.partitions.get(getattr(event, "partition_id", -1))
    if partition is not None:
        fields |= {"topic": partition.topic.name, "partition": partition.index}
    topic = image.topics_by_id.get(getattr(event, "topic_id", b""))
    if topic is not None:
        fields["topic"] = topic.name
    node = getattr(event, "node_id", None)
    if node is not None:
        fields["node"] = node
    return fields


def _names(settings: Settings) -> tuple[object, ...]:
    """What names callers without a login."""
    principals = (settings.listener_security(each.name).principals for each in settings.listeners)
    return (settings.ssl_principal_mapping_rules, *principals)


def _is_locked(settings: Settings) -> bool:
    """Whether an operator wants an audit log, or a listener takes logins."""
    return bool(settings.audit_log_file) or _takes_logins(settings)


def _takes_logins(settings: Settings) -> bool:
    return any(
        settings.listener_security(each.name).authentication != "off" for each in settings.listeners
    )


def _do_nothing() -> None:
    return None


def _ignore(_: OSError | DragomanError) -> None:
    return None
