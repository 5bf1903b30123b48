"""Transactions: both generations of the protocol, what is asked of whom, and what follows errors.

Scripted brokers show the requests; a real one shows that records appear together and once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    BatchTooLargeError,
    ConnectionLostError,
    Isolation,
    KafkaClient,
    KafkaError,
    NewTopic,
    ProducerFencedError,
    TopicPartition,
    TransactionalProducer,
    TransactionOptions,
    UnknownTopicError,
)
from dragoman.log.batch import Record, read_header
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
    ApiVersionsResponseFinalizedFeature,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    Message,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from dragoman.testing import EphemeralBroker
from protocols.scripted_kafka import CLOSE, ScriptedBroker, ScriptedCluster

OPTIONS = TransactionOptions(transactional_id="x", transaction_timeout_ms=7000)
ALL = [TopicPartition("t", index) for index in range(3)]


def records(*values: bytes) -> list[Record]:
    return [Record(value=value, timestamp=1) for value in values]


def agree_on(cluster: ScriptedCluster, level: int) -> None:
    """All brokers of the cluster say this level of `transaction.version`."""
    for broker in cluster.brokers:
        broker.answers[ApiVersionsRequest] = _versions(broker, level)


def _versions(broker: ScriptedBroker, level: int):
    def answer(_message: Message, _version: int) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponseApiKey(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in broker.versions.items()
            ],
            finalized_features_epoch=1,
            finalized_features=[
                ApiVersionsResponseFinalizedFeature(
                    name="transaction.version", max_version_level=level, min_version_level=level
                )
            ],
        )

    return answer


def take_all(message: Message, version: int) -> ProduceResponse:
    """Every partition is written."""
    assert isinstance(message, ProduceRequest)
    return ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    ProduceResponsePartition(index=each.index) for each in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
    )


def refuse(code: int):
    def answer(message: Message, version: int) -> ProduceResponse:
        good = take_all(message, version)
        topic = good.responses[0]
        bad = [
            ProduceResponsePartition(index=each.index, error_code=code)
            for each in topic.partition_responses
        ]
        return ProduceResponse(
            responses=[
                ProduceResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=bad
                )
            ]
        )

    return answer


def add_all(message: Message, _version: int) -> AddPartitionsToTxnResponse:
    assert isinstance(message, AddPartitionsToTxnRequest)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponseTopic(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponsePartition(partition_index=index)
                    for index in topic.partitions
                ],
            )
            for topic in message.v3_and_below_topics
        ]
    )


@pytest.fixture
async def producer(cluster: ScriptedCluster) -> AsyncIterator[TransactionalProducer]:
    """Initialised as producer 9 with epoch 4, in a cluster of the newer generation."""
    from dragoman.client.kafka import ClientSettings

    agree_on(cluster, 2)
    cluster.coordinator = 2
    cluster.answer(InitProducerIdRequest, InitProducerIdResponse(producer_id=9, producer_epoch=4))
    cluster.answers[ProduceRequest] = take_all
    cluster.answer(EndTxnRequest, EndTxnResponse(producer_id=9, producer_epoch=5))
    quick = ClientSettings(operation_timeout_s=20, backoff_first_s=0.001, backoff_max_s=0.01)
    async with KafkaClient(cluster.bootstrap, quick) as opened:
        made = opened.transactional_producer(OPTIONS)
        await made.initialise()
        yield made


def written(cluster: ScriptedCluster) -> list[tuple[int, int, int, int, int, bool]]:
    """Each batch: partition, producer, epoch, first sequence, count, whether transactional."""
    return [
        (
            part.index,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
            header.is_transactional,
        )
        for broker in cluster.brokers
        for request in broker.asked(ProduceRequest)
        for topic in request.topic_data
        for part in topic.partition_data
        for header in [read_header(bytes(part.records))]
    ]


# ---- the newer generation


async def test_coordinator_of_transactions_gives_the_identity(
    producer: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    (request,) = cluster.brokers[1].asked(InitProducerIdRequest)
    assert (request.transactional_id, request.transaction_timeout_ms) == ("x", 7000)
    assert (request.producer_id, request.producer_epoch) == (-1, -1)
    found = [each for broker in cluster.brokers for each in broker.asked(FindCoordinatorRequest)]
    assert [(each.key_type, each.coordinator_keys) for each in found] == [(1, ["x"])]


async def test_write_is_one_request_to_each_leader(
    producer: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    await producer.write_records({where: records(b"a", b"b") for where in ALL})
    assert producer.is_open
    assert [len(broker.asked(ProduceRequest)) for broker in cluster.brokers] == [1, 1]
    assert sorted(written(cluster)) == [(index, 9, 4, 0, 2, True) for index in range(3)]
    assert not cluster.brokers[1].asked(AddPartitionsToTxnRequest)
    (request,) = cluster.brokers[1].asked(ProduceRequest)
    assert (request.transactional_id, request.acks) == ("x", -1)


async def test_sequences_go_on_within_a_transaction_and_begin_anew_with_the_epoch(
    producer: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    await producer.write_records({ALL[0]: records(b"a", b"b")})
    await producer.write_records({ALL[0]: records(b"c")})
    await producer.commit()
    assert not producer.is_open
    await producer.write_records({ALL[0]: records(b"d")})
    assert written(cluster) == [(0, 9, 4, 0, 2, True), (0, 9, 4, 2, 1, True), (0, 9, 5, 0, 1, True)]
    (end,) = cluster.brokers[1].asked(EndTxnRequest)
    assert (end.transactional_id, end.producer_id, end.producer_epoch) == ("x", 9, 4)
    assert end.committed
    assert cluster.brokers[1].asked_versions(EndTxnRequest) == [5]


async def test_ending_an_empty_transaction_sends_no_request(
    producer: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    await producer.commit()
    await producer.abort()
    assert not cluster.brokers[1].asked(EndTxnRequest)


async def test_lost_answers_are_asked_for_again_with_the_same_bytes(
    producer: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    lost = [True]

    def answer(message: Message, version: int) -> Message | bytes:
        return CLOSE if lost and lost.pop() else take_all(message, version)

    cluster.answers[ProduceRequest] = answer
    cluster.answer(EndTxnRequest, CLOSE, EndTxnResponse(producer_id=9, producer_epoch=5))
    await producer.write_records({ALL[0]: records(b"a")})
    await producer.commit()
    assert written(cluster) == [(0, 9, 4, 0, 1, True)] * 2
    assert [each.producer_epoch for each in cluster.brokers[1].asked(EndTxnRequest)] == [4, 4]


async def test_another_operation_under_way_is_waited_for(
    producer: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    replies = [refuse(ErrorCode.CONCURRENT_TRANSACTIONS), take_all]
    cluster.answers[ProduceRequest] = lambda *call: (replies.pop(0))(*call)
    await producer.write_records({ALL[0]: records(b"a")})
    assert not replies


async def test_after_an_error_the_identity_is_renewed_by_its_name(
    producer: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    cluster.answers[ProduceRequest] = refuse(ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(KafkaError, match="TRANSACTION_ABORTABLE"):
        await producer.write_records({ALL[0]: records(b"a")})
    with pytest.raises(AssertionError, match="initialise first"):
        await producer.commit()
    cluster.answer(InitProducerIdRequest, InitProducerIdResponse(producer_id=9, producer_epoch=6))
    await producer.initialise()
    renewal = cluster.brokers[1].asked(InitProducerIdRequest)[-1]
    assert (renewal.producer_id, renewal.producer_epoch) == (9, 4)
    cluster.answers[ProduceRequest] = take_all
    await producer.write_records({ALL[0]: records(b"a")})
    assert written(cluster)[-1] == (0, 9, 6, 0, 1, True)


async def test_batch_that_is_too_large_fails_the_send(
    producer: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    cluster.answers[ProduceRequest] = refuse(ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(BatchTooLargeError):
        await producer.write_records({ALL[0]: records(b"a")})
    assert len(written(cluster)) == 1


async def test_moved_coordinator_is_found(
    producer: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    def elsewhere(_message: Message, _version: int) -> EndTxnResponse:
        cluster.coordinator = 1
        return EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)

    cluster.brokers[1].answers[EndTxnRequest] = elsewhere
    await producer.write_records({ALL[0]: records(b"a")})
    await producer.commit()
    assert len(cluster.brokers[0].asked(EndTxnRequest)) == 1


# ---- the older generation


@pytest.fixture
async def older(cluster: ScriptedCluster) -> AsyncIterator[TransactionalProducer]:
    agree_on(cluster, 1)
    cluster.answer(InitProducerIdRequest, InitProducerIdResponse(producer_id=9, producer_epoch=4))
    cluster.answers[ProduceRequest] = take_all
    cluster.answers[AddPartitionsToTxnRequest] = add_all
    cluster.answer(EndTxnRequest, EndTxnResponse())
    async with KafkaClient(cluster.bootstrap) as opened:
        made = opened.transactional_producer(OPTIONS)
        await made.initialise()
        yield made


async def test_older_cluster_receives_partitions_first(
    older: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    await older.write_records({ALL[0]: records(b"a"), ALL[1]: records(b"b")})
    await older.write_records({ALL[0]: records(b"c")})
    await older.write_records({ALL[0]: records(b"d"), ALL[2]: records(b"e")})
    await older.commit()
    await older.write_records({ALL[0]: records(b"f")})
    asked = cluster.brokers[0].asked(AddPartitionsToTxnRequest)
    added = [[each.partitions for each in one.v3_and_below_topics] for one in asked]
    assert added == [[[0, 1]], [[2]], [[0]]]
    # The epoch stays, and so do the sequences.
    assert [each for each in written(cluster) if each[0] == 0] == [
        (0, 9, 4, sequence, 1, True) for sequence in range(4)
    ]
    versions = [
        each for broker in cluster.brokers for each in broker.asked_versions(ProduceRequest)
    ]
    assert set(versions) == {11}
    assert cluster.brokers[0].asked_versions(EndTxnRequest) == [4]


async def test_partition_that_cannot_be_enrolled_is_named_by_its_own_error(
    older: TransactionalProducer, cluster: ScriptedCluster
) -> None:
    def missing(message: Message, _version: int) -> AddPartitionsToTxnResponse:
        codes = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnResponseTopic(
                    name="t",
                    results_by_partition=[
                        AddPartitionsToTxnResponsePartition(
                            partition_index=index, partition_error_code=code
                        )
                        for index, code in enumerate(codes)
                    ],
                )
            ]
        )

    cluster.answers[AddPartitionsToTxnRequest] = missing
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        await older.write_records({ALL[0]: records(b"a"), ALL[1]: records(b"b")})


# ---- a real broker


@pytest.fixture
async def real() -> AsyncIterator[KafkaClient]:
    async with (
        EphemeralBroker(listeners=("kafka",)) as broker,
        KafkaClient(broker.bootstrap_servers) as opened,
    ):
        await opened.create_topic(NewTopic(name="t", partitions=3))
        yield opened


async def values(client: KafkaClient, isolation: Isolation = Isolation.READ_COMMITTED) -> list:
    ends = await client.list_offsets(dict.fromkeys(ALL, LATEST), isolation=isolation)
    starts = await client.list_offsets(dict.fromkeys(ALL, EARLIEST))
    async with client.reader(
        {where: at.offset for where, at in starts.items()},
        until={where: at.offset for where, at in ends.items()},
        isolation=isolation,
        max_wait_ms=0,
    ) as reader:
        return sorted([each.value async for each in reader])


async def test_records_appear_with_the_commit_and_never_after_an_abort(real: KafkaClient) -> None:
    producer = real.transactional_producer(OPTIONS)
    await producer.initialise()
    for outcome in (producer.commit, producer.abort, producer.commit):
        for part in (b"1", b"2"):
            name = outcome.__name__.encode() + part
            await producer.write_records({where: records(name) for where in ALL})
        await outcome()
    await producer.initialise()
    assert await values(real) == sorted([b"commit1", b"commit2"] * 6)


async def test_second_producer_fences_the_first_and_aborts_its_transaction(
    real: KafkaClient,
) -> None:
    first, second = (real.transactional_producer(OPTIONS) for _ in range(2))
    await first.initialise()
    await first.write_records({ALL[0]: records(b"lost")})
    await second.initialise()
    await second.write_records({ALL[0]: records(b"kept")})
    with pytest.raises(ProducerFencedError):
        await first.commit()
    with pytest.raises(ProducerFencedError):
        await first.initialise()
    await second.commit()
    await second.initialise()
    assert await values(real) == [b"kept"]


async def test_topic_that_does_not_exist_is_an_error(real: KafkaClient) -> None:
    producer = real.transactional_producer(OPTIONS)
    await producer.initialise()
    with pytest.raises(UnknownTopicError):
        await producer.write_records({TopicPartition("none", 0): records(b"a")})
    assert not issubclass(ConnectionLostError, UnknownTopicError)
