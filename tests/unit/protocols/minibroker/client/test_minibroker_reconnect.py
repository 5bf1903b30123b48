"""Goal: the client's rules for lost connections, redirects and unsolicited errors.

Method: a server that answers by script, over loopback, and writes down what it was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from dragoman.client.minibroker import (
    ClientSettings,
    ConnectionLostError,
    MinibrokerClient,
    NotLeaderError,
    RefusedError,
)
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.connection import Connection, Role

SETTINGS = ClientSettings(
    reconnect_pause_s=0.01, retry_pause_s=0.01, redirect_pause_s=0.01, heartbeat_interval_s=0.05
)
#: What a script gives for a request: messages to send, and None to hang up.
Script = Callable[[m.Request], list[m.Message | None]]


def agree(request: m.Request) -> list[m.Message | None]:
    match request:
        case m.Publish():
            return [m.Published(partition=0, offset=0)]
        case m.SubscribeHead() | m.SubscribeOffset():
            return [m.Subscribed(partitions=(request.partition,))]
        case m.SubscribeGroup():
            return [m.Joined(group=request.group, partitions=(0, 1))]
        case m.Commit():
            return [m.Committed(offset=request.offset)]
        case _:
            return [m.Done()]


class Scripted:
    """A server. `script` may be changed at any time; `asked` has the requests by connection."""

    def __init__(self, script: Script = agree) -> None:
        self.script = script
        self.asked: list[list[m.Request]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(Role.SERVER)
        asked: list[m.Request] = []
        self.asked.append(asked)
        self._writers.append(writer)
        try:
            while data := await reader.read(1 << 16):
                for request in connection.receive_data(data):
                    asked.append(request)  # type: ignore[arg-type]
                    for message in self.script(request):  # type: ignore[arg-type]
                        if message is None:
                            return
                        writer.write(connection.send(message))
        except ConnectionError:
            return
        finally:
            writer.close()

    def push(self, *messages: m.Message) -> None:
        """To the newest connection."""
        connection = Connection(Role.SERVER)
        for message in messages:
            self._writers[-1].write(connection.send(message))

    def hang_up(self) -> None:
        self._writers[-1].close()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    started = Scripted()
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def other() -> AsyncIterator[Scripted]:
    started = Scripted()
    await started.start()
    yield started
    await started.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


def record(offset: int, partition: int = 0) -> m.Delivered:
    return m.Delivered(topic="t", partition=partition, offset=offset, payload=b"%d" % offset)


async def test_subscription_begins_again_behind_what_was_seen(server: Scripted) -> None:
    async with MinibrokerClient(server.address, SETTINGS) as client:
        subscription = await client.subscribe("t", 0)
        server.push(record(7), record(8))
        assert [(await anext(subscription)).offset for _ in range(2)] == [7, 8]
        server.hang_up()
        await until(lambda: len(server.asked) == 2 and server.asked[1])
        assert server.asked[1] == [m.SubscribeOffset(topic="t", partition=0, offset=9)]
        server.push(record(8), record(9))
        assert (await anext(subscription)).offset == 9


@pytest.mark.parametrize("offset", [None, 5])
async def test_subscription_that_saw_nothing_begins_as_it_did(
    server: Scripted, offset: int | None
) -> None:
    async with MinibrokerClient(server.address, SETTINGS) as client:
        await client.subscribe("t", 3, offset)
        server.hang_up()
        await until(lambda: len(server.asked) == 2 and server.asked[1])
        assert server.asked[1] == server.asked[0]


async def test_group_is_joined_again_and_what_was_not_taken_comes_again(server: Scripted) -> None:
    async with MinibrokerClient(server.address, SETTINGS) as client:
        member = await client.join("t", "g")
        server.push(record(0), record(1))
        assert (await anext(member)).offset == 0
        server.hang_up()
        await until(lambda: len(server.asked) == 2 and server.asked[1])
        assert server.asked[1][0] == m.SubscribeGroup(topic="t", group="g")
        server.push(record(0), record(1))
        assert [(await anext(member)).offset for _ in range(2)] == [0, 1]


async def test_records_before_the_reply_and_before_the_rebalance_are_taken(
    server: Scripted,
) -> None:
    def early(request: m.Request) -> list[m.Message | None]:
        if isinstance(request, m.SubscribeGroup):
            return [record(0), *agree(request)]
        return agree(request)

    server.script = early
    async with MinibrokerClient(server.address, SETTINGS) as client:
        member = await client.join("t", "g")
        assert (await anext(member)).offset == 0
        server.push(record(4, partition=3), m.Rebalanced(topic="t", group="g", partitions=(0, 3)))
        assert (await anext(member)).partition == 3
        await until(lambda: member.partitions == (0, 3))


async def test_records_of_partitions_that_were_taken_away_are_dropped(server: Scripted) -> None:
    async with MinibrokerClient(server.address, SETTINGS) as client:
        member = await client.join("t", "g")
        taken_away = m.Rebalanced(topic="t", group="g", partitions=(1,))
        server.push(record(0, 0), record(5, 1), record(1, 0), taken_away)
        await until(lambda: member.partitions == (1,))
        assert (await anext(member)).offset == 5
        assert member.waiting_records == 0


@pytest.mark.parametrize("call", ["publish", "commit"])
async def test_not_leader_moves_on_to_the_next_address(
    server: Scripted, other: Scripted, call: str
) -> None:
    server.script = lambda _: [m.Failed(reason="not leader; leader=10.0.0.1:8001")]
    addresses = f"{server.address},{other.address}"
    async with MinibrokerClient(addresses, SETTINGS) as client:
        if call == "publish":
            await client.publish("t", b"v")
        else:
            await client.commit("t", "g", 0, 1)
    assert len(server.asked) == 1
    assert len(other.asked[0]) == 2


async def test_not_leader_everywhere_is_raised_after_one_try_more_than_addresses(
    server: Scripted, other: Scripted
) -> None:
    for each in (server, other):
        each.script = lambda _: [m.Failed(reason="not leader; leader=")]
    async with MinibrokerClient(f"{server.address},{other.address}", SETTINGS) as client:
        with pytest.raises(NotLeaderError):
            await client.publish("t", b"v")
    connections = [*server.asked, *other.asked]
    assert [type(asked[0]) for asked in connections] == [m.Publish] * 3


async def test_other_words_are_no_redirect(server: Scripted) -> None:
    server.script = lambda _: [m.Failed(reason="node is not the leader")]
    async with MinibrokerClient(server.address, SETTINGS) as client:
        with pytest.raises(RefusedError) as raised:
            await client.publish("t", b"v")
    assert raised.value.reason == "node is not the leader"
    assert not isinstance(raised.value, NotLeaderError)


async def test_address_that_does_not_answer_is_passed_over(
    server: Scripted, other: Scripted
) -> None:
    gone = server.address
    await server.stop()
    await server.start()
    async with MinibrokerClient(f"{gone},{other.address}", SETTINGS) as client:
        await client.publish("t", b"v")
    assert not server.asked


async def test_publish_whose_reply_was_lost_is_repeated_if_allowed(server: Scripted) -> None:
    def lose_one(_: m.Request) -> list[m.Message | None]:
        server.script = agree
        return [None]

    server.script = lose_one
    async with MinibrokerClient(server.address, SETTINGS) as client:
        await client.publish("t", b"v")
    assert [type(each) for each in server.asked[1]] == [m.Publish, m.Quit]
    server.script = lose_one
    once = ClientSettings(repeats_publish=False, retry_pause_s=0.01, reconnect_pause_s=0.01)
    async with MinibrokerClient(server.address, once) as client:
        with pytest.raises(ConnectionLostError) as raised:
            await client.publish("t", b"v")
        assert raised.value.is_ambiguous
        server.script = lose_one
        await client.commit("t", "g", 0, 1)


async def test_eviction_is_not_taken_for_a_reply(server: Scripted) -> None:
    def evict_once(request: m.Request) -> list[m.Message | None]:
        if isinstance(request, m.Publish):
            server.script = agree
            return [m.Failed(reason="evicted: heartbeat timeout"), None]
        return agree(request)

    server.script = evict_once
    async with MinibrokerClient(server.address, SETTINGS) as client:
        await client.join("t", "g")
        assert (await client.publish("u", b"v")).offset == 0
        assert m.SubscribeGroup(topic="t", group="g") in server.asked[1]


async def test_reader_error_ends_its_subscription_only(server: Scripted) -> None:
    async with MinibrokerClient(server.address, SETTINGS) as client:
        subscription = await client.subscribe("t", 0, 0)
        text = "iterate t/0: offset 0 out of range (oldest=3)"
        server.push(m.Failed(reason=text))
        with pytest.raises(RefusedError, match="oldest=3"):
            await anext(subscription)
        assert (await client.publish("u", b"v")).offset == 0
        assert len(server.asked) == 1


async def test_subscription_that_is_refused_on_the_new_connection_raises(server: Scripted) -> None:
    async with MinibrokerClient(server.address, SETTINGS) as client:
        member = await client.join("t", "g")
        server.script = lambda _: [m.Failed(reason="group 'g' has live members")]
        server.hang_up()
        with pytest.raises(RefusedError, match="live members"):
            await anext(member)


async def test_heartbeats_are_sent_and_one_that_is_refused_makes_all_anew(
    server: Scripted,
) -> None:
    async with MinibrokerClient(server.address, SETTINGS) as client:
        await client.join("t", "g")
        heartbeat = m.Heartbeat(topic="t", group="g")
        await until(lambda: server.asked[0].count(heartbeat) >= 2)

        def refuse(request: m.Request) -> list[m.Message | None]:
            server.script = agree
            return [m.Failed(reason="heartbeat: not-subscribed: t")]

        server.script = refuse
        await until(lambda: len(server.asked) == 2 and heartbeat in server.asked[1])


async def test_reply_that_makes_no_sense_ends_the_connection(server: Scripted) -> None:
    def nonsense(request: m.Request) -> list[m.Message | None]:
        server.script = agree
        return [m.Done()]

    server.script = nonsense
    async with MinibrokerClient(server.address, SETTINGS) as client:
        assert (await client.publish("t", b"v")).offset == 0
    assert len(server.asked) == 2
