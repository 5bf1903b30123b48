"""Which operation gives way when a node has too many, and how many requests begin in a turn of the
loop.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest

from dragoman import limits
from dragoman.api.admission import Admission, Pace
from dragoman.api.declaration import ApiError


@pytest.fixture(autouse=True)
def few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_OPERATIONS_MAX", 2)


async def test_operation_past_the_bound_is_refused() -> None:
    admission = Admission()
    with admission.operation(), admission.operation():
        with pytest.raises(ApiError) as refused, admission.operation():
            pass
        assert (refused.value.status, refused.value.code) == (503, "overloaded")
    with admission.operation():
        pass


async def test_oldest_body_that_is_still_to_come_gives_way() -> None:
    admission = Admission()
    outcomes: list[str] = []

    async def slow(name: str) -> None:
        try:
            with admission.operation():
                async with admission.reading():
                    await asyncio.Event().wait()
        except TimeoutError:
            outcomes.append(name)

    tasks = [asyncio.create_task(slow(name)) for name in ("first", "second")]
    await asyncio.sleep(0)
    with admission.operation():
        while not outcomes:
            await asyncio.sleep(0)
    assert outcomes == ["first"]
    tasks[1].cancel()
    await asyncio.wait(tasks)


async def test_health_and_metrics_answer_while_operations_wait(
    client: httpx.AsyncClient, node
) -> None:
    node.may_create = asyncio.Event()
    creations = [
        asyncio.create_task(client.post("/api/v1/topics", json={"name": name})) for name in "ab"
    ]
    while (await client.get("/api/v1/topics")).status_code != 503:
        await asyncio.sleep(0)
    for path in ("/livez", "/readyz", "/metrics"):
        assert (await client.get(path)).status_code == 200
    node.may_create.set()
    assert [(await each).status_code for each in creations] == [201, 201]


async def test_few_requests_begin_in_one_turn_and_urgent_ones_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_REQUESTS_PER_TURN", 2)
    pace = Pace()
    begun: list[str] = []
    turns: list[int] = []

    async def request(name: str) -> None:
        await pace.turn(is_urgent=name == "probe")
        begun.append(name)

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c", "d", "e", "f", "probe"):
            group.create_task(request(name))
        while len(begun) < 7:
            before = len(begun)
            await asyncio.sleep(0)
            turns.append(len(begun) - before)
    assert max(turns) <= 2
    assert begun == ["a", "b", "probe", "c", "d", "e", "f"]


async def test_request_that_is_cancelled_while_it_waits_costs_no_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_REQUESTS_PER_TURN", 1)
    pace = Pace()
    await pace.turn(is_urgent=False)
    gone = asyncio.create_task(pace.turn(is_urgent=False))
    await asyncio.sleep(0)
    gone.cancel()
    async with asyncio.timeout(60):
        await pace.turn(is_urgent=False)
