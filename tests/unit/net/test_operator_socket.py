"""Goal: the socket in a data directory is for the node's own user, whatever was left there.

Method: real Unix sockets in temporary directories, on the event loops of asyncio and uvloop.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from dragoman.errors import ConfigError
from dragoman.net.operator_socket import (
    NAME,
    OperatorSocket,
    connect,
    open_operator_socket,
    user_of,
)

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(scenario: Callable[[], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario())

    return run


class Server:
    """Notes the users that connect, and greets them."""

    def __init__(self) -> None:
        self.users: list[int | None] = []

    def __call__(self) -> asyncio.Protocol:
        return _Greeting(self)


class _Greeting(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server.users.append(user_of(transport))
        assert isinstance(transport, asyncio.WriteTransport) or hasattr(transport, "write")
        transport.write(b"hello")
        transport.close()


async def opened(directory: Path, server: Server) -> OperatorSocket:
    loop = asyncio.get_running_loop()
    made = await open_operator_socket(str(directory), loop, server, 10)
    await made.serve()
    return made


async def greeting(directory: Path) -> bytes:
    def ask() -> bytes:
        with connect(str(directory), 10) as connected:
            return connected.recv(100)

    return await asyncio.to_thread(ask)


def test_own_user_connects_and_the_socket_is_for_it_alone(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Server()
        made = await opened(tmp_path, server)
        mode = os.lstat(tmp_path / NAME).st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert await greeting(tmp_path) == b"hello"
        assert server.users == [os.geteuid()]
        made.close()
        assert not os.path.lexists(tmp_path / NAME)
        with pytest.raises(FileNotFoundError):
            connect(str(tmp_path), 1)

    run(scenario)


def test_socket_of_a_killed_node_is_replaced(run: Run, tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / NAME))
    left.close()
    with pytest.raises(ConnectionRefusedError):
        connect(str(tmp_path), 1)

    async def scenario() -> None:
        made = await opened(tmp_path, Server())
        assert await greeting(tmp_path) == b"hello"
        made.close()

    run(scenario)


def test_path_longer_than_an_address_is_reached(run: Run, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("é" * 60)
    deep.mkdir(parents=True)

    async def scenario() -> None:
        made = await opened(deep, Server())
        assert [each.name for each in deep.iterdir()] == [NAME]
        assert await greeting(deep) == b"hello"
        made.close()
        assert list(deep.iterdir()) == []

    run(scenario)


def test_other_file_of_the_name_is_kept_and_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("mine")

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="is not a socket; remove it"):
            await opened(tmp_path, Server())

    run(scenario)
    assert (tmp_path / NAME).read_text() == "mine"


def test_link_of_the_name_is_not_followed(run: Run, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / NAME).symlink_to(elsewhere)

    async def scenario() -> None:
        with pytest.raises(ConfigError, match="is not a socket"):
            await opened(tmp_path, Server())

    run(scenario)
    assert not elsewhere.exists()


def test_directory_that_is_not_there_is_one_clear_line(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError, match="No such file or directory"):
            await opened(tmp_path / "gone", Server())

    run(scenario)


def test_stop_leaves_a_socket_that_has_taken_its_place(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await opened(tmp_path, Server())
        second = await opened(tmp_path, Server())
        first.close()
        assert await greeting(tmp_path) == b"hello"
        second.close()
        assert not os.path.lexists(tmp_path / NAME)

    run(scenario)


def test_directory_that_vanished_does_not_stop_the_stop(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()

    async def scenario() -> None:
        made = await opened(directory, Server())
        (directory / NAME).unlink()
        directory.rmdir()
        made.close()

    run(scenario)
