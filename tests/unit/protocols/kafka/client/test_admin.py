"""Administration: what is asked, what a lost reply means, where a configuration is asked for."""

from __future__ import annotations

import pytest

from dragoman.client.kafka import (
    KafkaClient,
    KafkaError,
    NewTopic,
    ResourceType,
    TopicExistsError,
    TopicPartition,
    UnknownTopicError,
    UnsupportedRequestError,
)
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)
from protocols.scripted_kafka import CLOSE, ScriptedCluster


def created(code: int = 0, message: str | None = None) -> CreateTopicsResponse:
    topic = CreateTopicsResponseTopic(name="n", error_code=code, error_message=message)
    return CreateTopicsResponse(topics=[topic])


def deleted(code: int = 0) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[DeleteTopicsResponseTopic(name="t", error_code=code)])


async def test_creation_waits_for_leaders(client: KafkaClient, cluster: ScriptedCluster) -> None:
    cluster.topics["n"] = [-1, 1]

    def answer(_request: CreateTopicsRequest, _version: int) -> CreateTopicsResponse:
        cluster.topics["n"] = [2, 1]
        return created()

    cluster.answers[CreateTopicsRequest] = answer
    topic = NewTopic(name="n", partitions=2, replication_factor=1, config={"retention.ms": "5"})
    info = await client.create_topic(topic)
    assert [each.leader_id for each in info.partitions.values()] == [2, 1]
    (request,) = cluster.brokers[0].asked(CreateTopicsRequest)
    asked = request.topics[0]
    assert (asked.name, asked.num_partitions, asked.replication_factor) == ("n", 2, 1)
    assert [(each.name, each.value) for each in asked.configs] == [("retention.ms", "5")]


async def test_refused_creation_says_why(client: KafkaClient, cluster: ScriptedCluster) -> None:
    cluster.answer(CreateTopicsRequest, created(40, "no such key"))
    with pytest.raises(KafkaError, match=r"no such key \(INVALID_CONFIG\)"):
        await client.create_topic(NewTopic(name="n"))
    cluster.answer(CreateTopicsRequest, created(36))
    with pytest.raises(TopicExistsError):
        await client.create_topic(NewTopic(name="n"))


async def test_topic_that_a_lost_request_created_is_success(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.topics["n"] = [1]
    cluster.answer(CreateTopicsRequest, CLOSE, created(36))
    assert (await client.create_topic(NewTopic(name="n"))).name == "n"


async def test_controller_that_moved_is_found(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.topics["n"] = [1]
    cluster.answer(CreateTopicsRequest, created(41), created())
    await client.create_topic(NewTopic(name="n"))


async def test_create_topic_on_an_old_broker_sends_explicit_numbers(
    cluster: ScriptedCluster,
) -> None:
    for broker in cluster.brokers:
        broker.versions[ApiKey.CREATE_TOPICS] = (0, 3)
    cluster.topics["n"] = [1]
    cluster.answer(CreateTopicsRequest, created())
    async with KafkaClient(cluster.bootstrap) as client:
        with pytest.raises(UnsupportedRequestError, match="give both"):
            await client.create_topic(NewTopic(name="n"))
        await client.create_topic(NewTopic(name="n", partitions=1, replication_factor=1))


@pytest.mark.parametrize("newest", [3, 6])
async def test_topic_is_deleted(cluster: ScriptedCluster, newest: int) -> None:
    for broker in cluster.brokers:
        broker.versions[ApiKey.DELETE_TOPICS] = (0, newest)
    cluster.answer(DeleteTopicsRequest, deleted())
    async with KafkaClient(cluster.bootstrap) as client:
        await client.topic("t")
        await client.delete_topic("t")
        (request,) = cluster.brokers[0].asked(DeleteTopicsRequest)
        names = request.topic_names or [each.name for each in request.topics]
        assert names == ["t"]
        del cluster.topics["t"]
        with pytest.raises(UnknownTopicError):
            await client.topic("t")


async def test_missing_topic_is_not_waited_for(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(DeleteTopicsRequest, deleted(3))
    with pytest.raises(UnknownTopicError):
        await client.delete_topic("t")
    assert len(cluster.brokers[0].asked(DeleteTopicsRequest)) == 1


async def test_topic_that_a_lost_request_deleted_is_success(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(DeleteTopicsRequest, CLOSE, deleted(3))
    await client.delete_topic("t")


async def test_partitions_are_added(client: KafkaClient, cluster: ScriptedCluster) -> None:
    def answer(_request: CreatePartitionsRequest, _version: int) -> CreatePartitionsResponse:
        cluster.topics["t"] = [1, 2, 1, 2]
        return CreatePartitionsResponse(results=[CreatePartitionsResponseTopic(name="t")])

    cluster.answers[CreatePartitionsRequest] = answer
    assert len((await client.create_partitions("t", 4)).partitions) == 4
    refused = CreatePartitionsResponseTopic(name="t", error_code=37, error_message="fewer")
    cluster.answer(CreatePartitionsRequest, CreatePartitionsResponse(results=[refused]))
    with pytest.raises(KafkaError, match="fewer"):
        await client.create_partitions("t", 2)


async def test_configuration_of_a_broker_is_asked_of_that_broker(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    configs = [
        DescribeConfigsResponseConfig(name="b", value="2", config_source=1),
        DescribeConfigsResponseConfig(name="a", value=None, config_source=5, is_sensitive=True),
    ]
    found = DescribeConfigsResponseResource(configs=configs)
    cluster.answer(DescribeConfigsRequest, DescribeConfigsResponse(results=[found]))
    entries = await client.describe_configs(ResourceType.BROKER, "2")
    assert [(each.name, each.value, each.is_default) for each in entries] == [
        ("a", None, True),
        ("b", "2", False),
    ]
    assert entries[0].is_sensitive
    assert not cluster.brokers[0].asked(DescribeConfigsRequest)
    assert cluster.brokers[1].asked(DescribeConfigsRequest)
    for wrong in ("two", "77"):
        with pytest.raises(KafkaError):
            await client.describe_configs(ResourceType.BROKER, wrong)


async def test_configuration_is_changed_value_by_value(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    good = IncrementalAlterConfigsResponse(responses=[IncrementalAlterConfigsResponseResource()])
    cluster.answer(IncrementalAlterConfigsRequest, good)
    await client.alter_configs(ResourceType.TOPIC, "t", {"a": "1", "b": None})
    (request,) = cluster.brokers[0].asked(IncrementalAlterConfigsRequest)
    changes = [
        (each.name, each.config_operation, each.value) for each in request.resources[0].configs
    ]
    assert changes == [("a", 0, "1"), ("b", 1, None)]
    refused = IncrementalAlterConfigsResponseResource(error_code=40, error_message="bad value")
    cluster.answer(
        IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse(responses=[refused])
    )
    with pytest.raises(KafkaError, match="bad value"):
        await client.alter_configs(ResourceType.TOPIC, "t", {"a": "x"})


async def test_records_are_deleted_at_their_leaders(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    def answer(request: DeleteRecordsRequest, _version: int) -> DeleteRecordsResponse:
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsResponseTopic(
                    name="t",
                    partitions=[
                        DeleteRecordsResponsePartition(
                            partition_index=each.partition_index, low_watermark=each.offset
                        )
                        for each in request.topics[0].partitions
                    ],
                )
            ]
        )

    cluster.answers[DeleteRecordsRequest] = answer
    before = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
    assert await client.delete_records(before) == before
    assert [len(each.asked(DeleteRecordsRequest)) for each in cluster.brokers] == [1, 1]
