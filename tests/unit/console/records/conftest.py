"""A broker for each module, a console in front of it, and clients of both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from dragoman.client.kafka import KafkaClient
from dragoman.testing import EphemeralBroker
from worlds.console import Browser, RunningConsole, console


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker() as running:
        yield running


@pytest.fixture
async def served(broker: EphemeralBroker) -> AsyncIterator[RunningConsole]:
    async with console(broker) as running:
        yield running


@pytest.fixture
async def client(broker: EphemeralBroker) -> AsyncIterator[KafkaClient]:
    async with KafkaClient(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def browser(served: RunningConsole) -> Browser:
    return served.browser()
