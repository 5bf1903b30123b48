"""A scripted cluster with one topic, and a client with little patience and dice that are set."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from dragoman.client.kafka import ClientSettings, KafkaClient
from protocols.scripted_kafka import ScriptedCluster

#: Retries come at once; the times are only reached when something is wrong.
QUICK = ClientSettings(
    connect_timeout_s=20,
    request_timeout_s=20,
    operation_timeout_s=20,
    backoff_first_s=0.001,
    backoff_max_s=0.01,
)


NOW_MS = 1_700_000_000_000


class FixedClock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with ScriptedCluster(2) as running:
        running.topics["t"] = [1, 2, 1]
        yield running


@pytest.fixture
async def client(cluster: ScriptedCluster) -> AsyncIterator[KafkaClient]:
    made = KafkaClient(cluster.bootstrap, QUICK, clock=FixedClock(), random=random.Random(1))
    async with made as opened:
        yield opened


@pytest.fixture
async def skip(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the loop's clock on by some seconds: what is timed for then is due in the next turn."""
    loop = asyncio.get_running_loop()
    time = loop.time
    skipped = 0.0

    def skip(seconds: float) -> None:
        nonlocal skipped
        skipped += seconds

    monkeypatch.setattr(loop, "time", lambda: time() + skipped)
    return skip
