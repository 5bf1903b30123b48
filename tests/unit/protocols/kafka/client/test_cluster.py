"""Finding brokers: bootstrap, versions, leaders that move, coordinators, reconnects, throttling."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec
import pytest

from dragoman.client.kafka import (
    ClientClosedError,
    ClientSettings,
    FetchFrom,
    KafkaClient,
    LeadershipError,
    RequestTimeoutError,
    TopicPartition,
    UnknownTopicError,
    UnreachableError,
)
from dragoman.client_core.addresses import Address
from dragoman.protocols.kafka.client.cluster import Cluster
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.messages import (
    ApiVersionsRequest,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocols.scripted_kafka import CLOSE, ScriptedCluster

PARTITION = TopicPartition("t", 0)


def fetched(request: FetchRequest, error_code: int = 0) -> FetchResponse:
    """An empty answer about every partition asked for."""
    return FetchResponse(
        responses=[
            FetchResponseTopic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    FetchResponsePartition(partition_index=each.partition, error_code=error_code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def serve_fetch(cluster: ScriptedCluster) -> None:
    """Each broker answers for what it leads."""
    for broker in cluster.brokers:

        def answer(request: FetchRequest, _version: int, node_id: int = broker.node_id):
            name = next(name for name in cluster.topics)
            led = all(
                cluster.topics[name][each.partition] == node_id
                for topic in request.topics
                for each in topic.partitions
            )
            return fetched(request, 0 if led else 6)

        broker.answers[FetchRequest] = answer


# ---- the way in


async def test_second_address_is_used_when_the_first_is_dead(cluster: ScriptedCluster) -> None:
    async with KafkaClient(f"127.0.0.1:1,{cluster.brokers[0].address}") as client:
        assert (await client.cluster([])).cluster_id == "scripted"


async def test_unreachable_brokers_are_all_named() -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1: connection refused; .*:2: conn"):
        await KafkaClient("127.0.0.1:1,127.0.0.1:2").open()


async def test_broker_that_accepts_and_says_nothing_is_given_up_in_time(
    cluster: ScriptedCluster, skip: Callable[[float], None]
) -> None:
    cluster.answers[ApiVersionsRequest] = lambda _message, _version: skip(60)
    client = KafkaClient(cluster.brokers[0].address, ClientSettings(connect_timeout_s=50))
    with pytest.raises(UnreachableError, match=r"no answer within 50 s|did not answer"):
        await client.open()
    await client.close()


async def test_listener_of_another_protocol_is_named(cluster: ScriptedCluster) -> None:
    cluster.answers[ApiVersionsRequest] = lambda _message, _version: b"HTTP/1.1 400 Bad Request\r\n"
    with pytest.raises(UnreachableError, match="does not speak Kafka"):
        await KafkaClient(cluster.brokers[0].address).open()


async def test_older_api_versions_is_asked_again(cluster: ScriptedCluster) -> None:
    for broker in cluster.brokers:
        broker.versions[ApiKey.API_VERSIONS] = (0, 1)
    async with KafkaClient(cluster.brokers[0].address) as client:
        await client.topic("t")
    assert set(cluster.brokers[0].asked_versions(ApiVersionsRequest)) == {1}


async def test_closed_client_refuses(client: KafkaClient) -> None:
    await client.close()
    with pytest.raises(ClientClosedError):
        await client.topic("other")


# ---- topics


async def test_topic_is_asked_for_once(client: KafkaClient, cluster: ScriptedCluster) -> None:
    await asyncio.gather(*(client.topic("t") for _ in range(10)))
    asked = [each for broker in cluster.brokers for each in broker.asked(MetadataRequest)]
    assert [each for each in asked if each.topics] == [asked[-1]]
    assert asked[-1].allow_auto_topic_creation is False


async def test_all_topics_are_listed(client: KafkaClient, cluster: ScriptedCluster) -> None:
    cluster.topics["u"] = [2]
    info = await client.cluster()
    assert sorted(info.topics) == ["t", "u"]
    assert info.topics["u"].partitions[0].leader_id == 2
    assert sorted(info.brokers) == [1, 2]


async def test_missing_topic_is_an_error_at_once(client: KafkaClient) -> None:
    with pytest.raises(UnknownTopicError, match="there is no such topic") as told:
        await client.topic("nope")
    assert not told.value.retriable


async def test_created_topic_is_waited_for(client: KafkaClient, cluster: ScriptedCluster) -> None:
    """A broker that creates a topic says at first that there is none."""
    created = cluster._metadata
    asked = 0

    def late(request: MetadataRequest, version: int) -> MetadataResponse:
        nonlocal asked
        asked += 1
        if asked == 3:
            cluster.topics["new"] = [1]
        return created(request, version)

    cluster.answers[MetadataRequest] = late
    info = await client.topic("new", auto_create=True)
    assert info.all_partitions() == [("new", 0)]


async def test_missing_topic_fails_after_its_retries(client: KafkaClient) -> None:
    with pytest.raises(UnknownTopicError):
        await client.topic("nope", auto_create=True)


async def test_topic_with_an_error_of_its_own_raises_it(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    standard = cluster._metadata(MetadataRequest(topics=[]), 9)
    refused = msgspec.structs.replace(
        standard, topics=[MetadataResponseTopic(name="t", error_code=29)]
    )
    cluster.answer(MetadataRequest, refused)
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        await client.topic("t")


async def test_partition_that_does_not_exist_is_named(client: KafkaClient) -> None:
    with pytest.raises(UnknownTopicError, match=r"partition 9: there is no such partition; .* 3"):
        await client.fetch({TopicPartition("t", 9): FetchFrom(0)})


# ---- leaders


async def test_each_leader_is_asked_for_its_partitions(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    serve_fetch(cluster)
    info = await client.topic("t")
    await client.fetch({where: FetchFrom(5) for where in info.all_partitions()})
    for broker, partitions in zip(cluster.brokers, ([0, 2], [1]), strict=True):
        (request,) = broker.asked(FetchRequest)
        assert [each.partition for each in request.topics[0].partitions] == partitions
        assert {each.current_leader_epoch for each in request.topics[0].partitions} == {7}


async def test_moved_leader_is_found(client: KafkaClient, cluster: ScriptedCluster) -> None:
    serve_fetch(cluster)
    await client.topic("t")
    cluster.topics["t"] = [2, 2, 2]
    await client.fetch({PARTITION: FetchFrom(0)})
    assert len(cluster.brokers[0].asked(FetchRequest)) == 1
    assert len(cluster.brokers[1].asked(FetchRequest)) == 1


async def test_absent_leader_is_waited_for(client: KafkaClient, cluster: ScriptedCluster) -> None:
    serve_fetch(cluster)
    cluster.topics["t"] = [-1, 2, 1]
    waiting = asyncio.create_task(client.fetch({PARTITION: FetchFrom(0)}))
    while len(cluster.brokers[0].seen) + len(cluster.brokers[1].seen) < 8:
        await asyncio.sleep(0)
    cluster.topics["t"] = [1, 2, 1]
    await waiting


async def test_leader_that_stays_away_is_an_error_in_time(cluster: ScriptedCluster) -> None:
    cluster.topics["t"] = [-1]
    async with KafkaClient(cluster.bootstrap, ClientSettings(operation_timeout_s=0.1)) as client:
        with pytest.raises(LeadershipError, match="LEADER_NOT_AVAILABLE"):
            await client.fetch({PARTITION: FetchFrom(0)})


async def test_dead_leader_is_replaced(client: KafkaClient, cluster: ScriptedCluster) -> None:
    serve_fetch(cluster)
    await client.fetch({PARTITION: FetchFrom(0)})
    cluster.brokers[0].stop()
    cluster.topics["t"] = [2, 2, 2]
    await client.fetch({PARTITION: FetchFrom(0)})
    assert len(cluster.brokers[1].asked(FetchRequest)) == 1


async def test_broker_that_comes_back_is_used_again(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    serve_fetch(cluster)
    await client.fetch({PARTITION: FetchFrom(0)})
    cluster.brokers[0].stop()
    waiting = asyncio.create_task(client.fetch({PARTITION: FetchFrom(0)}))
    while not cluster.brokers[1].asked(MetadataRequest):
        await asyncio.sleep(0)
    await cluster.brokers[0].start()
    await waiting
    assert len(cluster.brokers[0].asked(FetchRequest)) == 2


async def test_broker_that_leaves_the_cluster_takes_no_call_with_it(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    serve_fetch(cluster)
    leaver = cluster.brokers[1]
    leaver.answers[FetchRequest] = lambda _message, _version: None
    where = TopicPartition("t", 1)
    waiting = asyncio.create_task(client.fetch({where: FetchFrom(0)}))
    while not leaver.asked(FetchRequest):
        await asyncio.sleep(0)
    cluster.brokers.remove(leaver)
    cluster.topics["t"] = [1, 1, 1]
    await client.cluster()
    assert where in await waiting
    leaver.stop()


async def test_old_metadata_is_asked_for_again(cluster: ScriptedCluster) -> None:
    settings = ClientSettings(metadata_age_max_s=0.0)
    async with KafkaClient(cluster.brokers[0].address, settings) as client:
        await client.topic("t")
        await client.topic("t")
    asked = [each for broker in cluster.brokers for each in broker.asked(MetadataRequest)]
    assert sum(bool(each.topics) for each in asked) == 2


async def test_reply_that_never_comes_is_a_time_out(
    cluster: ScriptedCluster, skip: Callable[[float], None]
) -> None:
    cluster.answers[FetchRequest] = lambda _message, _version: skip(60)
    settings = ClientSettings(request_timeout_s=50, operation_timeout_s=40)
    async with KafkaClient(cluster.bootstrap, settings) as client:
        with pytest.raises(RequestTimeoutError, match=r"did not answer within 50\.001 s"):
            await client.fetch({PARTITION: FetchFrom(0)}, max_wait_ms=1)


async def test_throttled_client_keeps_silent(cluster: ScriptedCluster) -> None:
    loop = asyncio.get_running_loop()
    asked_at: list[float] = []

    def throttled(request: FetchRequest, _version: int) -> FetchResponse:
        asked_at.append(loop.time())
        return msgspec.structs.replace(fetched(request), throttle_time_ms=40)

    cluster.answers[FetchRequest] = throttled
    async with KafkaClient(cluster.bootstrap) as client:
        for _ in range(2):
            await client.fetch({PARTITION: FetchFrom(0)})
    # Silence begins with the answer, which is after the question was seen.
    assert asked_at[1] - asked_at[0] >= 0.039


# ---- coordinators


async def test_moved_coordinator_is_found(client: KafkaClient, cluster: ScriptedCluster) -> None:
    def committed(code: int) -> OffsetCommitResponse:
        partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(
            topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])]
        )

    cluster.brokers[0].answers[OffsetCommitRequest] = lambda _message, _version: committed(16)
    cluster.brokers[1].answers[OffsetCommitRequest] = lambda _message, _version: committed(0)
    cluster.answers[FindCoordinatorRequest] = lambda message, version: _find(
        cluster, message, version
    )
    await client.commit_offsets("g", {PARTITION: 3})
    await client.commit_offsets("g", {PARTITION: 4})
    asked = [len(each.asked(OffsetCommitRequest)) for each in cluster.brokers]
    assert asked == [1, 2]


def _find(cluster: ScriptedCluster, message: FindCoordinatorRequest, version: int):
    found = cluster._find_coordinator(message, version)
    cluster.coordinator = 2
    return found


# ---- bounds


async def test_what_is_remembered_is_bounded(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.protocols.kafka.client.cluster.KAFKA_CLIENT_TOPICS_MAX", 3)
    cluster.topics |= {f"t{n}": [1] for n in range(10)}
    seed = Address("127.0.0.1", cluster.brokers[0].port)
    known = Cluster([seed], ClientSettings(), random.Random(1))
    for n in range(10):
        await known.topic(f"t{n}")
    assert list(known._topics) == ["t7", "t8", "t9"]
    known.close()


async def test_connection_cut_in_the_handshake_is_an_error(cluster: ScriptedCluster) -> None:
    cluster.answers[ApiVersionsRequest] = lambda _message, _version: CLOSE
    with pytest.raises(UnreachableError, match="closed by the server"):
        await KafkaClient(cluster.brokers[0].address).open()
