"""The timer of a connection: it runs exactly while the client owes bytes that no operation waits
for.

The loop's timers are recorded instead of waited for, and the transport is a list of what was
written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from dragoman.api.app import create_app
from dragoman.api.connection import Engine, HttpConnection
from dragoman.api.origin import Origin

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
POST = (
    b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        self.cancelled = True
        self.callback()


class RecordingLoop:
    """The running loop, except that timers only fire when a test fires them."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []
        self.create_task = asyncio.get_running_loop().create_task
        self.call_soon = asyncio.get_running_loop().call_soon

    def call_later(self, _delay: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(callback))
        return self.timers[-1]

    def deadlines(self) -> list[Timer]:
        """Armed timers of ours; uvicorn's own one closes an idle connection."""
        return [
            timer
            for timer in self.timers
            if not timer.cancelled and timer.callback.__name__ == "_expire"
        ]


class RecordingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.aborted = False

    def write(self, data) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        self.aborted = True


class Clock:
    now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return 0.0


class Scene:
    def __init__(self, node) -> None:
        self.clock = Clock()
        self.loop = RecordingLoop()
        self.transport = RecordingTransport()
        self.engine = Engine(create_app(node), self.clock)
        self.connection = HttpConnection(self.engine, self.loop, Origin())  # type: ignore[arg-type]
        self.connection.connection_made(self.transport)

    async def settle(self) -> None:
        """Let the request that was started finish."""
        while self.engine.state.tasks:
            await asyncio.sleep(0)


@pytest.fixture
async def scene(node) -> AsyncIterator[Scene]:
    scene = Scene(node)
    yield scene
    scene.connection.connection_lost(None)
    await scene.settle()
    assert scene.loop.deadlines() == []


async def test_new_connection_is_timed_and_cut(scene: Scene) -> None:
    (deadline,) = scene.loop.deadlines()
    deadline.fire()
    assert scene.transport.aborted


async def test_pieces_of_a_head_do_not_renew_the_time(scene: Scene) -> None:
    first = scene.loop.deadlines()
    for byte in GET[:-1]:
        scene.connection.data_received(bytes([byte]))
    assert scene.loop.deadlines() == first


async def test_request_being_served_is_not_timed(scene: Scene) -> None:
    scene.connection.data_received(GET)
    assert scene.loop.deadlines() == []
    await scene.settle()
    assert scene.transport.written.endswith(b"ok\n")
    assert scene.loop.deadlines() == []


async def test_head_of_the_next_request_is_timed_again(scene: Scene) -> None:
    scene.connection.data_received(GET)
    await scene.settle()
    scene.connection.data_received(GET[:5])
    assert len(scene.loop.deadlines()) == 1
    scene.connection.data_received(GET[5:])
    assert scene.loop.deadlines() == []
    await scene.settle()
    assert scene.transport.written.count(b"ok\n") == 2


async def test_body_that_an_operation_reads_is_left_to_it(scene: Scene) -> None:
    scene.connection.data_received(POST % 12 + b"{")
    assert scene.loop.deadlines() == []
    scene.connection.data_received(b'"name":"t"}')
    await scene.settle()
    assert scene.transport.written.startswith(b"HTTP/1.1 201 ")


async def test_rest_of_a_refused_body_is_timed(scene: Scene) -> None:
    scene.connection.data_received(POST % 99_999_999 + b"{")
    await scene.settle()
    assert scene.transport.written.startswith(b"HTTP/1.1 413 ")
    (deadline,) = scene.loop.deadlines()
    scene.connection.data_received(bytes(1000))
    assert scene.loop.deadlines() == [deadline]
    deadline.fire()
    assert scene.transport.aborted


async def test_date_follows_the_clock(scene: Scene) -> None:
    scene.clock.now_ms = 1_700_000_000_000
    scene.connection.data_received(GET)
    await scene.settle()
    scene.clock.now_ms += 1000
    scene.connection.data_received(GET)
    await scene.settle()
    assert b"date: Tue, 14 Nov 2023 22:13:20 GMT\r\n" in scene.transport.written
    assert b"date: Tue, 14 Nov 2023 22:13:21 GMT\r\n" in scene.transport.written


async def test_answer_that_is_not_taken_is_timed_and_cut(scene: Scene) -> None:
    scene.connection.data_received(GET)
    await scene.settle()
    scene.connection.pause_writing()
    assert scene.connection.is_quiet
    (deadline,) = scene.loop.deadlines()
    deadline.fire()
    assert scene.transport.aborted


async def test_answer_that_is_taken_is_not_timed_any_more(scene: Scene) -> None:
    scene.connection.pause_writing()
    scene.connection.data_received(GET)
    assert len(scene.loop.deadlines()) == 1
    scene.connection.resume_writing()
    assert scene.loop.deadlines() == []
    await scene.settle()


@pytest.mark.parametrize(
    "request_",
    [GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), b"NONSENSE\r\n\r\n"],
    ids=["close", "not-http"],
)
async def test_last_answer_is_timed(scene: Scene, request_: bytes) -> None:
    """Also one that fits the buffers: a closed transport waits until it is taken."""
    scene.connection.data_received(request_)
    await scene.settle()
    assert scene.transport.is_closing()
    assert any(timer.callback.__name__ == "_expire" for timer in scene.loop.deadlines())


async def test_idle_connection_that_takes_nothing_is_cut(scene: Scene) -> None:
    scene.connection.data_received(GET)
    await scene.settle()
    assert scene.loop.deadlines() == []
    scene.connection.timeout_keep_alive_handler()
    assert len(scene.loop.deadlines()) == 1


async def test_connection_is_quiet_while_the_client_owes_something(scene: Scene, node) -> None:
    node.may_create = asyncio.Event()
    assert scene.connection.is_quiet
    rank = scene.connection.quiet_rank
    scene.connection.data_received(POST % 12 + b"{")
    assert scene.connection.is_quiet
    scene.connection.data_received(b'"name":"t"}')
    assert not scene.connection.is_quiet
    assert scene.connection.quiet_rank == rank
    node.may_create.set()
    await scene.settle()
    assert scene.connection.is_quiet
    assert scene.connection.quiet_rank > rank


async def test_request_to_upgrade_is_served_without_a_word(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    upgrade = GET.replace(b"\r\n\r\n", b"\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    scene.connection.data_received(upgrade)
    await scene.settle()
    assert scene.transport.written.endswith(b"ok\n")
    assert caplog.records == []
