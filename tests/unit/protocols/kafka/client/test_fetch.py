"""Fetch: what is asked in which version, what is read from a reply, and which errors end it."""

from __future__ import annotations

import pytest

from dragoman.client.kafka import (
    FetchFrom,
    Isolation,
    KafkaClient,
    OffsetRangeError,
    TopicPartition,
    UnknownTopicError,
    UnsupportedRequestError,
)
from dragoman.log.batch import Record, build_batch
from dragoman.protocols.kafka.client.fetch import whole_batches_size
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.messages import (
    NO_ID,
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
    FetchResponseTopic,
    MetadataRequest,
)
from protocols.scripted_kafka import ScriptedCluster

WHERE = TopicPartition("t", 0)
TOPIC_ID = b"t".ljust(16, b"\1")


def batch(offset: int, count: int = 2) -> bytes:
    records = [Record(value=b"v" * 50, timestamp=1) for _ in range(count)]
    return bytes(build_batch(records, base_offset=offset))


def reply(partition: FetchResponsePartition) -> FetchResponse:
    return FetchResponse(
        responses=[FetchResponseTopic(topic="t", topic_id=TOPIC_ID, partitions=[partition])]
    )


async def test_everything_a_reply_says_is_handed_on(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    data = batch(10) + batch(12)
    cluster.answer(
        FetchRequest,
        reply(
            FetchResponsePartition(
                high_watermark=20,
                last_stable_offset=15,
                log_start_offset=3,
                aborted_transactions=[
                    FetchResponseAbortedTransaction(producer_id=5, first_offset=11)
                ],
                records=data,
            )
        ),
    )
    fetched = (
        await client.fetch(
            {WHERE: FetchFrom(11, 4096)},
            max_wait_ms=7,
            min_bytes=8,
            max_bytes=9,
            isolation=Isolation.READ_UNCOMMITTED,
        )
    )[WHERE]
    assert bytes(fetched.records) == data
    assert (fetched.high_watermark, fetched.last_stable_offset) == (20, 15)
    assert fetched.log_start_offset == 3
    assert fetched.aborted == ((5, 11),)
    ((request, version),) = [
        each for each in cluster.brokers[0].seen if isinstance(each[0], FetchRequest)
    ]
    assert version == 17
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (7, 8, 9)
    assert request.isolation_level == 0
    (partition,) = request.topics[0].partitions
    assert (partition.fetch_offset, partition.partition_max_bytes) == (11, 4096)
    assert request.topics[0].topic_id == TOPIC_ID
    assert (request.session_id, request.session_epoch) == (0, -1)


async def test_broker_without_topic_ids_is_asked_by_name(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.topic_ids["t"] = NO_ID
    cluster.answer(FetchRequest, reply(FetchResponsePartition()))
    await client.fetch({WHERE: FetchFrom(0)})
    assert cluster.brokers[0].asked_versions(FetchRequest) == [12]
    assert cluster.brokers[0].asked(FetchRequest)[0].topics[0].topic == "t"


@pytest.mark.parametrize("newest", [4, 6, 11])
async def test_older_brokers_are_asked_in_their_versions(
    cluster: ScriptedCluster, newest: int
) -> None:
    for broker in cluster.brokers:
        broker.versions[ApiKey.FETCH] = (0, newest)
        broker.versions[ApiKey.METADATA] = (0, 5)
    cluster.topic_ids["t"] = NO_ID
    cluster.answer(
        FetchRequest,
        FetchResponse(
            responses=[
                FetchResponseTopic(topic="t", partitions=[FetchResponsePartition(records=batch(0))])
            ]
        ),
    )
    async with KafkaClient(cluster.bootstrap) as client:
        fetched = await client.fetch({WHERE: FetchFrom(0)})
    assert bytes(fetched[WHERE].records) == batch(0)
    assert cluster.brokers[0].asked_versions(FetchRequest) == [newest]


async def test_broker_before_magic_2_is_refused(cluster: ScriptedCluster) -> None:
    for broker in cluster.brokers:
        broker.versions[ApiKey.FETCH] = (0, 3)
    async with KafkaClient(cluster.bootstrap) as client:
        with pytest.raises(UnsupportedRequestError, match="serves Fetch in versions 0 to 3"):
            await client.fetch({WHERE: FetchFrom(0)})


async def test_offset_outside_the_log_is_not_retried(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(FetchRequest, reply(FetchResponsePartition(error_code=1)))
    with pytest.raises(OffsetRangeError, match="topic 't' partition 0") as told:
        await client.fetch({WHERE: FetchFrom(99)})
    assert (told.value.topic, told.value.partition) == WHERE
    assert len(cluster.brokers[0].asked(FetchRequest)) == 1


@pytest.mark.parametrize("code", [3, 5, 6, 9, 74, 75, 78, 100])
async def test_errors_that_pass_are_retried(
    client: KafkaClient, cluster: ScriptedCluster, code: int
) -> None:
    good = reply(FetchResponsePartition(high_watermark=4))
    cluster.answer(FetchRequest, reply(FetchResponsePartition(error_code=code)), good)
    assert (await client.fetch({WHERE: FetchFrom(0)}))[WHERE].high_watermark == 4


async def test_deleted_topic_is_an_error_and_not_waited_for(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    await client.topic("t")
    del cluster.topics["t"]
    cluster.answer(FetchRequest, reply(FetchResponsePartition(error_code=100)))
    with pytest.raises(UnknownTopicError, match="there is no such topic"):
        await client.fetch({WHERE: FetchFrom(0)})
    assert len(cluster.brokers[0].asked(FetchRequest)) == 1


async def test_partition_left_out_of_a_reply_is_asked_again(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    good = reply(FetchResponsePartition(high_watermark=4))
    cluster.answer(FetchRequest, FetchResponse(), good)
    assert (await client.fetch({WHERE: FetchFrom(0)}))[WHERE].high_watermark == 4


async def test_only_what_failed_is_asked_again(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    first = FetchResponse(
        responses=[
            FetchResponseTopic(
                topic="t",
                topic_id=TOPIC_ID,
                partitions=[
                    FetchResponsePartition(partition_index=0, high_watermark=1),
                    FetchResponsePartition(partition_index=2, error_code=6),
                ],
            )
        ]
    )
    second = reply(FetchResponsePartition(partition_index=2, high_watermark=2))
    cluster.answer(FetchRequest, first, second)
    fetched = await client.fetch({WHERE: FetchFrom(0), TopicPartition("t", 2): FetchFrom(0)})
    assert [each.high_watermark for each in fetched.values()] == [1, 2]
    retry = cluster.brokers[0].asked(FetchRequest)[-1]
    assert [each.partition for each in retry.topics[0].partitions] == [2]


async def test_error_of_the_whole_reply_is_raised(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(FetchRequest, FetchResponse(error_code=42))
    with pytest.raises(Exception, match="INVALID_REQUEST"):
        await client.fetch({WHERE: FetchFrom(0)})


async def test_nothing_asked_is_nothing_got(client: KafkaClient, cluster: ScriptedCluster) -> None:
    before = len(cluster.brokers[0].asked(MetadataRequest))
    assert await client.fetch({}) == {}
    assert len(cluster.brokers[0].asked(MetadataRequest)) == before


def test_batch_that_is_cut_off_is_left_out_at_every_byte() -> None:
    first, second = batch(0), batch(2)
    for end in range(len(second)):
        assert whole_batches_size(memoryview(first + second[:end])) == len(first)
    assert whole_batches_size(memoryview(first + second)) == len(first + second)
    assert whole_batches_size(memoryview(b"")) == 0


def test_length_that_makes_no_sense_is_left_to_the_decoder() -> None:
    broken = bytearray(batch(0) + batch(2))
    broken[8:12] = b"\xff\xff\xff\xff"
    assert whole_batches_size(memoryview(broken)) == len(broken)
