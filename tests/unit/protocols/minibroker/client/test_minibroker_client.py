"""Goal: the client keeps its promises over sockets, and survives a restart of the broker.

Method: a real broker in the process, over loopback.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest

from dragoman.broker.groups.direct import DirectGroup
from dragoman.client.minibroker import (
    AlreadySubscribedError,
    BlockingMinibrokerClient,
    ClientClosedError,
    ClientSettings,
    ConnectionLostError,
    Delivered,
    GroupSubscription,
    MinibrokerClient,
    RefusedError,
    Subscription,
    UnreachableError,
)
from dragoman.errors import EncodeError
from dragoman.protocols.minibroker import codec
from dragoman.protocols.minibroker.messages import SubscribeGroup
from dragoman.server import Node
from dragoman.testing import EphemeralBroker
from dragoman.types import GroupId

QUICK = ClientSettings(reconnect_pause_s=0.02, retry_pause_s=0.02, redirect_pause_s=0.01)


@pytest.fixture
async def broker() -> AsyncIterator[EphemeralBroker]:
    async with EphemeralBroker(listeners=("minibroker",)) as started:
        yield started


async def take(subscription: Subscription, count: int) -> list[Delivered]:
    return [await anext(subscription) for _ in range(count)]


async def test_publish_replay_and_unsubscribe(broker: EphemeralBroker) -> None:
    async with MinibrokerClient(broker.address("minibroker")) as client:
        places = [await client.publish("t", b"%d" % n, key=b"k1") for n in range(5)]
        assert [(each.partition, each.offset) for each in places] == [(1, n) for n in range(5)]
        async with await client.subscribe("t", 1, offset=2) as subscription:
            assert subscription.partitions == (1,)
            records = await take(subscription, 3)
            assert [each.payload for each in records] == [b"2", b"3", b"4"]
            assert records[0].key == b"k1"
            with pytest.raises(AlreadySubscribedError):
                await client.subscribe("t", 0)
        assert [each async for each in subscription] == []
        async with await client.subscribe("t", 1) as subscription:
            await client.publish("t", b"new", key=b"k1")
            assert [each.payload for each in await take(subscription, 1)] == [b"new"]


async def test_pipelined_publishes_keep_their_order(broker: EphemeralBroker) -> None:
    async with MinibrokerClient(broker.address("minibroker")) as client:
        places = await asyncio.gather(
            *(client.publish("t", b"%d" % n, key=b"k1") for n in range(2000))
        )
        assert [each.offset for each in places] == list(range(2000))


async def test_what_the_server_refuses_is_raised(broker: EphemeralBroker) -> None:
    async with MinibrokerClient(broker.address("minibroker")) as client:
        with pytest.raises(RefusedError, match='invalid topic: "a b"') as raised:
            await client.publish("a b", b"")
        assert not raised.value.retriable
        with pytest.raises(RefusedError, match="out of range"):
            await client.subscribe("t", 9)
        with pytest.raises(EncodeError):
            await client.publish("x" * 70_000, b"")
        # A refused subscription leaves nothing behind.
        async with await client.subscribe("t", 0):
            pass


async def test_group_members_share_commit_and_resume(broker: EphemeralBroker) -> None:
    address = broker.address("minibroker")
    told: list[tuple[int, ...]] = []
    async with MinibrokerClient(address) as first, MinibrokerClient(address) as second:
        a = await first.join("t", "g", told.append)
        assert a.partitions == (0, 1, 2, 3)
        b = await second.join("t", "g")
        assert b.partitions == (1, 3)
        for n in range(8):
            await first.publish("t", b"%d" % n)
        by_a = await take(a, 4)
        by_b = await take(b, 4)
        assert {each.partition for each in by_a} == {0, 2}
        assert {each.partition for each in by_b} == {1, 3}
        for record in by_a:
            await a.commit(record)
        await b.commit(by_b[0])
        assert told == [(0, 1, 2, 3), (0, 2)]
    async with MinibrokerClient(address) as third:
        c = await third.join("t", "g")
        left = await take(c, 3)
        assert sorted(each.payload for each in left) == sorted(each.payload for each in by_b[1:])


async def test_heartbeats_keep_a_quiet_member(broker: EphemeralBroker) -> None:
    address = broker.address("minibroker")
    alive = ClientSettings(heartbeat_interval_s=0.05)
    told: list[tuple[int, ...]] = []
    async with MinibrokerClient(address, alive) as client:
        member = await client.join("t", "g", told.append)
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), 60) as silent:
            silent.sendall(codec.encode(SubscribeGroup(topic="t", group="g")))
            while told != [(0, 1, 2, 3), (0, 2)]:
                await asyncio.sleep(0.01)
            await in_broker(broker, after_an_hour_of_silence)
            while told != [(0, 1, 2, 3), (0, 2), (0, 1, 2, 3)]:
                await asyncio.sleep(0.01)
            assert member.partitions == (0, 1, 2, 3)
            received = b""
            while piece := silent.recv(1000):
                received += piece
        assert received.endswith(b"evicted: heartbeat timeout")


async def in_broker(
    broker: EphemeralBroker, work: Callable[[Node], Coroutine[None, None, None]]
) -> None:
    """Run `work` on the broker's own loop."""
    loop, node = broker._loop, broker._node
    assert loop is not None
    assert node is not None
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(node), loop))


async def after_an_hour_of_silence(node: Node) -> None:
    """Remove silent members after the first member has sent another heartbeat."""
    group = node.broker.coordination.groups.table.require(GroupId("g")).membership
    assert isinstance(group, DirectGroup)
    assert group._sweeper is not None
    # No sweep runs earlier: its time must not depend on the speed of the machine.
    group._sweeper.cancel()
    first, second = group.members.values()
    for member in (first, second):
        member.last_seen -= 3600
    while first.last_seen < second.last_seen + 1800:
        await asyncio.sleep(0)
    group._sweep()


# ---- a handler that is slower than the records


async def test_reading_stops_while_records_are_not_consumed(broker: EphemeralBroker) -> None:
    address = broker.address("minibroker")
    small = ClientSettings(queue_records_max=10)
    async with MinibrokerClient(address) as writer, MinibrokerClient(address, small) as reader:
        subscription = await reader.subscribe("t", 1, offset=0)
        for _ in range(40):
            await asyncio.gather(
                *(writer.publish("t", bytes(10_000), key=b"k1") for _ in range(100))
            )
        assert subscription.waiting_records < 2000
        offsets = [each.offset for each in await take(subscription, 4000)]
        assert offsets == list(range(4000))


async def test_handler_that_publishes_and_commits_does_not_deadlock(
    broker: EphemeralBroker,
) -> None:
    address = broker.address("minibroker")
    small = ClientSettings(queue_records_max=10)
    async with MinibrokerClient(address) as writer:
        await asyncio.gather(*(writer.publish("t", b"v", key=b"k1") for _ in range(1000)))
    async with MinibrokerClient(address, small) as client:
        member = await client.join("t", "g")
        for expected in range(1000):
            record = await anext(member)
            assert record.offset == expected
            await client.publish("out", record.payload)
            await member.commit(record)


# ---- restarts


async def test_broker_restart_loses_nothing_that_was_acknowledged(tmp_path: object) -> None:
    async with EphemeralBroker(
        storage="directory", directory=str(tmp_path), listeners=("minibroker",)
    ) as broker:
        address = broker.address("minibroker")
        async with (
            MinibrokerClient(address, QUICK) as writer,
            MinibrokerClient(address, QUICK) as reader,
        ):
            subscription = await reader.subscribe("t", 1, offset=0)
            acknowledged: dict[int, bytes] = {}
            stop = asyncio.Event()

            async def write() -> None:
                number = 0
                while not stop.is_set():
                    payload = b"%d" % number
                    place = await writer.publish("t", payload, key=b"k1")
                    acknowledged[place.offset] = payload
                    number += 1

            writing = asyncio.create_task(write())
            for _ in range(3):
                before = len(acknowledged)
                while len(acknowledged) < before + 20:
                    await asyncio.sleep(0.005)
                await asyncio.to_thread(broker.restart)
            before = len(acknowledged)
            while len(acknowledged) < before + 20:
                await asyncio.sleep(0.005)
            stop.set()
            await writing
            received: dict[int, bytes] = {}
            while max(received, default=-1) < max(acknowledged):
                record = await anext(subscription)
                assert record.offset not in received, "the reader is given each record once"
                received[record.offset] = record.payload
            assert acknowledged.items() <= received.items()
            assert sorted(received) == list(range(len(received)))
            # A publish whose reply was lost is repeated: at most one per restart is there twice.
            assert len(received) - len(set(received.values())) <= 3


async def test_group_goes_on_after_a_restart(tmp_path: object) -> None:
    async with (
        EphemeralBroker(
            storage="directory", directory=str(tmp_path), listeners=("minibroker",)
        ) as broker,
        MinibrokerClient(broker.address("minibroker"), QUICK) as client,
    ):
        member: GroupSubscription = await client.join("t", "g")
        for n in range(10):
            await client.publish("t", b"%d" % n, key=b"k1")
        records = await take(member, 10)
        await member.commit(records[6])
        await asyncio.to_thread(broker.restart)
        assert [each.offset for each in await take(member, 3)] == [7, 8, 9]
        assert member.partitions == (0, 1, 2, 3)


async def test_publish_waits_for_a_broker_that_is_away() -> None:
    async with (
        EphemeralBroker(listeners=("minibroker",)) as broker,
        MinibrokerClient(broker.address("minibroker"), QUICK) as client,
    ):
        await client.publish("t", b"before")
        await asyncio.to_thread(broker.stop)
        waiting = asyncio.create_task(client.publish("t", b"after"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await asyncio.to_thread(broker.start)
        assert (await waiting).offset == 0


async def test_publish_gives_up_in_time() -> None:
    hasty = ClientSettings(reconnect_pause_s=0.02, retry_for_s=0.1)
    async with (
        EphemeralBroker(listeners=("minibroker",)) as broker,
        MinibrokerClient(broker.address("minibroker"), hasty) as client,
    ):
        await asyncio.to_thread(broker.stop)
        # The first try may still find the old connection, and be the last.
        with pytest.raises((UnreachableError, ConnectionLostError)):
            await client.publish("t", b"")


# ---- ends


async def test_closing_answers_what_is_on_its_way_and_ends_subscriptions(
    broker: EphemeralBroker,
) -> None:
    client = await MinibrokerClient(broker.address("minibroker")).open()
    subscription = await client.subscribe("t", 0)
    publishing = asyncio.create_task(client.publish("t", b"last", key=b"k1"))
    await asyncio.sleep(0)
    await client.close()
    assert (await publishing).offset == 0
    assert [each async for each in subscription] == []
    with pytest.raises(ClientClosedError):
        await client.publish("t", b"")
    await client.close()


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(UnreachableError, match=str(port)):
        await MinibrokerClient(f"127.0.0.1:{port}").open()
    with pytest.raises(UnreachableError, match="not opened"):
        await MinibrokerClient("127.0.0.1").publish("t", b"")


# ---- the blocking face


def test_blocking_client() -> None:
    with (
        EphemeralBroker(listeners=("minibroker",)) as broker,
        BlockingMinibrokerClient(broker.address("minibroker")) as client,
    ):
        assert client.publish("t", b"0", b"k1").offset == 0
        places = client.publish_many("t", [b"1", b"2"], b"k1")
        assert [each.offset for each in places] == [1, 2]
        with client.join("t", "g") as member:
            assert member.partitions == (0, 1, 2, 3)
            first = member.next(30)
            assert first is not None
            member.commit(first)
        client.commit("t", "other", 1, 2)
        with client.join("t", "other") as member:
            found = member.next(30)
            assert found is not None
            assert found.payload == b"2"
            assert member.next(0.01) is None
        with client.subscribe("t", 1, 0) as subscription:
            records = iter(subscription)
            assert [next(records).payload for _ in range(3)] == [b"0", b"1", b"2"]
            waiting = threading.Thread(target=lambda: list(records))
            waiting.start()
        waiting.join(30)
        assert not waiting.is_alive()
    with pytest.raises(ClientClosedError):
        client.publish("t", b"")
    client.close()
