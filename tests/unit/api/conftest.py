"""A node made of plain dictionaries, for everything that uses a `NodeView`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import httpx
import pytest
from msgspec import Raw

from dragoman import __version__
from dragoman.api.access_values import SecurityStatus, UserDescription, UserPage, UserSummary
from dragoman.api.app import create_app
from dragoman.api.connection_values import ConnectionPage, DamagePage
from dragoman.api.declaration import PageLimit
from dragoman.api.delayed_values import DelayedPage, DelayedRecordPage
from dragoman.api.figure_values import FigurePage, FigureQuery, FigureRange
from dragoman.api.metrics.listing import MetricService
from dragoman.api.pages import page_of
from dragoman.api.pipelines import PipelineReports
from dragoman.api.quota_values import ClientQuotaPage, QuotaUses
from dragoman.api.quotas import CallerQuotas
from dragoman.api.record_values import Payload, ReadRecord, RecordPage
from dragoman.api.topic_values import TopicConfiguration, TopicDeletion
from dragoman.api.usage_values import (
    ChangedSettings,
    GroupUsagePage,
    TopicKeyList,
    TopicUsage,
    TopicUsagePage,
)
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    CapturePage,
    CertificateCommand,
    CertificateList,
    CertificateStatus,
    Check,
    ClusterKeyNode,
    ClusterKeyStatus,
    ClusterStatus,
    ConfigValue,
    DatabaseTables,
    Elected,
    Election,
    FewCopies,
    Findings,
    GroupAssignment,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupPage,
    GroupSummary,
    KeyCommand,
    ListenerStatus,
    MlogEvents,
    Moves,
    NewMoves,
    NewNode,
    NewSettings,
    NewTopic,
    NodeStatus,
    PartitionDescription,
    PartitionStatus,
    Told,
    TopicDescription,
    TopicPage,
    TopicSummary,
    Transfer,
)
from dragoman.broker.errors import UnknownCapture
from dragoman.captures.control import Finding, Status
from dragoman.captures.definition import Definition
from dragoman.config.overrides import validate_topic_config
from dragoman.errors import AuthenticationFailedError, AuthError, BrokerError, ClusterError
from dragoman.net.requests import Requests
from dragoman.operating_system import SystemClock
from dragoman.security.access import Caller, Operation, Principal, Resource
from dragoman.security.logins import TokenLogin
from dragoman.telemetry.catalogue import Stats
from dragoman.types import NodeId


class TopicExistsError(BrokerError):
    code = "topic_exists"


class UnknownTopicError(BrokerError):
    code = "unknown_topic"


class UnknownGroupError(BrokerError):
    code = "unknown_group"


class FakeTopics(dict[str, TopicDescription]):
    """Topics by name."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__()
        self._node = node
        #: Nodes that do not answer.
        self.unreachable: tuple[int, ...] = ()

    def list_topics(self, caller: Caller, after: str, limit: PageLimit) -> TopicPage:
        names, following = page_of(self, after, limit)
        items = tuple(
            TopicSummary(
                name=name,
                partitions=len(self[name].partitions),
                replication_factor=1,
                internal=False,
            )
            for name in names
        )
        return TopicPage(items=items, next=following)

    def describe_topic(
        self,
        caller: Caller,
        name: str,
        after: str = "",
        limit: PageLimit = PageLimit(1000),  # noqa: B008
    ) -> TopicDescription:
        if self._node.failure is not None:
            raise self._node.failure
        if name not in self:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return self[name]

    def list_topic_keys(self, caller: Caller) -> TopicKeyList:
        return TopicKeyList(items=())

    def topic_configuration(self, caller: Caller, name: str) -> TopicConfiguration:
        return TopicConfiguration(name=name, items=self.describe_topic(caller, name).config)

    async def create_topic(
        self, caller: Caller, topic: NewTopic, validate_only: bool
    ) -> TopicDescription | None:
        await self._node.may_create.wait()
        if self._node.failure is not None:
            raise self._node.failure
        if topic.name in self:
            raise TopicExistsError(f"there is already a topic {topic.name!r}")
        validate_topic_config(topic.config)
        if validate_only:
            return None
        self[topic.name] = self.make(topic)
        return self[topic.name]

    async def delete_topic(
        self, caller: Caller, name: str, validate_only: bool
    ) -> TopicDeletion | None:
        if name not in self:
            raise UnknownTopicError(f"there is no topic {name!r}")
        if not validate_only:
            del self[name]
            return None
        groups = tuple(self._node.groups)
        return TopicDeletion(
            name=name,
            partitions=len(self[name].partitions),
            records=5,
            size_bytes=100,
            groups=groups,
            group_count=len(groups),
            unreachable=self.unreachable,
        )

    @staticmethod
    def make(topic: NewTopic) -> TopicDescription:
        partitions = tuple(
            PartitionDescription(
                partition=index,
                leader=1,
                leader_epoch=0,
                replicas=(1,),
                in_sync=(1,),
                log_start_offset=0,
                high_watermark=5,
                log_end_offset=5,
                size_bytes=100,
            )
            for index in range(topic.partitions or 1)
        )
        config = tuple(
            ConfigValue(name=name, value=value, source="topic", effective=name != "flush.ms")
            for name, value in topic.config.items()
        )
        return TopicDescription(
            name=topic.name,
            topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
            internal=False,
            partitions=partitions,
            config=config,
            hidden_from=("kafka", "cursus") if "/" in topic.name else (),
        )


class FakeGroups(dict[str, GroupDescription]):
    """Groups by name."""

    def __init__(self) -> None:
        super().__init__()
        #: Those whose coordinator does not answer.
        self.unreadable: set[str] = set()

    async def list_groups(self, caller: Caller, after: str, limit: PageLimit) -> GroupPage:
        names, following = page_of(self, after, limit)
        items = tuple(
            GroupSummary(group=name, protocol="kafka", state="stable", members=1) for name in names
        )
        return GroupPage(items=items, next=following)

    async def describe_group(
        self, caller: Caller, name: str, after: str, limit: PageLimit
    ) -> GroupDescription:
        if name not in self:
            raise UnknownGroupError(f"there is no group {name!r}")
        if name in self.unreadable:
            raise ClusterError("the node does not answer")
        return self[name]


class FakeRecords:
    async def read_records(self, partition: int, **_: object) -> RecordPage:
        value = Payload(encoding="text", data=Raw(b'"v"'), size=1)
        record = ReadRecord(
            header_count=0,
            partition=partition,
            offset=0,
            timestamp=1,
            key=None,
            value=value,
            headers=(),
        )
        return RecordPage(
            topic="t", partition=0, items=(record,), next=None, log_start_offset=0, end_offset=1
        )


class FakeConnections:
    async def list_connections(
        self, caller: Caller, listener: str, node: NodeId | None, after: str, limit: PageLimit
    ) -> ConnectionPage:
        return ConnectionPage(node_id=1, items=(), next=None)


class FakeFigures:
    async def list_figures(
        self, caller: Caller, name: str, topic: str, group: str, after: str, limit: PageLimit
    ) -> FigurePage:
        return FigurePage(items=(), next=None)

    async def query_figures(self, caller: Caller, query: FigureQuery) -> FigureRange:
        return FigureRange(step_s=15, times=(), series=())


class FakeDamage:
    async def list_damage(
        self, caller: Caller, node: NodeId | None, after: str, limit: PageLimit
    ) -> DamagePage:
        return DamagePage(
            node_id=1, items=(), next=None, journal=(), quarantine=(), quarantined_bytes=0
        )


class FakeDelayed:
    async def list_delayed(
        self, caller: Caller, node: NodeId | None, after: str, limit: PageLimit
    ) -> DelayedPage:
        return DelayedPage(node_id=1, items=(), next=None, records=0)

    async def delayed_records(self, caller: Caller, name: str, **_: object) -> DelayedRecordPage:
        return DelayedRecordPage(node_id=1, topic=name, items=(), next=None)


class FakeCaptures(dict[str, CaptureDescription]):
    """Captures by name."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__()
        self._node = node

    async def list_captures(self, caller: Caller, after: str, limit: PageLimit) -> CapturePage:
        names, following = page_of(self, after, limit)
        return CapturePage(items=tuple(self[name] for name in names), next=following)

    async def describe_capture(self, caller: Caller, name: str) -> CaptureDescription:
        if name not in self:
            raise UnknownCapture(f"there is no capture {name!r}")
        return self[name]

    async def add_capture(
        self, caller: Caller, definition: Definition, principal: str = ""
    ) -> CaptureDescription:
        self._node.ask((definition, principal) if principal else definition)
        self[definition.name] = CaptureDescription(
            name=definition.name,
            definition=definition,
            paused=False,
            node=1,
            status=self._node.capture_status,
            restarts=0,
            rows=3,
        )
        return self[definition.name]

    async def remove_capture(self, caller: Caller, name: str, keep_slot: bool) -> Told:
        return self._node.ask((name, keep_slot))

    async def command_capture(self, caller: Caller, name: str, wanted: CaptureCommand) -> Told:
        return self._node.ask((name, wanted))

    async def check_capture(self, caller: Caller, wanted: CaptureCheck) -> Findings:
        self._node.ask(wanted)
        return Findings(items=self._node.findings)

    async def database_tables(self, caller: Caller, definition: Definition) -> DatabaseTables:
        self._node.ask(definition)
        return DatabaseTables(items=(), has_more=False)


class Denying:
    """Allows everything but what a test denies."""

    def __init__(self) -> None:
        self.denied: set[Operation] = set()

    def is_allowed(
        self,
        caller: Caller,
        operation: Operation,
        resource: Resource,
        name: str,
    ) -> bool:
        return operation not in self.denied

    def may(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        return self.is_allowed(caller, operation, resource, name)

    def is_allowed_on_any(
        self,
        caller: Caller,
        operation: Operation,
        resource: Resource,
    ) -> bool:
        return operation not in self.denied


class FakeLogins:
    """Users with their passwords, and tokens with the name of their user."""

    def __init__(self) -> None:
        self.passwords = {"alice": "würde:tief", "bob": ""}
        self.tokens = {"full": ("alice", False), "reads": ("alice", True)}
        self.disabled: set[str] = set()
        self.failure: AuthError | None = None
        self.hosts: list[str] = []

    def before_login(self, caller: Caller) -> Caller:
        return Caller(host=caller.host) if caller.name in self.disabled else caller

    async def password(self, name: str, password: str, host: str, *, protocol: str) -> Caller:
        assert protocol == "http"
        self.hosts.append(host)
        if self.failure is not None:
            raise self.failure
        if not password or self.passwords.get(name) != password:
            raise AuthenticationFailedError("unknown user or wrong credentials")
        return Caller(Principal("User", name), host)

    def token(self, text: str, host: str) -> TokenLogin:
        self.hosts.append(host)
        if text not in self.tokens:
            raise AuthenticationFailedError("unknown or expired token")
        name, is_read_only = self.tokens[text]
        return TokenLogin(Caller(Principal("User", name), host), is_read_only, 0)

    def is_valid_token(self, text: str) -> bool:
        return text in self.tokens

    def is_enabled(self, name: str) -> bool:
        return name in self.passwords and name not in self.disabled


class FakeKeys:
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def cluster_key_status(self, caller: Caller) -> ClusterKeyStatus:
        holder = ClusterKeyNode(node=1, keys=("0badcafe",))
        return ClusterKeyStatus(
            current="0badcafe", nodes=(holder,), sealed={"0badcafe": 3}, clear=0
        )

    async def command_cluster_key(self, caller: Caller, wanted: KeyCommand) -> ClusterKeyStatus:
        self._node.asked.append(wanted)
        return await self.cluster_key_status(caller)


class FakeCertificates:
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def certificate_status(self, caller: Caller) -> CertificateList:
        state = CertificateStatus(
            listener="kafka-tls", subject="CN=node", expires_ms=1_800_000_000_000, problem=""
        )
        return CertificateList(items=(state,))

    async def command_certificates(
        self, caller: Caller, wanted: CertificateCommand
    ) -> CertificateList:
        self._node.asked.append(wanted)
        return self.certificate_status(caller)


class FakeSecurity:
    """The mode, and one user."""

    def security_status(self, caller: Caller) -> SecurityStatus:
        return SecurityStatus(
            mode="open",
            users=1,
            rules=0,
            super_users=(),
            allow_everyone_if_no_acl_found=False,
            has_administrator=False,
            older_nodes=(),
        )

    def list_users(self, caller: Caller, after: str, limit: PageLimit) -> UserPage:
        user = UserSummary(
            name="alice", enabled=True, mechanisms=(), signing_secret=False, tokens=0
        )
        return UserPage(items=(user,), next=None)

    def describe_user(self, caller: Caller, name: str) -> UserDescription:
        return UserDescription(
            name=name, enabled=True, mechanisms=(), signing_secret=False, tokens=()
        )


class FakeQuotas:
    def list_quotas(self, caller: Caller, **_: object) -> ClientQuotaPage:
        return ClientQuotaPage(items=(), next=None)

    def quota_uses(self, caller: Caller) -> QuotaUses:
        return QuotaUses(node_id=1, items=(), counted=0)


class FakeUsage:
    """Topics and groups without records."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def topic_usage(self, caller: Caller, after: str, limit: PageLimit) -> TopicUsagePage:
        names, following = page_of(self._node.topics, after, limit)
        items = tuple(
            TopicUsage(
                name=name,
                partitions=len(self._node.topics[name].partitions),
                replication_factor=1,
                internal=False,
                records=0,
                size_bytes=0,
                groups=0,
            )
            for name in names
        )
        return TopicUsagePage(items=items, next=following)

    async def group_usage(self, caller: Caller, after: str, limit: PageLimit) -> GroupUsagePage:
        return GroupUsagePage(items=(), next=None)


class FakeNode:
    def __init__(self) -> None:
        self.security = self.users = FakeSecurity()
        self.logins = FakeLogins()
        self.authorizer = Denying()
        self.metrics_require_login = True
        self.requests: Requests[str] = Requests("http", str)
        self.accepts_readable_passwords = False
        no_quotas = SimpleNamespace(throttles=SimpleNamespace(is_on=False))
        self.quotas = FakeQuotas()
        self.caller_quotas = CallerQuotas(no_quotas)
        self.ready = True
        #: Why clients should go elsewhere although it serves.
        self.reason = ""
        self.degraded = ""
        #: Why only a new start would help.
        self.failed = ""
        self.checks = (Check("recovery", "ok"), Check("damage", "warning", "in orders-0"))
        self.topics = FakeTopics(self)
        self.groups = FakeGroups()
        self.usage = FakeUsage(self)
        self.records = FakeRecords()
        self.connections = FakeConnections()
        self.damage = FakeDamage()
        self.delayed = FakeDelayed()
        self.figures = FakeFigures()
        #: Raised by the next mutation or description.
        self.failure: Exception | None = None
        self.copies = 1
        self.few_copies: tuple[FewCopies, ...] = ()
        self.waiting_replicas = 0
        #: Requests that moves and elections take; and after how many they fail.
        self.slices = 1
        self.fails_after = -1
        self.pipelines = PipelineReports(SystemClock(), self)
        self.metrics = MetricService(self.stats, self)
        self.captures = FakeCaptures(self)
        self.keys = FakeKeys(self)
        self.certificates = FakeCertificates(self)
        self.capture_status = Status(state="streaming")
        self.findings: tuple[Finding, ...] = (Finding("ok", "connected"),)
        #: What operators have asked for.
        self.asked: list[object] = []
        #: While unset, creation of a topic waits.
        self.may_create = asyncio.Event()
        self.may_create.set()
        self.allowed_hosts: tuple[str, ...] = ()

    @property
    def cluster(self) -> FakeNode:
        return self

    def own_names(self) -> tuple[str, ...]:
        return ("node", "127.0.0.1")

    def is_serving(self) -> bool:
        return self.ready

    def degradation(self, *, with_files: bool) -> str:
        return self.degraded if with_files or not self.degraded else "the data directory is damaged"

    def fatal_failure(self) -> str:
        return self.failed

    def health_checks(self) -> tuple[Check, ...]:
        return self.checks

    def objection(self) -> str:
        return self.reason or ("" if self.ready else "the node is starting")

    def cluster_status(self, caller: Caller) -> ClusterStatus:
        listener = ListenerStatus(name="kafka", bound="127.0.0.1:9092", advertised=None)
        return ClusterStatus(
            cluster_id="c1",
            node_id=1,
            controller=1,
            version=__version__,
            feature_level=2,
            ready=self.ready,
            durability="fsync",
            uptime_ms=1500,
            topics=len(self.topics),
            partitions=0,
            groups=len(self.groups),
            nodes=(NodeStatus(node_id=1, alive=True, listeners=(listener,), feature_level=2),),
            copies=self.copies,
            few_copies=self.few_copies,
        )

    def mlog_events(self, caller: Caller) -> MlogEvents:
        return MlogEvents(items=(Raw(b'{"event_type":1,"data":{"topic":"a\\u003cb"}}'),))

    async def add_node(self, caller: Caller, node: NewNode) -> Told:
        return self.ask(node)

    async def remove_node(self, caller: Caller, name: NodeId) -> Told:
        told = self.ask(name)
        # Those that wait are moved before the node is asked for again.
        waiting, self.waiting_replicas = self.waiting_replicas, 0
        return Told(detail=told.detail, waiting_replicas=waiting)

    async def transfer(self, caller: Caller, wanted: Transfer) -> Told:
        return self.ask(wanted)

    def changed_settings(self, caller: Caller) -> ChangedSettings:
        return ChangedSettings(items=())

    async def change_settings(self, caller: Caller, wanted: NewSettings) -> Told:
        return self.ask(wanted)

    async def elect(self, caller: Caller, wanted: Election) -> Elected:
        self.ask(wanted)
        left = self._slice()
        return Elected(detail="done", elected=1, remaining=left)

    async def move_replicas(self, caller: Caller, wanted: NewMoves) -> Moves:
        self.ask(wanted)
        left = self._slice()
        moved = PartitionStatus(topic="t", partition=left, leader=1, replicas=(1,), in_sync=(1,))
        return Moves(items=(moved,), remaining=left)

    def _slice(self) -> int:
        """One partition of those that are asked for; how many are left."""
        if self.fails_after == 0:
            raise TopicExistsError("no quorum")
        self.fails_after -= 1
        self.slices = max(0, self.slices - 1)
        return self.slices

    def ask(self, wanted: object) -> Told:
        if self.failure is not None:
            raise self.failure
        self.asked.append(wanted)
        return Told(detail="done")

    def stats(self) -> Iterator[Stats]:
        yield {"topics": len(self.topics), "ready": int(self.ready)}

    def add_topic(self, name: str) -> None:
        self.topics[name] = self.topics.make(NewTopic(name=name))

    def add_group(self, group: str) -> None:
        assignment = GroupAssignment(topic="orders", partitions=(0, 1))
        self.groups[group] = GroupDescription(
            group=group,
            protocol="kafka",
            state="stable",
            generation=3,
            coordinator=1,
            members=(
                GroupMember(
                    member_id="m-1", client_id="c", host="127.0.0.1", assignment=(assignment,)
                ),
            ),
            offsets=(
                GroupOffset(
                    topic="orders", partition=0, committed_offset=2, log_end_offset=5, lag_records=3
                ),
                GroupOffset(
                    topic="gone",
                    partition=0,
                    committed_offset=9,
                    log_end_offset=None,
                    lag_records=None,
                ),
            ),
        )


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def client(node) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(node), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        yield client
