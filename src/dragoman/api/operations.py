"""The operations of the JSON API, and the ports that it needs of a node.

Each method of a service protocol below is one operation (`declaration.py`). The routes (`app.py`),
the OpenAPI document (`openapi.py`) and `docs/reference/http-operations.md` come from
`OPERATIONS`. The services of a running node (`node.py`) implement the protocols.

A refusal is a `DragomanError`; its `code` reaches the caller and decides the HTTP status
(`problems.py`). Every other exception is a fault of the node and becomes a 500. No operation may
block the loop. This module imports no HTTP server library.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Final, Protocol

from dragoman.api.access_values import (
    AccessAnswer,
    AccessQuestion,
    AccessRuleFilter,
    AccessRules,
    CreatedToken,
    NewMode,
    NewToken,
    NewUser,
    RemovedRules,
    RulePage,
    RuleSearch,
    SecurityStatus,
    UserCommand,
    UserDescription,
    UserPage,
)
from dragoman.api.connection_values import ConnectionPage, DamagePage
from dragoman.api.declaration import (
    EventStream,
    FirstOffset,
    LastEventId,
    PageLimit,
    PartitionIndex,
    ReadBytes,
    RecordLimit,
    ValueBytes,
    ValueForm,
    declared_operations,
    operation,
)
from dragoman.api.delayed_values import DelayedPage, DelayedRecordPage
from dragoman.api.figure_values import FigurePage, FigureQuery, FigureRange
from dragoman.api.group_values import GroupDeletion, OffsetChanges, OffsetReset, RemovedOffsets
from dragoman.api.quota_values import (
    ChangedQuota,
    ClientQuotaPage,
    QuotaAnswer,
    QuotaChange,
    QuotaQuestion,
    QuotaUses,
)
from dragoman.api.quotas import CallerQuotas
from dragoman.api.record_values import NewRecords, RecordPage, WrittenRecords
from dragoman.api.topic_values import (
    AddedPartitions,
    NewPartitions,
    TopicChange,
    TopicConfiguration,
    TopicDeletion,
    TruncatedTopic,
    Truncation,
)
from dragoman.api.usage_values import (
    ChangedSettings,
    GroupUsagePage,
    TopicKeyList,
    TopicUsagePage,
)
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    CapturePage,
    CertificateCommand,
    CertificateList,
    Check,
    ClusterKeyStatus,
    ClusterStatus,
    DatabaseTables,
    Elected,
    Election,
    Findings,
    GroupDescription,
    GroupPage,
    KeyCommand,
    MetricPage,
    MlogEvents,
    Moves,
    NewMoves,
    NewNode,
    NewSettings,
    NewTopic,
    PipelineList,
    PipelineStatus,
    Told,
    TopicDescription,
    TopicPage,
    Transfer,
)
from dragoman.captures.definition import Definition
from dragoman.net.requests import Requests
from dragoman.security.access import Caller
from dragoman.security.authorizer import Authorizer
from dragoman.security.logins import TokenLogin
from dragoman.telemetry.catalogue import Stats
from dragoman.types import NodeId

#: Error statuses of operations with a body, and of operators' requests.
_BODY: Final = (400, 408, 413, 415)
_REQUEST: Final = (*_BODY, 404, 409)


# ---- the operations


class Topics(Protocol):
    @operation("GET", "/api/v1/topics", "Topics in order of name, a page at a time")
    def list_topics(self, caller: Caller, after: str, limit: PageLimit) -> TopicPage: ...

    @operation(
        "POST",
        "/api/v1/topics",
        "Create a topic; `validate_only=true` only checks the request, and answers 204",
        creates=True,
        refuses=(400, 408, 409, 413, 415),
    )
    async def create_topic(
        self, caller: Caller, topic: NewTopic, validate_only: bool
    ) -> TopicDescription | None:
        """Returns when the topic is durable and can be written to."""
        ...

    @operation(
        "GET",
        "/api/v1/topics/{name}",
        "A topic with its configuration and its partitions, a page at a time",
        refuses=(404,),
    )
    async def describe_topic(
        self, caller: Caller, name: str, after: str, limit: PageLimit
    ) -> TopicDescription: ...

    @operation(
        "PATCH",
        "/api/v1/topics/{name}",
        "Change keys of a topic's configuration; `validate_only=true` only checks the change",
        refuses=(*_BODY, 404),
    )
    async def alter_topic(
        self, caller: Caller, name: str, change: TopicChange, validate_only: bool
    ) -> TopicConfiguration: ...

    @operation(
        "DELETE",
        "/api/v1/topics/{name}",
        "Delete a topic and its records; `validate_only=true` only says what would be deleted",
        refuses=(400, 404),
    )
    async def delete_topic(
        self, caller: Caller, name: str, validate_only: bool
    ) -> TopicDeletion | None:
        """Returns when the deletion is durable."""
        ...

    @operation(
        "GET",
        "/api/v1/topics/{name}/config",
        "The configuration of a topic, with the source of each value",
        refuses=(404,),
    )
    def topic_configuration(self, caller: Caller, name: str) -> TopicConfiguration: ...

    @operation(
        "POST",
        "/api/v1/topics/{name}/partitions",
        "Add partitions to a topic; `validate_only=true` only checks the request",
        refuses=(*_BODY, 404),
    )
    async def add_partitions(
        self, caller: Caller, name: str, wanted: NewPartitions, validate_only: bool
    ) -> AddedPartitions: ...

    @operation(
        "POST",
        "/api/v1/topics/{name}/truncate",
        "Delete the records of a topic before a place or offsets; `validate_only=true` only says "
        "what would be deleted",
        refuses=(*_BODY, 404),
    )
    async def truncate_topic(
        self, caller: Caller, name: str, wanted: Truncation, validate_only: bool
    ) -> TruncatedTopic:
        """Refused as a whole when a partition refuses it."""
        ...

    @operation("GET", "/api/v1/topic-keys", "The keys of topics' configurations, with meanings")
    def list_topic_keys(self, caller: Caller) -> TopicKeyList: ...


class Usage(Protocol):
    @operation(
        "GET",
        "/api/v1/usage/topics",
        "What topics hold, and how many groups read them, in order of name, a page at a time",
    )
    async def topic_usage(self, caller: Caller, after: str, limit: PageLimit) -> TopicUsagePage: ...

    @operation(
        "GET",
        "/api/v1/usage/groups",
        "How far groups are behind, in order of name, a page at a time",
    )
    async def group_usage(self, caller: Caller, after: str, limit: PageLimit) -> GroupUsagePage: ...


class Records(Protocol):
    @operation(
        "GET",
        "/api/v1/topics/{name}/partitions/{partition}/records",
        "Records of a partition from an offset, from a time, or the last ones, a page at a time",
        refuses=(404,),
    )
    async def read_records(
        self,
        caller: Caller,
        name: str,
        partition: PartitionIndex,
        offset: FirstOffset | None,
        time: str,
        last: RecordLimit | None,
        limit: RecordLimit,
        bytes: ReadBytes,  # noqa: A002 # the name of the parameter in the query
        max_value_bytes: ValueBytes,
        values: ValueForm,
    ) -> RecordPage:
        """Only committed records; those of aborted transactions are left out."""
        ...

    @operation(
        "POST",
        "/api/v1/topics/{name}/records",
        "Write records, and return their offsets when all in-sync replicas have them",
        refuses=(*_BODY, 404),
    )
    async def write_records(
        self, caller: Caller, name: str, wanted: NewRecords
    ) -> WrittenRecords: ...

    @operation(
        "GET",
        "/api/v1/topics/{name}/events",
        "Records of a topic, or of its `partitions` such as `0,2`, as Server-Sent Events, from "
        "a place such as `latest` or `@-15m`",
        refuses=(404,),
    )
    async def record_events(
        self,
        caller: Caller,
        name: str,
        partitions: str,
        begin: str,
        last_event_id: LastEventId,
        max_value_bytes: ValueBytes,
        values: ValueForm,
    ) -> EventStream:
        """Resumes after `Last-Event-ID`."""
        ...


class Groups(Protocol):
    @operation("GET", "/api/v1/groups", "Groups of all nodes in order of name, a page at a time")
    async def list_groups(self, caller: Caller, after: str, limit: PageLimit) -> GroupPage: ...

    @operation(
        "GET",
        "/api/v1/groups/{name}",
        "A group with its members, and its committed offsets and lag, a page at a time",
        refuses=(404,),
    )
    async def describe_group(
        self, caller: Caller, name: str, after: str, limit: PageLimit
    ) -> GroupDescription: ...

    @operation(
        "POST",
        "/api/v1/groups/{name}/reset",
        "Set the committed offsets of a group without members; `validate_only=true` only says what "
        "would change",
        refuses=_REQUEST,
    )
    async def reset_group(
        self, caller: Caller, name: str, wanted: OffsetReset, validate_only: bool
    ) -> OffsetChanges:
        """All offsets are committed, or none."""
        ...

    @operation(
        "DELETE",
        "/api/v1/groups/{name}",
        "Delete a group without members, and its offsets; `validate_only=true` only says what "
        "would be deleted",
        refuses=(404, 409),
    )
    async def delete_group(
        self, caller: Caller, name: str, validate_only: bool
    ) -> GroupDeletion | None: ...

    @operation(
        "DELETE",
        "/api/v1/groups/{name}/offsets",
        "Delete the committed offsets of a group in the topic `topic`, which no member reads; "
        "`validate_only=true` only says which",
        refuses=(404, 409),
    )
    async def delete_group_offsets(
        self, caller: Caller, name: str, topic: str, validate_only: bool
    ) -> RemovedOffsets: ...


class Cluster(Protocol):
    @operation("GET", "/api/v1/cluster", "State of the cluster as this node sees it")
    def cluster_status(self, caller: Caller) -> ClusterStatus: ...

    @operation("GET", "/api/v1/cluster/mlog-events", "The metadata as mlog's metadata events")
    def mlog_events(self, caller: Caller) -> MlogEvents: ...

    @operation("POST", "/api/v1/cluster/nodes", "Add a node to the cluster", refuses=_REQUEST)
    async def add_node(self, caller: Caller, node: NewNode) -> Told: ...

    @operation(
        "DELETE",
        "/api/v1/cluster/nodes/{name}",
        "Remove a node from the cluster",
        refuses=(404, 409),
    )
    async def remove_node(self, caller: Caller, name: NodeId) -> Told: ...

    @operation(
        "POST",
        "/api/v1/cluster/transfers",
        "Transfer leadership of the metadata or of a node's partitions",
        refuses=_REQUEST,
    )
    async def transfer(self, caller: Caller, wanted: Transfer) -> Told: ...

    @operation("POST", "/api/v1/cluster/moves", "Move replicas to other nodes", refuses=_REQUEST)
    async def move_replicas(self, caller: Caller, wanted: NewMoves) -> Moves:
        """Returns the moves that have begun, and how many did not begin for lack of time."""
        ...

    @operation(
        "POST",
        "/api/v1/cluster/elections",
        "Elect preferred leaders, or a leader that may lack committed records",
        refuses=_REQUEST,
    )
    async def elect(self, caller: Caller, wanted: Election) -> Elected: ...

    @operation("GET", "/api/v1/cluster/settings", "Settings that were changed while nodes run")
    def changed_settings(self, caller: Caller) -> ChangedSettings: ...

    @operation(
        "POST",
        "/api/v1/cluster/settings",
        "Change settings of one node or of all while they run",
        refuses=_REQUEST,
    )
    async def change_settings(self, caller: Caller, wanted: NewSettings) -> Told: ...


class Connections(Protocol):
    @operation(
        "GET",
        "/api/v1/connections",
        "The connections to a node, or to its listener `listener`, a page at a time",
        refuses=(404,),
    )
    async def list_connections(
        self, caller: Caller, listener: str, node: NodeId | None, after: str, limit: PageLimit
    ) -> ConnectionPage: ...

    @operation(
        "DELETE", "/api/v1/connections/{name}", "Close a connection to a node", refuses=(404,)
    )
    async def close_connection(self, caller: Caller, name: str, node: NodeId | None) -> None: ...


class Damage(Protocol):
    @operation(
        "GET",
        "/api/v1/damage",
        "What a node has found damaged on its disk, a page at a time",
        refuses=(404,),
    )
    async def list_damage(
        self, caller: Caller, node: NodeId | None, after: str, limit: PageLimit
    ) -> DamagePage: ...


class Delayed(Protocol):
    @operation(
        "GET",
        "/api/v1/delayed",
        "How many delayed and held records a node stores, by topic, a page at a time",
        refuses=(404,),
    )
    async def list_delayed(
        self, caller: Caller, node: NodeId | None, after: str, limit: PageLimit
    ) -> DelayedPage: ...

    @operation(
        "GET",
        "/api/v1/topics/{name}/delayed",
        "Delayed and held records for a topic that a node stores, in order of time, a page at a "
        "time",
        refuses=(404,),
    )
    async def delayed_records(
        self,
        caller: Caller,
        name: str,
        node: NodeId | None,
        after: str,
        limit: RecordLimit,
        bytes: ReadBytes,  # noqa: A002 # the name of the parameter in the query
        max_value_bytes: ValueBytes,
        values: ValueForm,
    ) -> DelayedRecordPage: ...


class Captures(Protocol):
    @operation(
        "GET", "/api/v1/captures", "Captures of databases in order of name, a page at a time"
    )
    async def list_captures(self, caller: Caller, after: str, limit: PageLimit) -> CapturePage: ...

    @operation(
        "POST",
        "/api/v1/captures",
        "Capture a database; `principal=User:NAME` says as whom, by default as the caller",
        creates=True,
        refuses=(*_BODY, 409),
    )
    async def add_capture(
        self, caller: Caller, definition: Definition, principal: str
    ) -> CaptureDescription:
        """Returns when the capture is in the metadata; it starts soon afterwards."""
        ...

    @operation("GET", "/api/v1/captures/{name}", "A capture and its status", refuses=(404,))
    async def describe_capture(self, caller: Caller, name: str) -> CaptureDescription: ...

    @operation(
        "DELETE",
        "/api/v1/captures/{name}",
        "Remove a capture; `keep_slot=true` keeps its slot and publication in the database",
        refuses=(404, 409),
    )
    async def remove_capture(self, caller: Caller, name: str, keep_slot: bool) -> Told: ...

    @operation(
        "POST",
        "/api/v1/captures/{name}/commands",
        "Pause, resume or rewind a capture, snapshot tables again, or run as another principal",
        refuses=_REQUEST,
    )
    async def command_capture(self, caller: Caller, name: str, wanted: CaptureCommand) -> Told: ...

    @operation(
        "POST",
        "/api/v1/capture-checks",
        "Check whether a database can be captured",
        refuses=_REQUEST,
    )
    async def check_capture(self, caller: Caller, wanted: CaptureCheck) -> Findings: ...

    @operation(
        "POST",
        "/api/v1/capture-tables",
        "List the tables of a database, and what keeps each from being captured",
        refuses=_REQUEST,
    )
    async def database_tables(self, caller: Caller, definition: Definition) -> DatabaseTables:
        """All tables, whichever the definition names; the answer is recorded in the audit log."""
        ...


class Keys(Protocol):
    @operation(
        "GET",
        "/api/v1/security/key",
        "The cluster's key, and the nodes that have it",
        refuses=(403,),
    )
    async def cluster_key_status(self, caller: Caller) -> ClusterKeyStatus: ...

    @operation(
        "POST",
        "/api/v1/security/key/commands",
        "Encrypt all secrets with the first key of the nodes' key files",
        refuses=(*_BODY, 403, 409),
    )
    async def command_cluster_key(self, caller: Caller, wanted: KeyCommand) -> ClusterKeyStatus:
        """Returns when all secrets are encrypted with the new key."""
        ...


class Certificates(Protocol):
    @operation(
        "GET",
        "/api/v1/security/certificates",
        "The certificates of this node's listeners",
        refuses=(403,),
    )
    def certificate_status(self, caller: Caller) -> CertificateList: ...

    @operation(
        "POST",
        "/api/v1/security/certificates/commands",
        "Read this node's certificates again",
        refuses=(*_BODY, 403),
    )
    async def command_certificates(
        self, caller: Caller, wanted: CertificateCommand
    ) -> CertificateList: ...


class Security(Protocol):
    @operation(
        "GET", "/api/v1/security", "Whether access rules are enforced, and by whom", refuses=(403,)
    )
    def security_status(self, caller: Caller) -> SecurityStatus: ...

    @operation(
        "POST",
        "/api/v1/security/mode",
        "Change whether access rules are enforced: `open`, `audit` or `enforce`",
        refuses=(*_BODY, 403, 409),
    )
    async def change_security_mode(self, caller: Caller, wanted: NewMode) -> SecurityStatus: ...


class Rules(Protocol):
    @operation("POST", "/api/v1/security/rules", "Add access rules", refuses=(*_BODY, 403, 409))
    async def add_rules(self, caller: Caller, wanted: AccessRules) -> Told:
        """Returns when the rules are in force on this node."""
        ...

    @operation(
        "POST",
        "/api/v1/security/rules/searches",
        "Find access rules, a page at a time",
        is_question=True,
        refuses=(*_BODY, 403),
    )
    async def find_rules(self, caller: Caller, search: RuleSearch) -> RulePage: ...

    @operation(
        "POST",
        "/api/v1/security/rules/removals",
        "Remove the access rules that a filter accepts",
        refuses=(*_BODY, 403, 409),
    )
    async def remove_rules(self, caller: Caller, wanted: AccessRuleFilter) -> RemovedRules: ...

    @operation(
        "POST",
        "/api/v1/security/rules/tests",
        "Whether the rules allow a principal an operation, and which rule decides",
        is_question=True,
        refuses=(*_BODY, 403),
    )
    def test_access(self, caller: Caller, question: AccessQuestion) -> AccessAnswer: ...


class Users(Protocol):
    @operation(
        "GET", "/api/v1/security/users", "Users in order of name, a page at a time", refuses=(403,)
    )
    def list_users(self, caller: Caller, after: str, limit: PageLimit) -> UserPage: ...

    @operation(
        "POST",
        "/api/v1/security/users",
        "Create a user",
        creates=True,
        refuses=(*_BODY, 403, 409),
    )
    async def create_user(self, caller: Caller, user: NewUser) -> UserDescription: ...

    @operation(
        "GET",
        "/api/v1/security/users/{name}",
        "A user, without its secrets",
        refuses=(403, 404),
    )
    def describe_user(self, caller: Caller, name: str) -> UserDescription: ...

    @operation(
        "DELETE",
        "/api/v1/security/users/{name}",
        "Delete a user and close its connections",
        refuses=(403, 404),
    )
    async def delete_user(self, caller: Caller, name: str) -> Told: ...

    @operation(
        "POST",
        "/api/v1/security/users/{name}/commands",
        "Set or remove a user's password or signing secret; enable or disable the user",
        refuses=(*_REQUEST, 403),
    )
    async def command_user(
        self, caller: Caller, name: str, wanted: UserCommand
    ) -> UserDescription: ...

    @operation(
        "POST",
        "/api/v1/security/users/{name}/tokens",
        "Make an API token for a user; the response alone shows it",
        refuses=(*_REQUEST, 403),
    )
    async def create_token(self, caller: Caller, name: str, wanted: NewToken) -> CreatedToken: ...

    @operation(
        "DELETE",
        "/api/v1/security/users/{name}/tokens/{token_id}",
        "Revoke an API token of a user",
        refuses=(403, 404),
    )
    async def revoke_token(self, caller: Caller, name: str, token_id: str) -> None: ...


class Quotas(Protocol):
    @operation(
        "GET",
        "/api/v1/security/quotas",
        "Quotas of users, client ids and addresses, or those of some, a page at a time",
        refuses=(403,),
    )
    def list_quotas(
        self,
        caller: Caller,
        user: str,
        client_id: str,
        address: str,
        default_user: bool,
        default_client_id: bool,
        default_address: bool,
        after: str,
        limit: PageLimit,
    ) -> ClientQuotaPage: ...

    @operation(
        "POST",
        "/api/v1/security/quotas",
        "Set and remove quotas of a user, a client id, both, or an address; `validate_only=true` "
        "only says what would change",
        refuses=(*_BODY, 403),
    )
    async def change_quotas(
        self, caller: Caller, wanted: QuotaChange, validate_only: bool
    ) -> ChangedQuota:
        """Returns when the quotas are durable."""
        ...

    @operation(
        "POST",
        "/api/v1/security/quotas/tests",
        "Which quotas apply to a user with a client id from an address, and whose they are",
        is_question=True,
        refuses=(*_BODY, 403),
    )
    def test_quotas(self, caller: Caller, question: QuotaQuestion) -> QuotaAnswer: ...

    @operation(
        "GET",
        "/api/v1/security/quotas/uses",
        "What clients use of their quotas on this node, and which are throttled now",
        refuses=(403,),
    )
    def quota_uses(self, caller: Caller) -> QuotaUses: ...


class Pipelines(Protocol):
    @operation(
        "GET",
        "/api/v1/pipelines",
        "Pipelines that have reported to a node, in order of name",
        refuses=(404,),
    )
    async def list_pipelines(self, caller: Caller, node: NodeId | None) -> PipelineList: ...

    @operation(
        "POST", "/api/v1/pipelines", "Report the status of a pipeline to this node", refuses=_BODY
    )
    def report_pipeline(self, caller: Caller, status: PipelineStatus) -> None: ...


class Figures(Protocol):
    @operation(
        "GET",
        "/api/v1/figures",
        "Series of the nodes' histories, by `name`, `topic` or `group`, a page at a time",
    )
    async def list_figures(
        self, caller: Caller, name: str, topic: str, group: str, after: str, limit: PageLimit
    ) -> FigurePage: ...

    @operation(
        "POST",
        "/api/v1/figures/query",
        "Rates, sizes and lag of the last hour or week, of all nodes",
        is_question=True,
        refuses=_BODY,
    )
    async def query_figures(self, caller: Caller, query: FigureQuery) -> FigureRange: ...


class Metrics(Protocol):
    @operation(
        "GET",
        "/api/v1/metrics",
        "Metrics whose names begin with `prefix`, in order of name, a page at a time",
        refuses=(403,),
    )
    async def list_metrics(
        self, caller: Caller, prefix: str, after: str, limit: PageLimit
    ) -> MetricPage:
        """`limit` counts metrics; a page also ends before it has very many series."""
        ...


OPERATIONS: Final = tuple(declared_operations)


# ---- the node


class Logins(Protocol):
    """Examines credentials. `password` and `token` raise `AuthenticationFailedError`."""

    def before_login(self, caller: Caller) -> Caller:
        """The caller of a connection that its certificate or its network names."""
        ...

    def password(
        self, name: str, password: str, host: str, *, protocol: str
    ) -> Coroutine[object, None, Caller]: ...

    def token(self, text: str, host: str) -> TokenLogin: ...

    def is_valid_token(self, text: str) -> bool:
        """Whether a token that has logged in still would. It is no login."""
        ...

    def is_enabled(self, name: str) -> bool:
        """Whether there is a user of this name who may log in."""
        ...


class NodeView(Protocol):
    """A node as the API sees it: its services, its health and its metrics."""

    @property
    def topics(self) -> Topics: ...

    @property
    def records(self) -> Records: ...

    @property
    def groups(self) -> Groups: ...

    @property
    def usage(self) -> Usage: ...

    @property
    def cluster(self) -> Cluster: ...

    @property
    def connections(self) -> Connections: ...

    @property
    def damage(self) -> Damage: ...

    @property
    def delayed(self) -> Delayed: ...

    @property
    def captures(self) -> Captures: ...

    @property
    def keys(self) -> Keys: ...

    @property
    def certificates(self) -> Certificates: ...

    @property
    def security(self) -> Security: ...

    @property
    def rules(self) -> Rules: ...

    @property
    def users(self) -> Users: ...

    @property
    def quotas(self) -> Quotas: ...

    @property
    def pipelines(self) -> Pipelines: ...

    @property
    def figures(self) -> Figures: ...

    @property
    def metrics(self) -> Metrics: ...

    def is_serving(self) -> bool:
        """Whether the node has started and is not stopping. Otherwise only health and metrics are
        served.
        """
        ...

    def objection(self) -> str:
        """Why clients should use other nodes; empty when this one is ready."""
        ...

    def degradation(self, *, with_files: bool) -> str:
        """What is wrong with a node that still serves clients; empty when nothing is. Only
        `with_files` may it name topics and files.
        """
        ...

    def fatal_failure(self) -> str:
        """Why only a new start would help; empty when there is no such reason."""
        ...

    def health_checks(self) -> tuple[Check, ...]:
        """The checks of the node's health, with all details."""
        ...

    def own_names(self) -> Iterable[str]:
        """The host names at which this node can be reached, as far as it knows."""
        ...

    @property
    def logins(self) -> Logins: ...

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def caller_quotas(self) -> CallerQuotas: ...

    @property
    def metrics_require_login(self) -> bool:
        """Whether metrics are for those only who may use the API and describe the cluster."""
        ...

    @property
    def accepts_readable_passwords(self) -> bool:
        """Whether passwords are accepted that others on the network can read."""
        ...

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """Additional host names that the operator has allowed (`config/hosts.py`)."""
        ...

    @property
    def requests(self) -> Requests[str]:
        """The counts of operations, by method and path."""
        ...

    def hold_right(self, stream: EventStream) -> Callable[[], None]:
        """Check the stream's right again whenever rules or users change, and end the stream at the
        first refusal. Returns what releases the right.
        """
        ...

    def stats(self) -> Iterator[Stats]:
        """A snapshot for the metrics, in parts; every name in it is in the catalogue."""
        ...
