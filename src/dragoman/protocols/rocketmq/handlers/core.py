"""The ports of the node that RocketMQ's handlers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from dragoman.broker.changes import Changes
from dragoman.broker.cluster_key import ClusterKeyService
from dragoman.broker.configs import NodeConfigs
from dragoman.broker.coordination import Coordination
from dragoman.broker.delayed import DelayedRecords
from dragoman.broker.global_table import GlobalTables
from dragoman.broker.leader_queues import LeaderQueues
from dragoman.broker.maintenance import Maintenance
from dragoman.broker.partitions import Partitions
from dragoman.broker.readers import Readers
from dragoman.broker.topics import Topics
from dragoman.config.settings import Settings
from dragoman.log.store import LogStore
from dragoman.protocols import service
from dragoman.rpc import Rpc
from dragoman.world import Clock, HostNames, Random, Scheduler

if TYPE_CHECKING:
    from dragoman.broker.access import AccessControl


class Core(service.Core, Protocol):
    @property
    def settings(self) -> Settings: ...

    scheduler: Scheduler
    clock: Clock
    random: Random
    host_names: HostNames

    @property
    def is_stopping(self) -> bool: ...

    #: Called when the node begins to stop.
    on_stopping: list[Callable[[], None]]
    #: What the listeners of one protocol share, by protocol.
    shared: dict[str, object]
    store: LogStore
    rpc: Rpc
    changes: Changes
    access: AccessControl
    cluster_key: ClusterKeyService
    topics: Topics
    node_configs: NodeConfigs
    coordination: Coordination
    delayed: DelayedRecords
    leader_queues: LeaderQueues
    readers: Readers
    tables: GlobalTables
    maintenance: Maintenance
    partitions: Partitions
