"""Goal: each of Kafka's requests needs exactly the rights that Kafka 4.3 asks for.

Method: the table below names, for each request with a handler, what it needs on the resources that
it names. On one open connection, rules of the real authorizer deny one right after the other: the
request is refused, in Kafka's codes, if it needs the right, and answered as before otherwise. A
request without a row fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec
import pytest

from dragoman.broker.staged_writes import STAGING_TOPIC
from dragoman.cluster.events import RulesChanged
from dragoman.config.settings import Settings
from dragoman.log.batch import TRANSACTIONAL
from dragoman.log.store import Durability
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.service import REQUESTS
from dragoman.security.access import CLUSTER_NAME, Resource
from worlds.broker import Wire, World, batch_of, fetch_request, produce_request
from worlds.rights import Guard, Need, Right, denial, need, others
from worlds.stacks import no_stack_left

CODES: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
#: Everything that a request of the table may name, and a bystander of each kind.
RESOURCES: Final = (
    (Resource.TOPIC, "t"),
    (Resource.TOPIC, "fresh"),
    (Resource.TOPIC, "bystander"),
    (Resource.TOPIC, STAGING_TOPIC),
    (Resource.GROUP, "g"),
    (Resource.GROUP, "c"),
    (Resource.GROUP, "bystander"),
    (Resource.TRANSACTIONAL_ID, "x"),
    (Resource.TRANSACTIONAL_ID, "bystander"),
    (Resource.CLUSTER, CLUSTER_NAME),
)


class Stage:
    """A world with the resources of the table, and one connection."""

    def __init__(self) -> None:
        settings = Settings(group_initial_rebalance_delay_ms=0)
        self.world = World(settings, durability=Durability.OS)
        self.wire = Wire(self.world)
        (replica,) = self.world.create("t")
        self.topic_id = replica.metadata.topic.topic_id
        self.world.create("bystander")
        self.ask(
            m.OffsetCommitRequest(
                group_id="g",
                topics=[
                    m.OffsetCommitRequestTopic(
                        name="t", partitions=[m.OffsetCommitRequestPartition(committed_offset=1)]
                    )
                ],
            ),
            8,
        )
        self.ask(_heartbeat(epoch=0), 1)
        self.ask(_init("x"), 4)
        self.guard = Guard(self.world)

    def ask(self, request: m.Message, version: int) -> m.Message:
        self.wire.send(request, version)
        self.world.settle()
        (reply,) = self.wire.replies()
        return reply.message

    def without_fresh(self) -> None:
        if "fresh" in self.world.broker.image.topics:
            self.ask(
                m.DeleteTopicsRequest(
                    topics=[m.DeleteTopicsRequestTopic(name="fresh")], timeout_ms=1000
                ),
                6,
            )

    def with_fresh(self) -> None:
        if "fresh" not in self.world.broker.image.topics:
            self.world.create("fresh")


def _nothing(_: Stage) -> None:
    return None


#: Whether the reply shows that the request was refused for want of the denied right.
Sees = Callable[[m.Message, Right], bool]


def _values(found: object, name: str) -> Iterator[object]:
    """All fields of this name, at any depth."""
    if isinstance(found, list | tuple):
        for each in found:
            yield from _values(each, name)
    elif isinstance(found, msgspec.Struct):
        for field in found.__struct_fields__:
            value = getattr(found, field)
            if field == name:
                yield value
            yield from _values(value, name)


def has_code(reply: m.Message, denied: Right) -> bool:
    names = ("error_code", "partition_error_code", "topic_config_error_code")
    return any(CODES[denied[1]] in _values(reply, name) for name in names)


def lacks(field: str, value: str) -> Sees:
    """For listings: a topic, group or id that may not be seen is left out, without an error."""

    def sees(reply: m.Message, denied: Right) -> bool:
        if denied[2] == value:
            assert not has_code(reply, denied)
        return has_code(reply, denied) or value not in _values(reply, field)

    return sees


class Row(NamedTuple):
    version: int
    request: Callable[[Stage], m.Message]
    #: Separated by commas; empty for requests that anybody may send.
    needs: str = ""
    sees: Sees = has_code
    prepare: Callable[[Stage], None] = _nothing

    @property
    def all_needs(self) -> list[Need]:
        return [need(each) for each in self.needs.split(",") if each]


def row(
    version: int,
    request: m.Message,
    needs: str = "",
    sees: Sees = has_code,
    prepare: Callable[[Stage], None] = _nothing,
) -> Row:
    return Row(version, lambda _: request, needs, sees, prepare)


# ---- requests


def _init(name: str | None) -> m.Message:
    return m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)


def _heartbeat(*, epoch: int) -> m.Message:
    return m.ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id="member",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[] if not epoch else None,
    )


def _metadata(name: str, **more: bool) -> m.Message:
    return m.MetadataRequest(topics=[m.MetadataRequestTopic(name=name)], **more)


def _config(kind: int, name: str) -> m.Message:
    resource = m.DescribeConfigsRequestResource(resource_type=kind, resource_name=name)
    return m.DescribeConfigsRequest(resources=[resource])


def _alter(kind: int, name: str) -> m.Message:
    resource = m.AlterConfigsRequestResource(resource_type=kind, resource_name=name)
    return m.AlterConfigsRequest(resources=[resource], validate_only=True)


def _increment(kind: int, name: str) -> m.Message:
    resource = m.IncrementalAlterConfigsRequestResource(resource_type=kind, resource_name=name)
    return m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def _create(name: str) -> m.Message:
    topic = m.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True)


def _offsets(topics: list[str] | None) -> m.Message:
    named = [m.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in topics or ()]
    return m.OffsetFetchRequest(group_id="g", topics=None if topics is None else named)


def _publication() -> m.Message:
    piece = m.PublishStagedRequestPiece()
    partition = m.PublishStagedRequestPartition(index=0, pieces=[piece])
    topic = m.PublishStagedRequestTopic(name="t", partitions=[partition])
    return m.PublishStagedRequest(writer_id="x", query_id="q", batch_id=0, topics=[topic])


def _rules_named(name: str) -> m.Message:
    return m.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=name,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def _verifier_removed(user: str) -> m.Message:
    removed = m.AlterUserScramCredentialsRequestDeletion(name=user, mechanism=1)
    return m.AlterUserScramCredentialsRequest(deletions=[removed])


TOPIC, BROKER, GROUP, CLIENT_METRICS = 2, 4, 32, 16
#: Requests of connections that have not logged in yet.
ELSEWHERE: Final = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
}
ROWS: Final[dict[ApiKey, list[Row]]] = {
    ApiKey.DESCRIBE_ACLS: [row(3, _rules_named("none"), "describe cluster")],
    ApiKey.CREATE_ACLS: [
        row(3, m.CreateAclsRequest(creations=[m.CreateAclsRequestCreation()]), "alter cluster")
    ],
    ApiKey.DELETE_ACLS: [
        row(3, m.DeleteAclsRequest(filters=[m.DeleteAclsRequestFilter()]), "alter cluster")
    ],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [
        row(0, m.DescribeUserScramCredentialsRequest(users=None), "describe cluster")
    ],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [row(0, _verifier_removed("a"), "alter cluster")],
    ApiKey.PRODUCE: [
        row(9, produce_request("t", batch_of(b"v")), "write topic t"),
        Row(
            13,
            lambda stage: produce_request("", batch_of(b"v"), topic_id=stage.topic_id),
            "write topic t",
        ),
    ],
    ApiKey.FETCH: [
        row(11, fetch_request("t"), "read topic t"),
        Row(13, lambda stage: fetch_request("", topic_id=stage.topic_id), "read topic t"),
    ],
    ApiKey.LIST_OFFSETS: [
        row(
            5,
            m.ListOffsetsRequest(
                topics=[
                    m.ListOffsetsRequestTopic(
                        name="t", partitions=[m.ListOffsetsRequestPartition(timestamp=-1)]
                    )
                ]
            ),
            "describe topic t",
        )
    ],
    ApiKey.METADATA: [
        row(9, _metadata("t"), "describe topic t"),
        Row(
            12,
            lambda stage: m.MetadataRequest(
                topics=[m.MetadataRequestTopic(topic_id=stage.topic_id, name=None)]
            ),
            "describe topic t",
        ),
        row(9, m.MetadataRequest(topics=None), "describe topic t", lacks("name", "t")),
        row(
            9,
            _metadata("fresh", allow_auto_topic_creation=True),
            "describe topic fresh,create topic fresh|create cluster",
            prepare=Stage.without_fresh,
        ),
    ],
    ApiKey.OFFSET_COMMIT: [
        row(
            8,
            m.OffsetCommitRequest(
                group_id="g",
                topics=[
                    m.OffsetCommitRequestTopic(
                        name="t", partitions=[m.OffsetCommitRequestPartition(committed_offset=1)]
                    )
                ],
            ),
            "read group g,read topic t",
        )
    ],
    ApiKey.OFFSET_FETCH: [
        row(7, _offsets(["t"]), "describe group g,describe topic t"),
        row(7, _offsets(None), "describe group g,describe topic t", lacks("name", "t")),
        row(
            8,
            m.OffsetFetchRequest(
                groups=[
                    m.OffsetFetchRequestGroup(
                        group_id="g",
                        topics=[m.OffsetFetchRequestGroupTopic(name="t", partition_indexes=[0])],
                    )
                ]
            ),
            "describe group g,describe topic t",
        ),
    ],
    ApiKey.FIND_COORDINATOR: [
        row(4, m.FindCoordinatorRequest(coordinator_keys=["g"]), "describe group g"),
        row(
            4,
            m.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
            "describe transactional_id x",
        ),
    ],
    ApiKey.JOIN_GROUP: [
        row(
            4,
            m.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[m.JoinGroupRequestProtocol(name="range")],
            ),
            "read group g",
        )
    ],
    ApiKey.HEARTBEAT: [row(4, m.HeartbeatRequest(group_id="g"), "read group g")],
    ApiKey.LEAVE_GROUP: [
        row(
            4,
            m.LeaveGroupRequest(group_id="g", members=[m.LeaveGroupRequestMember(member_id="m")]),
            "read group g",
        )
    ],
    ApiKey.SYNC_GROUP: [row(4, m.SyncGroupRequest(group_id="g"), "read group g")],
    ApiKey.API_VERSIONS: [row(0, m.ApiVersionsRequest())],
    ApiKey.CREATE_TOPICS: [
        row(
            7,
            _create("fresh"),
            "create topic fresh|create cluster,describe_configs topic fresh",
            prepare=Stage.without_fresh,
        )
    ],
    ApiKey.DELETE_TOPICS: [
        row(
            6,
            m.DeleteTopicsRequest(
                topics=[m.DeleteTopicsRequestTopic(name="fresh")], timeout_ms=1000
            ),
            "delete topic fresh",
            prepare=Stage.with_fresh,
        )
    ],
    ApiKey.INIT_PRODUCER_ID: [
        row(4, _init("x"), "write transactional_id x"),
        row(4, _init(None), "idempotent_write cluster|write topic *"),
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: [
        row(
            3,
            m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_topics=[m.AddPartitionsToTxnRequestTopic(name="t", partitions=[0])],
            ),
            "write transactional_id x,write topic t",
        )
    ],
    ApiKey.ADD_OFFSETS_TO_TXN: [
        row(
            3,
            m.AddOffsetsToTxnRequest(transactional_id="x", group_id="g"),
            "write transactional_id x,read group g",
        )
    ],
    ApiKey.END_TXN: [row(3, m.EndTxnRequest(transactional_id="x"), "write transactional_id x")],
    ApiKey.TXN_OFFSET_COMMIT: [
        row(
            3,
            m.TxnOffsetCommitRequest(
                transactional_id="x",
                group_id="g",
                topics=[
                    m.TxnOffsetCommitRequestTopic(
                        name="t", partitions=[m.TxnOffsetCommitRequestPartition()]
                    )
                ],
            ),
            "write transactional_id x,read group g,read topic t",
        )
    ],
    ApiKey.DESCRIBE_GROUPS: [row(5, m.DescribeGroupsRequest(groups=["g"]), "describe group g")],
    ApiKey.LIST_GROUPS: [
        row(
            4,
            m.ListGroupsRequest(),
            "describe group g|describe cluster",
            lacks("group_id", "g"),
        )
    ],
    ApiKey.DELETE_RECORDS: [
        row(
            2,
            m.DeleteRecordsRequest(
                topics=[
                    m.DeleteRecordsRequestTopic(
                        name="t", partitions=[m.DeleteRecordsRequestPartition()]
                    )
                ]
            ),
            "delete topic t",
        )
    ],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [
        row(
            4,
            m.OffsetForLeaderEpochRequest(
                topics=[
                    m.OffsetForLeaderEpochRequestTopic(
                        topic="t", partitions=[m.OffsetForLeaderEpochRequestPartition()]
                    )
                ]
            ),
            "describe topic t",
        )
    ],
    ApiKey.WRITE_TXN_MARKERS: [
        row(
            1,
            m.WriteTxnMarkersRequest(
                markers=[
                    m.WriteTxnMarkersRequestMarker(
                        producer_id=77,
                        topics=[m.WriteTxnMarkersRequestTopic(name="t", partition_indexes=[0])],
                    )
                ]
            ),
            "cluster_action cluster|alter cluster",
        )
    ],
    ApiKey.DESCRIBE_CONFIGS: [
        row(4, _config(TOPIC, "t"), "describe_configs topic t"),
        row(4, _config(BROKER, "1"), "describe_configs cluster"),
        row(4, _config(CLIENT_METRICS, "m"), "describe_configs cluster"),
        row(4, _config(GROUP, "g"), "describe_configs group g"),
    ],
    ApiKey.ALTER_CONFIGS: [
        row(2, _alter(TOPIC, "t"), "alter_configs topic t"),
        row(2, _alter(BROKER, "1"), "alter_configs cluster"),
        row(2, _alter(GROUP, "g"), "alter_configs group g"),
    ],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [
        row(1, _increment(TOPIC, "t"), "alter_configs topic t"),
        row(1, _increment(BROKER, "1"), "alter_configs cluster"),
        row(1, _increment(CLIENT_METRICS, "m"), "alter_configs cluster"),
        row(1, _increment(GROUP, "g"), "alter_configs group g"),
    ],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [
        row(
            2,
            m.AlterReplicaLogDirsRequest(
                dirs=[
                    m.AlterReplicaLogDirsRequestDir(
                        path="data",
                        topics=[m.AlterReplicaLogDirsRequestTopic(name="t", partitions=[0])],
                    )
                ]
            ),
            "alter cluster",
        )
    ],
    ApiKey.DESCRIBE_LOG_DIRS: [row(4, m.DescribeLogDirsRequest(topics=None), "describe cluster")],
    ApiKey.CREATE_PARTITIONS: [
        row(
            3,
            m.CreatePartitionsRequest(
                topics=[m.CreatePartitionsRequestTopic(name="t", count=2)],
                timeout_ms=1000,
                validate_only=True,
            ),
            "alter topic t",
        )
    ],
    ApiKey.DELETE_GROUPS: [
        row(2, m.DeleteGroupsRequest(groups_names=["bystander"]), "delete group bystander")
    ],
    ApiKey.ELECT_LEADERS: [
        row(
            2,
            m.ElectLeadersRequest(
                topic_partitions=[m.ElectLeadersRequestTopic(topic="t", partitions=[0])]
            ),
            "alter cluster",
        )
    ],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [
        row(0, m.AlterPartitionReassignmentsRequest(), "alter cluster")
    ],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [
        row(0, m.ListPartitionReassignmentsRequest(topics=None), "describe cluster")
    ],
    ApiKey.OFFSET_DELETE: [
        row(
            0,
            m.OffsetDeleteRequest(
                group_id="g",
                topics=[
                    m.OffsetDeleteRequestTopic(
                        name="t", partitions=[m.OffsetDeleteRequestPartition(partition_index=9)]
                    )
                ],
            ),
            "delete group g,read topic t",
        )
    ],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: [
        row(1, m.DescribeClientQuotasRequest(), "describe_configs cluster")
    ],
    ApiKey.ALTER_CLIENT_QUOTAS: [
        row(
            1,
            m.AlterClientQuotasRequest(
                entries=[
                    m.AlterClientQuotasRequestEntry(
                        entity=[
                            m.AlterClientQuotasRequestEntity(entity_type="user", entity_name="u")
                        ]
                    )
                ],
                validate_only=True,
            ),
            "alter_configs cluster",
        )
    ],
    ApiKey.DESCRIBE_QUORUM: [row(2, m.DescribeQuorumRequest(), "describe cluster")],
    ApiKey.UPDATE_FEATURES: [
        row(
            1,
            m.UpdateFeaturesRequest(
                feature_updates=[
                    m.UpdateFeaturesRequestFeatureUpdate(
                        feature="group.version", max_version_level=1
                    )
                ],
                validate_only=True,
            ),
            "alter cluster",
        )
    ],
    ApiKey.DESCRIBE_CLUSTER: [row(2, m.DescribeClusterRequest())],
    ApiKey.DESCRIBE_PRODUCERS: [
        row(
            0,
            m.DescribeProducersRequest(
                topics=[m.DescribeProducersRequestTopic(name="t", partition_indexes=[0])]
            ),
            "read topic t",
        )
    ],
    ApiKey.DESCRIBE_TRANSACTIONS: [
        row(
            0,
            m.DescribeTransactionsRequest(transactional_ids=["x"]),
            "describe transactional_id x",
        )
    ],
    ApiKey.LIST_TRANSACTIONS: [
        row(
            1,
            m.ListTransactionsRequest(),
            "describe transactional_id x",
            lacks("transactional_id", "x"),
        )
    ],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [
        row(1, _heartbeat(epoch=77), "read group c,describe topic t")
    ],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [
        row(
            1,
            m.ConsumerGroupDescribeRequest(group_ids=["c"]),
            "describe group c,describe topic t",
        )
    ],
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: [row(0, m.GetTelemetrySubscriptionsRequest())],
    ApiKey.PUSH_TELEMETRY: [row(0, m.PushTelemetryRequest())],
    ApiKey.LIST_CONFIG_RESOURCES: [
        row(1, m.ListConfigResourcesRequest(), "describe_configs cluster")
    ],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [
        row(
            0,
            m.DescribeTopicPartitionsRequest(
                topics=[m.DescribeTopicPartitionsRequestTopic(name="t")]
            ),
            "describe topic t",
        ),
        row(0, m.DescribeTopicPartitionsRequest(), "describe topic t", lacks("name", "t")),
    ],
    ApiKey.OPEN_STAGING: [
        row(
            0,
            m.OpenStagingRequest(writer_id="x"),
            f"write transactional_id x,write topic {STAGING_TOPIC}",
        )
    ],
    ApiKey.PUBLISH_STAGED: [
        row(
            0,
            _publication(),
            f"write transactional_id x,write topic {STAGING_TOPIC},write topic t",
        )
    ],
}


def test_every_request_has_a_row() -> None:
    assert sorted([*ROWS, *ELSEWHERE]) == sorted(REQUESTS)


CASES: Final = [(key, index) for key, rows in ROWS.items() for index in range(len(rows))]


@pytest.mark.parametrize(("key", "index"), CASES, ids=lambda each: getattr(each, "name", each))
def test_request_needs_exactly_these_rights(key: ApiKey, index: int) -> None:
    stage, case = Stage(), ROWS[key][index]

    def is_refused(*denied: Right) -> bool:
        case.prepare(stage)
        with stage.guard.without(denied):
            return case.sees(stage.ask(case.request(stage), case.version), denied[0])

    for each in case.all_needs:
        assert is_refused(*each), each
        with no_stack_left():
            is_refused(*each)
        if len(each) > 1:
            assert not any(map(is_refused, each)), "one of these rights suffices"
    refused = [each for each in others(RESOURCES, case.all_needs) if is_refused(each)]
    assert refused == []


def test_express_path_ends_with_the_right_to_write() -> None:
    stage = Stage()
    request = produce_request("t", batch_of(b"v"))

    def produced() -> bool:
        return not has_code(stage.ask(request, 9), need("write topic t")[0])

    assert [produced() for _ in range(3)] == [True] * 3
    counter = stage.world.service.requests[ApiKey.PRODUCE]
    begun = counter.count
    express = stage.wire.channel._session._express  # type: ignore[union-attr]
    assert express is not None
    assert express._routes
    with stage.guard.without(need("write topic t")):
        assert [produced() for _ in range(3)] == [False] * 3
        assert not express._routes
    assert [produced() for _ in range(3)] == [True] * 3
    assert counter.count == begun + 6


def test_open_transaction_ends_with_the_right() -> None:
    stage = Stage()
    identity = stage.ask(_init("x"), 4)
    assert isinstance(identity, m.InitProducerIdResponse)
    who = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    sequence = 0

    def produce() -> bool:
        nonlocal sequence
        batch = batch_of(b"v", attributes=TRANSACTIONAL, base_sequence=sequence, **who)
        request = msgspec.structs.replace(produce_request("t", batch), transactional_id="x")
        is_done = not has_code(stage.ask(request, 12), need("write transactional_id x")[0])
        sequence += is_done
        return is_done

    assert produce()
    with stage.guard.without(need("write transactional_id x")):
        assert not produce()
        end = m.EndTxnRequest(transactional_id="x", committed=True, **who)
        refused = stage.ask(end, 3)
        assert has_code(refused, need("write transactional_id x")[0])
    assert produce()
    assert not has_code(stage.ask(end, 3), need("write transactional_id x")[0])


def test_member_of_a_group_is_refused_with_its_next_heartbeat() -> None:
    stage = Stage()
    joined = stage.ask(_heartbeat(epoch=0), 1)
    assert isinstance(joined, m.ConsumerGroupHeartbeatResponse)
    with stage.guard.without(need("read group c")):
        reply = stage.ask(_heartbeat(epoch=joined.member_epoch), 1)
    assert has_code(reply, need("read group c")[0])


def test_pattern_of_a_member_matches_topics_that_it_may_describe() -> None:
    stage = Stage()
    bystander = stage.world.broker.image.topics["bystander"].topic_id

    def heartbeat(epoch: int, **more: object) -> m.ConsumerGroupHeartbeatResponse:
        request = m.ConsumerGroupHeartbeatRequest(
            group_id="d",
            member_id="member",
            member_epoch=epoch,
            **more,  # type: ignore[arg-type]
        )
        reply = stage.ask(request, 1)
        assert isinstance(reply, m.ConsumerGroupHeartbeatResponse)
        return reply

    with stage.guard.without(need("describe topic bystander")):
        joined = heartbeat(
            0, rebalance_timeout_ms=10_000, subscribed_topic_regex=".*", topic_partitions=[]
        )
        assert {*_values(joined, "topic_id")} == {stage.topic_id}
    allowed = heartbeat(joined.member_epoch)
    assert {*_values(allowed, "topic_id")} == {stage.topic_id, bystander}
    here = msgspec.structs.replace(denial(need("describe topic t")[0]), host="10.0.0.9")
    stage.world.apply(RulesChanged(added=(here,)))
    assert {*_values(heartbeat(allowed.member_epoch), "topic_id")} == {bystander}


def test_parked_join_ends_with_the_right() -> None:
    world = World(Settings(group_initial_rebalance_delay_ms=60_000), durability=Durability.OS)
    guard, wire = Guard(world), Wire(world)
    request = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range")],
    )
    wire.send(request, 3)
    with guard.without(need("read group bystander")):
        assert wire.replies() == []
    with guard.without(need("read group g")):
        (reply,) = wire.replies()
    assert has_code(reply.message, need("read group g")[0])
    assert len(world.broker.grants) == 0
    wire.send(request, 3)
    assert len(world.broker.grants) == 1
    wire.lose()
    assert len(world.broker.grants) == 0


# ---- what refusals reveal


@pytest.mark.parametrize("version", [4, 9, 12])
def test_forbidden_topics_look_like_absent_ones(version: int) -> None:
    stage = Stage()
    denied = (*need("describe topic t"), *need("describe topic absent"))
    with stage.guard.without(denied):
        replies = [stage.ask(_metadata(name), version) for name in ("t", "absent")]
    topics = [each.topics[0] for each in replies if isinstance(each, m.MetadataResponse)]
    forbidden, absent = (msgspec.structs.replace(each, name="") for each in topics)
    assert forbidden == absent
    assert forbidden.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert forbidden.topic_id == m.NO_ID


def test_refusal_of_a_topic_by_id_hides_its_name() -> None:
    stage = Stage()
    topic = m.MetadataRequestTopic(topic_id=stage.topic_id, name=None)
    with stage.guard.without(need("describe topic t")):
        reply = stage.ask(m.MetadataRequest(topics=[topic]), 12)
        unknown = m.MetadataRequestTopic(topic_id=b"\1" * 16, name=None)
        other = stage.ask(m.MetadataRequest(topics=[unknown]), 12)
    assert isinstance(reply, m.MetadataResponse)
    assert isinstance(other, m.MetadataResponse)
    assert (reply.topics[0].error_code, reply.topics[0].name) == (29, None)
    assert other.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_deletion_by_id_hides_the_name_from_those_who_may_not_describe() -> None:
    stage = Stage()
    topic = m.DeleteTopicsRequestTopic(topic_id=stage.topic_id, name=None)
    request = m.DeleteTopicsRequest(topics=[topic], timeout_ms=1000)
    for words, name in (("delete topic t", "t"), ("delete topic t,describe topic t", None)):
        denied = [need(each)[0] for each in words.split(",")]
        with stage.guard.without(denied):
            reply = stage.ask(request, 6)
        assert isinstance(reply, m.DeleteTopicsResponse)
        (found,) = reply.responses
        assert (found.error_code, found.name) == (29, name)
        assert name is not None or "'t'" not in str(found.error_message)


def test_authorized_operations_are_those_of_the_rules() -> None:
    stage = Stage()
    request = m.MetadataRequest(
        topics=[m.MetadataRequestTopic(name="t")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    with stage.guard.without([*need("write topic t"), *need("alter cluster")]):
        reply = stage.ask(request, 9)
    assert isinstance(reply, m.MetadataResponse)
    assert reply.topics[0].topic_authorized_operations == sum(
        1 << bit for bit in (3, 5, 6, 7, 8, 10, 11)
    )
    assert reply.cluster_authorized_operations == sum(1 << bit for bit in (5, 8, 9, 10, 11, 12))
    with stage.guard.without(need("describe cluster")):
        reply = stage.ask(request, 9)
    assert isinstance(reply, m.MetadataResponse)
    assert reply.cluster_authorized_operations == 0


@pytest.mark.parametrize(
    ("version", "request_"),
    [
        (9, produce_request("absent", batch_of(b"v"))),
        (11, fetch_request("absent")),
    ],
    ids=["produce", "fetch"],
)
def test_absent_topics_are_refused_like_forbidden_ones(version: int, request_: m.Message) -> None:
    stage = Stage()
    operation = "write" if version == 9 else "read"
    denied = need(f"{operation} topic absent")
    with stage.guard.without(denied):
        assert has_code(stage.ask(request_, version), denied[0])


@pytest.mark.parametrize("partition", [0, 99])
def test_refusal_of_a_produce_by_id_hides_the_name(partition: int) -> None:
    stage = Stage()
    request = produce_request("", batch_of(b"v"), partition=partition, topic_id=stage.topic_id)
    with stage.guard.without(need("write topic t")):
        reply = stage.ask(request, 13)
    (message,) = _values(reply, "error_message")
    assert message == f"ANONYMOUS may not write the topic with id {stage.topic_id.hex()}"


def test_listings_report_no_refusals() -> None:
    stage = Stage()
    reported: list[object] = []
    stage.world.broker.rule_authorizer.on_refused = lambda *refused: reported.append(refused)
    listing = m.MetadataRequest(topics=None, include_topic_authorized_operations=True)
    denied = ("describe topic t", "alter topic bystander", "describe cluster", "create cluster")
    with stage.guard.without([need(each)[0] for each in denied]):
        stage.ask(listing, 9)
        stage.ask(m.ListGroupsRequest(), 4)
        stage.ask(_create("fresh"), 7)
        assert reported == []
        stage.ask(_metadata("t"), 9)
    assert len(reported) == 1
