"""Goal: our own Cursus client does what it says against our own broker, and bears its restarts.

Method: in-process brokers over loopback; a server that follows a script where a broker would have
to misbehave.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable

import pytest

from dragoman.client import cursus as public
from dragoman.client.cursus import (
    BlockingCursusClient,
    ClientClosedError,
    ConnectionLostError,
    CursusClient,
    CursusError,
    CursusSettings,
    Event,
    MemberFencedError,
    ProducerFencedError,
    Record,
    UnknownTopicError,
    UnreachableError,
    VersionConflictError,
)
from dragoman.client_core.addresses import Address
from dragoman.client_core.channel import OrderedChannel
from dragoman.errors import ConfigError, EncodeError
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.client import connection
from dragoman.protocols.cursus.client.consumer import Consumer
from dragoman.protocols.cursus.messages import Ack, Batch, Message
from dragoman.testing import EphemeralBroker

TIMEOUT_S = 30.0
QUICK = CursusSettings(operation_timeout_s=TIMEOUT_S, backoff_first_s=0.01, backoff_max_s=0.1)


@pytest.fixture
async def broker() -> AsyncIterator[EphemeralBroker]:
    async with EphemeralBroker(listeners=("cursus",)) as started:
        yield started


@pytest.fixture
async def client(broker: EphemeralBroker) -> AsyncIterator[CursusClient]:
    async with CursusClient(broker.address("cursus"), QUICK) as opened:
        yield opened


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def taken(consumer: Consumer, count: int) -> list[Record]:
    found = []
    for _ in range(count):
        record = await consumer.take(TIMEOUT_S)
        assert record is not None
        found.append(record)
    return found


def test_every_public_name_is_there() -> None:
    assert all(hasattr(public, name) for name in public.__all__)


async def test_topics_and_single_records(client: CursusClient) -> None:
    info = await client.create_topic("orders", 2, cleanup_policy="compact")
    assert (info.partitions, info.is_hashed) == (2, True)
    assert await client.topics() == ["orders"]
    assert await client.publish("orders", b"v", key="k1") == 0
    partition = codec.fnv1a_64(b"k1") % 2
    (message,) = await client.consume("orders", partition, 0)
    assert (message.key, message.payload) == (b"k1", b"v")
    assert [each.latest for each in await client.offsets("orders")][partition] == 1
    await client.delete_topic("orders")
    with pytest.raises(UnknownTopicError):
        await client.topic("orders")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_a_producer_keeps_order_and_gives_offsets(
    broker: EphemeralBroker, compression: str
) -> None:
    settings = CursusSettings(compression=compression)
    async with CursusClient(broker.address("cursus"), settings) as client:
        await client.create_topic("orders", 1)
        async with client.producer() as producer:
            begun = [await producer.begin("orders", b"m%d" % n, key=b"k") for n in range(500)]
            assert [await each for each in begun] == list(range(500))
        read = await client.consume("orders", 0, 0)
        assert [each.payload for each in read] == [b"m%d" % n for n in range(500)]
        with pytest.raises(ClientClosedError):
            await producer.send("orders", b"late")


async def test_a_message_that_the_broker_refuses_ends_the_producer(client: CursusClient) -> None:
    await client.create_topic("orders", 1)
    producer = client.producer()
    assert await producer.send("orders", b"fine") == 0
    with pytest.raises(CursusError, match=r"max\.message\.bytes"):
        await producer.send("orders", bytes(2_000_000))
    with pytest.raises(CursusError, match=r"max\.message\.bytes"):
        await producer.send("orders", b"next")
    await producer.close()


async def test_consume_waits(client: CursusClient) -> None:
    await client.create_topic("orders", 1)
    waiting = asyncio.create_task(client.consume("orders", 0, 0, wait_s=TIMEOUT_S))
    await client.publish("orders", b"v")
    assert [each.payload for each in await waiting][:1] == [b"v"]


async def test_two_members_split_and_one_takes_over(client: CursusClient) -> None:
    await client.create_topic("orders", 4)
    async with client.producer() as producer:
        one = client.consumer("orders", "g", member="a", heartbeat_s=0.05)
        other = client.consumer("orders", "g", member="b", heartbeat_s=0.05)
        await one.start()
        assert one.assigned == (0, 1, 2, 3)
        await other.start()
        await until(lambda: (one.assigned, other.assigned) == ((0, 1), (2, 3)))
        await until(lambda: one.generation == other.generation)
        for partition in range(4):
            await producer.send("orders", b"\xff%d" % partition, partition=partition)
        assert {each.partition for each in await taken(one, 2)} == {0, 1}
        assert {each.payload for each in await taken(other, 2)} == {b"\xff2", b"\xff3"}
        await one.close()
        await until(lambda: other.assigned == (0, 1, 2, 3))
        await producer.send("orders", b"again", partition=0)
        (record,) = await taken(other, 1)
        assert (record.partition, record.offset) == (0, 1), "what was committed is not read twice"
        await other.close()
        with pytest.raises(ClientClosedError):
            await other.take(1)


async def test_a_group_resumes_at_its_commit(client: CursusClient) -> None:
    await client.create_topic("orders", 1)
    async with client.producer() as producer:
        for number in range(10):
            await producer.send("orders", b"%d" % number)
    async with client.consumer("orders", "g", auto_commit_s=None) as consumer:
        await taken(consumer, 4)
        await consumer.commit()
        await taken(consumer, 3)
    assert await client.committed("g", "orders", 0) == 4
    async with client.consumer("orders", "g") as consumer:
        assert [each.offset for each in await taken(consumer, 6)] == [4, 5, 6, 7, 8, 9]
    assert await client.committed("g", "orders", 0) == 10
    async with client.consumer("orders", "late", reset="latest") as consumer:
        assert await consumer.take(0.1) is None


async def test_the_record_in_hand_is_not_committed_by_itself(client: CursusClient) -> None:
    await client.create_topic("orders", 1)
    for payload in (b"a", b"b", b"c"):
        await client.publish("orders", payload)

    async def fail_half_way() -> None:
        async with client.consumer("orders", "failing") as consumer:
            await taken(consumer, 2)
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        await fail_half_way()
    assert await client.committed("failing", "orders", 0) == 1
    async with client.consumer("orders", "g", auto_commit_s=0.01) as consumer:
        await taken(consumer, 2)
        async with asyncio.timeout(TIMEOUT_S):
            while await client.committed("g", "orders", 0) != 1:
                await asyncio.sleep(0.01)
        await taken(consumer, 1)
        await consumer.commit()
        assert await client.committed("g", "orders", 0) == 3


async def test_an_evicted_member_joins_again(client: CursusClient) -> None:
    await client.create_topic("orders", 1)
    consumer = client.consumer("orders", "g", heartbeat_s=0.05)
    await consumer.start()
    before = consumer.member_id
    await client.command("LEAVE_GROUP", {"topic": "orders", "group": "g", "member": before})
    await until(lambda: consumer.member_id != before)
    await client.publish("orders", b"v")
    assert len(await taken(consumer, 1)) == 1
    await consumer.close()


async def test_a_stuck_member_loses_its_partitions() -> None:
    settings = {"cursus.session.timeout.ms": "300", "cursus.session.check.interval.ms": "50"}
    async with (
        EphemeralBroker(listeners=("cursus",), settings=settings) as broker,
        CursusClient(broker.address("cursus"), QUICK) as client,
    ):
        await client.create_topic("orders", 2)
        stuck = client.consumer("orders", "g", heartbeat_s=3600, auto_commit_s=None)
        await stuck.start()
        await client.publish("orders", b"v")
        await taken(stuck, 1)
        async with client.consumer("orders", "g", heartbeat_s=0.05) as alive:
            await until(lambda: alive.assigned == (0, 1))
            with pytest.raises(MemberFencedError):
                await stuck.commit()
        await stuck.close()


async def test_records_deleted_under_a_group_are_gone_past(broker: EphemeralBroker) -> None:
    async with CursusClient(broker.address("cursus"), QUICK) as client:
        await client.create_topic("orders", 1)
        for number in range(4):
            await client.publish("orders", b"%d" % number)
        async with client.consumer("orders", "g") as consumer:
            await taken(consumer, 1)
        node = broker._node
        assert node is not None
        node.listeners._loop.call_soon_threadsafe(
            node.broker.partitions.find("orders", 0).delete_below, 3
        )
        async with client.consumer("orders", "g") as consumer:
            assert [each.offset for each in await taken(consumer, 1)] == [3]


async def test_a_slow_reader_is_not_buried(
    client: CursusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragoman.protocols.cursus.client import consumer as module

    monkeypatch.setattr(module, "CURSUS_CLIENT_QUEUE_MAX", 50)
    await client.create_topic("orders", 1)
    async with client.producer() as producer:
        begun = [await producer.begin("orders", bytes(5000)) for _ in range(3000)]
        await asyncio.gather(*begun)
    async with client.consumer("orders", "g") as consumer:
        await taken(consumer, 1)
        assert len(consumer._queue) < 1000
        assert [each.offset for each in await taken(consumer, 2999)] == list(range(1, 3000))


async def test_event_streams(client: CursusClient) -> None:
    await client.create_topic("es", 2, event_sourcing="true")
    for version in (1, 2, 3):
        event = Event(payload=b"{%d}" % version, event_type="Changed", metadata="m")
        assert (await client.append_event("es", "o-1", version, event)).version == version
    with pytest.raises(VersionConflictError):
        await client.append_event("es", "o-1", 3, Event(payload=b"x"))
    assert await client.stream_version("es", "o-1") == 3
    assert await client.read_snapshot("es", "o-1") is None
    await client.save_snapshot("es", "o-1", 1, "state with spaces")
    read = await client.read_events("es", "o-1")
    assert read.snapshot == public.Snapshot(1, "state with spaces")
    assert [(each.version, each.payload) for each in read.events] == [(2, b"{2}"), (3, b"{3}")]
    await client.create_topic("plain", 1)
    with pytest.raises(CursusError, match="event_sourcing_not_enabled"):
        await client.read_events("plain", "o-1")


async def test_flags_are_said_in_the_words_of_the_wire(client: CursusClient) -> None:
    await client.create_topic("flagged", 1, event_sourcing=True, idempotent=False)
    appended = await client.append_event("flagged", "k", 1, Event(payload=b"{}"))
    assert appended.version == 1


async def test_transactions(client: CursusClient) -> None:
    await client.create_topic("orders", 2)
    async with client.consumer("orders", "g", auto_commit_s=None) as consumer:
        await client.publish("orders", b"in")
        (record,) = await taken(consumer, 1)
        async with client.transaction("t1") as transaction:
            await transaction.publish("orders", b"out", partition=1)
            await transaction.send_offsets(consumer)
        committed = await client.committed("g", "orders", record.partition)
        assert committed == record.offset + 1
        with pytest.raises(RuntimeError, match="no"):
            await _failing(client)
    read = await client.consume("orders", 1, 0)
    assert b"never" not in [each.payload for each in read]
    fenced = client.transaction("t1")
    await fenced.begin()
    await client.transaction("t1").begin()
    with pytest.raises(ProducerFencedError):
        await fenced.publish("orders", b"late", partition=0)


async def _failing(client: CursusClient) -> None:
    async with client.transaction("t1") as transaction:
        await transaction.publish("orders", b"never", partition=1)
        raise RuntimeError("no")


async def test_a_restart_loses_and_doubles_nothing(tmp_path: object) -> None:
    broker = EphemeralBroker(storage="directory", directory=str(tmp_path), listeners=("cursus",))
    await asyncio.to_thread(broker.start)
    sent: list[int] = []
    async with CursusClient(broker.address("cursus"), QUICK) as client:
        await client.create_topic("orders", 2)
        async with client.producer() as producer:

            async def produce() -> None:
                for number in range(400):
                    await producer.send("orders", b"%d" % number)
                    sent.append(number)

            producing = asyncio.create_task(produce())
            found: list[bytes] = []
            async with client.consumer("orders", "g", heartbeat_s=0.1) as consumer:
                for stop_at in (100, 250):
                    await until(lambda stop_at=stop_at: len(sent) >= stop_at or producing.done())
                    await asyncio.to_thread(broker.restart)
                while len(found) < 400:
                    found += [each.payload for each in await taken(consumer, 1)]
                await producing
                assert await consumer.take(0.2) is None
    assert sorted(map(int, found)) == list(range(400))
    await asyncio.to_thread(broker.stop)


class Scripted:
    """A server that answers each frame by the next line of its script; None hangs up."""

    def __init__(self, *script: bytes | None) -> None:
        self.script = list(script)
        self.received: list[bytes] = []
        self.address = ""
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Scripted:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">I", await reader.readexactly(4))
                self.received.append(await reader.readexactly(size))
                reply = self.script.pop(0)
                if reply is None:
                    break
                writer.write(struct.pack(">I", len(reply)) + reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def acknowledgement(status: str, last_offset: int, seq_end: int) -> bytes:
    return codec.encode_ack(
        Ack(
            status=status,
            last_offset=last_offset,
            producer_epoch=0,
            producer_id="p",
            seq_start=1,
            seq_end=seq_end,
        )
    )


async def test_what_may_be_repeated_is_repeated_and_the_rest_is_not() -> None:
    async with (
        Scripted(None, b"OK count=1 topics=t", None) as server,
        CursusClient(server.address, QUICK) as client,
    ):
        assert await client.topics() == ["t"]
        with pytest.raises(ConnectionLostError) as lost:
            await client.publish("t", b"v")
        assert lost.value.is_ambiguous
    assert len(server.received) == 3


async def test_an_unknown_outcome_is_asked_for_again_only_where_that_does_no_harm() -> None:
    unknown = b'ERROR: request_cancelled reason="the leader changed; the outcome is unknown"'
    async with (
        Scripted(unknown, b"OK count=1 topics=t", unknown) as server,
        CursusClient(server.address, QUICK) as client,
    ):
        assert await client.topics() == ["t"]
        with pytest.raises(CursusError) as failed:
            await client.publish("t", b"v")
        assert failed.value.is_ambiguous
    assert len(server.received) == 3


async def test_redirects_are_followed() -> None:
    async with Scripted(b"OK count=1 topics=there") as other:
        host, _, port = other.address.rpartition(":")
        refusal = f"ERROR: NOT_COORDINATOR host={host} port={port}".encode()
        async with Scripted(refusal) as server, CursusClient(server.address, QUICK) as client:
            assert await client.topics() == ["there"]


async def test_consume_asks_again_who_leads() -> None:
    metadata = "OK topic=t partitions=1 leaders={} epochs=0"
    found = codec.encode_batch(Batch(topic="t", partition=0, messages=[Message(payload=b"v")]))
    async with Scripted(b"", found) as leader:
        leader.script[0] = told = metadata.format(leader.address).encode()
        refusal = f"ERROR: NOT_LEADER LEADER_IS {leader.address}".encode()
        async with Scripted(b"", refusal, told) as server:
            server.script[0] = metadata.format(server.address).encode()
            async with CursusClient(server.address, QUICK) as client:
                assert [each.payload for each in await client.consume("t", 0, 0)] == [b"v"]


async def test_a_producer_follows_the_leader_with_the_same_sequence() -> None:
    metadata = "OK topic=t partitions=1 leaders={} epochs=0 partitioner=hash_key"
    ack = acknowledgement("OK", 7, 1)
    async with Scripted(ack) as leader:
        refusal = f"ERROR: NOT_LEADER LEADER_IS {leader.address}".encode()
        async with Scripted(b"", refusal) as server:
            server.script[0] = metadata.format(server.address).encode()
            async with CursusClient(server.address, QUICK) as client, client.producer() as producer:
                assert await producer.send("t", b"v") == 7
    first, second = codec.decode_batch(server.received[1]), codec.decode_batch(leader.received[0])
    assert first == second


async def test_the_rest_of_a_batch_taken_in_part_is_sent_again() -> None:
    metadata = b"OK topic=t partitions=1 leaders= epochs=0 partitioner=hash_key"
    partial = acknowledgement("PARTIAL", 0, 1)
    rest = acknowledgement("OK", 1, 2)
    async with (
        Scripted(metadata, partial, rest) as server,
        CursusClient(server.address, QUICK) as client,
        client.producer() as producer,
    ):
        begun = [await producer.begin("t", each) for each in (b"a", b"b")]
        assert [await each for each in begun] == [0, 1]
    sent = codec.decode_batch(server.received[2])
    assert [each.payload for each in sent.messages] == [b"b"]


async def test_a_stream_of_garbage_or_silence_is_opened_again() -> None:
    pushed = codec.encode_batch(
        Batch(topic="t", partition=0, messages=[Message(offset=0, payload=b"v")])
    )
    joined = b"OK generation=1 member=m-0001 assignments=[0]"
    metadata = b"OK topic=t partitions=1 leaders={} epochs=0"
    async with Scripted() as server:
        told = metadata.replace(b"{}", server.address.encode())
        server.script = [joined, b"OK offset=0", told, b"\xba\x7cgarbage", told, b"", told, pushed]
        async with CursusClient(server.address, QUICK) as client:
            consumer = Consumer(
                client, "t", "g", heartbeat_s=3600, auto_commit_s=None, stream_silence_s=0.2
            )
            await consumer.start()
            (record,) = await taken(consumer, 1)
            assert record.payload == b"v"
            server.script = [b"OK group=g member=m-0001 left=true"] * 9
            await consumer.close()


async def test_unreachable_broker_fails_the_call() -> None:
    settings = CursusSettings(operation_timeout_s=2.0, backoff_first_s=0.5)
    async with CursusClient("127.0.0.1:1", settings) as client:
        with pytest.raises(UnreachableError):
            await client.topics()
    with pytest.raises(ClientClosedError):
        await client.topics()
    for senseless in (" , ", "host:port", ":9000"):
        with pytest.raises(ConfigError):
            CursusClient(senseless)
    assert CursusClient("[::1]").address == "[::1]:9000"


async def test_what_no_command_can_carry_is_refused_here(client: CursusClient) -> None:
    with pytest.raises(EncodeError):
        await client.publish("two words", b"v")
    with pytest.raises(EncodeError):
        await client.command("CREATE", {"topic": "message=x"})


def test_the_blocking_face() -> None:
    with (
        EphemeralBroker(listeners=("cursus",)) as broker,
        BlockingCursusClient(broker.address("cursus")) as client,
    ):
        client.create_topic("orders", 1)
        with client.producer() as producer:
            assert producer.send("orders", b"a") == 0
            assert producer.send_many("orders", [b"b", b"c"]) == [1, 2]
        with client.consumer("orders", "g") as consumer:
            assert consumer.assigned == (0,)
            assert [next(consumer).payload for _ in range(3)] == [b"a", b"b", b"c"]
            consumer.commit()
            assert consumer.take(0.05) is None
        assert client.committed("g", "orders", 0) == 3
        assert client.topics()[-1] == "orders"


# ---- logins


async def test_no_password_is_sent_in_clear_to_other_machines() -> None:
    got = bytearray()

    class Remote(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            got.extend(data)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(Remote, "127.0.0.1", 0)
    channel = await connection._open_channel(
        Address(*server.sockets[0].getsockname()[:2]), CursusSettings()
    )
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OrderedChannel, "is_private", False)
            with pytest.raises(public.LoginFailedError, match="use TLS"):
                await connection._log_in(channel, public.Login("alice", "secret"), 5.0)
    finally:
        channel.close()
        server.close()
        await server.wait_closed()
    assert not got
