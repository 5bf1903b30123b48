"""Goal: a listener binds as configured, fails in one line, advertises a useful address."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.config.listeners import Address, Listener
from dragoman.errors import ConfigError
from dragoman.net.listener import OpenListener, open_listener


async def opened(listener: Listener) -> OpenListener:
    return await open_listener(listener, asyncio.get_running_loop(), asyncio.Protocol, 10)


def listener(host: str, port: int = 0, advertised: Address | None = None) -> Listener:
    return Listener(name="kafka", bind=Address(host, port), advertised=advertised)


async def test_port_0_becomes_the_port_the_system_chose() -> None:
    gone = asyncio.Event()

    class Accepted(asyncio.Protocol):
        def connection_lost(self, _error: Exception | None) -> None:
            gone.set()

    made = await open_listener(listener("127.0.0.1"), asyncio.get_running_loop(), Accepted, 10)
    assert made.name == "kafka"
    assert made.bound.host == "127.0.0.1"
    assert made.bound.port > 0
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", made.bound.port)
    await made.serve()
    _, writer = await asyncio.open_connection("127.0.0.1", made.bound.port)
    writer.close()
    await writer.wait_closed()
    # Not before: asyncio's server loses what it has accepted and not made known when it closes.
    await gone.wait()
    made.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", made.bound.port)


async def test_a_listener_whose_sockets_are_closed_can_be_paused() -> None:
    made = await opened(listener("127.0.0.1"))
    closed = socket.socket()
    closed.close()
    # As uvloop lists a socket that it has closed before the server.
    loop = asyncio.get_running_loop()
    server: Any = SimpleNamespace(sockets=[closed], get_loop=lambda: loop)
    OpenListener(made.listener, server, made.bound).pause()
    made.close()


async def test_bound_address_is_advertised() -> None:
    made = await opened(listener("127.0.0.1"))
    assert made.advertised == made.bound
    assert made.address_for(("10.1.1.1", 5)) == ("127.0.0.1", made.bound.port)
    made.close()


async def test_name_that_was_given_stays_a_name() -> None:
    made = await opened(listener("localhost"))
    assert made.address_for(("127.0.0.1", 1)) == ("localhost", made.bound.port)
    made.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_wildcard_tells_the_address_of_the_connection_itself(host: str) -> None:
    made = await opened(listener(host))
    assert made.advertised is None
    assert made.address_for(("10.1.1.1", made.bound.port)) == ("10.1.1.1", made.bound.port)
    made.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_explicit_address_comes_before_everything(host: str) -> None:
    made = await opened(listener(host, advertised=Address("broker.example", 19092)))
    assert made.address_for(("10.1.1.1", 1)) == ("broker.example", 19092)
    made.close()


async def test_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"listener kafka: cannot bind 127.0.0.1:{port}: "):
            await opened(listener("127.0.0.1", port))


async def test_address_of_another_machine_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"cannot bind 192\.0\.2\.1:0: "):
        await opened(listener("192.0.2.1"))


async def test_host_that_does_not_exist_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"cannot bind no-such-host.invalid:0: "):
        await opened(listener("no-such-host.invalid"))
