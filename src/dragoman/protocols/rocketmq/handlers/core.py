"""The ports of the node that RocketMQ's handlers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dragoman.broker.changes import Changes
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


class Core(service.Core, Protocol):
    @property
    def settings(self) -> Settings: ...

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def random(self) -> Random: ...

    @property
    def host_names(self) -> HostNames: ...

    @property
    def is_stopping(self) -> bool: ...

    @property
    def on_stopping(self) -> list[Callable[[], None]]:
        """The callbacks for when the node begins to stop."""
        ...

    @property
    def shared(self) -> dict[str, object]:
        """By protocol, the state that its listeners share."""
        ...

    @property
    def store(self) -> LogStore: ...

    @property
    def rpc(self) -> Rpc: ...

    @property
    def changes(self) -> Changes: ...

    @property
    def topics(self) -> Topics: ...

    @property
    def node_configs(self) -> NodeConfigs: ...

    @property
    def coordination(self) -> Coordination: ...

    @property
    def delayed(self) -> DelayedRecords: ...

    @property
    def leader_queues(self) -> LeaderQueues: ...

    @property
    def readers(self) -> Readers: ...

    @property
    def tables(self) -> GlobalTables: ...

    @property
    def maintenance(self) -> Maintenance: ...

    @property
    def partitions(self) -> Partitions: ...
