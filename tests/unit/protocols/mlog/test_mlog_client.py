"""Goal: the mlog client finds leaders, comes back after failures and tells refusals by their class.

Method: scripted servers on loopback that answer, redirect, refuse or close as scripted; and a real
broker in this process that is stopped and started under the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

import dragoman.client.mlog as public
from dragoman.client.mlog import (
    AckMode,
    AckModeError,
    BlockingMlogClient,
    ClientClosedError,
    ClientSettings,
    ConnectionLostError,
    Encoding,
    Entry,
    MlogClient,
    MlogError,
    RequestTimeoutError,
    TooFewNodesError,
    TopicExistsError,
    TopicNotFoundError,
    UnreachableError,
)
from dragoman.errors import ConfigError, EncodeError
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.testing import EphemeralBroker

QUICK = ClientSettings(
    backoff_first_s=0.001,
    backoff_max_s=0.01,
    poll_interval_s=0.01,
    missing_topic_timeout_s=0.05,
    operation_timeout_s=30,
)
#: In place of an answer: the connection is closed without one.
HANG_UP = None
Script = Callable[[m.Message], m.Message | bytes | None]


class ScriptedServer:
    """Answers each request as its script says; remembers what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[m.Message] = []
        self.connections = 0
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = Connection(Role.SERVER)
        try:
            while data := await reader.read(1 << 16):
                for request in connection.receive_data(data):
                    self.asked.append(request)
                    answer = self.script(request)
                    if answer is HANG_UP:
                        return
                    writer.write(answer if isinstance(answer, bytes) else connection.send(answer))
        except ConnectionError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*scripts: Script) -> AsyncIterator[list[ScriptedServer]]:
    servers = [ScriptedServer(script) for script in scripts]
    opened = []
    try:
        for each in servers:
            listening = await asyncio.start_server(each.serve, "127.0.0.1", 0)
            opened.append(listening)
            host, port = listening.sockets[0].getsockname()
            each.address = f"{host}:{port}"
        yield servers
    finally:
        for listening in opened:
            listening.close()


def leader_at(address: Callable[[], str], then: Script) -> Script:
    def script(request: m.Message) -> m.Message | bytes | None:
        match request:
            case m.FindTopicLeader():
                return m.FindTopicLeaderResp(leader_addr=address())
            case m.FindRaftLeader():
                return m.FindRaftLeaderResp(raft_leader_addr=address())
            case _:
                return then(request)

    return script


def alone(then: Script) -> tuple[list[ScriptedServer], Script]:
    """A server that says that it leads."""
    me: list[ScriptedServer] = []
    return me, leader_at(lambda: me[0].address, then)


# ---- records with an unknown outcome


async def test_records_are_not_sent_again_unless_that_is_wanted() -> None:
    answers = iter((HANG_UP, m.ProduceResp(offset=7)))
    me, script = alone(lambda _: next(answers))
    settings = msgspec.structs.replace(QUICK, repeats_produce=False)
    async with scripted(script) as (server,):
        me.append(server)
        async with MlogClient(server.address, settings=settings) as client:
            with pytest.raises(ConnectionLostError):
                await client.produce("t", b"v")
            assert await client.produce("t", b"w") == 7
    assert [each.value for each in server.asked if isinstance(each, m.Produce)] == [b"v", b"w"]


# ---- leaders


async def test_records_go_to_the_leader_that_another_server_names() -> None:
    def refuse(_request: m.Message) -> m.Message:
        return m.RPCError(code=4, message="not me")

    me, leading = alone(lambda _: m.ProduceResp(offset=7))
    async with scripted(leading) as (leader,):
        me.append(leader)
        async with scripted(leader_at(lambda: leader.address, refuse)) as (other,):
            async with MlogClient(other.address, settings=QUICK) as client:
                assert await client.produce("t", b"v") == 7
                assert await client.produce("t", b"v") == 7
            assert [type(each) for each in other.asked] == [m.FindTopicLeader]
            assert [type(each) for each in leader.asked] == [m.Produce, m.Produce]
            assert leader.connections == 1


@pytest.mark.parametrize("code", [3, 4, 11])
async def test_leader_is_found_anew_on_the_codes_that_say_so(code: int) -> None:
    answers: list[m.Message] = [m.RPCError(code=code, message="x"), m.ProduceResp(offset=1)]
    me, script = alone(lambda _: answers.pop(0))
    async with scripted(script) as (server,):
        me.append(server)
        async with MlogClient(server.address, settings=QUICK) as client:
            assert await client.produce("t", b"v") == 1
    finds = [each for each in server.asked if isinstance(each, m.FindTopicLeader)]
    assert len(finds) == 2


@pytest.mark.parametrize("code", [0, 1, 2, 5, 7, 8, 9, 10, 12, 13, 14, 15, 16])
async def test_every_other_code_is_the_callers(code: int) -> None:
    me, script = alone(lambda _: m.RPCError(code=code, message="no"))
    async with scripted(script) as (server,):
        me.append(server)
        async with MlogClient(server.address, settings=QUICK) as client:
            with pytest.raises(MlogError, match="no") as caught:
                await client.produce("t", b"v")
    assert caught.value.number == code
    assert not caught.value.retriable
    assert len([each for each in server.asked if isinstance(each, m.Produce)]) == 1


async def test_connection_that_breaks_is_made_again() -> None:
    answers: list[m.Message | None] = [HANG_UP, HANG_UP, m.ProduceResp(offset=3)]
    me, script = alone(lambda _: answers.pop(0))
    async with scripted(script) as (server,):
        me.append(server)
        async with MlogClient(server.address, settings=QUICK) as client:
            assert await client.produce("t", b"v") == 3
    assert server.connections == 3


async def test_dead_address_in_the_list_is_passed_over() -> None:
    me, script = alone(lambda _: m.ProduceResp(offset=0))
    async with scripted(script, script) as (dead, server):
        me.append(server)
        address = dead.address
    async with scripted(script) as (server,):
        me[0] = server
        async with MlogClient(address, server.address, settings=QUICK) as client:
            assert await client.produce("t", b"v") == 0


async def test_leader_without_an_address_is_asked_for_again() -> None:
    addresses = ["", "nonsense"]

    def address() -> str:
        return addresses.pop(0) if addresses else me[0].address

    me: list[ScriptedServer] = []
    async with scripted(leader_at(address, lambda _: m.ProduceResp(offset=0))) as (server,):
        me.append(server)
        async with MlogClient(server.address, settings=QUICK) as client:
            assert await client.produce("t", b"v") == 0


async def test_name_that_only_a_cluster_knows_stands_for_this_machine() -> None:
    me, script = alone(lambda _: m.ListTopicsResp(topics=[]))
    async with scripted(script) as (server,):
        me.append(server)
        port = server.address.rpartition(":")[2]
        async with MlogClient(f"node-1.invalid:{port}", settings=QUICK) as client:
            assert await client.topics() == []


async def test_unknown_topic_fails_before_other_errors() -> None:
    settings = msgspec.structs.replace(QUICK, missing_topic_timeout_s=1e-9)
    async with (
        scripted(lambda _: m.RPCError(code=3, message="topic t not found")) as (server,),
        MlogClient(server.address, settings=settings) as client,
    ):
        with pytest.raises(TopicNotFoundError):
            await client.fetch("t")
    assert len(server.asked) == 1


async def test_topic_that_is_not_known_yet_is_asked_for_again() -> None:
    settings = msgspec.structs.replace(QUICK, missing_topic_timeout_s=30)

    def known_at_last(_request: m.Message) -> m.Message:
        if len(server.asked) < 5:
            return m.RPCError(code=3, message="topic t not found")
        return m.FetchResp(entry=m.Entry(offset=0, value=b"v"))

    async with (
        scripted(leader_at(lambda: server.address, known_at_last)) as (server,),
        MlogClient(server.address, settings=settings) as client,
    ):
        assert await client.fetch("t") == m.Entry(offset=0, value=b"v")
    assert [type(each) for each in server.asked] == [m.FindTopicLeader, m.Fetch] * 3


async def test_unreachable_broker_fails_the_call() -> None:
    me, script = alone(lambda _: m.ListTopicsResp())
    async with scripted(script) as (server,):
        me.append(server)
    settings = ClientSettings(operation_timeout_s=0.05, backoff_first_s=0.01)
    async with MlogClient(server.address, settings=settings) as client:
        with pytest.raises(UnreachableError):
            await client.topics()


@pytest.mark.parametrize(
    "answer",
    [
        m.FetchResp(),
        b"\x00\x03\x00\x00\x00\x01{",
        b"\x7f\xff\x00\x00\x00\x02{}",
        b"\x00\x03\xff\xff\xff\xff",
        bytes.fromhex("0017000000027b7d"),
    ],
)
async def test_answers_that_make_no_sense_end_the_connection(answer: m.Message | bytes) -> None:
    me, script = alone(lambda _: answer)
    settings = ClientSettings(operation_timeout_s=0.05, backoff_first_s=0.01)
    async with scripted(script) as (server,):
        me.append(server)
        async with MlogClient(server.address, settings=settings) as client:
            with pytest.raises(ConnectionLostError):
                await client.produce("t", b"v")


async def test_late_reply_is_an_error_and_the_connection_is_dropped() -> None:
    me, script = alone(lambda _: b"")
    settings = ClientSettings(operation_timeout_s=0.05, request_timeout_s=0.05)
    async with scripted(script) as (server,):
        me.append(server)
        async with MlogClient(server.address, settings=settings) as client:
            with pytest.raises(RequestTimeoutError) as caught:
                await client.produce("t", b"v")
    assert caught.value.is_ambiguous


async def test_closed_client_says_so() -> None:
    me, script = alone(lambda _: b"")
    async with scripted(script) as (server,):
        me.append(server)
        client = MlogClient(server.address, settings=QUICK)
        waiting = asyncio.ensure_future(client.produce("t", b"v"))
        while not any(isinstance(each, m.Produce) for each in server.asked):
            await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ClientClosedError):
            await waiting
        with pytest.raises(ClientClosedError):
            await client.produce("t", b"v")


async def test_what_cannot_be_sent_is_refused_before_it_is() -> None:
    me, script = alone(lambda _: m.CommitOffsetResp(success=True))
    async with scripted(script) as (server,):
        me.append(server)
        async with MlogClient(server.address, settings=QUICK) as client:
            with pytest.raises(EncodeError):
                await client.commit("t", -1)
            await client.commit("t", 1)


@pytest.mark.parametrize("addresses", [(), ("",), ("host",), ("host:0",), ("h:99999",), (":1",)])
def test_bad_addresses_are_refused(addresses: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        MlogClient(*addresses)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError):
        ClientSettings(request_timeout_s=0)


def test_every_public_name_is_there() -> None:
    for name in public.__all__:
        assert getattr(public, name)


# ---- consuming


async def test_consumer_polls_on_emptiness_and_error_6_and_asks_from_where_it_is() -> None:
    answers: list[m.Message | None] = [
        m.FetchBatchResp(),
        m.RPCError(code=6, message="no data"),
        m.FetchBatchResp(entries=[m.Entry(offset=5, value=b"a"), m.Entry(offset=9, value=b"b")]),
        HANG_UP,
        m.FetchBatchResp(entries=[m.Entry(offset=10, value=b"c")]),
    ]

    def script(request: m.Message) -> m.Message | None:
        if isinstance(request, m.FetchOffset):
            return m.FetchOffsetResp(offset=5)
        if isinstance(request, m.CommitOffset):
            return m.CommitOffsetResp(success=True)
        return answers.pop(0)

    me, leading = alone(script)
    async with scripted(leading) as (server,):
        me.append(server)
        async with MlogClient(server.address, settings=QUICK) as client:
            consumer = client.consume("t", id="c")
            assert consumer.position is None
            await consumer.commit()
            found = [await anext(consumer) for _ in range(3)]
            await consumer.commit()
    assert [(each.offset, each.value) for each in found] == [(5, b"a"), (9, b"b"), (10, b"c")]
    fetches = [each.offset for each in server.asked if isinstance(each, m.FetchBatch)]
    assert fetches == [5, 5, 5, 10, 10]
    commits = [each for each in server.asked if isinstance(each, m.CommitOffset)]
    assert commits == [m.CommitOffset(topic="t", id="c", offset=11)]


# ---- against our own server


@pytest.fixture(scope="module")
def broker() -> object:
    with EphemeralBroker(listeners=("kafka", "mlog", "any")) as running:
        yield running


@pytest.mark.parametrize("listener", ["mlog", "any"])
@pytest.mark.parametrize("encoding", list(Encoding))
async def test_everything_against_a_node(
    broker: EphemeralBroker, encoding: Encoding, listener: str
) -> None:
    topic = f"all-{encoding.value}-{listener}"
    settings = ClientSettings(encoding=encoding, poll_interval_s=0.01)
    async with MlogClient(broker.address(listener), settings=settings) as client:
        assert await client.create_topic(topic) == []
        with pytest.raises(TopicExistsError):
            await client.create_topic(topic)
        with pytest.raises(TooFewNodesError):
            await client.create_topic(f"{topic}-2", replicas=1)
        assert await client.topic_leader(topic) == broker.address(listener)
        assert await client.produce(topic, b"first") == 0
        assert await client.produce_batch(
            topic, [b"\x00\xff", b"third"], acks=AckMode.ALL
        ) == range(1, 3)
        with pytest.raises(AckModeError):
            await client.produce(topic, b"x", acks=9)
        assert await client.fetch(topic, 1) == Entry(offset=1, value=b"\x00\xff")
        assert await client.fetch(topic, 3) is None
        assert await client.fetch_batch(topic, 3) == []
        assert [each.value for each in await client.fetch_batch(topic, 1)] == [
            b"\x00\xff",
            b"third",
        ]
        assert [each.offset for each in await client.fetch_batch(topic, 2, wait=True)] == [2]
        assert await client.committed(topic, id="c") == 0
        await client.commit(topic, 2, id="c")
        assert await client.committed(topic, id="c") == 2
        consumer = client.consume(topic, id="c", wait=True)
        assert (await anext(consumer)).offset == 2
        waiting = asyncio.ensure_future(anext(consumer))
        await client.produce(topic, b"fourth")
        assert (await waiting).value == b"fourth"
        assert topic in [each.name for each in await client.topics()]
        await client.delete_topic(topic)
        assert topic not in [each.name for each in await client.topics()]


async def test_many_calls_side_by_side_are_pipelined_in_order(broker: EphemeralBroker) -> None:
    async with MlogClient(broker.address("mlog")) as client:
        await client.create_topic("side-by-side")
        values = [b"%d" % number for number in range(500)]
        offsets = await asyncio.gather(*(client.produce("side-by-side", each) for each in values))
        assert sorted(offsets) == list(range(500))
        found: list[Entry] = []
        while len(found) < 500:
            found += await client.fetch_batch("side-by-side", len(found), max_count=200)
        by_offset = {each.offset: each.value for each in found}
        assert [by_offset[offset] for offset in offsets] == values


def test_blocking_face(broker: EphemeralBroker) -> None:
    with BlockingMlogClient(broker.address("mlog")) as client:
        client.create_topic("blocking")
        assert client.produce_batch("blocking", [b"a", b"b"]) == range(2)
        assert client.fetch("blocking") == Entry(offset=0, value=b"a")
        consumer = client.consume("blocking", id="b")
        assert [each.value for each in consumer.next_entries()] == [b"a", b"b"]
        assert consumer.next_entries() == []
        consumer.commit()
        assert consumer.position == client.committed("blocking", id="b") == 2
        client.produce("blocking", b"c")
        assert next(iter(client.consume("blocking", id="b"))).value == b"c"
    with pytest.raises(ClientClosedError):
        client.topics()
    with pytest.raises(ConfigError):
        BlockingMlogClient("nonsense")


async def test_restart_under_the_client_loses_no_acknowledged_record() -> None:
    async with EphemeralBroker(storage="directory", listeners=("mlog",)) as broker:
        settings = ClientSettings(backoff_first_s=0.01, poll_interval_s=0.01)
        async with MlogClient(broker.address("mlog"), settings=settings) as client:
            await client.create_topic("t")
            stop = asyncio.Event()
            acknowledged: dict[int, bytes] = {}

            async def write() -> None:
                number = 0
                while not stop.is_set():
                    value = b"%d" % number
                    acknowledged[await client.produce("t", value, acks=AckMode.ALL)] = value
                    number += 1

            async def read() -> list[Entry]:
                found: list[Entry] = []
                async for entry in client.consume("t", id="reader"):
                    found.append(entry)
                    if entry.value == b"end":
                        return found
                raise AssertionError

            writer, reader = asyncio.ensure_future(write()), asyncio.ensure_future(read())
            for count in (20, 40):
                while len(acknowledged) < count:
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(broker.restart)
            while len(acknowledged) < 60:
                await asyncio.sleep(0.001)
            stop.set()
            await writer
            await client.produce("t", b"end")
            found = await reader
    by_offset = {each.offset: each.value for each in found}
    assert len(by_offset) == len(found), "no offset was handed out twice"
    assert sorted(by_offset) == list(range(len(found))), "no record was left out"
    for offset, value in acknowledged.items():
        assert by_offset[offset] == value
    # A record whose acknowledgement was lost with its connection is written again: one for each of
    # the two restarts, since one was in flight.
    assert len(found) - 1 - len(acknowledged) <= 2
    # Written one after the other, so they lie in order.
    numbers = [int(each.value or b"") for each in found[:-1]]
    assert numbers == sorted(numbers)
