"""Producer ids come from reserved blocks, once each, in order of the requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dragoman.broker.errors import ProducerIdsUnavailable
from dragoman.broker.transactions import ProducerIds
from dragoman.broker.transactions import producer_ids as module
from dragoman.errors import ClusterError, DragomanError

Answer = Callable[[range | DragomanError], None]


class Blocks:
    """Reserves blocks of `size` when a test lets it."""

    def __init__(self, size: int = 3) -> None:
        self.size = size
        self.reserved = 0
        self.asked: list[Answer] = []

    def __call__(self, done: Answer) -> None:
        self.asked.append(done)

    def grant(self) -> None:
        start, self.reserved = self.reserved, self.reserved + self.size
        self.asked.pop(0)(range(start, self.reserved))


def test_ids_come_in_order_once_a_block_is_reserved() -> None:
    blocks, given = Blocks(), []
    ids = ProducerIds(blocks)
    for _ in range(5):
        ids.next(given.append)
    assert given == []
    assert len(blocks.asked) == 1
    blocks.grant()
    assert given == [0, 1, 2]
    blocks.grant()
    assert given == [0, 1, 2, 3, 4]
    ids.next(given.append)
    assert given[-1] == 5
    assert blocks.asked == []


def test_failure_answers_all_who_wait_and_the_next_request_tries_again() -> None:
    blocks, given = Blocks(), []
    ids = ProducerIds(blocks)
    ids.next(given.append)
    ids.next(given.append)
    cause = ClusterError("no quorum")
    blocks.asked.pop(0)(cause)
    assert [type(each) for each in given] == [ProducerIdsUnavailable] * 2
    assert given[0].__cause__ is cause
    ids.next(given.append)
    blocks.grant()
    assert given[2] == 0


def test_request_out_of_an_answer_does_not_reserve_another_block() -> None:
    blocks, given = Blocks(), []
    ids = ProducerIds(blocks)

    def again(result: object) -> None:
        given.append(result)
        ids.next(given.append)

    ids.next(again)
    ids.next(given.append)
    blocks.grant()
    assert given == [0, 1, 2]
    assert blocks.asked == []


def test_waiters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRODUCER_ID_WAITERS_MAX", 2)
    blocks, given = Blocks(), []
    ids = ProducerIds(blocks)
    for _ in range(3):
        ids.next(given.append)
    assert [type(each) for each in given] == [ProducerIdsUnavailable]


def test_block_reserved_twice_is_a_broken_invariant() -> None:
    ids = ProducerIds(lambda done: done(range(1)))
    ids.next(lambda _: None)
    with pytest.raises(AssertionError, match="twice"):
        ids.next(lambda _: None)
