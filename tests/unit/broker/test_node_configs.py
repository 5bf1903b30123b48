"""Goal: every setting that may change at run time changes what the broker does, at once and after a
restart.

Method: for each key a probe that tells old behaviour from new, through the broker's own calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.errors import (
    BrokerError,
    InvalidConfig,
    InvalidReplicationFactor,
    InvalidTimestamp,
    MessageTooLarge,
    NotEnoughReplicas,
    ReadOnlyConfig,
    TooManyPartitions,
    TopicDeletionDisabled,
)
from dragoman.broker.topics import NewTopic
from dragoman.cluster.events import NodeAdded, NodeRegistered
from dragoman.cluster.metadata import EVERY_NODE
from dragoman.config.keys import Source
from dragoman.config.settings import DYNAMIC_KEYS, LISTENER_KEYS, Settings
from dragoman.limits import TRANSACTION_EXPIRY_INTERVAL_S
from dragoman.log.batch import Record
from dragoman.log.store import Durability
from dragoman.outcome import start
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.session import CursusSession
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.minibroker.handlers.service import MinibrokerService
from dragoman.protocols.minibroker.handlers.session import MinibrokerSession
from dragoman.protocols.mlog import messages as mlog
from dragoman.types import GroupId
from worlds.broker import Outcome, Pipe, Wire, World, batch_of, fetch_request, only
from worlds.delayed_records import Told
from worlds.mlog import MlogPipe
from worlds.remote_leaders import propose


@pytest.fixture
def world() -> World:
    return World(durability=Durability.OS)


def change(world: World, node_id: int = 1, **changes: str) -> BrokerError | None:
    """Set keys, written with `_` for `.`."""
    texts = {name.replace("_", "."): text for name, text in changes.items()}
    return alter(world, node_id, texts)


def alter(world: World, node_id: int, texts: dict[str, str]) -> BrokerError | None:
    outcome = Outcome()
    start(world.broker.node_configs.alter(node_id, lambda old: {**old, **texts})).then(outcome)
    world.settle()
    assert outcome.error is None or isinstance(outcome.error, BrokerError)
    return outcome.error


# ---- one probe for each key: what it says must differ before and after the change


def created_partitions(world: World) -> object:
    name = f"new{len(world.broker.image.topics)}"
    return world.create_outcome(NewTopic(name=name)) or len(
        world.broker.image.topics[name].partitions
    )


def created_by_asking(world: World) -> object:
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="asked")])
    return Wire(world).ask(request, 9, m.MetadataResponse).topics[0].error_code


def deleted(world: World) -> object:
    if "gone" not in world.broker.image.topics:
        world.create("gone")
    outcome = Outcome()
    start(world.broker.topics.delete("gone")).then(outcome)
    world.settle()
    return type(outcome.error)


def replicated(factor: int) -> Callable[[World], object]:
    def probe(world: World) -> object:
        name = f"new{len(world.broker.image.topics)}"
        return type(world.create_outcome(NewTopic(name=name, replication_factor=factor)))

    return probe


def sized(count: int) -> Callable[[World], object]:
    def probe(world: World) -> object:
        return type(world.create_outcome(NewTopic(name="sized", partition_count=count)))

    return probe


def produced(size: int = 100, age_ms: int = 0) -> Callable[[World], object]:
    def probe(world: World) -> object:
        replica = _topic(world)
        try:
            world.append(replica, batch_of(b"v" * size, timestamp=world.clock.wall_ms() - age_ms))
            replica.check_in_sync()
        except (MessageTooLarge, InvalidTimestamp, NotEnoughReplicas) as refusal:
            return type(refusal)
        return "taken"

    return probe


def _topic(world: World, config: dict[str, str] | None = None):
    if "t" not in world.broker.image.topics:
        world.create("t", config=config)
    return world.broker.partitions.find("t", 0)


def fetched_bytes(world: World) -> object:
    replica = _topic(world)
    for _ in range(3):
        world.write(replica, b"v" * 2000)
    found = only(Wire(world).ask(fetch_request("t"), 11, m.FetchResponse)).records
    assert found is not None
    return len(found) > 5000


def join(world: World, session_ms: int, name: str = "g") -> m.JoinGroupResponse:
    request = m.JoinGroupRequest(
        group_id=name,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    wire = Wire(world)
    wire.send(request, 3)
    world.settle()
    replies = wire.replies()
    if not replies:
        return m.JoinGroupResponse(error_code=-1)
    (reply,) = replies
    assert isinstance(reply.message, m.JoinGroupResponse)
    return reply.message


def join_with(session_ms: int) -> Callable[[World], object]:
    return lambda world: join(world, session_ms).error_code


def joined_at_once(world: World) -> object:
    """-1 while the first rebalance waits for more members."""
    return join(world, 10_000, name=f"g{len(world.broker.coordination.groups.table)}").error_code


def second_member(world: World) -> object:
    name = f"g{len(world.broker.coordination.groups.table)}"
    join(world, 10_000, name)
    return join(world, 10_000, name).error_code


def commit(world: World, metadata: str = "") -> int:
    _topic(world)
    part = m.OffsetCommitRequestPartition(committed_offset=1, committed_metadata=metadata)
    topic = m.OffsetCommitRequestTopic(name="t", partitions=[part])
    request = m.OffsetCommitRequest(group_id="c", topics=[topic])
    response = Wire(world).ask(request, 8, m.OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def committed_metadata(world: World) -> object:
    return commit(world, "x" * 100)


def offset_after(seconds: float) -> Callable[[World], object]:
    def probe(world: World) -> object:
        assert commit(world) == 0
        world.advance(seconds)
        return len(world.broker.coordination.groups.offsets.all_committed("c"))  # type: ignore[arg-type]

    return probe


def begin_transaction(world: World, timeout_ms: int) -> m.InitProducerIdResponse:
    request = m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=timeout_ms)
    return Wire(world).ask(request, 4, m.InitProducerIdResponse)


def transaction_timeout(world: World) -> object:
    return begin_transaction(world, 60_000).error_code


def ids_after_a_scan(world: World) -> int:
    assert begin_transaction(world, 1000).error_code == 0
    world.advance(2 * TRANSACTION_EXPIRY_INTERVAL_S)
    return len(world.broker.coordination.transactions.coordinator.list_transactions())


def open_transaction_after(seconds: float) -> Callable[[World], object]:
    def probe(world: World) -> object:
        _topic(world)
        begun = begin_transaction(world, 1000)
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[m.AddPartitionsToTxnRequestTopic(name="t", partitions=[0])],
        )
        Wire(world).ask(request, 3, m.AddPartitionsToTxnResponse)
        world.advance(seconds)
        return world.broker.coordination.transactions.coordinator.describe("x").state.value

    return probe


def idle_producers_after(seconds: float) -> Callable[[World], object]:
    def probe(world: World) -> object:
        replica = _topic(world, {"retention.ms": "-1"})
        sequence = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        world.append(replica, batch_of(b"v", timestamp=world.clock.wall_ms(), **sequence))
        world.advance(seconds)
        assert replica.log.producers is not None
        return len(replica.log.producers)

    return probe


def log_start_after(
    seconds: float, config: dict[str, str], records: int = 4
) -> Callable[[World], object]:
    def probe(world: World) -> object:
        replica = _topic(world, config)
        for _ in range(records):
            world.write(replica, b"v" * 400)
        world.advance(seconds)
        return replica.log.log_start_offset > 0

    return probe


def segments_after(count: int, seconds: float = 0.0) -> Callable[[World], object]:
    def probe(world: World) -> object:
        replica = _topic(world, {"retention.ms": "-1"})
        for _ in range(count):
            world.write(replica, b"v" * 400)
            world.advance(seconds)
        return len(replica.log.segments) > 0

    return probe


def config_of_topic(field: str) -> Callable[[World], object]:
    return lambda world: getattr(_topic(world).config, field)


def compacted_after(seconds: float) -> Callable[[World], object]:
    def probe(world: World) -> object:
        config = {"cleanup.policy": "compact", "segment.bytes": "600", "retention.ms": "-1"}
        replica = _topic(world, config)
        for _ in range(20):
            world.write(replica, b"v" * 200)
        world.advance(seconds)
        return replica.log.cleaned_offset > 0

    return probe


# ---- consumer groups


def consumer_join(
    world: World, member: str = "m", **more: object
) -> m.ConsumerGroupHeartbeatResponse:
    _topic(world)
    fields: dict[str, object] = {
        "group_id": "g",
        "member_id": member,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
        **more,
    }
    request = m.ConsumerGroupHeartbeatRequest(**fields)  # type: ignore[arg-type]
    return Wire(world).ask(request, 1, m.ConsumerGroupHeartbeatResponse)


def members_after(seconds: float) -> Callable[[World], object]:
    def probe(world: World) -> object:
        assert consumer_join(world).error_code == 0
        world.advance(seconds)
        return len(world.broker.coordination.groups.table.describe_consumer(GroupId("g")).members)

    return probe


def second_consumer(world: World) -> object:
    consumer_join(world)
    return consumer_join(world, "n").error_code


def upgraded(world: World) -> object:
    join(world, 10_000)
    return consumer_join(world).error_code


def own_value(key: str, text: str) -> Callable[[World], object]:
    def probe(world: World) -> object:
        try:
            world.broker.group_configs.check_altered("g", lambda _: {f"consumer.{key}": text})
        except InvalidConfig:
            return "refused"
        return "taken"

    return probe


def fetch_session(world: World) -> object:
    _topic(world)
    request = fetch_request("t", session_epoch=0)
    return Wire(world).ask(request, 12, m.FetchResponse).session_id > 0


def named_by_minibroker(world: World) -> object:
    service = MinibrokerService(world.broker, world.budget, lambda _: ("127.0.0.1", 4222))
    publish = "000000160100066576656e7473000000000000000568656c6c6f"
    Pipe(world, partial(MinibrokerSession, service=service)).exchange(bytes.fromhex(publish))
    return len(world.broker.image.topics["events"].partitions)


def stream_answered_after(seconds: float) -> Callable[[World], object]:
    def probe(world: World) -> object:
        _topic(world)
        pipe = MlogPipe(world)
        pipe.ask_all(mlog.FetchStream(topic="t"))
        world.advance(seconds)
        return bool(pipe.replies())

    return probe


class Cursus:
    """Connections to one Cursus service."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.service = CursusService(world.broker, world.budget, lambda _: ("127.0.0.1", 9000))

    def connect(self) -> Pipe:
        return Pipe(self.world, partial(CursusSession, service=self.service))

    def ask(self, text: str, pipe: Pipe | None = None) -> bytes:
        data = text.encode()
        return (pipe or self.connect()).exchange(len(data).to_bytes(4, "big") + data)


def named_by_cursus(world: World) -> object:
    Cursus(world).ask("CREATE topic=events")
    return len(world.broker.image.topics["events"].partitions)


def out_of_sequence(world: World) -> object:
    _topic(world)
    return b'"status":"OK"' in Cursus(world).ask("PUBLISH topic=t producerId=p seqNum=5 message=x")


def second_connection_is_closed(world: World) -> object:
    cursus = Cursus(world)
    cursus.connect()
    second = cursus.connect()
    world.settle()
    return second.is_closed


def second_stream_is_refused(world: World) -> object:
    _topic(world)
    cursus = Cursus(world)
    cursus.ask("STREAM topic=t partition=0 group=g")
    return b"ERROR" in cursus.ask("STREAM topic=t partition=0 group=h")


def idle_stream_is_ended(world: World) -> object:
    _topic(world)
    cursus = Cursus(world)
    pipe = cursus.connect()
    cursus.ask("STREAM topic=t partition=0 group=g", pipe)
    world.advance(20)
    return b"reason=timeout" in pipe.received()


def open_transaction_is_aborted(world: World) -> object:
    _topic(world)
    cursus = Cursus(world)
    who = cursus.ask("INIT_PRODUCER_ID transactional_id=t")[4:].decode().removeprefix("OK ")
    cursus.ask(f"BEGIN_TXN {who}")
    cursus.ask(f"TXN_PUBLISH {who} topic=t partition=0 seqNum=1 message=m")
    world.advance(20)
    return b"state=open" not in cursus.ask("TXN_STATUS transactional_id=t")


OLD = {"segment.bytes": "600", "retention.ms": "1000"}


#: Key, new value, probe, what it says before, what it says after.
def throttled_rate(world: World) -> int:
    return world.broker.cluster.replication._timing.moved_bytes_per_s()


def checks_within(seconds: float) -> Callable[[World], object]:
    """How often the owner of a held record is asked about it."""

    def probe(world: World) -> object:
        _topic(world)
        held, asked = Told(), []
        delayed = world.broker.delayed
        start(delayed.hold("t", 0, Record(value=b"v"), {}, None, NODE_ITSELF)).then(held)
        world.settle()
        delayed.on_check.append(lambda token, *_: asked.append(token))
        world.advance(seconds)
        start(delayed.drop(held.token, {}, NODE_ITSELF)).then(lambda _: None)
        world.settle()
        return asked.count(held.token)

    return probe


EFFECTS: list[tuple[str, str, Callable[[World], object], object, object]] = [
    ("leader.replication.throttled.rate", "1000", throttled_rate, 0, 1000),
    ("auto.create.topics.enable", "false", created_by_asking, 0, 3),
    ("delete.topic.enable", "false", deleted, type(None), TopicDeletionDisabled),
    ("num.partitions", "3", created_partitions, 1, 3),
    (
        "default.replication.factor",
        "2",
        replicated(-1),
        type(None),
        InvalidReplicationFactor,
    ),
    (
        "replication.factor.lenient",
        "true",
        replicated(3),
        InvalidReplicationFactor,
        type(None),
    ),
    ("minibroker.partitions", "7", named_by_minibroker, 4, 7),
    ("cursus.num.partitions", "7", named_by_cursus, 4, 7),
    ("cursus.idempotence.enable", "true", out_of_sequence, True, False),
    ("cursus.connections.max", "1", second_connection_is_closed, False, True),
    ("cursus.streams.max", "1", second_stream_is_refused, False, True),
    ("cursus.stream.timeout.ms", "1000", idle_stream_is_ended, False, True),
    ("cursus.transaction.timeout.ms", "1000", open_transaction_is_aborted, False, True),
    ("mlog.stream.wait.ms", "100", stream_answered_after(1), False, True),
    ("message.max.bytes", "100", produced(200), "taken", MessageTooLarge),
    ("fetch.max.bytes", "1024", fetched_bytes, True, False),
    ("held.record.check.after.ms", "60000", checks_within(10), 1, 0),
    ("held.record.check.interval.ms", "1000", checks_within(9.5), 1, 4),
    ("held.record.check.max", "1", checks_within(100), 4, 1),
    ("group.min.session.timeout.ms", "9000", join_with(8_000), -1, 26),
    ("group.max.session.timeout.ms", "9000", join_with(10_000), -1, 26),
    ("group.initial.rebalance.delay.ms", "0", joined_at_once, -1, 0),
    ("group.max.size", "1", second_member, -1, 81),
    ("group.consumer.session.timeout.ms", "50000", members_after(47), 0, 1),
    (
        "group.consumer.heartbeat.interval.ms",
        "6000",
        lambda world: consumer_join(world).heartbeat_interval_ms,
        5000,
        6000,
    ),
    *(
        (f"group.consumer.{bound}.{key}", limit, own_value(key, text), "refused", "taken")
        for bound, key, limit, text in (
            ("min", "session.timeout.ms", "30000", "40000"),
            ("max", "session.timeout.ms", "90000", "80000"),
            ("min", "heartbeat.interval.ms", "1000", "2000"),
            ("max", "heartbeat.interval.ms", "20000", "18000"),
        )
    ),
    ("group.consumer.max.size", "1", second_consumer, 0, 81),
    (
        "group.consumer.assignors",
        "range",
        lambda world: consumer_join(world, server_assignor="uniform").error_code,
        0,
        112,
    ),
    ("group.consumer.migration.policy", "disabled", upgraded, 0, 69),
    ("max.incremental.fetch.session.cache.slots", "0", fetch_session, True, False),
    ("offset.metadata.max.bytes", "10", committed_metadata, 0, 12),
    ("offsets.retention.minutes", "1", offset_after(1300), 1, 0),
    ("transaction.max.timeout.ms", "1000", transaction_timeout, 0, 50),
    ("transactional.id.expiration.ms", "1000", ids_after_a_scan, 1, 0),
    (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "100",
        open_transaction_after(2),
        "Ongoing",
        "CompleteAbort",
    ),
    ("producer.id.expiration.ms", "1000", idle_producers_after(601), 1, 0),
    ("log.retention.ms", "1000", log_start_after(601, {"segment.bytes": "600"}), False, True),
    ("log.retention.bytes", "600", log_start_after(601, {"segment.bytes": "600"}), False, True),
    ("log.retention.segments", "1", log_start_after(1, {"segment.bytes": "600"}), False, True),
    ("log.retention.check.interval.ms", "1000", log_start_after(60, OLD), False, True),
    ("log.segment.bytes", "600", segments_after(3), False, True),
    ("log.roll.ms", "1000", segments_after(2, 400), False, True),
    ("log.cleanup.policy", "compact", config_of_topic("cleanup_policy"), ("delete",), ("compact",)),
    (
        "log.cleaner.delete.retention.ms",
        "7",
        config_of_topic("delete_retention_ms"),
        86_400_000,
        7,
    ),
    (
        "log.cleaner.min.cleanable.ratio",
        "0.25",
        config_of_topic("min_cleanable_dirty_ratio"),
        0.5,
        0.25,
    ),
    ("log.cleaner.backoff.ms", "100", compacted_after(10), False, True),
    ("max.partitions.per.request", "2", sized(3), type(None), TooManyPartitions),
    ("max.partitions.per.node", "2", sized(3), type(None), TooManyPartitions),
    ("min.insync.replicas", "2", produced(), "taken", NotEnoughReplicas),
    ("compression.type", "gzip", config_of_topic("compression_type"), "producer", "gzip"),
    (
        "log.message.timestamp.type",
        "LogAppendTime",
        produced(age_ms=-7_200_000),
        InvalidTimestamp,
        "taken",
    ),
]
#: Tested elsewhere: connections with the node, the others with what they belong to.
ELSEWHERE = {
    *LISTENER_KEYS,
    "ssl.principal.mapping.rules",
    "any.detection.timeout.ms",
    "connection.failed.authentication.delay.ms",
    "connections.max.idle.ms",
    "connections.max.login.ms",
    "connections.max.reauth.ms",
    "http.metrics.authentication",
    "max.connections",
    "max.connections.before.login",
    "max.connections.before.login.per.ip",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "mlog.acks.all.timeout.ms",
    "mlog.connections.max.idle.ms",
    "offsets.retention.check.interval.ms",
}


def test_every_live_key_has_a_probe() -> None:
    assert {name for name, *_ in EFFECTS} | ELSEWHERE == DYNAMIC_KEYS


@pytest.mark.parametrize(
    ("name", "text", "probe", "before", "after"), EFFECTS, ids=[row[0] for row in EFFECTS]
)
def test_a_changed_setting_changes_what_the_broker_does(
    name: str, text: str, probe: Callable[[World], object], before: object, after: object
) -> None:
    unchanged = World(durability=Durability.OS)
    assert probe(unchanged) == before
    changed = World(durability=Durability.OS)
    assert alter(changed, EVERY_NODE, {name: text}) is None
    assert probe(changed) == after


@pytest.mark.parametrize(
    ("name", "text", "probe", "after"),
    [(row[0], row[1], row[2], row[4]) for row in EFFECTS],
    ids=[row[0] for row in EFFECTS],
)
def test_a_changed_setting_still_counts_after_a_restart(
    name: str, text: str, probe: Callable[[World], object], after: object
) -> None:
    world = World(durability=Durability.OS)
    assert alter(world, 1, {name: text}) is None
    assert probe(world.reopened(kill=True)) == after


def test_open_partitions_follow_the_change() -> None:
    """A topic in use takes the node's new default at once, and the old one when it is removed."""
    world = World(durability=Durability.OS)
    replica = world.create("t")[0]
    own = world.create("own", config={"max.message.bytes": "50"})[0]
    assert change(world, message_max_bytes="100") is None
    assert (replica.config.max_message_bytes, own.config.max_message_bytes) == (100, 50)
    assert replica.log.config is replica.config
    outcome = Outcome()
    start(world.broker.node_configs.alter(1, lambda _: {})).then(outcome)
    world.settle()
    assert replica.config.max_message_bytes == 1_048_588
    assert world.broker.settings == world.settings


def test_the_check_interval_of_offsets_counts_at_once(world: World) -> None:
    assert change(world, offsets_retention_minutes="1") is None
    assert change(world, offsets_retention_check_interval_ms="1000") is None
    assert offset_after(62)(world) == 0


def test_a_shorter_interval_does_not_wait_for_the_longer_one(world: World) -> None:
    """Retention looked at every five minutes until now; the next look is a second away."""
    probe = log_start_after(2.5, OLD)
    assert change(world, log_retention_check_interval_ms="1000") is None
    assert probe(world)


def test_a_round_under_way_is_not_doubled_by_a_change(world: World) -> None:
    world.advance(300)
    assert change(world, log_retention_check_interval_ms="1000") is None
    world.advance(10)
    timers = world.broker.maintenance._timers
    assert set(timers) >= {"retention", "compaction"}


# ---- layers


def test_a_nodes_own_change_goes_before_that_for_all(world: World) -> None:
    assert change(world, EVERY_NODE, num_partitions="3") is None
    assert change(world, 1, num_partitions="4") is None
    settings = world.broker.settings
    assert [value for _, value in settings.origins("num.partitions")] == [4, 3, 1]
    assert world.broker.node_configs.cluster_wide().num_partitions == 3


def test_changes_of_another_node_do_not_count_here(world: World) -> None:
    assert change(world, 2, num_partitions="4") is None
    assert world.broker.settings.num_partitions == 1


@pytest.mark.parametrize("node_id", [1, EVERY_NODE])
@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"node.id": "2"}, ReadOnlyConfig),
        ({"socket.request.max.bytes": "2000"}, ReadOnlyConfig),
        ({"num.io.threads": "none"}, InvalidConfig),
        ({"num.partitions": "none"}, InvalidConfig),
        ({"num.partitions": "-1"}, InvalidConfig),
        ({"group.min.session.timeout.ms": "9999999"}, InvalidConfig),
    ],
)
def test_bad_changes_leave_everything_as_it_was(
    world: World, node_id: int, changes: dict[str, str], kind: type[BrokerError]
) -> None:
    assert change(world, node_id, num_partitions="2") is None
    version = world.broker.quorum.version
    assert type(alter(world, node_id, changes)) is kind
    assert world.broker.settings.num_partitions == 2
    assert world.broker.quorum.version == version


def test_two_layers_must_fit_together(world: World) -> None:
    assert change(world, EVERY_NODE, group_max_session_timeout_ms="10000") is None
    assert isinstance(change(world, 1, group_min_session_timeout_ms="20000"), InvalidConfig)


def test_changes_that_come_at_once_all_count(world: World) -> None:
    outcomes = [Outcome() for _ in range(3)]
    names = ("num.partitions", "group.max.size", "min.insync.replicas")
    for name, outcome in zip(names, outcomes, strict=True):
        start(world.broker.node_configs.alter(1, lambda old, name=name: {**old, name: "5"})).then(
            outcome
        )
    world.settle()
    assert [outcome.error for outcome in outcomes] == [None] * 3
    assert world.broker.image.node_configs[1] == dict.fromkeys(names, "5")


def test_checking_changes_nothing(world: World) -> None:
    checked = world.broker.node_configs.check_altered(1, lambda _: {"num.partitions": "5"})
    assert checked == {"num.partitions": "5"}
    world.settle()
    assert world.broker.settings.num_partitions == 1
    assert world.broker.image.node_configs == {}


def test_a_start_that_contradicts_stored_changes_wins_and_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert change(world, message_max_bytes="2000000") is None
    again = world.reopened(Settings(socket_request_max_bytes=1_500_000))
    assert again.broker.settings.message_max_bytes == 1_048_588
    assert "settings changed at run time are ignored" in caplog.text
    assert Source.DYNAMIC_NODE not in dict(again.broker.settings.origins("message.max.bytes"))


def test_certificate_of_one_node_suffices_for_tls_on_all(world: World) -> None:
    own = {"ssl.certificate.file": "node.pem", "ssl.key.file": "node-key.pem"}
    tls = {"listener.kafka.tls": "optional"}
    assert isinstance(alter(world, EVERY_NODE, tls), InvalidConfig)
    assert alter(world, 1, own) is None
    assert alter(world, EVERY_NODE, tls) is None
    assert world.broker.settings.listener_security("kafka").tls == "optional"
    assert world.reopened().broker.settings.listener_security("kafka").tls == "optional"


def test_what_listeners_demand_holds_even_if_the_rest_is_ignored(world: World) -> None:
    demands = {"listener.kafka.tls": "required", "listener.kafka.authentication": "required"}
    texts = {**demands, "ssl.certificate.file": "node.pem", "message.max.bytes": "2000000"}
    assert alter(world, 1, texts) is None
    again = world.reopened(Settings(socket_request_max_bytes=1_500_000))
    assert again.broker.settings.message_max_bytes == 1_048_588
    security = again.broker.settings.listener_security("kafka")
    assert (security.tls, security.authentication) == ("required", "required")


# ---- beside older nodes


@pytest.mark.parametrize("node_id", [1, EVERY_NODE])
@pytest.mark.parametrize(
    "key", ["my.plugin", "num.io.threads", "max.connections", "max.connections.before.login"]
)
def test_keys_that_an_older_node_does_not_know_wait_until_it_is_upgraded(
    key: str, node_id: int
) -> None:
    """It would take one for a mistake, and ignore all that was changed at run time with it."""
    world = World(Settings(cluster=("1@127.0.0.1:9190",)), start=False)
    world.broker.image.apply(NodeAdded(node_id=2, address="two.example:9190"))
    world.start()
    refused = alter(world, node_id, {"num.partitions": "3", key: "5"})
    assert isinstance(refused, InvalidConfig)
    assert f"{key}: this needs feature level 4" in str(refused)
    assert "upgrade node 2 first" in str(refused)
    assert alter(world, node_id, {"num.partitions": "3"}) is None
    propose(world, NodeRegistered(node_id=2, incarnation=2, feature_level=4))
    assert alter(world, node_id, {"num.partitions": "3", key: "5"}) is None
