"""A link to a server that answers in the order of the requests: requests must leave in order."""

from __future__ import annotations

import asyncio

from dragoman.client_core.channel import OrderedChannel
from dragoman.framing import FrameReader, Scratch


class Transport:
    """Remembers what was sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, frame: bytes) -> None:
        self.sent.append(frame)

    def abort(self) -> None: ...


def answer(link: OrderedChannel, frame: bytes) -> None:
    data = len(frame).to_bytes(4, "big") + frame
    link.get_buffer(len(data))[: len(data)] = data
    link.buffer_updated(len(data))


async def test_request_that_finds_the_connection_writable_overtakes_none_that_wait() -> None:
    loop = asyncio.get_running_loop()
    link = OrderedChannel(
        "server", FrameReader(100, Scratch()), protocol="any", loop=loop, in_flight_max=2
    )
    transport = Transport()
    link.connection_made(transport)  # type: ignore[arg-type]
    requests = [asyncio.create_task(link.request(b"0", 60))]
    await asyncio.sleep(0)
    link.pause_writing()
    requests += [asyncio.create_task(link.request(b"%d" % n, 60)) for n in (1, 2, 3)]
    await asyncio.sleep(0)
    assert transport.sent == [b"0"]
    # The reply lets the next request in while those before it are still about to leave.
    answer(link, b"to 0")
    link.resume_writing()
    for number in (1, 2, 3):
        while len(transport.sent) <= number:
            await asyncio.sleep(0)
        answer(link, b"to %d" % number)
    assert transport.sent == [b"0", b"1", b"2", b"3"]
    assert [bytes(await each) for each in requests] == [b"to 0", b"to 1", b"to 2", b"to 3"]
