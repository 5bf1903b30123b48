"""Goal: what RocketMQ producers were promised survives `kill -9` of the broker.

The broker asks about halves of transactions, delayed messages arrive once and not early, and
retries continue.

Method: a process is killed and started again on the same ports; conditions are waited for.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.client.rocketmq import (
    ConsumeFrom,
    Later,
    Message,
    ReceivedMessage,
    RocketmqClient,
    TransactionState,
)
from nodes.process import ServedNode
from protocols.rocketmq_listener import Inbox

TIMEOUT_S = 60.0
FIRST = ConsumeFrom.FIRST_OFFSET


class Killed:
    """A broker that dies, and comes back where it was."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._listeners = {"rocketmq": "127.0.0.1:0", "rocketmq-broker": "127.0.0.1:0"}
        self.node = self._start()

    def _start(self) -> ServedNode:
        listen = [f"--listen={name}={address}" for name, address in self._listeners.items()]
        # Producers are asked soon.
        checks = ["--set=held.record.check.after.ms=200", "--set=held.record.check.interval.ms=500"]
        node = ServedNode("--data", str(self._data), *listen, *checks).ready()
        self._listeners = {name: node.listeners[name] for name in self._listeners}
        return node

    @property
    def address(self) -> str:
        return self._listeners["rocketmq"]

    def again(self) -> None:
        self.node.signal(signal.SIGKILL)
        self.node.finish()
        self.node = self._start()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Killed]:
    async with asyncio.timeout(TIMEOUT_S):
        killed = Killed(tmp_path)
        try:
            yield killed
        finally:
            killed.node.kill()


async def test_a_transaction_is_asked_about_after_a_kill(broker: Killed) -> None:
    asked: list[bytes] = []
    told = asyncio.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        told.set()
        is_good = message.body.startswith(b"good")
        return TransactionState.COMMIT if is_good else TransactionState.ROLLBACK

    def undecided(_message: Message) -> TransactionState:
        return TransactionState.UNKNOWN

    async with RocketmqClient(broker.address) as client:
        producer = client.transaction_producer("tx", check)
        async with producer:
            for body in (b"good 1", b"bad", b"good 2"):
                await producer.send_in_transaction(Message(topic="T", body=body), undecided)
            broker.again()
            asked.clear()
            inbox = Inbox()
            async with client.push_consumer("g", {"T": "*"}, inbox, start=FIRST):
                assert sorted(await inbox.until(2)) == [b"good 1", b"good 2"]
                while b"bad" not in asked:
                    told.clear()
                    await told.wait()
                broker.again()
                # A marker behind everything: nothing more came before it.
                await producer.send(Message(topic="T", body=b"end"))
                bodies = await inbox.until(3)
                assert sorted(set(bodies)) == [b"end", b"good 1", b"good 2"]


async def test_delayed_messages_come_once_and_not_early_after_kills(broker: Killed) -> None:
    async with RocketmqClient(broker.address) as client, client.producer("p") as producer:
        await producer.send(Message(topic="T", body=b"first"))
        due_ms = int(time.time() * 1000) + 4000
        for number in range(20):
            body = b"%d" % number
            await producer.send(Message(topic="T", body=body, deliver_at_ms=due_ms + number))
        broker.again()
        inbox = Inbox()
        async with client.push_consumer("g", {"T": "*"}, inbox, start=FIRST):
            await inbox.until(10)
            broker.again()
            await inbox.until(21)
        stored = {(each.queue_id, each.queue_offset): each for each in inbox.messages}
        assert sorted(each.body for each in stored.values()) == sorted(
            [b"first", *(b"%d" % number for number in range(20))]
        )
        late = [each for each in stored.values() if each.body != b"first"]
        assert all(each.store_ms >= due_ms + int(each.body) for each in late)


async def test_a_retry_goes_on_after_a_kill(broker: Killed) -> None:
    async with RocketmqClient(broker.address) as client, client.producer("p") as producer:
        await producer.send(Message(topic="T", body=b"v"))
        inbox = Inbox(lambda message: Later(1) if not message.reconsume_times else None)
        async with client.push_consumer("g", {"T": "*"}, inbox, start=FIRST):
            await inbox.until(1)
        broker.again()
        async with client.push_consumer("g", {"T": "*"}, inbox, start=FIRST):
            await inbox.until(2)
    assert [each.reconsume_times for each in inbox.messages][-1] == 1
    assert inbox.messages[-1].topic == "T"
