"""One connection over a transport that only records: pipelining, bounds, time-outs and ends."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.client_core.errors import ClientClosedError, ConnectionLostError, RequestTimeoutError
from dragoman.framing import Scratch
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka.client.broker import KafkaChannel
from dragoman.protocols.kafka.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    ProduceRequest,
)

BEAT = HeartbeatRequest(group_id="g", member_id="m")
VERSION = 4


class Wire(asyncio.Transport):
    """Takes what is written; closing tells the channel, as asyncio does, in the next turn."""

    def __init__(self, channel: KafkaChannel) -> None:
        super().__init__()
        self.channel = channel
        self.frames: list[bytes] = []
        self.is_aborted = False

    def writelines(self, buffers) -> None:
        self.frames.append(b"".join(buffers))

    def abort(self) -> None:
        if not self.is_aborted:
            self.is_aborted = True
            asyncio.get_running_loop().call_soon(self.channel.connection_lost, None)

    def answer(self, correlation_id: int, message: Message | None = None) -> None:
        buffers = codec.encode_response(message or HeartbeatResponse(), VERSION, correlation_id)
        self.feed(b"".join(buffers))

    def feed(self, data: bytes) -> None:
        while data:
            buffer = self.channel.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.channel.buffer_updated(count)
            data = data[count:]


def connect(in_flight_max: int = 3) -> tuple[KafkaChannel, Wire]:
    channel = KafkaChannel(
        "broker:1",
        client_id="c",
        in_flight_max=in_flight_max,
        scratch=Scratch(),
        loop=asyncio.get_running_loop(),
    )
    wire = Wire(channel)
    channel.connection_made(wire)
    return channel, wire


def ask(channel: KafkaChannel, timeout_s: float = 5.0) -> asyncio.Task[Message | None]:
    return asyncio.create_task(channel.request(BEAT, VERSION, timeout_s))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_replies_reach_their_requests_in_order() -> None:
    channel, wire = connect()
    first, second = ask(channel), ask(channel)
    await turns()
    assert len(wire.frames) == 2
    wire.answer(0, HeartbeatResponse(error_code=1))
    wire.answer(1, HeartbeatResponse(error_code=2))
    assert (await first).error_code == 1
    assert (await second).error_code == 2


async def test_requests_past_the_bound_wait_for_a_reply() -> None:
    channel, wire = connect(in_flight_max=2)
    asked = [ask(channel) for _ in range(5)]
    await turns()
    assert len(wire.frames) == 2
    wire.answer(0)
    await turns()
    assert len(wire.frames) == 3
    for correlation_id in range(1, 5):
        wire.answer(correlation_id)
        await turns()
    await asyncio.gather(*asked)


async def test_slot_of_a_caller_that_gave_up_is_free_only_after_its_reply() -> None:
    channel, wire = connect(in_flight_max=1)
    first = ask(channel)
    await turns()
    first.cancel()
    second = ask(channel)
    await turns()
    assert len(wire.frames) == 1
    wire.answer(0)
    await turns()
    assert len(wire.frames) == 2
    wire.answer(1)
    await second


async def test_caller_that_gives_up_while_waiting_takes_no_slot() -> None:
    channel, wire = connect(in_flight_max=1)
    first, second = ask(channel), ask(channel)
    await turns()
    second.cancel()
    await turns()
    third = ask(channel)
    wire.answer(0)
    await first
    await turns()
    wire.answer(1)
    await third


async def test_nothing_is_written_while_the_socket_is_full() -> None:
    channel, wire = connect()
    channel.pause_writing()
    asked = ask(channel)
    await turns()
    assert wire.frames == []
    channel.resume_writing()
    await turns()
    wire.answer(0)
    await asked


async def test_produce_without_acknowledgement_needs_no_reply_and_holds_no_slot() -> None:
    channel, wire = connect(in_flight_max=1)
    for _ in range(3):
        assert await channel.request(ProduceRequest(acks=0), 9, 5.0) is None
    assert len(wire.frames) == 3


async def test_late_reply_ends_the_connection_for_all() -> None:
    channel, wire = connect(in_flight_max=2)
    late, behind, waiting = ask(channel, 0.001), ask(channel), ask(channel)
    with pytest.raises(
        RequestTimeoutError, match=r"broker:1 did not answer within 0.001 s"
    ) as told:
        await late
    assert told.value.is_ambiguous
    with pytest.raises(ConnectionLostError, match="late reply") as lost:
        await behind
    assert lost.value.is_ambiguous
    with pytest.raises(ConnectionLostError) as unsent:
        await waiting
    assert not unsent.value.is_ambiguous
    assert wire.is_aborted
    assert not channel.is_open


async def test_lost_connection_fails_those_who_wait_for_room() -> None:
    channel, _ = connect()
    channel.pause_writing()
    asked = ask(channel)
    await turns()
    channel.connection_lost(OSError("broken"))
    with pytest.raises(ConnectionLostError, match="broken"):
        await asked


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\2\0\0",
        b"\0\0\0\4\0\0\0\x63",
        b"\0\0\0\5\0\0\0\0\0",
    ],
    ids=["http", "empty", "negative", "short", "wrong id", "cut off"],
)
async def test_bytes_that_are_no_reply_end_the_connection(data: bytes) -> None:
    channel, wire = connect()
    asked = ask(channel)
    await turns()
    wire.feed(data)
    with pytest.raises(ConnectionLostError, match="does not speak Kafka"):
        await asked
    assert wire.is_aborted


async def test_closing_says_so() -> None:
    channel, _ = connect()
    asked = ask(channel)
    await turns()
    channel.close(ClientClosedError("the client was closed"))
    with pytest.raises(ClientClosedError):
        await asked
    with pytest.raises(ClientClosedError):
        await channel.request(BEAT, VERSION, 1.0)


async def test_unknown_reply_is_not_waited_for() -> None:
    channel, wire = connect()
    wire.answer(0)
    await turns()
    assert not channel.is_open
