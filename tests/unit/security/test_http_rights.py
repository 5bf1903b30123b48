"""Goal: each operation of the HTTP API needs exactly the rights in the table below.

Method: the services of the API on a real broker, as for Kafka's requests. Operations on the nodes
are asked only until they are refused, because a node of its own has none to move.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest

from dragoman.api.access_values import (
    AccessQuestion,
    AccessRuleFilter,
    AccessRules,
    NewToken,
    NewUser,
    RuleSearch,
    UserCommand,
)
from dragoman.api.captures import CaptureService
from dragoman.api.client_quotas import ClientQuotaService
from dragoman.api.cluster import ClusterService
from dragoman.api.connections import ConnectionService
from dragoman.api.damage import DamageService
from dragoman.api.declaration import (
    ApiError,
    LastEventId,
    PageLimit,
    PartitionIndex,
    ReadBytes,
    RecordLimit,
    ValueBytes,
)
from dragoman.api.delayed import DelayedService
from dragoman.api.figure_values import FigureQuery
from dragoman.api.figures import FigureService
from dragoman.api.group_values import OffsetReset
from dragoman.api.groups import GroupService
from dragoman.api.keys import CertificateService
from dragoman.api.metrics.listing import MetricService
from dragoman.api.node_service import serve_other_nodes
from dragoman.api.operations import OPERATIONS
from dragoman.api.pipelines import PipelineReports
from dragoman.api.quota_values import ClientEntity, QuotaChange, QuotaQuestion
from dragoman.api.record_values import NewRecord, NewRecords
from dragoman.api.records import RecordService
from dragoman.api.security import RuleService, SecurityService, UserService
from dragoman.api.topic_values import NewPartitions, TopicChange, Truncation
from dragoman.api.topics import TopicService
from dragoman.api.usage import UsageService
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CertificateCommand,
    Election,
    NewMoves,
    NewNode,
    NewSettings,
    NewTopic,
    PipelineStatus,
    Transfer,
)
from dragoman.broker.errors import NotAuthorized
from dragoman.captures.definition import Definition
from dragoman.cluster.events import CaptureDefined
from dragoman.errors import DragomanError
from dragoman.net.admission import MemoryBudget
from dragoman.net.tls.contexts import TlsContexts
from dragoman.operating_system import RealPlainFiles
from dragoman.protocols.kafka import messages as m
from dragoman.security.access import CLUSTER_NAME, Caller, Operation, Resource
from dragoman.telemetry.history.recorder import Recorder
from dragoman.telemetry.history.ring import Columns
from dragoman.telemetry.history.ring import Row as HistoryRow
from dragoman.testing.memory import MemoryDisk
from dragoman.types import NodeId
from worlds.broker import Wire, World
from worlds.rights import Guard, Need, Right, need, others

RESOURCES: Final = (
    (Resource.TOPIC, "t"),
    (Resource.TOPIC, "fresh"),
    (Resource.GROUP, "g"),
    (Resource.CAPTURE, "c"),
    (Resource.CAPTURE, "listed"),
    (Resource.PIPELINE, "p"),
    (Resource.CLUSTER, CLUSTER_NAME),
)
CALLER: Final = Caller()
LIMIT: Final = PageLimit(10)
NO_RULE: Final = AccessRuleFilter(name="none")
QUESTION: Final = AccessQuestion(
    principal="User:a", operation=Operation.READ, resource=Resource.TOPIC, name="t"
)
QUOTA: Final = QuotaChange(entity=ClientEntity(user="a"), unset=("producer_byte_rate",))
DEFINITION: Final = Definition(name="c", dsn="host=db", tables=("t",))
#: The node would use a file of its own.
BORROWING: Final = Definition(name="c", dsn="host=db password=file:/x", tables=("t",))


class NamedCaptures(CaptureService):
    """Captures without processes: only their names are known."""

    async def _describe(self, names: Sequence[str]) -> list[Any]:
        return list(names)


#: A series of each subject.
SERIES: Final = (
    ("topic_log_bytes", "t"),
    ("group_lag_records", "g"),
    ("capture_lag_bytes", "listed"),
    ("pipeline_lag_records", "p"),
    ("topic_log_bytes", "(others)"),
    ("log_bytes",),
)


def history(world: World) -> Recorder:
    """Of one sample, at the end of this minute."""
    clock = world.clock
    recorder = Recorder(
        lambda: (), MemoryDisk(), world.scheduler, clock, lambda: False, clock.monotonic()
    )
    at = clock.wall_ms() // 60_000 * 60
    values = array("f", [7.0]) * len(SERIES)
    recorder.rings.fine.rows.append(HistoryRow(at, Columns(SERIES), values))
    return recorder


class Stage:
    def __init__(self) -> None:
        self.world = World()
        broker = self.world.broker
        self.world.create("t")
        partition = m.OffsetCommitRequestPartition(committed_offset=1)
        topic = m.OffsetCommitRequestTopic(name="t", partitions=[partition])
        commit = m.OffsetCommitRequest(group_id="g", topics=[topic])
        Wire(self.world).ask(commit, 8, m.OffsetCommitResponse)
        recorder = history(self.world)
        recorder.sampler.left_out["topic traffic"] = 7
        serve_other_nodes(broker, broker.leader_queues, lambda: recorder)
        self.figures = FigureService(broker)
        node: Any = SimpleNamespace(broker=broker)
        self.topics = TopicService(broker, lambda _: ())
        self.groups = GroupService(broker)
        self.usage = UsageService(broker)
        self.records = RecordService(broker, MemoryBudget(64 << 20))
        self.cluster = ClusterService(node, lambda: True)
        captures: Any = self.world.captures
        self.captures = NamedCaptures(broker.context, captures, broker, broker.audit)
        broker.image.captures["listed"] = CaptureDefined(name="listed", definition=b"")
        contexts = TlsContexts(RealPlainFiles(), self.world.clock, self.world.scheduler)
        self.certificates = CertificateService(contexts, broker, broker.audit)
        self.security = SecurityService(broker)
        self.rules = RuleService(broker)
        self.users = UserService(broker)
        self.quotas = ClientQuotaService(broker)
        self.pipelines = PipelineReports(self.world.clock, broker)
        self.pipelines.report_pipeline(CALLER, STATUS)
        self.metrics = MetricService(lambda: iter([{"topics": 1}]), broker)
        listeners: Any = SimpleNamespace(channels={}, http_connections=lambda: iter(()))
        self.connections = ConnectionService(broker, listeners, self.world.clock)
        self.damage = DamageService(broker)
        self.delayed = DelayedService(broker)
        self.guard = Guard(self.world)


STATUS: Final = PipelineStatus(name="p", file="p.toml", state="running")
Ask = Callable[[Stage], object]
#: Whether the answer shows that the operation was refused.
Sees = Callable[[object], bool]


def is_refusal(answer: object) -> bool:
    return isinstance(answer, NotAuthorized)


def lacks(name: str) -> Sees:
    def sees(answer: object) -> bool:
        if is_refusal(answer):
            return True
        items: Any = answer
        return name not in str(items.items)

    return sees


class Row(NamedTuple):
    ask: Ask
    needs: str
    sees: Sees = is_refusal

    @property
    def all_needs(self) -> list[Need]:
        return [need(each) for each in self.needs.split(",") if each]


def _read_records(stage: Stage, time: str) -> object:
    return stage.records.read_records(
        CALLER,
        "t",
        PartitionIndex(0),
        None,
        time,
        None,
        RecordLimit(1),
        ReadBytes(100),
        ValueBytes(100),
        "text",
    )


def _delayed_records(stage: Stage) -> object:
    limits = (RecordLimit(1), ReadBytes(100), ValueBytes(100))
    return stage.delayed.delayed_records(CALLER, "t", None, "", *limits, "text")


def _lists(*texts: str, needs: str, asks: str) -> Row:
    """An operation about the history, which shows a series with these texts."""

    def sees(answer: object) -> bool:
        found: Any = answer
        items = found.items if asks == "list_figures" else found.series
        return not any(all(text in str(each) for text in texts) for each in items)

    return Row(_list_figures if asks == "list_figures" else _query_figures, needs, sees)


def _list_figures(stage: Stage) -> object:
    return stage.figures.list_figures(CALLER, "", "", "", "", LIMIT)


def _query_figures(stage: Stage) -> object:
    return stage.figures.query_figures(CALLER, FigureQuery())


def _figures(asks: str) -> list[Row]:
    return [
        _lists("'t'", needs="describe topic t", asks=asks),
        _lists("'g'", needs="describe group g", asks=asks),
        _lists("'listed'", needs="describe capture listed", asks=asks),
        _lists("'p'", needs="describe pipeline p", asks=asks),
        _lists("'(others)'", needs="describe cluster", asks=asks),
        _lists("'log_bytes'", needs="describe cluster", asks=asks),
        Row(
            _list_figures if asks == "list_figures" else _query_figures,
            "describe cluster",
            lambda answer: "count=7" not in str(answer),
        ),
    ]


def _cluster(ask: Ask, operation: str) -> list[Row]:
    return [Row(ask, f"{operation} cluster")]


ROWS: Final[dict[str, list[Row]]] = {
    "list_topics": [
        Row(lambda s: s.topics.list_topics(CALLER, "", LIMIT), "describe topic t", lacks("'t'"))
    ],
    "create_topic": [
        Row(
            lambda s: s.topics.create_topic(CALLER, NewTopic(name="fresh", partitions=0), False),
            "create topic fresh|create cluster",
        )
    ],
    "describe_topic": [
        Row(lambda s: s.topics.describe_topic(CALLER, "t", "", LIMIT), "describe topic t"),
        Row(
            lambda s: s.topics.describe_topic(CALLER, "t", "", LIMIT),
            "describe topic t,describe_configs topic t",
            lambda answer: is_refusal(answer) or not getattr(answer, "config", ()),
        ),
    ],
    "alter_topic": [
        Row(
            lambda s: s.topics.alter_topic(CALLER, "t", TopicChange(), True),
            "alter_configs topic t",
        )
    ],
    "topic_configuration": [
        Row(lambda s: s.topics.topic_configuration(CALLER, "t"), "describe_configs topic t")
    ],
    "add_partitions": [
        Row(
            lambda s: s.topics.add_partitions(CALLER, "t", NewPartitions(total=2), True),
            "alter topic t",
        )
    ],
    "truncate_topic": [
        Row(
            lambda s: s.topics.truncate_topic(CALLER, "t", Truncation(offsets={0: 0}), True),
            "delete topic t",
        )
    ],
    "delete_topic": [
        Row(lambda s: s.topics.delete_topic(CALLER, "fresh", False), "delete topic fresh"),
        Row(lambda s: s.topics.delete_topic(CALLER, "t", True), "delete topic t"),
        Row(
            lambda s: s.topics.delete_topic(CALLER, "t", True),
            "delete topic t,describe group g",
            lambda answer: is_refusal(answer) or not getattr(answer, "groups", ()),
        ),
    ],
    "read_records": [
        Row(lambda s: _read_records(s, ""), "read topic t"),
        # Kafka's clients find the offset of a time by a request of its own.
        Row(lambda s: _read_records(s, "1"), "read topic t,describe topic t"),
    ],
    "record_events": [
        Row(
            lambda s: s.records.record_events(
                CALLER, "t", "", "latest", LastEventId(""), ValueBytes(100), "text"
            ),
            "read topic t",
        )
    ],
    "write_records": [
        Row(
            lambda s: s.records.write_records(
                CALLER, "t", NewRecords(records=(NewRecord(value="v"),))
            ),
            "write topic t",
        )
    ],
    "list_topic_keys": [Row(lambda s: s.topics.list_topic_keys(CALLER), "")],
    "topic_usage": [
        Row(lambda s: s.usage.topic_usage(CALLER, "a", LIMIT), "describe topic t", lacks("'t'")),
        Row(
            lambda s: s.usage.topic_usage(CALLER, "a", LIMIT),
            "describe topic t,describe group g",
            lambda answer: is_refusal(answer) or "groups=1" not in str(answer),
        ),
    ],
    "group_usage": [
        Row(lambda s: s.usage.group_usage(CALLER, "", LIMIT), "describe group g", lacks("'g'")),
        Row(
            lambda s: s.usage.group_usage(CALLER, "", LIMIT),
            "describe group g,describe topic t",
            lambda answer: is_refusal(answer) or "'t'" not in str(answer),
        ),
    ],
    "list_groups": [
        Row(lambda s: s.groups.list_groups(CALLER, "", LIMIT), "describe group g", lacks("'g'"))
    ],
    "describe_group": [
        Row(lambda s: s.groups.describe_group(CALLER, "g", "", LIMIT), "describe group g"),
        Row(
            lambda s: s.groups.describe_group(CALLER, "g", "", LIMIT),
            "describe group g,describe topic t",
            lambda answer: is_refusal(answer) or not getattr(answer, "offsets", ()),
        ),
    ],
    "reset_group": [
        Row(
            lambda s: s.groups.reset_group(
                CALLER, "g", OffsetReset(to="latest", topics=("t",)), True
            ),
            "read group g,describe group g,read topic t,describe topic t",
        )
    ],
    "delete_group": [Row(lambda s: s.groups.delete_group(CALLER, "g", True), "delete group g")],
    "delete_group_offsets": [
        Row(
            lambda s: s.groups.delete_group_offsets(CALLER, "g", "t", True),
            "delete group g,read topic t",
        )
    ],
    "list_connections": _cluster(
        lambda s: s.connections.list_connections(CALLER, "", None, "", LIMIT), "describe"
    ),
    "close_connection": _cluster(
        lambda s: s.connections.close_connection(CALLER, "kafka-9", None), "alter"
    ),
    "list_damage": _cluster(lambda s: s.damage.list_damage(CALLER, None, "", LIMIT), "describe"),
    "list_delayed": _cluster(lambda s: s.delayed.list_delayed(CALLER, None, "", LIMIT), "describe"),
    "delayed_records": [Row(_delayed_records, "read topic t")],
    "cluster_status": _cluster(lambda s: s.cluster.cluster_status(CALLER), "describe"),
    "mlog_events": _cluster(lambda s: s.cluster.mlog_events(CALLER), "describe"),
    "add_node": _cluster(
        lambda s: s.cluster.add_node(CALLER, NewNode(node_id=9, address="h:1")), "alter"
    ),
    "remove_node": _cluster(lambda s: s.cluster.remove_node(CALLER, NodeId(9)), "alter"),
    "transfer": _cluster(lambda s: s.cluster.transfer(CALLER, Transfer()), "alter"),
    "move_replicas": _cluster(lambda s: s.cluster.move_replicas(CALLER, NewMoves()), "alter"),
    "changed_settings": _cluster(lambda s: s.cluster.changed_settings(CALLER), "describe_configs"),
    "change_settings": _cluster(
        lambda s: s.cluster.change_settings(CALLER, NewSettings()), "alter_configs"
    ),
    "elect": _cluster(lambda s: s.cluster.elect(CALLER, Election()), "alter"),
    "list_captures": [
        Row(
            lambda s: s.captures.list_captures(CALLER, "", LIMIT),
            "describe capture listed",
            lacks("'listed'"),
        )
    ],
    "add_capture": [
        Row(lambda s: s.captures.add_capture(CALLER, DEFINITION, ""), "create capture c"),
        Row(
            lambda s: s.captures.add_capture(CALLER, BORROWING, ""),
            "create capture c,alter cluster",
        ),
    ],
    "describe_capture": [
        Row(lambda s: s.captures.describe_capture(CALLER, "c"), "describe capture c")
    ],
    "remove_capture": [
        Row(lambda s: s.captures.remove_capture(CALLER, "c", False), "delete capture c")
    ],
    "command_capture": [
        Row(
            lambda s: s.captures.command_capture(CALLER, "c", CaptureCommand(command="pause")),
            "alter capture c",
        )
    ],
    "check_capture": [
        Row(
            lambda s: s.captures.check_capture(CALLER, CaptureCheck(definition=DEFINITION)),
            "create capture c",
        ),
        Row(
            lambda s: s.captures.check_capture(CALLER, CaptureCheck(definition=BORROWING)),
            "create capture c,alter cluster",
        ),
        Row(
            lambda s: s.captures.check_capture(CALLER, CaptureCheck(name="c")),
            "describe capture c",
        ),
    ],
    "database_tables": [
        Row(lambda s: s.captures.database_tables(CALLER, DEFINITION), "create capture c"),
        Row(
            lambda s: s.captures.database_tables(CALLER, BORROWING),
            "create capture c,alter cluster",
        ),
    ],
    "security_status": _cluster(lambda s: s.security.security_status(CALLER), "describe"),
    "find_rules": _cluster(lambda s: s.rules.find_rules(CALLER, RuleSearch()), "describe"),
    "add_rules": _cluster(lambda s: s.rules.add_rules(CALLER, AccessRules(rules=())), "alter"),
    "remove_rules": _cluster(lambda s: s.rules.remove_rules(CALLER, NO_RULE), "alter"),
    "test_access": _cluster(lambda s: s.rules.test_access(CALLER, QUESTION), "describe"),
    "list_users": _cluster(lambda s: s.users.list_users(CALLER, "", LIMIT), "describe"),
    "describe_user": _cluster(lambda s: s.users.describe_user(CALLER, "u"), "describe"),
    "create_user": _cluster(lambda s: s.users.create_user(CALLER, NewUser(name="")), "alter"),
    "delete_user": _cluster(lambda s: s.users.delete_user(CALLER, "u"), "alter"),
    "command_user": _cluster(
        lambda s: s.users.command_user(CALLER, "u", UserCommand(command="enable")), "alter"
    ),
    "create_token": _cluster(lambda s: s.users.create_token(CALLER, "u", NewToken()), "alter"),
    "revoke_token": _cluster(lambda s: s.users.revoke_token(CALLER, "u", "1"), "alter"),
    "list_quotas": _cluster(
        lambda s: s.quotas.list_quotas(CALLER, "", "", "", False, False, False, "", LIMIT),
        "describe_configs",
    ),
    "change_quotas": _cluster(
        lambda s: s.quotas.change_quotas(CALLER, QUOTA, True), "alter_configs"
    ),
    "test_quotas": _cluster(
        lambda s: s.quotas.test_quotas(CALLER, QuotaQuestion()), "describe_configs"
    ),
    "quota_uses": _cluster(lambda s: s.quotas.quota_uses(CALLER), "describe_configs"),
    "list_pipelines": [
        Row(lambda s: s.pipelines.list_pipelines(CALLER, None), "describe pipeline p", lacks("'p'"))
    ],
    "list_figures": _figures("list_figures"),
    "query_figures": _figures("query_figures"),
    "list_metrics": _cluster(lambda s: s.metrics.list_metrics(CALLER, "", "", LIMIT), "describe"),
    "certificate_status": [
        Row(lambda s: s.certificates.certificate_status(CALLER), "describe cluster")
    ],
    "command_certificates": [
        Row(
            lambda s: s.certificates.command_certificates(
                CALLER, CertificateCommand(command="reload")
            ),
            "alter cluster",
        )
    ],
    "report_pipeline": [
        Row(lambda s: s.pipelines.report_pipeline(CALLER, STATUS), "write pipeline p")
    ],
}


def test_every_operation_has_a_row_and_takes_the_caller() -> None:
    # The mode is changed by callers who have logged in: `tests/unit/broker/test_access.py`.
    apart = ("/api/v1/security/key", "/api/v1/security/mode")
    known = [each for each in OPERATIONS if not each.path.startswith(apart)]
    assert sorted(ROWS) == sorted(each.name for each in known)
    assert [each.name for each in known if not each.caller] == []


CASES: Final = [(name, index) for name, rows in ROWS.items() for index in range(len(rows))]


def _answer(ask: Callable[[], object]) -> object:
    """The answer, or what refused; None if it waits for something that does not happen here."""
    try:
        answer = ask()
        if isinstance(answer, Coroutine):
            try:
                answer.send(None)
            except StopIteration as stop:
                return stop.value
            finally:
                answer.close()
            return None
    except (DragomanError, ApiError) as error:
        return error
    except (AttributeError, RuntimeError):
        # The operation went on, to a part of the node that the stage does not have.
        return None
    return answer


@pytest.mark.parametrize(("name", "index"), CASES)
def test_operation_needs_exactly_these_rights(name: str, index: int) -> None:
    stage, case = Stage(), ROWS[name][index]

    def is_refused(*denied: Right) -> bool:
        with stage.guard.without(denied):
            return case.sees(_answer(lambda: case.ask(stage)))

    for each in case.all_needs:
        assert is_refused(*each), each
        if len(each) > 1:
            assert not any(map(is_refused, each)), "one of these rights suffices"
    refused = [each for each in others(RESOURCES, case.all_needs) if is_refused(each)]
    assert refused == []


@pytest.mark.parametrize("name", ["", "*", " a", "a\n", "a" * 256])
def test_capture_runs_as_a_principal_that_is_possible(name: str) -> None:
    stage = Stage()
    found = _answer(lambda: stage.captures.add_capture(CALLER, DEFINITION, f"User:{name}"))
    assert isinstance(found, ApiError)
    assert found.status == 400
