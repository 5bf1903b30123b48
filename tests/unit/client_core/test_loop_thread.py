"""Goal: a call that is handed over always ends, with its result or with why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.client_core.blocking import LoopThread
from dragoman.client_core.errors import ClientClosedError


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    started = LoopThread("test")
    yield started
    started.close()


async def _seven() -> int:
    return 7


def test_result_comes_back(thread: LoopThread) -> None:
    assert thread.run(_seven) == 7


def test_failure_comes_back(thread: LoopThread) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        thread.run(fail)


@pytest.mark.parametrize("wrong", [None, 7, lambda: 7])
def test_what_cannot_be_begun_is_told_and_not_waited_for(thread: LoopThread, wrong: Any) -> None:
    with pytest.raises(TypeError):
        thread.run(wrong)
    assert thread.run(_seven) == 7


def test_closed_one_refuses_and_may_be_closed_again(thread: LoopThread) -> None:
    thread.close()
    with pytest.raises(ClientClosedError):
        thread.run(_seven)
    thread.close()
