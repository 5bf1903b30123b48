"""Goal: consumers hand every message out, commit what was consumed and nothing else, share queues
as all clients do, and do what brokers ask of them.

Method: a scripted name server and broker on a real socket.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client_core.errors import ClientClosedError
from dragoman.errors import ConfigError, DecodeError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import (
    ClientOffsets,
    ConsumeFrom,
    ConsumerRunningInfo,
    ConsumeType,
    DirectConsumption,
    DirectResult,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    ResetOffset,
)
from dragoman.protocols.rocketmq.client import offsets
from dragoman.protocols.rocketmq.client.client import RocketmqClient
from dragoman.protocols.rocketmq.client.consumption import Later, ProcessQueue, listened
from dragoman.protocols.rocketmq.client.errors import NoPermissionError
from dragoman.protocols.rocketmq.client.membership import averages
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage, deflate, inflate
from dragoman.protocols.rocketmq.client.offsets import BrokerOffsets, LocalOffsets
from dragoman.protocols.rocketmq.client.pull import SQL92, Filter, Pulled, PullStatus
from dragoman.protocols.rocketmq.client.remoting import (
    ClientSettings,
)
from dragoman.protocols.rocketmq.constants import Property, Request, Response
from dragoman.protocols.rocketmq.messages import encode_message
from protocols.scripted_rocketmq import CLOSE, ScriptedRocketmq, ok, refused

QUICK = ClientSettings(backoff_first_s=0.001, backoff_max_s=0.001, request_timeout_s=20.0)
FIRST = ConsumeFrom.FIRST_OFFSET


def client_of(server: ScriptedRocketmq) -> RocketmqClient:
    return RocketmqClient(server.address, settings=QUICK)


def queue(number: int = 0, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="b", queue_id=number)


class Seen:
    """A listener that keeps what it was given."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self._changed = asyncio.Event()
        #: What becomes of messages, by body; consumed otherwise.
        self.outcomes: dict[bytes, Later | Exception] = {}

    def __call__(self, message: ReceivedMessage) -> Later | None:
        self.messages.append(message)
        self._changed.set()
        outcome = self.outcomes.get(message.body)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages]

    async def until(self, count: int) -> list[bytes]:
        while len(self.messages) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.bodies


# ---- shares


@given(st.integers(0, 40), st.integers(1, 12))
def test_every_queue_has_one_reader_and_shares_are_alike(queues: int, members: int) -> None:
    ids = [f"c{number:02}" for number in range(members)]
    all_queues = [queue(number) for number in range(queues)]
    shares = [averages(all_queues[::-1], ids[::-1], each) for each in ids]
    assert [each for share in shares for each in share] == all_queues
    sizes = [len(each) for each in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_who_is_not_a_member_has_no_share() -> None:
    assert averages([queue()], ["a"], "b") == ()


# ---- process queues


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_nothing_is_committed_before_it_is_consumed(steps: list[int], rng: random.Random) -> None:
    """Pulls with gaps, and consumption in any order."""
    process_queue = ProcessQueue(
        queue(), 0, Filter("a"), Filter("a").subscription("T", 0), 1000, 1000
    )
    left: list[ReceivedMessage] = []
    for step in steps:
        if step == 0:
            count = rng.randrange(4)
            messages = [
                ReceivedMessage(
                    topic="T",
                    queue_offset=process_queue.position + number,
                    properties={"TAGS": rng.choice("ab")},
                )
                for number in range(count)
            ]
            pulled = Pulled(
                status=PullStatus.FOUND,
                messages=messages,
                next_offset=process_queue.position + count,
            )
            left += process_queue.take_in(pulled)
        elif left:
            process_queue.done(left.pop(rng.randrange(len(left))))
        oldest = min((each.queue_offset for each in left), default=process_queue.position)
        assert process_queue.committable == oldest


# ---- concurrently


async def test_messages_are_handed_out_and_committed() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics |= {"T": 2, "%RETRY%g": 1}
        for number in range(10):
            server.put("T", number % 2, b"m%d" % number, properties={"TAGS": "a"})
        seen = Seen()
        async with client.push_consumer("g", {"T": "a"}, seen, start=FIRST) as consumer:
            assert len(set(await seen.until(10))) == 10
            assert consumer.assigned == (queue(0, "%RETRY%g"), queue(0), queue(1))
            server.put("T", 0, b"new", properties={"TAGS": "a"})
            await seen.until(11)
        assert server.offsets == {("T", 0): 6, ("T", 1): 5, ("%RETRY%g", 0): 0}
        assert seen.messages[0].topic == "T"
        assert seen.messages[0].broker_name == "b"
        (left,) = server.asked(Request.UNREGISTER_CLIENT)
        assert left.fields["consumerGroup"] == "g"
        with pytest.raises(ClientClosedError):
            await consumer.start()


async def test_a_heartbeat_tells_what_is_wanted() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        wanted = {"T": Filter("a > 1", SQL92)}
        async with client.push_consumer("g", wanted, Seen(), start=FIRST):
            beat = bodies.decode(server.asked(Request.HEART_BEAT)[0].body, HeartbeatData)
            (data,) = beat.consumer_data_set
            assert (data.group_name, data.consume_type) == ("g", ConsumeType.PASSIVELY)
            assert data.consume_from_where is FIRST
            found = {each.topic: each for each in data.subscription_data_set}
            assert found.keys() == {"T", "%RETRY%g"}
            assert (found["T"].sub_string, found["T"].expression_type) == ("a > 1", "SQL92")
            (pull,) = await server.until_asked(Request.PULL_MESSAGE)
            assert pull.fields["subscription"] == "a > 1"
            assert pull.fields["expressionType"] == "SQL92"
            assert (pull.fields["sysFlag"], pull.fields["suspendTimeoutMillis"]) == ("6", "15000")
            with pytest.raises(ConfigError):
                await client.push_consumer("g", {"T": "*"}, Seen()).start()
    with pytest.raises(ConfigError):
        client.push_consumer("g", {}, Seen())


async def test_tags_with_equal_hashes_are_distinct() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        # Java's hash of both is the same.
        server.put("T", 0, b"other", properties={"TAGS": "BB"})
        server.put("T", 0, b"mine", properties={"TAGS": "Aa"})
        seen = Seen()
        async with client.push_consumer("g", {"T": "Aa"}, seen, start=FIRST):
            assert await seen.until(1) == [b"mine"]
        assert server.offsets["T", 0] == 2


@pytest.mark.parametrize(
    ("start", "meant"), [(ConsumeFrom.LAST_OFFSET, 3), (FIRST, 0), (ConsumeFrom.TIMESTAMP, 1)]
)
async def test_groups_without_offsets_start_at_the_requested_position(
    start: ConsumeFrom, meant: int
) -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics |= {"T": 1, "%RETRY%g": 1}
        server.answers[Request.SEARCH_OFFSET_BY_TIMESTAMP] = lambda asked: ok(
            offset=1 if asked.fields["timestamp"] == "77" else 2
        )
        for number in range(3):
            server.put("T", 0, b"%d" % number)
        consumer = client.push_consumer("g", {"T": "*"}, Seen(), start=start, start_ms=77)
        async with consumer:
            starts: dict[str, str] = {}
            while len(starts) < 2:
                await asyncio.sleep(0)
                for each in server.asked(Request.PULL_MESSAGE):
                    starts.setdefault(each.fields["topic"], each.fields["queueOffset"])
            assert starts == {"T": str(meant), "%RETRY%g": "0"}


async def test_committed_offsets_come_first() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        server.offsets["T", 0] = 2
        for number in range(4):
            server.put("T", 0, b"%d" % number)
        seen = Seen()
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST):
            assert sorted(await seen.until(2)) == [b"2", b"3"]


async def test_what_fails_goes_back_to_the_broker() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        server.answers[Request.CONSUMER_SEND_MSG_BACK] = lambda _: ok()
        seen = Seen()
        seen.outcomes = {b"a": ValueError("no"), b"b": Later(5), b"c": Later(-1)}
        stored = [server.put("T", 0, body) for body in (b"a", b"b", b"c", b"d")]
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST, reconsume_times_max=4):
            backs = await server.until_asked(Request.CONSUMER_SEND_MSG_BACK, 3)
            await seen.until(4)
        levels = {int(each.fields["offset"]): each.fields["delayLevel"] for each in backs}
        assert levels == dict(
            zip((each.physical_offset for each in stored), ("0", "5", "-1"), strict=False)
        )
        assert {each.fields["maxReconsumeTimes"] for each in backs} == {"4"}
        assert {each.fields["originTopic"] for each in backs} == {"T"}
        assert server.offsets["T", 0] == 4


async def test_what_cannot_go_back_is_sent_again() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics |= {"T": 1, "%RETRY%g": 1}
        server.answers[Request.CONSUMER_SEND_MSG_BACK] = lambda _: refused(Response.SYSTEM_ERROR)
        seen = Seen()
        seen.outcomes = {b"a": Later()}
        first = server.put("T", 0, b"a", properties={"KEYS": "k"}, reconsume_times=2)
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST):
            asked, *_ = await server.until_asked(Request.SEND_MESSAGE_V2)
        again = server.stored["%RETRY%g", 0][0]
        assert again.body == b"a"
        assert (asked.fields["j"], asked.fields["l"]) == ("3", "16")
        assert again.properties | {Property.UNIQUE_KEY: ""} == {
            "KEYS": "k",
            Property.RETRY_TOPIC: "T",
            Property.ORIGIN_MESSAGE_ID: first.message_id,
            Property.RECONSUME_TIME: "3",
            Property.MAX_RECONSUME_TIMES: "16",
            Property.DELAY: "5",
            Property.UNIQUE_KEY: "",
        }
        assert server.offsets["T", 0] == 1


async def test_large_bodies_are_compressed_again_on_their_way_back() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics |= {"T": 1, "%RETRY%g": 1}
        server.answers[Request.CONSUMER_SEND_MSG_BACK] = lambda _: refused(Response.SYSTEM_ERROR)
        seen = Seen()
        body = bytes(5 << 20)
        seen.outcomes = {body: Later()}
        server.put("T", 0, deflate(body), sys_flag=1)
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST):
            await server.until_asked(Request.SEND_MESSAGE_V2)
        again = server.stored["%RETRY%g", 0][0]
        assert (again.sys_flag, inflate(again.body, 1)) == (1, body)


async def test_what_can_go_nowhere_is_not_committed() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        for code in (Request.CONSUMER_SEND_MSG_BACK, Request.SEND_MESSAGE_V2):
            server.answers[code] = lambda _: refused(Response.MESSAGE_ILLEGAL)
        seen = Seen()
        seen.outcomes = {b"a": Later()}
        server.put("T", 0, b"a")
        server.put("T", 0, b"b")
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST):
            await seen.until(4)
            assert seen.bodies.count(b"a") >= 3
        assert server.offsets["T", 0] == 0


@pytest.mark.parametrize(
    "bound", [{"in_flight_max": 10}, {"in_flight_bytes_max": 50}], ids=["messages", "bytes"]
)
async def test_messages_in_flight_are_bounded(bound: dict[str, int]) -> None:
    release = asyncio.Event()
    given: list[bytes] = []

    async def slow(message: ReceivedMessage) -> None:
        given.append(message.body)
        await release.wait()

    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        for number in range(50):
            server.put("T", 0, b"%05d" % number)
        options = {"pull_count": 5, "concurrency": 3, **bound}
        async with client.push_consumer("g", {"T": "*"}, slow, start=FIRST, **options) as consumer:  # type: ignore[arg-type]
            await server.until_asked(Request.PULL_MESSAGE, 2)
            # A round trip: whatever it would pull next, it would have asked for by now.
            await client.admin.max_offset(queue())
            assert len(server.asked(Request.PULL_MESSAGE)) == 2
            assert len(given) == 3
            process_queue = consumer.process_queues[queue()]
            assert (process_queue.position, process_queue.committable) == (10, 0)
            release.set()
            while len(given) < 50:
                await asyncio.sleep(0)
        assert server.offsets["T", 0] == 50


async def test_an_offset_that_is_not_there_is_left() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        server.offsets["T", 0] = 100
        server.put("T", 0, b"old")
        seen = Seen()
        async with client.push_consumer("g", {"T": "*"}, seen):
            await server.until_asked(Request.PULL_MESSAGE, 2)
            server.put("T", 0, b"new")
            assert await seen.until(1) == [b"new"]


async def test_pulls_go_on_after_lost_connections_and_refusals() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        server.put("T", 0, b"a")
        serve = server.answers[Request.PULL_MESSAGE]
        bad = [refused(Response.SYSTEM_ERROR), refused(Response.SUBSCRIPTION_NOT_EXIST), CLOSE]
        server.answers[Request.PULL_MESSAGE] = lambda asked: bad.pop() if bad else serve(asked)
        seen = Seen()
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST):
            assert await seen.until(1) == [b"a"]
        # The broker had lost the group, and the consumer registered again.
        assert len(server.asked(Request.HEART_BEAT)) >= 2


async def test_queues_are_shared_anew_when_members_change() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 4
        seen = Seen()
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST) as consumer:
            assert len(consumer.assigned) == 4
            for number in range(4):
                server.put("T", number, b"%d" % number)
            await seen.until(4)
            server.members.append("zzz")
            await server.ask_client(
                Request.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, is_one_way=True
            )
            while len(consumer.assigned) != 2:
                await asyncio.sleep(0)
            assert consumer.assigned == (queue(0), queue(1))
            # Where the other member resumes.
            while ("T", 3) not in server.offsets:
                await asyncio.sleep(0)
            assert (server.offsets["T", 2], server.offsets["T", 3]) == (1, 1)
            server.members.remove("zzz")
            consumer.rebalance_soon()
            while len(consumer.assigned) != 4:
                await asyncio.sleep(0)


async def test_a_topic_that_comes_later_is_found() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        seen = Seen()
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST) as consumer:
            assert consumer.assigned == ()
            server.topics["T"] = 1
            server.put("T", 0, b"a")
            consumer.rebalance_soon()
            assert await seen.until(1) == [b"a"]


# ---- in order


async def test_messages_of_a_queue_come_in_order_and_wait_for_a_failing_one() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        seen = Seen()
        seen.outcomes = {b"1": Later()}
        for number in range(4):
            server.put("T", 0, b"%d" % number)
        async with client.push_consumer(
            "g", {"T": "*"}, seen, start=FIRST, is_orderly=True, orderly_pause_s=0.001
        ):
            assert (await seen.until(4))[:4] == [b"0", b"1", b"1", b"1"]
            seen.outcomes.clear()
            while b"3" not in seen.bodies:
                await asyncio.sleep(0)
            kept = [each for each in seen.bodies if each != b"1"]
            assert kept == [b"0", b"2", b"3"]
        assert server.offsets["T", 0] == 4
        (lock, *_), (unlock,) = server.asked(Request.LOCK_BATCH_MQ), server.asked(42)
        for each in (lock, unlock):
            batch = bodies.decode(each.body, bodies.LockBatch)
            assert (batch.consumer_group, batch.client_id) == ("g", client.client_id)
            assert batch.mq_set == [queue()]
        # First the offset, then the lock: the next member begins where this one ended.
        codes = [each.code for each in server.seen]
        commit = len(codes) - 1 - codes[::-1].index(Request.UPDATE_CONSUMER_OFFSET)
        assert commit < codes.index(Request.UNLOCK_BATCH_MQ)


async def test_a_queue_is_begun_only_under_its_lock() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 2
        server.locked = {1}
        async with client.push_consumer(
            "g", {"T": "*"}, Seen(), start=FIRST, is_orderly=True
        ) as consumer:
            assert consumer.assigned == (queue(0),)
            server.locked.clear()
            # It retries soon, without a request of the broker.
            while consumer.assigned != (queue(0), queue(1)):
                await asyncio.sleep(0)


async def test_a_lost_lock_is_noticed_before_the_next_message() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        for number in range(3):
            server.put("T", 0, b"%d" % number)
        given: list[bytes] = []

        def listener(message: ReceivedMessage) -> None:
            given.append(message.body)
            if message.body == b"0":
                # Time has passed, and another member has gone on to the last message.
                consumer.process_queues[queue()].locked_until = 0.0
                server.offsets["T", 0] = 2

        consumer = client.push_consumer("g", {"T": "*"}, listener, start=FIRST, is_orderly=True)
        async with consumer:
            while b"2" not in given:
                await asyncio.sleep(0)
        assert given == [b"0", b"2"]


async def test_a_queue_that_another_has_locked_is_waited_for() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        seen = Seen()
        async with client.push_consumer(
            "g", {"T": "*"}, seen, start=FIRST, is_orderly=True
        ) as consumer:
            await server.until_asked(Request.PULL_MESSAGE)
            server.locked = {0}
            consumer.process_queues[queue()].locked_until = 0.0
            server.put("T", 0, b"a")
            count = len(server.asked(Request.LOCK_BATCH_MQ))
            await server.until_asked(Request.LOCK_BATCH_MQ, count + 3)
            assert seen.bodies == []
            server.locked.clear()
            assert await seen.until(1) == [b"a"]


async def test_locks_and_offsets_and_shares_are_looked_after() -> None:
    settings = ClientSettings(
        backoff_first_s=0.001,
        backoff_max_s=0.001,
        heartbeat_s=0.001,
        route_refresh_s=0.001,
        request_timeout_s=20.0,
    )
    async with (
        ScriptedRocketmq() as server,
        RocketmqClient(server.address, settings=settings) as client,
    ):
        server.topics["T"] = 1
        seen = Seen()
        intervals = {"commit_s": 0.001, "lock_s": 0.001, "rebalance_s": 0.001}
        async with client.push_consumer(
            "g", {"T": "*"}, seen, start=FIRST, is_orderly=True, **intervals
        ) as consumer:
            process_queue = consumer.process_queues[queue()]
            before = process_queue.locked_until
            server.put("T", 0, b"a")
            while server.offsets.get(("T", 0)) != 1 or process_queue.locked_until <= before:
                await asyncio.sleep(0)
            await server.until_asked(Request.HEART_BEAT, 5)
            # New queues are found by themselves; what fails for a while is tried again.
            for code in (Request.HEART_BEAT, Request.LOCK_BATCH_MQ, Request.UPDATE_CONSUMER_OFFSET):
                answer = server.answers[code]
                server.answers[code] = lambda _: refused(Response.SYSTEM_ERROR)
                await server.until_asked(Request.HEART_BEAT, len(server.asked(34)) + 3)
                server.answers[code] = answer
            server.topics["T"] = 2
            while consumer.assigned != (queue(0), queue(1)):
                await asyncio.sleep(0)


async def test_in_order_to_everybody_needs_no_lock() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        seen = Seen()
        seen.outcomes = {b"a": Later(-1)}
        server.put("T", 0, b"a")
        server.put("T", 0, b"b")
        model = MessageModel.BROADCASTING
        async with client.push_consumer(
            "g", {"T": "*"}, seen, start=FIRST, is_orderly=True, model=model
        ) as consumer:
            assert await seen.until(2) == [b"a", b"b"]
            await consumer.commit()
        for code in (Request.LOCK_BATCH_MQ, Request.UNLOCK_BATCH_MQ, 36, 15):
            assert server.asked(code) == []


async def test_member_that_cannot_be_notified_keeps_its_queues() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        async with client.push_consumer("g", {"T": "*"}, Seen(), start=FIRST) as consumer:
            server.answers[Request.GET_CONSUMER_LIST_BY_GROUP] = lambda _: refused(
                Response.SYSTEM_ERROR
            )
            await consumer.rebalance()
            assert consumer.assigned == (queue(),)


async def test_tried_too_often_in_order_it_becomes_a_dead_letter() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        server.answers[Request.CONSUMER_SEND_MSG_BACK] = lambda _: ok()
        seen = Seen()
        seen.outcomes = {b"a": Later()}
        server.put("T", 0, b"a")
        server.put("T", 0, b"b")
        async with client.push_consumer(
            "g",
            {"T": "*"},
            seen,
            start=FIRST,
            is_orderly=True,
            orderly_pause_s=0.001,
            reconsume_times_max=2,
        ):
            assert await seen.until(4) == [b"a", b"a", b"a", b"b"]
        (back,) = server.asked(Request.CONSUMER_SEND_MSG_BACK)
        assert back.fields["delayLevel"] == "-1"


async def test_a_listener_at_work_ends_before_its_queue_is_given_up() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(_: ReceivedMessage) -> None:
        begun.set()
        await release.wait()

    for is_orderly in (False, True):
        async with ScriptedRocketmq() as server, client_of(server) as client:
            server.topics["T"] = 1
            server.put("T", 0, b"a")
            server.put("T", 0, b"b")
            options = {"is_orderly": is_orderly, "concurrency": 1}
            consumer = client.push_consumer("g", {"T": "*"}, slow, start=FIRST, **options)  # type: ignore[arg-type]
            await consumer.start()
            await begun.wait()
            closing = asyncio.create_task(consumer.close())
            while consumer.assigned:
                await asyncio.sleep(0)
            release.set()
            await closing
            assert server.offsets["T", 0] == 1
        begun.clear()
        release.clear()


async def test_a_listener_that_does_not_end_is_not_waited_for_for_ever() -> None:
    begun = asyncio.Event()

    async def stuck(_: ReceivedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    for is_orderly in (False, True):
        async with ScriptedRocketmq() as server, client_of(server) as client:
            server.topics["T"] = 1
            server.put("T", 0, b"a")
            consumer = client.push_consumer(
                "g", {"T": "*"}, stuck, start=FIRST, is_orderly=is_orderly, grace_s=0.001
            )
            async with consumer:
                await begun.wait()
            assert server.offsets["T", 0] == 0
            # Its queue stays locked until that runs out.
            assert server.asked(Request.UNLOCK_BATCH_MQ) == []
        begun.clear()


# ---- broadcasting


async def test_broadcasting_keeps_its_offsets_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "offsets.json"
    async with ScriptedRocketmq() as server:
        server.topics["T"] = 2
        for number in range(4):
            server.put("T", number % 2, b"%d" % number)
        for expected in ([b"0", b"1", b"2", b"3"], [b"new"]):
            seen = Seen()
            seen.outcomes = {b"0": Later()}
            async with (
                client_of(server) as client,
                client.push_consumer(
                    "g",
                    {"T": "*"},
                    seen,
                    start=FIRST,
                    model=MessageModel.BROADCASTING,
                    offsets_path=path,
                ) as consumer,
            ):
                assert sorted(await seen.until(len(expected))) == expected
                assert consumer.assigned == (queue(0), queue(1))
            server.put("T", 0, b"new")
        for code in (38, Request.UPDATE_CONSUMER_OFFSET, Request.CONSUMER_SEND_MSG_BACK):
            assert server.asked(code) == []
        loaded = bodies.by_queue(bodies.decode(path.read_bytes(), ResetOffset).offset_table)
        assert loaded == {queue(0): 3, queue(1): 2}


async def test_a_file_of_offsets_that_is_damaged_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"{damaged")
    store = LocalOffsets(path)
    with pytest.raises(DecodeError):
        await store.load(queue())
    with pytest.raises(DecodeError):
        await store.save({queue(): 5})
    assert path.read_bytes() == b"{damaged"


async def test_unwritable_offsets_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalOffsets(tmp_path / "file" / "offsets")
    with pytest.raises((ConfigError, DecodeError)):
        await store.save({queue(): 5})


async def test_offsets_that_could_not_be_written_are_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = offsets._replace
    failures = [OSError(28, "No space left")]

    def full_once(path: Path, data: bytes) -> None:
        if failures:
            raise failures.pop()
        replace(path, data)

    monkeypatch.setattr(offsets, "_replace", full_once)
    store = LocalOffsets(tmp_path / "offsets")
    with pytest.raises(ConfigError, match="No space left"):
        await store.save({queue(): 5})
    await store.save({queue(): 5})
    assert await LocalOffsets(tmp_path / "offsets").load(queue()) == 5


async def test_offsets_of_other_brokers_are_saved_although_one_fails() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 2
        commit = server.answers[Request.UPDATE_CONSUMER_OFFSET]
        server.answers[Request.UPDATE_CONSUMER_OFFSET] = lambda asked: (
            refused(Response.NO_PERMISSION) if asked.fields["queueId"] == "0" else commit(asked)
        )
        store = BrokerOffsets(client.admin, "g")
        with pytest.raises(NoPermissionError):
            await store.save({queue(0): 1, queue(1): 2})
        assert server.offsets == {("T", 1): 2}


# ---- what brokers ask


async def asked_of_member(
    server: ScriptedRocketmq, code: int, fields: Mapping[str, str], body: bytes = b""
) -> bytes:
    answer = await server.ask_client(code, fields, body)
    assert answer is not None
    assert answer.code == Response.SUCCESS
    return bytes(answer.body)


async def test_operators_ask_through_the_broker() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        server.put("T", 0, b"a")
        seen = Seen()
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST) as consumer:
            await seen.until(1)
            while consumer.process_queues[queue()].committable != 1:
                await asyncio.sleep(0)
            status = await asked_of_member(server, 221, {"group": "g", "topic": "T"})
            assert b"{{" in status
            offsets = bodies.decode(status, ClientOffsets).message_queue_table
            assert bodies.by_queue(offsets) == {queue(): 1}
            found = await asked_of_member(server, 307, {"consumerGroup": "g"})
            info = bodies.decode(found, ConsumerRunningInfo)
            assert bodies.by_queue(info.mq_table)[queue()].commit_offset == 1
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert {each.topic for each in info.subscription_set} == {"T", "%RETRY%g"}
            unknown = await server.ask_client(307, {"consumerGroup": "other"})
            assert unknown is not None
            assert unknown.code == Response.SYSTEM_ERROR
            nothing = await server.ask_client(12345, {})
            assert nothing is not None
            assert nothing.code == Response.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (None, DirectResult.SUCCESS),
        (Later(), DirectResult.LATER),
        (ValueError("no"), DirectResult.THROW_EXCEPTION),
    ],
)
async def test_one_message_is_consumed_on_request(
    outcome: Later | Exception | None, result: DirectResult
) -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        message = server.put("T", 0, b"a")
        seen = Seen()
        if outcome is not None:
            seen.outcomes = {b"a": outcome}
        async with client.push_consumer("g", {"T": "*"}, seen):
            fields = {"consumerGroup": "g", "brokerName": "b"}
            answer = await asked_of_member(server, 309, fields, encode_message(message))
            assert bodies.decode(answer, DirectConsumption).consume_result is result
            assert seen.bodies == [b"a"]
            bad = await server.ask_client(309, fields, b"")
            assert bad is not None
            assert bad.code == Response.SYSTEM_ERROR


@pytest.mark.parametrize("form", ["objects", "strings", "list"])
async def test_offsets_are_moved_by_operators(form: str) -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 2
        for number in range(3):
            server.put("T", 0, b"%d" % number)
        seen = Seen()
        async with client.push_consumer("g", {"T": "*"}, seen, start=FIRST):
            await seen.until(3)
            if form == "list":
                moved = bodies.QueueOffset(topic="T", broker_name="b", queue_id=0, offset=1)
                body = bodies.encode(bodies.ResetOffsetList(offset_table=[moved]))
            else:
                table = bodies.keyed({queue(): 1, queue(9): 4})
                body = bodies.encode(ResetOffset(offset_table=table), object_keys=form == "objects")
            before = len(server.asked(Request.UPDATE_CONSUMER_OFFSET))
            await server.ask_client(220, {"group": "g", "topic": "T"}, body, is_one_way=True)
            assert sorted((await seen.until(5))[3:]) == [b"1", b"2"]
            # Where it was before is not committed any more.
            first = server.asked(Request.UPDATE_CONSUMER_OFFSET)[before]
            assert (first.fields["queueId"], first.fields["commitOffset"]) == ("0", "1")


# ---- pulling


async def test_pull_consumer_reads_the_assigned_queues() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 2
        for number in range(5):
            server.put(
                "T", 1, b"%d" % number, properties={"TAGS": "even" if number % 2 == 0 else "odd"}
            )
        server.answers[Request.SEARCH_OFFSET_BY_TIMESTAMP] = lambda _: ok(offset=4)
        async with client.pull_consumer("g") as consumer:
            _, mine = await consumer.queues("T")
            assert (await consumer.first_offset(mine), await consumer.end_offset(mine)) == (0, 5)
            found = await consumer.pull(mine, max_count=3)
            assert [each.body for each in found.messages] == [b"0", b"1", b"2"]
            assert await consumer.position(mine) == 3
            assert await consumer.committed(mine) is None
            await consumer.commit(mine)
            assert await consumer.committed(mine) == 3
            consumer.seek(mine, 0)
            tagged = await consumer.pull(mine, wanted="odd")
            assert [each.body for each in tagged.messages] == [b"1", b"3"]
            assert (await consumer.pull(mine)).status is PullStatus.NO_NEW_MESSAGE
            waiting = asyncio.create_task(consumer.pull(mine, wait_s=10))
            await server.until_asked(Request.PULL_MESSAGE, 4)
            server.put("T", 1, b"late")
            assert [each.body for each in (await waiting).messages] == [b"late"]
            assert await consumer.offset_at(mine, 1000) == 4
            await consumer.commit(mine, 2)
            beat = bodies.decode(server.asked(Request.HEART_BEAT)[0].body, HeartbeatData)
            assert beat.consumer_data_set[0].consume_type is ConsumeType.ACTIVELY
            for code in (220, 221, 307, 309):
                fields = {"consumerGroup": "g", "group": "g"}
                refusal = await server.ask_client(code, fields)
                assert refusal is not None
                assert refusal.code == Response.SYSTEM_ERROR
        async with client_of(server) as other:
            assert await other.pull_consumer("g").position(mine) == 2


async def test_a_place_sought_while_a_pull_waits_is_kept() -> None:
    async with ScriptedRocketmq() as server, client_of(server) as client:
        server.topics["T"] = 1
        consumer = client.pull_consumer("g")
        waiting = asyncio.create_task(consumer.pull(queue(), wait_s=10))
        await server.until_asked(Request.PULL_MESSAGE)
        consumer.seek(queue(), 7)
        server.put("T", 0, b"a")
        await waiting
        assert await consumer.position(queue()) == 7


async def test_a_listener_whose_own_work_is_cancelled_has_failed() -> None:
    """The worker was not cancelled and continues."""

    async def listener(_: ReceivedMessage) -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task
        raise AssertionError("not reached")

    outcome, problem = await listened(listener, ReceivedMessage(topic="T"))
    assert outcome == Later()
    assert "Cancelled" in problem
    waiting = asyncio.create_task(
        listened(lambda _: asyncio.Event().wait(), ReceivedMessage(topic="T"))  # type: ignore[arg-type]
    )
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
