"""Goal: the RocketMQ client does its work against the broker: every kind of sending, consuming and
giving back, shared groups, transactions, replies.

Method: an in-process broker over loopback; conditions are waited for, never times.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dragoman.client.rocketmq import (
    SQL92,
    BlockingRocketmqClient,
    ConsumeFrom,
    Filter,
    Later,
    Message,
    MessageModel,
    MessageQueue,
    PushConsumer,
    ReceivedMessage,
    RocketmqClient,
    TransactionState,
)
from dragoman.testing import EphemeralBroker
from protocols.rocketmq_listener import Inbox

FIRST = ConsumeFrom.FIRST_OFFSET
TIMEOUT_S = 60.0


@pytest.fixture
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("rocketmq", "rocketmq-broker")) as started:
        yield started


@pytest.fixture
async def client(broker: EphemeralBroker) -> AsyncIterator[RocketmqClient]:
    async with asyncio.timeout(TIMEOUT_S):
        async with RocketmqClient(broker.address("rocketmq")) as opened:
            yield opened


async def sent_to(client: RocketmqClient, topic: str, count: int, group: str = "p") -> list[bytes]:
    bodies = [b"%s-%d" % (topic.encode(), number) for number in range(count)]
    async with client.producer(group) as producer:
        for body in bodies:
            await producer.send(Message(topic=topic, body=body))
    return bodies


async def test_every_kind_of_message_arrives(client: RocketmqClient) -> None:
    inbox = Inbox()
    large = b"large " * 2000
    async with client.producer("p") as producer:
        first = await producer.send(
            Message(topic="T", body=b"plain", tags="a", keys=["k1", "k2"], properties={"x": "1"})
        )
        assert first.queue_offset == 0
        await producer.send(Message(topic="T", body=large))
        await producer.send_one_way(Message(topic="T", body=b"one way"))
        batch = await producer.send_batch([Message(topic="T", body=b"b%d" % n) for n in range(5)])
        assert len(batch.message_id.split(",")) == 5
        async with client.push_consumer("g", {"T": "*"}, inbox, start=FIRST):
            found = await inbox.until(8)
    assert sorted(found) == sorted(
        [b"plain", large, b"one way", *(b"b%d" % number for number in range(5))]
    )
    plain = next(each for each in inbox.messages if each.body == b"plain")
    assert (plain.tags, plain.keys, plain.properties["x"]) == ("a", ["k1", "k2"], "1")
    assert plain.unique_id == first.unique_id
    assert plain.message_id == first.message_id
    assert plain.queue == first.queue


async def test_a_group_goes_on_where_it_was(client: RocketmqClient) -> None:
    before = await sent_to(client, "T", 10)
    first, second = Inbox(), Inbox()
    async with client.push_consumer("g", {"T": "*"}, first, start=FIRST):
        assert sorted(await first.until(10)) == sorted(before)
    async with client.producer("p") as producer:
        await producer.send(Message(topic="T", body=b"new"))
    async with client.push_consumer("g", {"T": "*"}, second, start=FIRST):
        assert await second.until(1) == [b"new"]


def _shares(*consumers: PushConsumer) -> list[int]:
    return [sum(each.topic == "T" for each in consumer.assigned) for consumer in consumers]


async def test_members_share_the_queues_and_lose_nothing(
    client: RocketmqClient, broker: EphemeralBroker
) -> None:
    both = Inbox()
    bodies = await sent_to(client, "T", 40)
    async with (
        RocketmqClient(broker.address("rocketmq")) as other,
        client.push_consumer("g", {"T": "*"}, both, start=FIRST) as one,
    ):
        await both.until(40)
        # Else the second one begins with some of them again.
        await one.commit()
        async with other.push_consumer("g", {"T": "*"}, both, start=FIRST) as two:
            # The broker notifies the first one of the second.
            while _shares(one, two) != [2, 2]:
                await asyncio.sleep(0.01)
            more = await sent_to(client, "T", 40, "q")
            await both.until(80)
    assert Counter(each.body for each in both.messages) == Counter(bodies + more)


async def test_filters_by_tag_and_by_condition(client: RocketmqClient) -> None:
    tagged, chosen = Inbox(), Inbox()
    async with client.producer("p") as producer:
        for number in range(9):
            await producer.send(
                Message(
                    topic="T",
                    body=b"%d" % number,
                    tags=("a", "b", "c")[number % 3],
                    properties={"price": str(number)},
                )
            )
        wanted = Filter("price BETWEEN 3 AND 5", SQL92)
        async with (
            client.push_consumer("g", {"T": "a || b"}, tagged, start=FIRST),
            client.push_consumer("h", {"T": wanted}, chosen, start=FIRST),
        ):
            assert sorted(await tagged.until(6)) == [b"0", b"1", b"3", b"4", b"6", b"7"]
            assert sorted(await chosen.until(3)) == [b"3", b"4", b"5"]


async def test_what_fails_comes_again(client: RocketmqClient) -> None:
    inbox = Inbox(lambda message: Later(1) if message.reconsume_times == 0 else None)
    async with client.producer("p") as producer:
        sent = await producer.send(Message(topic="T", body=b"x", keys=["k"]))
    async with client.push_consumer("g", {"T": "*"}, inbox, start=FIRST):
        assert await inbox.until(2) == [b"x", b"x"]
    again = inbox.messages[1]
    assert (again.topic, again.reconsume_times, again.keys) == ("T", 1, ["k"])
    assert again.unique_id == sent.unique_id
    assert again.queue is not None
    assert again.queue.topic == "%RETRY%g"


async def test_dead_letters_are_found_and_tried_again(client: RocketmqClient) -> None:
    verdict: list[Later | None] = [Later(-1)]
    inbox = Inbox(lambda _: verdict[0])
    async with client.producer("p") as producer:
        await producer.send(Message(topic="T", body=b"x", properties={"a": "1"}))
    async with client.push_consumer("g", {"T": "*"}, inbox, start=FIRST):
        await inbox.until(1)
        while not (letters := await client.admin.list_dead_letters("g")):
            await asyncio.sleep(0.01)
        (letter,) = letters
        assert (letter.origin_topic, letter.message.body) == ("T", b"x")
        verdict[0] = None
        await client.admin.resend_dead_letters(letters)
        assert await inbox.until(2) == [b"x", b"x"]
        assert (inbox.messages[1].topic, inbox.messages[1].properties["a"]) == ("T", "1")


async def test_delayed_messages_come_when_they_are_due(client: RocketmqClient) -> None:
    inbox = Inbox()
    async with (
        client.producer("p") as producer,
        client.push_consumer("g", {"T": "*"}, inbox, start=FIRST) as consumer,
    ):
        now_ms = client.clock.wall_ms()
        await producer.send(Message(topic="T", body=b"level", delay_level=1))
        due_ms = now_ms + 1500
        await producer.send(Message(topic="T", body=b"time", deliver_at_ms=due_ms))
        await producer.send(Message(topic="T", body=b"now"))
        consumer.rebalance_soon()
        assert await inbox.until(3) == [b"now", b"level", b"time"]
    assert inbox.messages[1].store_ms >= now_ms + 1000
    assert inbox.messages[2].store_ms >= due_ms


async def test_messages_of_a_key_come_in_order(
    client: RocketmqClient, broker: EphemeralBroker
) -> None:
    given: dict[str, list[int]] = {}

    def keep(message: ReceivedMessage) -> Later | None:
        body = message.body.decode()
        key, number = body.split("-")
        if int(number) % 7 == 3 and message.reconsume_times == 0:
            return Later()
        given.setdefault(key, []).append(int(number))
        return None

    inbox = Inbox(keep)
    options = {"start": FIRST, "is_orderly": True, "orderly_pause_s": 0.01}
    async with RocketmqClient(broker.address("rocketmq")) as other:
        async with client.producer("p") as producer:
            for number in range(20):
                for key in "abc":
                    message = Message(topic="T", body=f"{key}-{number}".encode(), sharding_key=key)
                    await producer.send(message)
        async with (
            client.push_consumer("g", {"T": "*"}, inbox, **options),  # type: ignore[arg-type]
            other.push_consumer("g", {"T": "*"}, inbox, **options),  # type: ignore[arg-type]
        ):
            while sum(map(len, given.values())) < 60:
                await asyncio.sleep(0.01)
    assert given == {key: list(range(20)) for key in "abc"}


async def test_broadcasting_reaches_everybody(
    client: RocketmqClient, broker: EphemeralBroker, tmp_path: Path
) -> None:
    bodies = await sent_to(client, "T", 10)
    async with RocketmqClient(broker.address("rocketmq")) as other:
        one, two, again = Inbox(), Inbox(), Inbox()
        model = MessageModel.BROADCASTING
        async with (
            client.push_consumer(
                "g", {"T": "*"}, one, start=FIRST, model=model, offsets_path=tmp_path / "offsets"
            ),
            other.push_consumer("g", {"T": "*"}, two, start=FIRST, model=model),
        ):
            assert sorted(await one.until(10)) == sorted(await two.until(10)) == sorted(bodies)
        async with client.push_consumer(
            "g", {"T": "*"}, again, start=FIRST, model=model, offsets_path=tmp_path / "offsets"
        ):
            async with client.producer("p") as producer:
                await producer.send(Message(topic="T", body=b"new"))
            assert await again.until(1) == [b"new"]


async def test_transactions_commit_roll_back_and_are_asked_about(client: RocketmqClient) -> None:
    checked: list[bytes] = []

    def check(message: ReceivedMessage) -> TransactionState:
        checked.append(message.body)
        return TransactionState.COMMIT

    inbox = Inbox()
    async with (
        client.transaction_producer("p", check) as producer,
        client.push_consumer("g", {"T": "*"}, inbox, start=FIRST) as consumer,
    ):
        for state in (TransactionState.UNKNOWN, TransactionState.ROLLBACK, TransactionState.COMMIT):
            message = Message(
                topic="T",
                body=state.name.encode(),
                properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"},
            )
            _, told = await producer.send_in_transaction(message, lambda _, state=state: state)
            assert told is state
        consumer.rebalance_soon()
        assert await inbox.until(2) == [b"COMMIT", b"UNKNOWN"]
        assert checked == [b"UNKNOWN"]


async def test_requests_are_replied_to(client: RocketmqClient, broker: EphemeralBroker) -> None:
    async with RocketmqClient(broker.address("rocketmq")) as other:
        answering = other.producer("answers")

        async def answer(message: ReceivedMessage) -> None:
            await answering.reply(message, message.body.upper())

        async with client.producer("p") as producer:
            await producer.send_one_way(Message(topic="Q"))
            async with other.push_consumer("g", {"Q": "*"}, answer) as consumer:
                while not any(each.topic == "Q" for each in consumer.assigned):
                    await consumer.rebalance()
                reply = await producer.request(Message(topic="Q", body=b"hello"), timeout_s=30)
        assert reply.body == b"HELLO"


async def test_queues_are_pulled_by_hand(client: RocketmqClient) -> None:
    async with client.producer("p") as producer:
        queue = (await producer.queues("T"))[2]
        times = []
        for number in range(5):
            await producer.send(Message(topic="T", body=b"%d" % number), queue=queue)
            times.append(client.clock.wall_ms())
    async with client.pull_consumer("g") as consumer:
        assert queue in await consumer.queues("T")
        assert (await consumer.first_offset(queue), await consumer.end_offset(queue)) == (0, 5)
        assert await consumer.committed(queue) is None
        found = await consumer.pull(queue, max_count=2)
        assert [each.body for each in found.messages] == [b"0", b"1"]
        await consumer.commit(queue)
        assert await consumer.committed(queue) == 2
        assert await consumer.offset_at(queue, times[-1] + 1000) == 5
        assert await consumer.offset_at(queue, 0) == 0
        consumer.seek(queue, 5)
        waiting = asyncio.create_task(consumer.pull(queue, wait_s=15))
        async with client.producer("q") as producer:
            await producer.send(Message(topic="T", body=b"late"), queue=queue)
        assert [each.body for each in (await waiting).messages] == [b"late"]


def test_the_blocking_face(broker: EphemeralBroker) -> None:
    with BlockingRocketmqClient(broker.address("rocketmq")) as client:
        with client.producer("p") as producer:
            sent = producer.send(Message(topic="T", body=b"x"))
        with client.pull_consumer("g") as consumer:
            queue: MessageQueue = sent.queue
            assert [each.body for each in consumer.pull(queue).messages] == [b"x"]
