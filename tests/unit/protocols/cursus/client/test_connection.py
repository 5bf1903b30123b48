"""Goal: calls turn to the broker that can answer them: the leader that an error names, or the next
one when a broker was not reached. Method: attempts that fail with errors as brokers word them.
"""

from __future__ import annotations

import pytest

from dragoman.client_core.errors import ClientError, ConnectionLostError, UnreachableError
from dragoman.protocols.cursus.client.connection import (
    Commands,
    CursusSettings,
    broker_address,
    server_error,
)

QUICK = CursusSettings(backoff_first_s=0.001)


async def asked(*errors: ClientError) -> list[str]:
    """Which brokers a call asks, when its attempts fail with these errors."""
    commands = Commands("a:1,b,[::1]:3", QUICK)
    addresses: list[str] = []
    failures = list(errors)

    async def attempt() -> None:
        addresses.append(commands.address)
        if failures:
            raise failures.pop(0)

    await commands.retry.call(attempt)
    return addresses


async def test_brokers_that_are_not_reached_are_tried_in_turn() -> None:
    failures = [UnreachableError(""), ConnectionLostError(""), UnreachableError("")]
    assert await asked(*failures) == ["a:1", "b:9000", "[::1]:3", "a:1"]


async def test_call_goes_to_the_leader_that_the_error_names() -> None:
    moved = server_error("ERROR: NOT_LEADER LEADER_IS c:7")
    assert await asked(moved, UnreachableError("")) == ["a:1", "c:7", "a:1"]


async def test_broker_is_asked_again_when_its_error_names_no_leader_that_can_be_reached() -> None:
    assert await asked(server_error("ERROR: NOT_LEADER LEADER_IS nonsense")) == ["a:1", "a:1"]
    assert await asked(server_error("ERROR: NOT_LEADER")) == ["a:1", "a:1"]


def test_address_of_a_broker_that_makes_no_sense_counts_as_unreachable() -> None:
    assert broker_address("c:7") == ("c", 7)
    with pytest.raises(UnreachableError, match="cannot reach nonsense: expected HOST:PORT"):
        broker_address("nonsense")
