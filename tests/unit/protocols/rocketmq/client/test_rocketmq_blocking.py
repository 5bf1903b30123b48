"""Goal: the blocking faces do what the clients do, and lack none of their calls.

Method: the scripted broker lives on this test's loop, so calls are made from a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading

from dragoman.client import rocketmq as public
from dragoman.client.rocketmq import (
    BlockingRocketmqAdmin,
    BlockingRocketmqClient,
    ConsumeFrom,
    Message,
    ReceivedMessage,
    RocketmqAdmin,
    TransactionState,
)
from dragoman.protocols.rocketmq.constants import Request
from protocols.scripted_rocketmq import ScriptedRocketmq, ok


async def test_producers_wait_for_their_results() -> None:
    async with ScriptedRocketmq() as server:
        server.topics["T"] = 1
        threads: list[threading.Thread] = []

        def local(message: Message) -> TransactionState:
            threads.append(threading.current_thread())
            return TransactionState.COMMIT

        def work() -> None:
            with BlockingRocketmqClient(server.address) as client:
                with client.producer("g") as producer:
                    assert producer.send(Message(topic="T", body=b"1")).queue_offset == 0
                    producer.send_one_way(Message(topic="T", body=b"2"))
                    assert producer.send(Message(topic="T", body=b"3")).queue_offset == 2
                    assert len(producer.queues("T")) == 1
                with client.transaction_producer("h", lambda _: TransactionState.COMMIT) as halves:
                    _, state = halves.send_in_transaction(Message(topic="T", body=b"4"), local)
                    assert state is TransactionState.COMMIT
                threads.append(threading.current_thread())

        await asyncio.to_thread(work)
        assert [each.body for each in server.stored["T", 0]] == [b"1", b"2", b"3", b"4"]
        assert "dragoman-rocketmq-client" not in {each.name for each in threads}


async def test_administration_waits_for_its_results() -> None:
    async with ScriptedRocketmq() as server:
        server.answers[Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = lambda _: ok(
            b'{"topicList":["T"]}'
        )

        def work() -> list[str]:
            with BlockingRocketmqAdmin(server.address) as admin:
                return admin.fetch_all_topic_list()

        assert await asyncio.to_thread(work) == ["T"]


def test_no_administrative_call_is_missing() -> None:
    calls = {
        name
        for name, each in inspect.getmembers(RocketmqAdmin, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert len(calls) > 90
    assert {name for name in calls if not hasattr(BlockingRocketmqAdmin, name)} == set()


def test_public_names_are_there() -> None:
    assert all(hasattr(public, name) for name in public.__all__)


async def test_consumers_listen_in_threads() -> None:
    async with ScriptedRocketmq() as server:
        server.topics["T"] = 1
        for number in range(3):
            server.put("T", 0, b"%d" % number)

        def work() -> None:
            found: queue.Queue[tuple[bytes, str]] = queue.Queue()

            def listen(message: ReceivedMessage) -> None:
                found.put((message.body, threading.current_thread().name))

            with BlockingRocketmqClient(server.address) as client:
                with client.push_consumer(
                    "g", {"T": "*"}, listen, start=ConsumeFrom.FIRST_OFFSET
                ) as consumer:
                    given = [found.get(timeout=60) for _ in range(3)]
                    assert sorted(body for body, _ in given) == [b"0", b"1", b"2"]
                    assert "dragoman-rocketmq-client" not in {name for _, name in given}
                    assert len(consumer.assigned) == 1
                    consumer.commit()
                with client.pull_consumer("h") as reader:
                    (one,) = reader.queues("T")
                    assert (reader.first_offset(one), reader.end_offset(one)) == (0, 3)
                    reader.seek(one, 1)
                    assert [each.body for each in reader.pull(one).messages] == [b"1", b"2"]
                    assert reader.position(one) == 3
                    reader.commit(one)
                    assert reader.committed(one) == 3

        await asyncio.to_thread(work)
        assert server.offsets["T", 0] == 3
