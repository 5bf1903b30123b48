"""What the services, health and metrics use of a running node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.api.client_quotas import QuotaBroker
from dragoman.api.cluster import ClusterBroker, ClusterNode, OpenListeners
from dragoman.api.connections import ConnectionListeners
from dragoman.api.groups import GroupBroker
from dragoman.api.records import RecordBroker
from dragoman.api.security import SecurityBroker
from dragoman.api.topics import TopicBroker
from dragoman.broker.cluster_key import ClusterKeyService
from dragoman.broker.cluster_node import ClusterNode as BrokerOfCluster
from dragoman.broker.context import NodeContext
from dragoman.broker.coordination import Coordination
from dragoman.broker.delayed import DelayedRecords
from dragoman.broker.grants import StandingRights
from dragoman.broker.partitions import Partitions
from dragoman.broker.topic_traffic import TopicTraffic
from dragoman.captures.service import Captures
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.config.settings import Settings
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channels
from dragoman.net.loop_lag import LoopLag
from dragoman.net.requests import Requests
from dragoman.net.tls.contexts import TlsContexts
from dragoman.net.tls.handshakes import Handshakes
from dragoman.security.audit import AuditLog
from dragoman.security.authorizer import Authorizer
from dragoman.security.logins import Logins
from dragoman.world import Clock

if TYPE_CHECKING:
    from dragoman.cluster.etcd.quorum import EtcdQuorum


class NodeBroker(
    TopicBroker, RecordBroker, GroupBroker, ClusterBroker, SecurityBroker, QuotaBroker, Protocol
):
    """The part of the broker that the services, health and metrics use."""

    @property
    def context(self) -> NodeContext: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def logins(self) -> Logins: ...

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def grants(self) -> StandingRights: ...

    @property
    def cluster_key(self) -> ClusterKeyService: ...

    @property
    def audit(self) -> AuditLog: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def quorum(self) -> RaftQuorum | EtcdQuorum: ...

    @property
    def cluster(self) -> BrokerOfCluster: ...

    @property
    def coordination(self) -> Coordination: ...

    @property
    def delayed(self) -> DelayedRecords: ...

    @property
    def traffic(self) -> TopicTraffic: ...

    @property
    def clock(self) -> Clock: ...


class NodeListeners(OpenListeners, ConnectionListeners, Protocol):
    @property
    def channels(self) -> Mapping[str, Channels]: ...

    @property
    def budget(self) -> MemoryBudget: ...

    @property
    def contexts(self) -> TlsContexts: ...

    @property
    def handshakes(self) -> Handshakes: ...

    @property
    def loop_lag(self) -> LoopLag: ...

    @property
    def subscriber_count(self) -> int: ...

    def requests(self) -> list[Requests[Any]]:
        """The counts of requests of every service."""
        ...

    def hidden_from(self, topic: str) -> tuple[str, ...]:
        """Protocols that this node serves and whose clients cannot name the topic."""
        ...


class RunningNode(ClusterNode, Protocol):
    """The part of the node that the view uses. The composition root provides it."""

    @property
    def broker(self) -> NodeBroker: ...

    @property
    def captures(self) -> Captures: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def listeners(self) -> NodeListeners: ...

    @property
    def peer_budget(self) -> MemoryBudget: ...

    @property
    def started_at_wall_ms(self) -> int: ...
