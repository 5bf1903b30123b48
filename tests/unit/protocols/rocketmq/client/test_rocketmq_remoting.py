"""Goal: connections to servers that are slow, rude or gone end in the right error, and nothing else
suffers. Method: a scripted server, and servers that send rubbish, on real sockets.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from dragoman.client_core.errors import (
    ClientClosedError,
    ConnectionLostError,
    RequestTimeoutError,
    UnreachableError,
)
from dragoman.errors import EncodeError
from dragoman.protocols.rocketmq.client.client import RocketmqClient
from dragoman.protocols.rocketmq.client.errors import (
    BusyError,
    RocketmqError,
    TopicNotFoundError,
    refusal,
)
from dragoman.protocols.rocketmq.client.remoting import (
    ClientSettings,
    Identity,
    since_month,
    unique_id,
)
from dragoman.protocols.rocketmq.codec import Command, encode
from dragoman.protocols.rocketmq.constants import (
    FRAME_BYTES_MAX,
    IS_RESPONSE,
    Request,
    Response,
)
from protocols.scripted_rocketmq import ScriptedRocketmq, ok, refused

QUICK = ClientSettings(backoff_first_s=0.001, operation_timeout_s=0.01, request_timeout_s=20.0)


async def test_replies_are_matched_in_any_order() -> None:
    async with ScriptedRocketmq() as server, RocketmqClient(server.address) as client:
        held: list[Command] = []
        server.answers[1] = lambda asked: held.append(asked)
        server.answers[2] = lambda _: ok(name="second")
        remoting = client.remoting
        first = asyncio.create_task(remoting.request(server.address, 1))
        await server.until_asked(1)
        assert (await remoting.request(server.address, 2)).fields == {"name": "second"}
        server.served[0].reply(held[0], ok(name="first"))
        assert (await first).fields == {"name": "first"}
        assert len(server.served) == 1


async def test_a_late_reply_is_one_request_s_trouble() -> None:
    async with ScriptedRocketmq() as server, RocketmqClient(server.address) as client:
        held: list[Command] = []
        server.answers[1] = lambda asked: held.append(asked)
        server.answers[2] = lambda _: ok()
        with pytest.raises(RequestTimeoutError):
            await client.remoting.request(server.address, 1, timeout_s=0.001)
        server.served[0].reply(held[0], ok())
        # A late response is dropped.
        await client.remoting.call(server.address, 2)
        assert len(server.served) == 1


async def test_a_connection_on_which_nothing_comes_is_made_anew() -> None:
    async with ScriptedRocketmq() as server, RocketmqClient(server.address) as client:
        server.answers[1] = lambda _: None
        server.answers[2] = lambda _: ok()
        waiting = asyncio.create_task(client.remoting.request(server.address, 1))
        await server.until_asked(1)
        first = server.served[0]
        for _ in range(3):
            with pytest.raises(RequestTimeoutError):
                await client.remoting.request(server.address, 1, timeout_s=0.001)
        with pytest.raises(ConnectionLostError, match="the server does not respond"):
            await waiting
        await client.remoting.call(server.address, 2)
        assert first not in server.served


async def test_closing_the_client_fails_waiting_calls() -> None:
    async with ScriptedRocketmq() as server:
        client = RocketmqClient(server.address)
        server.answers[1] = lambda _: None
        waiting = asyncio.create_task(client.remoting.request(server.address, 1))
        await server.until_asked(1)
        await client.close()
        with pytest.raises(ClientClosedError):
            await waiting
        with pytest.raises(ClientClosedError):
            await client.remoting.request(server.address, 1)
        with pytest.raises(ClientClosedError):
            await client.producer("g").start()


async def test_what_the_wire_cannot_express_is_not_sent() -> None:
    async with ScriptedRocketmq() as server, RocketmqClient(server.address) as client:
        server.answers[2] = lambda _: ok()
        with pytest.raises(EncodeError):
            await client.remoting.request(server.address, 1, body=bytes(FRAME_BYTES_MAX))
        await client.remoting.call(server.address, 2)
        assert server.asked(1) == []


def test_refusals_have_a_class_and_a_text() -> None:
    found = refusal(Command(code=Response.SYSTEM_BUSY, remark="later"), "b:1")
    assert isinstance(found, BusyError)
    assert found.retriable
    assert str(found) == "b:1 answered 2 (system busy): later"
    other = refusal(Command(code=4711), "b:1")
    assert type(other) is RocketmqError
    assert (other.number, str(other)) == (4711, "b:1 answered 4711 (unknown code)")


async def test_name_servers_that_refuse_are_believed_and_busy_ones_asked_again() -> None:
    async with ScriptedRocketmq() as server:
        settings = ClientSettings(backoff_first_s=0.001, request_timeout_s=20)
        async with RocketmqClient(server.address, settings=settings) as client:
            with pytest.raises(TopicNotFoundError):
                await client.routes.route("T")
            assert len(server.seen) == 1
            answers = [ok(b'{"queueDatas":[],"brokerDatas":[]}'), refused(Response.SYSTEM_BUSY)]
            server.answers[Request.GET_ROUTEINFO_BY_TOPIC] = lambda _: answers.pop()
            assert (await client.routes.route("T")).write_queues == ()


async def test_brokers_that_no_route_names_are_forgotten() -> None:
    async with ScriptedRocketmq() as server, RocketmqClient(server.address) as client:
        server.topics["T"] = 1
        server.brokers["gone"] = "127.0.0.1:1"
        await client.routes.route("T")
        assert client.routes.brokers.keys() == {"b", "gone"}
        del server.brokers["gone"]
        await client.routes.refresh()
        assert client.routes.brokers.keys() == {"b"}
        with pytest.raises(UnreachableError):
            client.routes.master("gone")
        server.topics.clear()
        await client.routes.refresh()
        # What cannot be had stays as it was.
        assert client.routes.brokers.keys() == {"b"}


async def test_an_order_of_queues_that_is_configured_is_kept() -> None:
    async with ScriptedRocketmq() as server, RocketmqClient(server.address) as client:
        server.answers[Request.GET_ROUTEINFO_BY_TOPIC] = lambda _: ok(
            b'{"orderTopicConf":"b:2;rubbish","queueDatas":[{"brokerName":"b","perm":6,'
            b'"readQueueNums":4,"writeQueueNums":4}],"brokerDatas":[{"brokerName":"b",'
            b'"brokerAddrs":{0:"x:1",1:"x:2"}}]}'
        )
        route = await client.routes.route("T")
        assert [each.queue_id for each in route.write_queues] == [0, 1]
        assert len(route.read_queues) == 4
        routes = client.routes
        assert (routes.any_of("b", 1), routes.any_of("b", 7)) == ("x:2", "x:1")


async def rubbish_server(data: bytes) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def rubbish() -> list[bytes]:
    rng = random.Random(23)
    valid = encode(Command(code=0, opaque=1, flag=IS_RESPONSE, body=b"{}"))
    found = [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", valid[:-1], b"\x7f\xff\xff\xff", bytes(64)]
    for _ in range(40):
        damaged = bytearray(valid)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        found += [bytes(damaged), rng.randbytes(rng.randrange(1, 80))]
    return found


async def test_rubbish_ends_the_connection_and_nothing_else() -> None:
    for data in rubbish():
        server = await rubbish_server(data)
        port = server.sockets[0].getsockname()[1]
        async with RocketmqClient(f"127.0.0.1:{port}", settings=QUICK) as client:
            try:
                answer = await client.remoting.request(f"127.0.0.1:{port}", 105, {"topic": "T"})
            except ConnectionLostError:
                pass
            else:
                # The damage was where it does no harm.
                assert answer.is_response
        server.close()
        await server.wait_closed()


def test_unique_ids_are_those_of_the_specification() -> None:
    made = unique_id("192.168.1.10", 4242, 0x14DAD5DC, 123456789, 7)
    assert made == "C0A8010A109214DAD5DC075BCD150007"


def test_unique_ids_differ_and_fit() -> None:
    class Clock:
        def wall_ms(self) -> int:
            return 1_600_000_000_000

        def monotonic(self) -> float:
            return 0.0

    identity = Identity(Clock(), random.Random(1))
    identity.seen_from("10.0.0.1")
    identity.seen_from("10.0.0.2")
    made = {identity.unique_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(each.startswith("0A000001") and len(each) == 32 for each in made)
    assert identity.client_id.startswith("10.0.0.1@")
    assert len(unique_id("::1", 1, 2, 3, 4)) == 32


def test_the_month_begins_at_its_first_day() -> None:
    # 2020-09-13 12:26:40 in UTC.
    assert since_month(1_600_000_000_123) == ((12 * 24 + 12) * 3600 + 26 * 60 + 40) * 1000 + 123
