"""The producer against a broker that keeps what it gets: gathering, order, sequences, bounds."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from dragoman.client.kafka import (
    BatchTooLargeError,
    ClientClosedError,
    ClientSettings,
    Codec,
    KafkaClient,
    KafkaError,
    NewRecord,
    ProducerOptions,
    UnknownTopicError,
    partition_for_key,
)
from dragoman.errors import EncodeError
from dragoman.log.batch import BatchHeader, Record, check_batch, records
from dragoman.protocols.kafka.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    Message,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from protocols.scripted_kafka import CLOSE, ScriptedCluster

NOW_MS = 1_700_000_000_000


class Log:
    """Takes batches, or answers with what `faults` has next (an error code, or CLOSE)."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.batches: list[tuple[int, BatchHeader, list[Record]]] = []
        self.faults: list[int | bytes] = []
        self.bytes_max = 1 << 30
        self.answers_at_once = True
        self._ends: dict[int, int] = {}
        self._ids = iter(range(100, 200))
        cluster.answers[ProduceRequest] = self._append
        cluster.answers[InitProducerIdRequest] = self._identify

    def _identify(self, _message: Message, _version: int) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=next(self._ids), producer_epoch=0)

    def _append(self, request: ProduceRequest, _version: int) -> ProduceResponse | bytes | None:
        topic = request.topic_data[0]
        (part,) = topic.partition_data
        fault = self.faults.pop(0) if self.faults else 0
        if fault == CLOSE:
            return CLOSE
        view = memoryview(part.records)
        header = check_batch(view)
        offset = self._ends.get(part.index, 0)
        if not fault and len(view) > self.bytes_max:
            fault = 10
        if not fault:
            self.batches.append((part.index, header, records(view, header)))
            self._ends[part.index] = offset + header.record_count
        if request.acks == 0:
            return None
        partition = ProduceResponsePartition(
            index=part.index, error_code=fault, base_offset=-1 if fault else offset
        )
        answer = ProduceResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partition_responses=[partition]
        )
        return ProduceResponse(responses=[answer])

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [
            record.value for index, _, held in self.batches for record in held if index == partition
        ]


@pytest.fixture
def log(cluster: ScriptedCluster) -> Log:
    return Log(cluster)


def numbered(count: int, partition: int | None = 0) -> Iterator[NewRecord]:
    return (NewRecord(value=b"%d" % n, partition=partition) for n in range(count))


async def test_records_of_one_turn_travel_together(client: KafkaClient, log: Log) -> None:
    positions = await client.produce_records("t", numbered(100))
    assert [each.offset for each in positions] == list(range(100))
    assert len(log.batches) == 1
    assert log.values() == [b"%d" % n for n in range(100)]


async def test_record_is_written_with_all_it_has(client: KafkaClient, log: Log) -> None:
    record = NewRecord(
        key=b"k", value=None, headers=(("a", b"1"), ("a", None)), partition=2, timestamp=5
    )
    await client.produce_records("t", [record, NewRecord(value=b"v", partition=2)])
    ((partition, _, (first, second)),) = log.batches
    assert partition == 2
    assert (first.key, first.value, first.timestamp) == (b"k", None, 5)
    assert first.headers == (("a", b"1"), ("a", None))
    assert second.timestamp == NOW_MS


@pytest.mark.parametrize("codec", list(Codec))
async def test_batches_are_compressed(client: KafkaClient, log: Log, codec: Codec) -> None:
    await client.produce_records(
        "t", [NewRecord(value=b"x" * 1000, partition=0)] * 10, ProducerOptions(codec=codec)
    )
    ((_, header, held),) = log.batches
    assert header.attributes & 7 == codec
    assert [record.value for record in held] == [b"x" * 1000] * 10
    assert (header.size < 5000) == (codec is not Codec.NONE)


async def test_keys_decide_the_partition(client: KafkaClient, log: Log) -> None:
    keys = [b"key-%d" % n for n in range(50)]
    positions = await client.produce_records("t", [NewRecord(key=key) for key in keys])
    assert [each.partition for each in positions] == [partition_for_key(key, 3) for key in keys]


async def test_records_without_a_key_stay_together_until_a_batch_is_full(
    client: KafkaClient, log: Log
) -> None:
    options = ProducerOptions(batch_bytes=1000)
    positions = await client.produce_records("t", numbered(300, None), options)
    used = [each.partition for each in positions]
    assert set(used) == {0, 1, 2}
    changes = sum(one != other for one, other in itertools.pairwise(used))
    assert changes < 30


async def test_full_batches_follow_each_other_in_order(client: KafkaClient, log: Log) -> None:
    await client.produce_records("t", numbered(1000), ProducerOptions(batch_bytes=1000))
    assert log.values() == [b"%d" % n for n in range(1000)]
    assert len(log.batches) > 50
    assert max(header.size for _, header, _ in log.batches) <= 1100


async def test_while_a_batch_is_away_the_next_gathers(client: KafkaClient, log: Log) -> None:
    async with client.producer() as producer:
        first = await producer.send("t", NewRecord(value=b"0", partition=0))
        while not log.batches:
            await asyncio.sleep(0)
        for record in numbered(50):
            await producer.send("t", record)
        await first
    assert [header.record_count for _, header, _ in log.batches] == [1, 50]


# ---- idempotence


async def test_sequences_count_records_partition_by_partition(
    client: KafkaClient, log: Log
) -> None:
    async with client.producer() as producer:
        for _ in range(3):
            await producer.send_many("t", numbered(5, 0))
            await producer.send_many("t", numbered(2, 1))
            await producer.flush()
    for partition, sequences in ((0, [0, 5, 10]), (1, [0, 2, 4])):
        headers = [header for index, header, _ in log.batches if index == partition]
        assert [header.base_sequence for header in headers] == sequences
        assert {header.producer_id for header in headers} == {100}


async def test_sequence_begins_again_after_the_largest(client: KafkaClient, log: Log) -> None:
    async with client.producer() as producer:
        await producer.send_many("t", numbered(1))
        await producer.flush()
        (queue,) = producer._queues.values()
        queue.sequence = 0x7FFFFFFF
        for _ in range(2):
            await producer.send_many("t", numbered(3))
            await producer.flush()
    assert [header.base_sequence for _, header, _ in log.batches] == [0, 0x7FFFFFFF, 2]


@pytest.mark.parametrize("fault", [6, 7, 20, CLOSE])
async def test_retry_carries_the_same_sequence(
    client: KafkaClient, log: Log, cluster: ScriptedCluster, fault: int | bytes
) -> None:
    log.faults = [fault, fault]
    positions = await client.produce_records("t", numbered(3))
    assert [each.offset for each in positions] == [0, 1, 2]
    sent = [
        bytes(request.topic_data[0].partition_data[0].records)
        for request in cluster.brokers[0].asked(ProduceRequest)
    ]
    assert len(sent) == 3
    assert sent[0] == sent[1] == sent[2]


@pytest.mark.parametrize("code", [45, 47, 87])
async def test_failed_batch_ends_the_identity(client: KafkaClient, log: Log, code: int) -> None:
    log.faults = [code]
    async with client.producer() as producer:
        lost = await producer.send("t", NewRecord(value=b"lost", partition=0))
        with pytest.raises(KafkaError):
            await producer.flush()
        with pytest.raises(KafkaError):
            await lost
        kept = await producer.send("t", NewRecord(value=b"kept", partition=0))
        assert (await kept).offset == 0
    ((_, header, _),) = log.batches
    assert (header.producer_id, header.base_sequence) == (101, 0)


async def test_batches_behind_one_whose_time_is_over_have_no_time_of_their_own(
    cluster: ScriptedCluster, log: Log
) -> None:
    """A full disk refuses for as long as it is full: ten batches must not take ten time-outs."""
    log.faults = [56] * 100_000
    settings = ClientSettings(operation_timeout_s=0.3, backoff_first_s=0.001, backoff_max_s=0.01)
    async with KafkaClient(cluster.bootstrap, settings) as client:
        producer = client.producer(ProducerOptions(batch_bytes=1))
        await producer.send_many("t", numbered(10))
        with pytest.raises(KafkaError, match="STORAGE"):
            await producer.flush()
    tries = Counter(
        next(iter(records(view, check_batch(view)))).value
        for request in cluster.brokers[0].asked(ProduceRequest)
        for view in [memoryview(request.topic_data[0].partition_data[0].records)]
    )
    # They were sent a moment after the first one, so that they may have another try.
    assert all(1 <= tries[b"%d" % each] < tries[b"0"] / 2 for each in range(1, 10))


async def test_without_idempotence_an_unclear_failure_is_the_callers(
    client: KafkaClient, log: Log
) -> None:
    log.faults = [CLOSE]
    options = ProducerOptions(idempotent=False)
    with pytest.raises(Exception, match="lost") as told:
        await client.produce_records("t", numbered(1), options)
    assert told.value.is_ambiguous
    await client.produce_records("t", numbered(1), options)
    ((_, header, _),) = log.batches
    assert (header.producer_id, header.base_sequence) == (-1, -1)


async def test_without_acknowledgement_offsets_are_unknown(client: KafkaClient, log: Log) -> None:
    options = ProducerOptions(acks=0, idempotent=False)
    positions = await client.produce_records("t", numbered(3), options)
    assert [each.offset for each in positions] == [-1, -1, -1]
    # The request is on its way; the next one is answered behind it.
    await client.new_producer_identity()
    assert log.values() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("acks", [0, 1])
def test_idempotence_needs_all_acknowledgements(acks: int) -> None:
    with pytest.raises(EncodeError, match="acks"):
        ProducerOptions(acks=acks)


# ---- batches that are too large


async def test_batch_that_is_too_large_is_sent_in_parts(client: KafkaClient, log: Log) -> None:
    log.bytes_max = 300
    positions = await client.produce_records("t", numbered(100))
    assert log.values() == [b"%d" % n for n in range(100)]
    assert [each.offset for each in positions] == list(range(100))
    sequences = [header.base_sequence for _, header, _ in log.batches]
    assert sequences == sorted(set(sequences))


async def test_record_that_is_too_large_alone_fails_alone(client: KafkaClient, log: Log) -> None:
    log.bytes_max = 300
    async with client.producer() as producer:
        sent = await producer.send_many("t", numbered(3))
        large = await producer.send("t", NewRecord(value=b"x" * 500, partition=0))
        after = await producer.send_many("t", numbered(2))
        with pytest.raises(BatchTooLargeError):
            await producer.flush()
        assert [(await each).offset for each in (*sent, *after)] == [0, 1, 2, 3, 4]
        with pytest.raises(BatchTooLargeError):
            await large
        assert producer.written_records == 5


# ---- bounds and ends


async def test_send_waits_while_the_producer_is_full(
    client: KafkaClient, log: Log, cluster: ScriptedCluster
) -> None:
    cluster.answer(ProduceRequest, None)
    options = ProducerOptions(batch_bytes=500, buffer_bytes_max=2000)
    producer = client.producer(options)
    sending = asyncio.create_task(producer.send_many("t", numbered(1000)))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not sending.done()
    assert producer._held_bytes < 2200
    cluster.answers[ProduceRequest] = log._append
    for transport in cluster.brokers[0].transports:
        transport.abort()
    await sending
    await producer.close()
    assert log.values() == [b"%d" % n for n in range(1000)]


async def test_unknown_topic_and_partition_fail_at_once(client: KafkaClient, log: Log) -> None:
    async with client.producer(ProducerOptions(auto_create=False)) as producer:
        with pytest.raises(UnknownTopicError, match="no such topic"):
            await producer.send("nope", NewRecord(value=b"v"))
        with pytest.raises(UnknownTopicError, match="no such partition; the topic has 3"):
            await producer.send("t", NewRecord(value=b"v", partition=3))
    assert log.batches == []


async def test_closed_producer_takes_nothing(client: KafkaClient, log: Log) -> None:
    producer = client.producer()
    await producer.send("t", NewRecord(value=b"v", partition=0))
    await producer.close()
    assert log.values() == [b"v"]
    with pytest.raises(ClientClosedError):
        await producer.send("t", NewRecord(value=b"v"))


async def test_closing_that_is_interrupted_fails_what_is_left(
    client: KafkaClient, log: Log, cluster: ScriptedCluster
) -> None:
    cluster.answer(ProduceRequest, None)
    producer = client.producer(ProducerOptions(batch_bytes=100))
    sent = await producer.send_many("t", numbered(10))
    closing = asyncio.create_task(producer.close())
    while not cluster.brokers[0].asked(ProduceRequest):
        await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    for delivery in sent:
        with pytest.raises(ClientClosedError):
            await delivery
