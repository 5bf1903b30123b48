"""Goal: a node tells how pipelines are that reported to it, and forgets them after a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from dragoman import limits
from dragoman.api.node_requests import ListPipelines
from dragoman.api.pipelines import PipelineReports
from dragoman.api.values import PipelinePart, PipelineStatus
from dragoman.outcome import start
from dragoman.security.access import Caller
from dragoman.security.authorizer import AllowAll

CALLER = Caller()


RIGHTS: Any = SimpleNamespace(authorizer=AllowAll())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


def status(name: str, state: str = "running") -> PipelineStatus:
    part = PipelinePart(part="out", rows=3)
    return PipelineStatus(name=name, file="f", state=state, parts=(part,))  # type: ignore[arg-type]


def states(reports: PipelineReports) -> dict[str, str]:
    return {each.name: each.state for each in listed(reports)}


def listed(reports: PipelineReports) -> tuple[PipelineStatus, ...]:
    return start(reports.listed(ListPipelines(caller=CALLER))).result().items


def test_the_newest_report_counts() -> None:
    reports = PipelineReports(Clock(), RIGHTS)
    reports.report_pipeline(CALLER, status("b"))
    reports.report_pipeline(CALLER, status("a", "starting"))
    reports.report_pipeline(CALLER, status("a", "done"))

    assert states(reports) == {"a": "done", "b": "running"}
    assert [each.name for each in listed(reports)] == ["a", "b"]


def test_a_pipeline_that_ran_and_is_silent_has_died() -> None:
    clock = Clock()
    reports = PipelineReports(clock, RIGHTS)
    reports.report_pipeline(CALLER, status("a"))
    reports.report_pipeline(CALLER, status("b", "done"))
    clock.now += limits.PIPELINE_SILENCE_S + 1

    assert states(reports) == {"a": "died", "b": "done"}
    assert "no report for 31 s" in listed(reports)[0].problem
    reports.report_pipeline(CALLER, status("a"))
    assert states(reports) == {"a": "running", "b": "done"}


def test_old_reports_are_forgotten() -> None:
    clock = Clock()
    reports = PipelineReports(clock, RIGHTS)
    reports.report_pipeline(CALLER, status("a", "done"))
    clock.now += limits.PIPELINE_MEMORY_S + 1

    assert listed(reports) == ()


def test_only_so_many_are_remembered() -> None:
    reports = PipelineReports(Clock(), RIGHTS)
    for number in range(limits.PIPELINES_REPORTED_MAX + 1):
        reports.report_pipeline(CALLER, status(f"{number:04}"))
        reports.report_pipeline(CALLER, status("0001"))

    found = states(reports)
    assert len(found) == limits.PIPELINES_REPORTED_MAX
    assert "0001" in found
    assert "0000" not in found


async def test_reports_are_taken_and_listed_over_http(client: httpx.AsyncClient) -> None:
    body = {"name": "a", "file": "f", "state": "running", "parts": [{"part": "out", "rows": 3}]}

    assert (await client.post("/api/v1/pipelines", json=body)).status_code == 204

    answer = (await client.get("/api/v1/pipelines")).json()
    assert answer == {"items": [{**body, "parts": [{"part": "out", "rows": 3}]}]}


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a"},
        {"name": "a", "file": "f", "state": "asleep"},
        {"name": "a" * (limits.PIPELINE_WORDS_MAX + 1), "file": "f"},
        {"name": "a", "file": "f", "parts": [{"part": "x"}] * (limits.PIPELINE_PARTS_MAX + 1)},
    ],
)
async def test_what_is_no_report_is_refused(
    client: httpx.AsyncClient, body: dict[str, object]
) -> None:
    assert (await client.post("/api/v1/pipelines", json=body)).status_code == 400
    assert (await client.get("/api/v1/pipelines")).json() == {"items": []}
