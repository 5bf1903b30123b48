"""Goal: each act on topics, groups, quotas and nodes is in the audit log, with its caller and its
result, by whatever protocol it comes; checks and the broker's own changes are not.

Method: requests by Kafka's protocol and by HTTP to one broker in virtual time, whose audit log is a
list.
"""

from __future__ import annotations

import pytest

from dragoman.api.client_quotas import ClientQuotaService
from dragoman.api.group_values import OffsetReset
from dragoman.api.quota_values import ClientEntity, QuotaChange
from dragoman.api.topic_values import NewPartitions, TopicChange, Truncation
from dragoman.api.values import NewTopic
from dragoman.broker import topics
from dragoman.broker.errors import InvalidQuota, TopicExists
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.security.access import Caller, Principal
from dragoman.security.audit import AuditEvent
from worlds.broker import Wire, World
from worlds.http import Services, ask

ALICE = Caller(Principal("User", "alice"), "10.0.0.9")


class Audited:
    def __init__(self) -> None:
        self.world = World()
        self.events: list[AuditEvent] = []
        self.world.broker.audit.record = self.events.append  # type: ignore[method-assign]

    def acts(self) -> list[tuple[str, str, str, str]]:
        """The acts since the last call."""
        found = [
            (each.action, each.result, each.resource, each.detail)
            for each in self.events
            if each.kind == "administration"
        ]
        self.events.clear()
        return found


@pytest.fixture
def audited() -> Audited:
    return Audited()


def test_topics_over_http(audited: Audited) -> None:
    world = audited.world
    service = Services(world).topics
    ask(world, service.create_topic(ALICE, NewTopic(name="t", partitions=2), False))
    assert {(each.caller, each.protocol) for each in audited.events} == {(ALICE, "http")}
    assert audited.acts() == [("topic.create", "succeeded", "topic:t", "2 partitions")]
    change = TopicChange(set={"retention.ms": "1000"})
    total = NewPartitions(total=3)
    for check in (True, False):
        ask(world, service.alter_topic(ALICE, "t", change, check))
        ask(world, service.add_partitions(ALICE, "t", total, check))
        ask(world, service.truncate_topic(ALICE, "t", Truncation(offsets={0: -1}), check))
        if check:
            assert audited.acts() == []
    assert audited.acts() == [
        ("topic.config", "succeeded", "topic:t", "retention.ms=1000"),
        ("topic.extend", "succeeded", "topic:t", "3 partitions"),
        ("topic.truncate", "succeeded", "topic:t", "partition 0: records before 0"),
    ]
    ask(world, service.alter_topic(ALICE, "t", TopicChange(unset=("retention.ms",)), False))
    ask(world, service.delete_topic(ALICE, "t", False))
    assert audited.acts() == [
        ("topic.config", "succeeded", "topic:t", "retention.ms unset"),
        ("topic.delete", "succeeded", "topic:t", ""),
    ]


def test_failed_act_has_its_reason(audited: Audited) -> None:
    service = Services(audited.world).topics
    audited.world.create("t", 1)
    with pytest.raises(TopicExists):
        ask(audited.world, service.create_topic(ALICE, NewTopic(name="t", partitions=1), False))
    ((action, result, resource, reason),) = audited.acts()
    assert (action, result, resource) == ("topic.create", "failed", "topic:t")
    assert "exists" in reason


def test_topics_that_the_broker_creates_are_no_acts(audited: Audited) -> None:
    start(audited.world.broker.topics.ensure(topics.NewTopic(name="t"))).then(lambda _: None)
    audited.world.settle()
    assert "t" in audited.world.broker.image.topics
    assert audited.acts() == []


def test_topics_over_kafka(audited: Audited) -> None:
    wire = Wire(audited.world)
    new = m.CreateTopicsRequestTopic(name="t", num_partitions=2, replication_factor=1)
    for check in (True, False):
        request = m.CreateTopicsRequest(topics=[new], timeout_ms=1000, validate_only=check)
        wire.ask(request, 5, m.CreateTopicsResponse)
    assert {each.protocol for each in audited.events} == {"kafka"}
    assert audited.acts() == [("topic.create", "succeeded", "topic:t", "2 partitions")]
    more = m.CreatePartitionsRequestTopic(name="t", count=3)
    wire.ask(
        m.CreatePartitionsRequest(topics=[more], timeout_ms=1000), 2, m.CreatePartitionsResponse
    )
    config = m.IncrementalAlterConfigsRequestResource(
        resource_type=2,
        resource_name="t",
        configs=[
            m.IncrementalAlterConfigsRequestConfig(
                name="retention.ms", config_operation=0, value="1000"
            )
        ],
    )
    wire.ask(
        m.IncrementalAlterConfigsRequest(resources=[config]), 1, m.IncrementalAlterConfigsResponse
    )
    records = m.DeleteRecordsRequestTopic(
        name="t", partitions=[m.DeleteRecordsRequestPartition(partition_index=0, offset=-1)]
    )
    wire.ask(m.DeleteRecordsRequest(topics=[records], timeout_ms=1000), 2, m.DeleteRecordsResponse)
    gone = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestTopic(name="t")], timeout_ms=1000)
    wire.ask(gone, 6, m.DeleteTopicsResponse)
    assert audited.acts() == [
        ("topic.extend", "succeeded", "topic:t", "3 partitions"),
        ("topic.config", "succeeded", "topic:t", "retention.ms=1000"),
        ("topic.truncate", "succeeded", "topic:t", "partition 0: records before 0"),
        ("topic.delete", "succeeded", "topic:t", ""),
    ]


def test_elections_and_moves_over_kafka(audited: Audited) -> None:
    wire = Wire(audited.world)
    audited.world.create("t", 1)
    audited.acts()
    # One partition needs no election; the other is unknown.
    asked = m.ElectLeadersRequestTopic(topic="t", partitions=[0, 1])
    wire.ask(m.ElectLeadersRequest(topic_partitions=[asked]), 2, m.ElectLeadersResponse)
    moves = [
        m.AlterPartitionReassignmentsRequestPartition(partition_index=0, replicas=replicas)
        for replicas in ([9], None)
    ]
    request = m.AlterPartitionReassignmentsRequest(
        topics=[m.AlterPartitionReassignmentsRequestTopic(name="t", partitions=moves)]
    )
    wire.ask(request, 0, m.AlterPartitionReassignmentsResponse)
    acts = audited.acts()
    assert [each[:3] for each in acts] == [
        ("leader.elect", "failed", "topic:t"),
        ("replicas.move", "failed", "topic:t"),
        ("replicas.cancel", "failed", "topic:t"),
    ]
    assert acts[0][3].startswith("partition 1: ")
    assert acts[1][3].startswith("partition 0: to nodes 9: [9] is not a list of known nodes")


def test_value_of_an_unknown_key_of_a_node_is_not_written(audited: Audited) -> None:
    # Kafka's clients may set what a plug-in knows, such as its password.
    config = [
        m.IncrementalAlterConfigsRequestConfig(name=key, config_operation=0, value=text)
        for key, text in (("plugin.password", "planted"), ("num.io.threads", "3"))
    ]
    resource = m.IncrementalAlterConfigsRequestResource(
        resource_type=4, resource_name="", configs=config
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    Wire(audited.world).ask(request, 1, m.IncrementalAlterConfigsResponse)
    assert [each[3] for each in audited.acts()] == ["num.io.threads=3", "plugin.password set"]


def test_quotas_over_http(audited: Audited) -> None:
    world, service = audited.world, ClientQuotaService(audited.world.broker)
    entity = ClientEntity(user="bob", default_client_id=True)
    wanted = QuotaChange(
        entity=entity, set={"producer_byte_rate": 5.0}, unset=("request_percentage",)
    )
    ask(world, service.change_quotas(ALICE, wanted, True))
    assert audited.acts() == []
    ask(world, service.change_quotas(ALICE, wanted, False))
    assert {(each.caller, each.protocol) for each in audited.events} == {(ALICE, "http")}
    resource = "quota:client-id=,user=bob"
    assert audited.acts() == [
        ("quota.change", "succeeded", resource, "producer_byte_rate=5.0"),
        ("quota.change", "succeeded", resource, "request_percentage unset"),
    ]
    with pytest.raises(InvalidQuota):
        ask(
            world,
            service.change_quotas(ALICE, QuotaChange(entity=entity, set={"speed": 1}), False),
        )
    ((_, result, _, reason),) = audited.acts()
    assert result == "failed"
    assert "'speed' is not one of" in reason


def test_quotas_and_settings_over_kafka(audited: Audited) -> None:
    wire = Wire(audited.world)
    entry = m.AlterClientQuotasRequestEntry(
        entity=[m.AlterClientQuotasRequestEntity(entity_type="user", entity_name="bob")],
        ops=[m.AlterClientQuotasRequestOp(key="producer_byte_rate", value=5.0, remove=False)],
    )
    for check in (True, False):
        request = m.AlterClientQuotasRequest(entries=[entry], validate_only=check)
        wire.ask(request, 1, m.AlterClientQuotasResponse)
    config = m.IncrementalAlterConfigsRequestResource(
        resource_type=4,
        resource_name="",
        configs=[
            m.IncrementalAlterConfigsRequestConfig(
                name="log.retention.ms", config_operation=0, value="1000"
            )
        ],
    )
    wire.ask(
        m.IncrementalAlterConfigsRequest(resources=[config]), 1, m.IncrementalAlterConfigsResponse
    )
    quota, setting = audited.acts()
    assert quota == ("quota.change", "succeeded", "quota:user=bob", "producer_byte_rate=5.0")
    assert (setting[0], setting[1], setting[3]) == (
        "config.change",
        "succeeded",
        "log.retention.ms=1000",
    )


def test_groups_over_http_and_kafka(audited: Audited) -> None:
    world = audited.world
    (replica,) = world.create("t", 1)
    world.write(replica, b"0", b"1")
    service = Services(world).groups
    wanted = OffsetReset(to="latest", topics=("t",))
    for name in ("g", "h"):
        ask(world, service.reset_group(ALICE, name, wanted, False))
        assert audited.acts() == [("group.reset", "succeeded", f"group:{name}", "t-0 to 2")]
    ask(world, service.reset_group(ALICE, "g", wanted, True))
    ask(world, service.delete_group(ALICE, "g", True))
    ask(world, service.delete_group_offsets(ALICE, "g", "t", True))
    assert audited.acts() == []
    ask(world, service.delete_group_offsets(ALICE, "g", "t", False))
    ask(world, service.reset_group(ALICE, "g", wanted, False))
    ask(world, service.delete_group(ALICE, "g", False))
    deleted = m.DeleteGroupsRequest(groups_names=["h"])
    Wire(world).ask(deleted, 2, m.DeleteGroupsResponse)
    assert audited.acts() == [
        ("group.offsets.delete", "succeeded", "group:g", "topic t"),
        ("group.reset", "succeeded", "group:g", "t-0 to 2"),
        ("group.delete", "succeeded", "group:g", ""),
        ("group.delete", "succeeded", "group:h", ""),
    ]
