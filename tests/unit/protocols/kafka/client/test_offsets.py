"""ListOffsets: what is asked, what old brokers cannot do, what is retried."""

from __future__ import annotations

import pytest

from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Isolation,
    KafkaClient,
    OffsetAt,
    TopicPartition,
    UnsupportedRequestError,
)
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocols.scripted_kafka import ScriptedCluster


def answer(request: ListOffsetsRequest, _version: int) -> ListOffsetsResponse:
    """The offset is the partition, the timestamp what was asked for."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopic(
                name=topic.name,
                partitions=[
                    ListOffsetsResponsePartition(
                        partition_index=each.partition_index,
                        offset=each.partition_index,
                        timestamp=each.timestamp,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def test_each_partition_is_asked_of_its_leader(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answers[ListOffsetsRequest] = answer
    wanted = {
        TopicPartition("t", 0): EARLIEST,
        TopicPartition("t", 1): LATEST,
        TopicPartition("t", 2): 1234,
    }
    found = await client.list_offsets(wanted)
    assert found == {where: OffsetAt(where.partition, at, -1) for where, at in wanted.items()}
    (request,) = cluster.brokers[1].asked(ListOffsetsRequest)
    assert (request.replica_id, request.isolation_level) == (-1, 1)


async def test_isolation_is_handed_on(client: KafkaClient, cluster: ScriptedCluster) -> None:
    cluster.answers[ListOffsetsRequest] = answer
    await client.list_offsets(
        {TopicPartition("t", 0): LATEST}, isolation=Isolation.READ_UNCOMMITTED
    )
    assert cluster.brokers[0].asked(ListOffsetsRequest)[0].isolation_level == 0


@pytest.mark.parametrize("newest", [1, 3, 6])
async def test_old_broker_answers_all_but_the_newest_timestamp(
    cluster: ScriptedCluster, newest: int
) -> None:
    for broker in cluster.brokers:
        broker.versions[ApiKey.LIST_OFFSETS] = (0, newest)
    cluster.answers[ListOffsetsRequest] = answer
    where = TopicPartition("t", 0)
    async with KafkaClient(cluster.bootstrap) as client:
        assert (await client.list_offsets({where: LATEST}))[where].offset == 0
        with pytest.raises(UnsupportedRequestError, match="newest timestamp"):
            await client.list_offsets({where: MAX_TIMESTAMP})


async def test_silence_about_a_partition_is_asked_again(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    where = TopicPartition("t", 0)
    good = answer(ListOffsetsRequest(topics=[]), 1)
    full = ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopic(
                name="t", partitions=[ListOffsetsResponsePartition(partition_index=0, offset=9)]
            )
        ]
    )
    cluster.answer(ListOffsetsRequest, good, full)
    assert (await client.list_offsets({where: LATEST}))[where].offset == 9
