"""The blocking face: the same methods, results and errors, from any thread, and clean ends."""

from __future__ import annotations

import gc
import inspect
import threading

import pytest

from dragoman.client.kafka import (
    EARLIEST,
    BatchTooLargeError,
    BlockingKafkaClient,
    ClientClosedError,
    KafkaClient,
    NewRecord,
    NewTopic,
    Producer,
    TopicPartition,
    UnknownTopicError,
    UnreachableError,
)
from dragoman.errors import ConfigError
from dragoman.log.batch import Record, build_batch
from dragoman.protocols.kafka.client.client import BlockingProducer
from dragoman.testing import EphemeralBroker

THREAD = "dragoman-kafka-client"


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == THREAD]


def public(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_method_has_its_blocking_twin_with_the_same_parameters() -> None:
    blocking = public(BlockingKafkaClient)
    # The asynchronous client has no `begin_produce`: its callers need not await `produce`.
    assert blocking.pop("begin_produce") == blocking["produce"]
    # Transactions are for asyncio only.
    asked = public(KafkaClient)
    del asked["transactional_producer"]
    assert blocking == asked
    assert public(BlockingProducer).keys() >= public(Producer).keys()


def test_records_go_there_and_back(broker: EphemeralBroker) -> None:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        client.create_topic(NewTopic(name="t", partitions=2))
        with client.producer() as producer:
            producer.send("t", NewRecord(value=b"0", partition=0))
            producer.send_many("t", [NewRecord(value=b"1", partition=0)])
            producer.flush()
            assert producer.written_records == 2
        client.produce("t", 0, build_batch([Record(value=b"2", timestamp=1)]))
        where = TopicPartition("t", 0)
        with client.reader({where: 0}, until={where: 3}) as reader:
            assert [record.value for record in reader] == [b"0", b"1", b"2"]
            assert reader.positions == {where: 3}
        assert client.list_offsets({where: EARLIEST})[where].offset == 0
        assert sorted(client.cluster().topics) == ["t"]
    assert threads() == []


def test_errors_are_those_of_the_other_face(broker: EphemeralBroker) -> None:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        with pytest.raises(UnknownTopicError):
            client.topic("nope")
        with client.producer() as producer, pytest.raises(UnknownTopicError):
            producer.send("nope", NewRecord(partition=7))


def test_failure_is_raised_at_the_next_hand_over(broker: EphemeralBroker) -> None:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        producer = client.producer()
        producer.send("t", NewRecord(value=b"x" * 2_000_000))
        with pytest.raises(BatchTooLargeError):
            producer.flush()
        producer.send("t", NewRecord(value=b"x" * 2_000_000))
        # The records behind it are written one hand-over at a time until the failure is known.
        with pytest.raises(BatchTooLargeError):
            _send_until_told(producer)
        producer.close()


def _send_until_told(producer: BlockingProducer) -> None:
    while True:
        producer.send("t", NewRecord(value=b"y"))


async def test_caller_may_have_a_running_loop(broker: EphemeralBroker) -> None:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        assert client.cluster().topics == {}
    assert threads() == []


def test_client_that_cannot_open_leaves_no_thread() -> None:
    with pytest.raises(UnreachableError), BlockingKafkaClient("127.0.0.1:1"):
        pass
    with pytest.raises(ConfigError):
        BlockingKafkaClient("nonsense:port")
    assert threads() == []


def test_closed_client_says_so(broker: EphemeralBroker) -> None:
    client = BlockingKafkaClient(broker.bootstrap_servers).open()
    client.close()
    client.close()
    with pytest.raises(ClientClosedError):
        client.topic("t")


def test_calls_of_several_threads_do_not_mix(broker: EphemeralBroker) -> None:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        client.create_topic(NewTopic(name="t", partitions=4))
        written: dict[int, list[int]] = {}

        def work(partition: int) -> None:
            records = [NewRecord(value=b"%d" % n, partition=partition) for n in range(50)]
            written[partition] = [each.offset for each in client.produce_records("t", records)]

        workers = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert written == {index: list(range(50)) for index in range(4)}


def test_interrupt_on_the_way_to_the_loop_leaves_nothing_behind(
    broker: EphemeralBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coroutine that is never awaited is a warning, which fails this test."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        with monkeypatch.context() as patch:
            patch.setattr(client._thread._loop, "call_soon_threadsafe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.cluster()
        gc.collect()
        assert client.cluster().topics == {}
