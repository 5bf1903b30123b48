"""Goal: the process of a listener is started by a connection, ended with the node, and replaced
when it fails; no connection hangs, and no descriptor or process is left.

Method: real processes, small Python programs that accept on the socket they inherit.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest
import uvloop

from dragoman.config.listeners import Address, Listener
from dragoman.errors import ConfigError
from dragoman.net import process_listener
from dragoman.net.listener import AddressTakenError
from dragoman.net.process_listener import ProcessListener, Program, bind

Run = Callable[[Callable[[], Awaitable[None]]], None]
#: Accepts and answers with its first line, until its input ends.
ANSWERS = """
import os, selectors, socket, sys
line = os.read(0, 65536)
listening = socket.socket(fileno=int(sys.argv[1]))
listening.setblocking(True)
os.write(1, b".")
with selectors.DefaultSelector() as both:
    both.register(0, selectors.EVENT_READ)
    both.register(listening, selectors.EVENT_READ)
    while True:
        ready = [key.fileobj for key, _ in both.select()]
        if 0 in ready:
            break
        peer, _ = listening.accept()
        peer.sendall(b"%d " % os.getpid() + line)
        peer.close()
"""
#: Is silent, and accepts nothing.
HANGS = "import time; time.sleep(600)"
#: Ignores the end of its input, as a process does that hangs.
STAYS = "import os, sys, time; os.write(1, b'.'); time.sleep(600)"
FAILS = "import sys; print('ERROR console: no luck', file=sys.stderr); sys.exit(3)"
ENDS = "pass"


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(test: Callable[[], Awaitable[None]]) -> None:
        async def body() -> None:
            async with asyncio.timeout(60):
                await test()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(body())

    return run


@asynccontextmanager
async def opened(
    *codes: str, silence_s: float = 60.0, start: Callable[[], bytes] = lambda: b"begin"
) -> AsyncIterator[ProcessListener]:
    """A listener whose processes run these programs, one after the other, the last one for ever."""
    left = list(codes)
    loop = asyncio.get_running_loop()

    def command(descriptor: int) -> tuple[str, ...]:
        code = left.pop(0) if len(left) > 1 else left[0]
        return (sys.executable, "-S", "-c", code, str(descriptor))

    listener = Listener(name="console", bind=Address("127.0.0.1", 0))
    bound = await bind(listener, loop, 16)
    made = ProcessListener(
        listener, bound, Program(command, start, lambda: {"PATH": os.defpath}), loop, silence_s
    )
    await made.serve()
    try:
        yield made
    finally:
        made.close()
        await made.closed()
        # Transports of asyncio close in the next turns.
        for _ in range(3):
            await asyncio.sleep(0)


async def asked(listener: ProcessListener) -> bytes:
    """What a client gets; nothing when it is refused."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.bound.port)
        try:
            return await reader.read()
        finally:
            writer.close()
    except ConnectionError:
        return b""


async def asked_until_answered(listener: ProcessListener) -> bytes:
    while not (answer := await asked(listener)):
        pass
    return answer


def is_alive(process: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


def test_first_connection_starts_the_process_and_all_reach_it(run: Run) -> None:
    async def test() -> None:
        async with opened(ANSWERS) as listener:
            assert listener.process_id is None
            answers = await asyncio.gather(*(asked(listener) for _ in range(8)))
            process = listener.process_id
            assert set(answers) == {b"%d begin\n" % (process or 0)}
        assert process is not None
        assert not is_alive(process)

    run(test)


def test_nothing_is_left_of_it(run: Run) -> None:
    async def test() -> None:
        async def once() -> set[str]:
            async with opened(ANSWERS) as listener:
                await asked(listener)
            return set(os.listdir("/proc/self/fd"))

        # The loop makes descriptors of its own with its first process.
        before = await once()
        assert await once() <= before

    if sys.platform == "linux":
        run(test)


def test_node_that_stops_before_any_connection_starts_nothing(run: Run) -> None:
    async def test() -> None:
        async with opened(HANGS) as listener:
            pass
        assert listener.process_id is None
        assert await asked(listener) == b""

    run(test)


def test_node_that_stops_while_the_process_starts_ends_it(run: Run) -> None:
    async def test() -> None:
        async with opened(ANSWERS) as listener:
            client = asyncio.ensure_future(asked(listener))
            while listener.process_id is None:
                await asyncio.sleep(0)
            process = listener.process_id
        assert await client in (b"", b"%d begin\n" % process)
        assert not is_alive(process)

    run(test)


def test_process_that_ignores_the_end_of_its_input_is_killed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_listener, "_END_S", 0.05)

    async def test() -> None:
        async with opened(STAYS) as listener:
            client = asyncio.ensure_future(asked(listener))
            while listener.process_id is None:
                await asyncio.sleep(0)
            process = listener.process_id
        assert await client == b""
        assert not is_alive(process)

    run(test)


@pytest.mark.parametrize("code", [FAILS, ENDS])
def test_failed_process_is_logged_and_its_clients_are_refused(
    run: Run, code: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_listener, "PAUSE_S", 0.05)

    async def test() -> None:
        async with opened(code, ANSWERS) as listener:
            assert await asked(listener) == b""
            assert listener.failure
            # After the pause, the next connection starts the next process.
            assert b"begin" in await asked_until_answered(listener)
            assert listener.failure == ""

    with caplog.at_level(logging.INFO, "dragoman.server"):
        run(test)
    assert "listener console: its process failed" in caplog.text
    if code == FAILS:
        lines = [each for each in caplog.records if "no luck" in each.getMessage()]
        assert [each.levelno for each in lines] == [logging.ERROR]


def test_killed_process_is_replaced(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_listener, "PAUSE_S", 0.05)

    async def test() -> None:
        async with opened(ANSWERS) as listener:
            first = await asked(listener)
            process = listener.process_id
            assert process is not None
            os.kill(process, signal.SIGKILL)
            while listener.process_id == process:
                await asyncio.sleep(0)
            assert await asked_until_answered(listener) != first

    run(test)


def test_silent_process_is_killed(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with opened(HANGS, silence_s=0.05) as listener:
            assert await asked(listener) == b""

    run(test)
    assert "does not answer, and is killed" in caplog.text


def test_process_that_cannot_be_started_refuses(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def start() -> bytes:
        raise ConfigError("there is no socket")

    async def test() -> None:
        async with opened(ANSWERS, start=start) as listener:
            assert await asked(listener) == b""
            assert listener.process_id is None

    run(test)
    assert "could not be started: there is no socket" in caplog.text


def test_address_of_another_program_is_taken(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_listener, "_BIND_TRIES", 2)

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            address = Address("127.0.0.1", other.getsockname()[1])
            with pytest.raises(AddressTakenError, match=r"console: cannot bind .* in use"):
                await bind(Listener(name="console", bind=address), asyncio.get_running_loop(), 16)

    run(test)


def test_address_that_an_old_process_leaves_is_bound(run: Run) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        other = socket.create_server(("127.0.0.1", 0))
        address = Address("127.0.0.1", other.getsockname()[1])
        loop.call_later(0.02, other.close)
        with await bind(Listener(name="console", bind=address), loop, 16) as bound:
            assert bound.getsockname()[1] == address.port

    run(test)


def test_node_without_descriptors_does_not_spin_while_it_refuses(run: Run) -> None:
    async def test() -> None:
        tried = 0

        class Exhausted:
            """The listener's socket, when the node may open nothing more."""

            def __init__(self, found: socket.socket) -> None:
                self._found = found

            def accept(self) -> object:
                nonlocal tried
                tried += 1
                raise OSError(errno.EMFILE, "Too many open files")

            def __getattr__(self, name: str) -> object:
                return getattr(self._found, name)

        def start() -> bytes:
            raise OSError(errno.EMFILE, "Too many open files")

        async with opened(ENDS, start=start) as listener:
            listener._socket = cast("socket.socket", Exhausted(listener._socket))
            _, writer = await asyncio.open_connection("127.0.0.1", listener.bound.port)
            while not tried:
                await asyncio.sleep(0)
            for _ in range(50):
                await asyncio.sleep(0)
            assert tried == 1
            writer.close()

    run(test)
