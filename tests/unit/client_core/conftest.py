"""A loop whose time passes only while something sleeps on it."""

from __future__ import annotations

import asyncio

import pytest


@pytest.fixture
async def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses so far, each of which has moved the loop's time on, and nothing else has."""
    pauses: list[float] = []
    started = asyncio.get_running_loop().time()

    async def sleep(pause: float) -> None:
        pauses.append(pause)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: started + sum(pauses))
    return pauses
