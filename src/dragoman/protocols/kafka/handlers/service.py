"""State shared by a listener's Kafka connections, and the table of request handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from dragoman.broker.configs import Features, GroupConfigs, NodeConfigs
from dragoman.broker.coordination import Coordination
from dragoman.broker.fetch import Fetches
from dragoman.broker.leadership import Leadership
from dragoman.broker.partitions import Partitions
from dragoman.broker.quotas import ClientQuotas
from dragoman.broker.staged_writes import StagedWrites
from dragoman.broker.topics import Topics
from dragoman.broker.work_queue import WorkQueue
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.config.settings import Settings
from dragoman.limits import KAFKA_FENCED_NODE_LISTED_S
from dragoman.log.store import LogStore
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel
from dragoman.net.requests import Requests
from dragoman.protocols import service
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import KNOWN_CODES
from dragoman.protocols.kafka.handlers.fetch_sessions import FetchSessions
from dragoman.protocols.kafka.notation import name_of
from dragoman.protocols.service import Address, Service
from dragoman.world import Clock, Random, Scheduler

if TYPE_CHECKING:
    from dragoman.broker.access import AccessControl
    from dragoman.cluster.etcd.quorum import EtcdQuorum

#: The handler of each request that is served, as `module.function`.
REQUESTS: Final[dict[int, str]] = {
    ApiKey.PRODUCE: "produce.handle",
    ApiKey.FETCH: "fetch.handle",
    ApiKey.LIST_OFFSETS: "log_offsets.handle_list",
    ApiKey.METADATA: "metadata.handle",
    ApiKey.OFFSET_COMMIT: "offsets.handle_commit",
    ApiKey.OFFSET_FETCH: "offsets.handle_fetch",
    ApiKey.FIND_COORDINATOR: "cluster.handle_find_coordinator",
    ApiKey.JOIN_GROUP: "groups.handle_join",
    ApiKey.HEARTBEAT: "groups.handle_heartbeat",
    ApiKey.LEAVE_GROUP: "groups.handle_leave",
    ApiKey.SYNC_GROUP: "groups.handle_sync",
    ApiKey.API_VERSIONS: "api_versions.handle",
    ApiKey.CREATE_TOPICS: "topics.handle_create",
    ApiKey.DELETE_TOPICS: "topics.handle_delete",
    ApiKey.INIT_PRODUCER_ID: "transactions.handle_init_producer_id",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions.handle_add_partitions",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions.handle_add_offsets",
    ApiKey.END_TXN: "transactions.handle_end",
    ApiKey.TXN_OFFSET_COMMIT: "transactions.handle_commit_offsets",
    ApiKey.DESCRIBE_GROUPS: "group_admin.handle_describe",
    ApiKey.LIST_GROUPS: "group_admin.handle_list",
    ApiKey.SASL_HANDSHAKE: "sasl.handle_handshake",
    ApiKey.DELETE_RECORDS: "log_offsets.handle_delete",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "log_offsets.handle_leader_epochs",
    ApiKey.WRITE_TXN_MARKERS: "transaction_admin.handle_write_markers",
    ApiKey.DESCRIBE_ACLS: "acls.handle_describe",
    ApiKey.CREATE_ACLS: "acls.handle_create",
    ApiKey.DELETE_ACLS: "acls.handle_delete",
    ApiKey.DESCRIBE_CONFIGS: "configs.handle_describe",
    ApiKey.ALTER_CONFIGS: "alter_configs.handle_alter",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "log_dirs.handle_alter",
    ApiKey.DESCRIBE_LOG_DIRS: "log_dirs.handle_describe",
    ApiKey.SASL_AUTHENTICATE: "sasl.handle_authenticate",
    ApiKey.CREATE_PARTITIONS: "topics.handle_create_partitions",
    ApiKey.DELETE_GROUPS: "group_admin.handle_delete",
    ApiKey.ELECT_LEADERS: "leaders.handle_elect",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "alter_configs.handle_incremental",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "leaders.handle_reassign",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "leaders.handle_list_reassignments",
    ApiKey.OFFSET_DELETE: "group_admin.handle_delete_offsets",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "quotas.handle_describe",
    ApiKey.ALTER_CLIENT_QUOTAS: "quotas.handle_alter",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "credentials.handle_describe",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "credentials.handle_alter",
    ApiKey.DESCRIBE_QUORUM: "cluster.handle_quorum",
    ApiKey.UPDATE_FEATURES: "api_versions.handle_update_features",
    ApiKey.DESCRIBE_CLUSTER: "cluster.handle_describe",
    ApiKey.DESCRIBE_PRODUCERS: "transaction_admin.handle_describe_producers",
    ApiKey.DESCRIBE_TRANSACTIONS: "transaction_admin.handle_describe",
    ApiKey.LIST_TRANSACTIONS: "transaction_admin.handle_list",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_groups.handle_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_groups.handle_describe",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "telemetry.handle_get_subscriptions",
    ApiKey.PUSH_TELEMETRY: "telemetry.handle_push",
    ApiKey.LIST_CONFIG_RESOURCES: "configs.handle_list",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "metadata.handle_pages",
    ApiKey.OPEN_STAGING: "staged_writes.handle_open",
    ApiKey.PUBLISH_STAGED: "staged_writes.handle_publish",
}


class Core(service.Core, Protocol):
    """The parts of a node that Kafka's handlers use."""

    #: Callbacks that receive each node that the controller fences.
    on_fenced: list[Callable[[int], None]]

    @property
    def settings(self) -> Settings: ...

    scheduler: Scheduler
    clock: Clock
    random: Random
    work: WorkQueue
    store: LogStore

    @property
    def quorum(self) -> RaftQuorum | EtcdQuorum: ...

    coordination: Coordination
    topics: Topics
    leadership: Leadership
    node_configs: NodeConfigs
    group_configs: GroupConfigs
    quotas: ClientQuotas
    access: AccessControl
    features: Features
    staged_writes: StagedWrites
    partitions: Partitions
    fetches: Fetches


def _request_name(api_key: int) -> str | None:
    name = name_of(api_key, "Request") if api_key in REQUESTS else None
    return None if name is None else name.removesuffix("Request")


def _code_name(code: int | str) -> str:
    known = KNOWN_CODES.get(code) if isinstance(code, int) else None
    return str(code) if known is None else known.name


class KafkaService(Service[Core]):
    advertised_listener = "kafka"
    word_separator = " "
    requests: Requests[int]

    @classmethod
    def counted_requests(cls) -> Requests[int]:
        return Requests("kafka", _request_name, _code_name)

    def __init__(
        self,
        broker: Core,
        budget: MemoryBudget,
        advertised: Callable[[Channel], Address],
    ) -> None:
        super().__init__(broker, budget, advertised)
        self.fetch_sessions = FetchSessions(
            lambda: broker.settings.max_incremental_fetch_session_cache_slots,
            broker.clock,
            broker.random,
        )
        #: By node, the monotonic time at which it was last fenced.
        self._fenced_at: dict[int, float] = {}
        broker.on_fenced.append(self._note_fenced)

    def _note_fenced(self, node: int) -> None:
        self._fenced_at[node] = self.broker.clock.monotonic()

    def nodes(
        self, channel: Channel, *, with_lately_fenced: bool = False
    ) -> list[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of unfenced nodes, for a client on this channel."""
        image = self.broker.image
        away = image.fenced - self._lately_fenced() if with_lately_fenced else image.fenced
        found: list[tuple[int, str, int, str | None]] = []
        for node in sorted({self.broker.node_id, *image.nodes} - away):
            address = self.address_of(channel, node)
            known = image.registrations.get(node)
            if address is not None:
                found.append((node, *address, known.rack or None if known is not None else None))
        return found

    def _lately_fenced(self) -> set[int]:
        since = self.broker.clock.monotonic() - KAFKA_FENCED_NODE_LISTED_S
        return {node for node, fenced_at in self._fenced_at.items() if fenced_at > since}
