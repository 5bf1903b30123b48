"""A kept connection: made once for many callers, made anew after a loss, closed for good."""

from __future__ import annotations

import asyncio
from enum import IntEnum

import pytest

from dragoman.client_core.addresses import Address
from dragoman.client_core.channel import OrderedChannel
from dragoman.client_core.connection import (
    KeptConnection,
    RetrySettings,
    dial,
    require_positive_numbers,
)
from dragoman.client_core.errors import ClientClosedError, ClientError, UnreachableError
from dragoman.client_core.retry import RetryPolicy
from dragoman.errors import ConfigError
from dragoman.framing import FrameReader, Scratch

SERVER = Address("server", 1)


class Channel:
    def __init__(self) -> None:
        self.is_open = True
        self.error: ClientError | None = None

    def close(self, error: ClientError | None = None) -> None:
        self.is_open = False
        self.error = error


class Kept(KeptConnection[Channel]):
    """Makes channels when it is let to, or fails."""

    def __init__(self, policy: RetryPolicy | None = None) -> None:
        super().__init__(SERVER, policy)
        self.made: list[Channel] = []
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def _open(self) -> Channel:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise UnreachableError("no")
        self.made.append(Channel())
        return self.made[-1]


async def test_callers_at_the_same_time_share_one_connection() -> None:
    kept = Kept()
    kept.gate.clear()
    callers = [asyncio.create_task(kept.connected()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not kept.is_open
    kept.gate.set()
    assert set(await asyncio.gather(*callers)) == set(kept.made)
    assert len(kept.made) == 1
    assert kept.is_open


async def test_lost_connection_is_made_anew_for_the_next_caller() -> None:
    kept = Kept()
    first = await kept.connected()
    first.close()
    second = await kept.connected()
    assert second is not first
    assert await kept.connected() is second


async def test_without_a_policy_the_next_attempt_comes_at_once(slept: list[float]) -> None:
    kept = Kept()
    kept.failures = 2
    for _ in range(2):
        with pytest.raises(UnreachableError):
            await kept.connected()
    await kept.connected()
    assert slept == []


async def test_attempts_after_failures_wait_until_one_succeeds(slept: list[float]) -> None:
    kept = Kept(RetryPolicy(timeout_s=60, first_pause_s=1, pause_max_s=4))
    kept.failures = 2
    for _ in range(2):
        with pytest.raises(UnreachableError):
            await kept.connected()
    await kept.connected()
    assert slept == [1, 2]
    kept.made[-1].close()
    await kept.connected()
    assert slept == [1, 2]


async def test_connection_that_rests_is_used_after_its_rest(slept: list[float]) -> None:
    kept = Kept()
    channel = await kept.connected()
    kept.rest(3)
    assert await kept.connected() is channel
    assert slept == [3]


async def test_closed_connection_stays_closed() -> None:
    kept = Kept()
    channel = await kept.connected()
    kept.close(ClientClosedError("over"))
    assert str(channel.error) == "over"
    with pytest.raises(ClientClosedError, match="over"):
        await kept.connected()
    assert len(kept.made) == 1


async def test_connection_that_is_made_while_it_is_closed_is_closed_as_well() -> None:
    kept = Kept()
    kept.gate.clear()
    caller = asyncio.create_task(kept.connected())
    await asyncio.sleep(0)
    kept.close(ClientClosedError("over"))
    kept.gate.set()
    with pytest.raises(ClientClosedError, match="over"):
        await caller
    assert [each.is_open for each in kept.made] == [False]


# ---- dialling


def ordered(address: Address, loop: asyncio.AbstractEventLoop) -> OrderedChannel:
    reader = FrameReader(100, Scratch())
    return OrderedChannel(address, reader, protocol="any", loop=loop, in_flight_max=1)


async def test_dial_connects_and_reports_what_it_cannot_reach() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    address = Address(*server.sockets[0].getsockname())
    channel = await dial(address, lambda loop: ordered(address, loop), 5)
    assert channel.is_open
    channel.close()

    async def resolve(_named: Address) -> Address:
        return address

    # What is reported is the address that was asked for, not the one that it stands for.
    channel = await dial(SERVER, lambda loop: ordered(SERVER, loop), 5, resolve=resolve)
    assert channel.address == "server:1"
    channel.close()
    server.close()
    await server.wait_closed()
    with pytest.raises(UnreachableError, match=f"cannot reach {address}: connection refused"):
        await dial(address, lambda loop: ordered(address, loop), 5)


async def test_dial_gives_up_in_time_and_refuses_names_that_no_resolver_can_know() -> None:
    async def resolve(named: Address) -> Address:
        await asyncio.Event().wait()
        return named

    with pytest.raises(UnreachableError, match="cannot reach server:1: no answer"):
        await dial(SERVER, lambda loop: ordered(SERVER, loop), 0, resolve=resolve)
    nameless = Address("a" * 64 + ".example", 1)
    with pytest.raises(UnreachableError, match="cannot reach aaa"):
        await dial(nameless, lambda loop: ordered(nameless, loop), 5)


class Color(IntEnum):
    BLACK = 0


class Settings(RetrySettings, frozen=True, kw_only=True):
    color: Color = Color.BLACK
    is_dark: bool = False
    name: str = ""
    size: int = 1
    in_flight_max: int = 3

    def __post_init__(self) -> None:
        require_positive_numbers(self)


def test_policy_is_made_of_the_settings() -> None:
    settings = Settings(operation_timeout_s=9, backoff_first_s=1, backoff_max_s=3)
    assert settings.retry_policy.timeout_s == 9
    assert [settings.backoff_s(failures) for failures in (1, 2, 3)] == [1, 2, 3]


def test_a_protocol_has_defaults_of_its_own() -> None:
    assert Settings().in_flight_max == 3
    assert Settings(in_flight_max=4).in_flight_max == 4


@pytest.mark.parametrize("wrong", [{"size": 0}, {"backoff_max_s": -0.5}, {"in_flight_max": 0}])
def test_numbers_are_positive_and_nothing_else_is_taken_for_one(wrong: dict[str, float]) -> None:
    name, value = next(iter(wrong.items()))
    with pytest.raises(ConfigError, match=f"{name}: expected a positive number, got {value}"):
        Settings(**wrong)
