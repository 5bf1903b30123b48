"""Goal: a host name is looked up beside the loop, again when it is old, and soon after a failure.

Method: a resolver that answers on the test's command, on virtual time; the system's own for names
that need no network; a whole broker whose resolver hangs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading

import pytest

from dragoman.limits import HOST_NAME_FAILED_S, HOST_NAME_LIFETIME_S, HOST_NAMES_MAX
from dragoman.net.hosts import CachedHostNames, look_up_beside
from dragoman.outcome import Outcome
from dragoman.protocols.rocketmq.messages import host_bytes, read_message_id
from dragoman.testing.sim.scheduler import SimScheduler
from worlds.broker import World
from worlds.rocketmq import RocketmqPipe

NONE = "0.0.0.0"


class Resolver:
    """A resolver that answers on the test's command."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._waiting: list[Outcome[str | None]] = []

    def __call__(self, host: str) -> Outcome[str | None]:
        self.asked.append(host)
        self._waiting.append(Outcome())
        return self._waiting[-1]

    def answer(self, address: str | None) -> None:
        self._waiting.pop(0).succeed(address)


class Names:
    def __init__(self) -> None:
        self.scheduler = SimScheduler()
        self.resolver = Resolver()
        self.hosts = CachedHostNames(self.scheduler, self.resolver)


def test_who_asks_does_not_wait_and_a_name_is_looked_up_once_at_a_time() -> None:
    names = Names()
    assert [names.hosts.ipv4("a.example") for _ in range(3)] == [NONE] * 3
    assert names.resolver.asked == ["a.example"]
    names.resolver.answer("10.0.0.1")
    assert names.hosts.ipv4("a.example") == "10.0.0.1"
    assert names.hosts.ipv4("127.0.0.1") == "127.0.0.1"
    assert names.resolver.asked == ["a.example"], "an address is its own"


def test_what_was_found_is_looked_up_again_after_a_while() -> None:
    names = Names()
    names.hosts.ipv4("a")
    names.resolver.answer("10.0.0.1")
    names.scheduler.advance(HOST_NAME_LIFETIME_S - 1)
    assert names.hosts.ipv4("a") == "10.0.0.1"
    assert len(names.resolver.asked) == 1
    names.scheduler.advance(2)
    assert names.hosts.ipv4("a") == "10.0.0.1", "the old one until there is a new one"
    assert len(names.resolver.asked) == 2
    names.resolver.answer("10.0.0.2")
    assert names.hosts.ipv4("a") == "10.0.0.2"


def test_a_failure_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    names = Names()
    with caplog.at_level(logging.INFO, "dragoman.net"):
        for _ in range(3):
            assert names.hosts.ipv4("a") == NONE
            names.resolver.answer(None)
            names.scheduler.advance(HOST_NAME_FAILED_S + 1)
        names.hosts.ipv4("a")
        names.resolver.answer("10.0.0.1")
        assert names.hosts.ipv4("a") == "10.0.0.1"
    assert [each.getMessage() for each in caplog.records] == [
        "host name a cannot be resolved; tried again while it is needed",
        "host name a is resolved again: 10.0.0.1",
    ]


def test_a_failure_does_not_undo_what_was_found() -> None:
    names = Names()
    names.hosts.ipv4("a")
    names.resolver.answer("10.0.0.1")
    names.scheduler.advance(HOST_NAME_LIFETIME_S + 1)
    names.hosts.ipv4("a")
    names.resolver.answer(None)
    assert names.hosts.ipv4("a") == "10.0.0.1"


def test_names_are_bounded() -> None:
    names = Names()
    for number in range(3 * HOST_NAMES_MAX):
        names.hosts.ipv4(f"n{number}")
        if number < HOST_NAMES_MAX:
            names.resolver.answer("10.0.0.1")
    assert len(names.resolver.asked) == 2 * HOST_NAMES_MAX, "so many look-ups at a time"
    assert len(names.hosts._known) <= HOST_NAMES_MAX


async def test_a_resolver_that_hangs_does_not_stop_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_over = threading.Event()
    loop_thread = threading.current_thread()

    def hang(*_: object, **__: object) -> list[object]:
        assert threading.current_thread() is not loop_thread, "it would stop all clients"
        is_over.wait(60)
        raise socket.gaierror("no name server answers")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(socket, "gethostbyname", hang)
    loop = asyncio.get_running_loop()
    hosts = CachedHostNames(loop, look_up_beside(loop.call_soon_threadsafe))
    assert hosts.ipv4("a.example") == NONE
    is_over.set()
    while hosts._under_way:
        await asyncio.sleep(0.001)
    assert hosts.ipv4("a.example") == NONE


async def test_the_system_resolves_what_needs_no_network() -> None:
    loop = asyncio.get_running_loop()
    hosts = CachedHostNames(loop, look_up_beside(loop.call_soon_threadsafe))
    hosts.ipv4("localhost")
    while hosts._under_way:
        await asyncio.sleep(0.001)
    assert hosts.ipv4("localhost") == "127.0.0.1"


def test_message_ids_have_the_address_as_soon_as_it_is_known() -> None:
    """Also on a connection whose first messages were sent before."""
    world, resolver = World(), Resolver()
    world.broker.host_names = CachedHostNames(world.scheduler, resolver)
    pipe = RocketmqPipe(world, host="broker.example")
    hosts = []
    for answer in (None, "10.1.2.3"):
        hosts.append(read_message_id(pipe.put("T", b"v").fields["msgId"])[0])
        resolver.answer(answer)
        world.advance(HOST_NAME_FAILED_S + 1)
        pipe.put("T", b"v")
    hosts.append(read_message_id(pipe.put("T", b"v").fields["msgId"])[0])
    unknown = host_bytes(NONE, 10911)
    assert hosts == [unknown, unknown, host_bytes("10.1.2.3", 10911)]
