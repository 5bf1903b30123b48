"""Produce: whole batches, acknowledgement, and which failures are tried again."""

from __future__ import annotations

import pytest

from dragoman.client.kafka import (
    BatchTooLargeError,
    ConnectionLostError,
    KafkaClient,
    KafkaError,
    ProducerIdentity,
    RecordRefusedError,
)
from dragoman.errors import DecodeError
from dragoman.log.batch import Record, build_batch
from dragoman.protocols.kafka.messages import (
    NO_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)
from protocols.scripted_kafka import CLOSE, ScriptedCluster

RECORDS = [Record(value=b"v", timestamp=1)]
PLAIN = bytes(build_batch(RECORDS))
COUNTED = bytes(build_batch(RECORDS, producer_id=9, producer_epoch=0, base_sequence=0))


def reply(partition: ProduceResponsePartition) -> ProduceResponse:
    return ProduceResponse(
        responses=[ProduceResponseTopic(name="t", partition_responses=[partition])]
    )


GOOD = reply(ProduceResponsePartition(base_offset=5, log_append_time_ms=6, log_start_offset=1))


async def test_batch_is_sent_as_it_is(client: KafkaClient, cluster: ScriptedCluster) -> None:
    cluster.answer(ProduceRequest, GOOD)
    produced = await client.produce("t", 0, PLAIN, acks=1, timeout_ms=123, transactional_id="x")
    assert (produced.base_offset, produced.log_append_time_ms, produced.log_start_offset) == (
        5,
        6,
        1,
    )
    (request,) = cluster.brokers[0].asked(ProduceRequest)
    assert (request.acks, request.timeout_ms, request.transactional_id) == (1, 123, "x")
    assert bytes(request.topic_data[0].partition_data[0].records) == PLAIN
    assert cluster.brokers[0].asked_versions(ProduceRequest) == [13]


async def test_leader_gets_the_batch_by_name_without_topic_ids(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.topic_ids["t"] = NO_ID
    cluster.answer(ProduceRequest, GOOD)
    await client.produce("t", 1, PLAIN)
    assert cluster.brokers[1].asked_versions(ProduceRequest) == [12]


async def test_without_acknowledgement_nothing_is_known(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(ProduceRequest, None)
    assert (await client.produce("t", 0, PLAIN, acks=0)).base_offset == -1


@pytest.mark.parametrize("code", [3, 5, 6, 19, 56, 74, 100])
async def test_failure_before_the_write_is_retried(
    client: KafkaClient, cluster: ScriptedCluster, code: int
) -> None:
    cluster.answer(ProduceRequest, reply(ProduceResponsePartition(error_code=code)), GOOD)
    assert (await client.produce("t", 0, PLAIN)).base_offset == 5


@pytest.mark.parametrize("fault", [7, 20, CLOSE])
async def test_failure_after_the_write_is_retried_only_with_a_sequence(
    client: KafkaClient, cluster: ScriptedCluster, fault: int | bytes
) -> None:
    bad = fault if isinstance(fault, bytes) else reply(ProduceResponsePartition(error_code=fault))
    cluster.answer(ProduceRequest, bad, GOOD)
    with pytest.raises((ConnectionLostError, KafkaError)) as told:
        await client.produce("t", 0, PLAIN)
    assert told.value.is_ambiguous
    cluster.answer(ProduceRequest, bad, GOOD)
    assert (await client.produce("t", 0, COUNTED)).base_offset == 5


async def test_repeat_that_the_broker_has_forgotten_is_success(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(ProduceRequest, reply(ProduceResponsePartition(error_code=46)))
    assert (await client.produce("t", 0, COUNTED)).base_offset == -1


@pytest.mark.parametrize(
    ("code", "kind"), [(2, RecordRefusedError), (10, BatchTooLargeError), (87, RecordRefusedError)]
)
async def test_refused_batch_is_not_sent_again(
    client: KafkaClient, cluster: ScriptedCluster, code: int, kind: type[KafkaError]
) -> None:
    cluster.answer(ProduceRequest, reply(ProduceResponsePartition(error_code=code)))
    with pytest.raises(kind):
        await client.produce("t", 0, COUNTED)
    assert len(cluster.brokers[0].asked(ProduceRequest)) == 1


async def test_words_about_single_records_are_handed_on(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    refused = ProduceResponsePartition(
        error_code=87,
        error_message="One is bad.",
        record_errors=[
            ProduceResponseRecordError(batch_index=3, batch_index_error_message="no key")
        ],
    )
    cluster.answer(ProduceRequest, reply(refused))
    with pytest.raises(RecordRefusedError, match=r"One is bad; record 3: no key \(INVALID_RECORD"):
        await client.produce("t", 0, PLAIN)


async def test_reply_without_the_partition_is_an_error(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(ProduceRequest, ProduceResponse())
    with pytest.raises(KafkaError, match="says nothing about the partition"):
        await client.produce("t", 0, PLAIN)


@pytest.mark.parametrize("data", [b"", b"x" * 61, PLAIN[:-1]])
async def test_bytes_that_are_no_batch_are_not_sent(
    client: KafkaClient, cluster: ScriptedCluster, data: bytes
) -> None:
    with pytest.raises(DecodeError):
        await client.produce("t", 0, data)
    assert not cluster.brokers[0].asked(ProduceRequest)


async def test_identity_is_asked_until_there_is_one(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(
        InitProducerIdRequest,
        InitProducerIdResponse(error_code=15),
        InitProducerIdResponse(producer_id=77, producer_epoch=0),
    )
    assert await client.new_producer_identity() == ProducerIdentity(77, 0)
    assert cluster.brokers[0].asked(InitProducerIdRequest)[0].transactional_id is None
