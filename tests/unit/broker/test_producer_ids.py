"""Producer ids come from reserved blocks, once each, in order of the requests."""

from __future__ import annotations

import pytest

from dragoman.broker.errors import ProducerIdsUnavailable
from dragoman.broker.transactions import ProducerIds
from dragoman.broker.transactions import producer_ids as module
from dragoman.errors import ClusterError
from dragoman.outcome import Outcome, start, succeeded


class Blocks:
    """Reserves blocks of `size` when a test lets it."""

    def __init__(self, size: int = 3) -> None:
        self.size = size
        self.reserved = 0
        self.asked: list[Outcome[range]] = []

    def __call__(self) -> Outcome[range]:
        self.asked.append(Outcome())
        return self.asked[-1]

    def grant(self) -> None:
        first, self.reserved = self.reserved, self.reserved + self.size
        self.asked.pop(0).succeed(range(first, self.reserved))


def test_ids_come_in_order_once_a_block_is_reserved() -> None:
    blocks, given = Blocks(), []
    ids = ProducerIds(blocks)
    for _ in range(5):
        start(ids.next()).then(given.append)
    assert given == []
    assert len(blocks.asked) == 1
    blocks.grant()
    assert given == [0, 1, 2]
    blocks.grant()
    assert given == [0, 1, 2, 3, 4]
    start(ids.next()).then(given.append)
    assert given[-1] == 5
    assert blocks.asked == []


def test_failure_answers_all_who_wait_and_the_next_request_tries_again() -> None:
    blocks, given = Blocks(), []
    ids = ProducerIds(blocks)
    start(ids.next()).then(given.append)
    start(ids.next()).then(given.append)
    cause = ClusterError("no quorum")
    blocks.asked.pop(0).fail(cause)
    assert [type(each) for each in given] == [ProducerIdsUnavailable] * 2
    assert given[0].__cause__ is cause
    start(ids.next()).then(given.append)
    blocks.grant()
    assert given[2] == 0


def test_request_out_of_an_answer_does_not_reserve_another_block() -> None:
    blocks, given = Blocks(), []
    ids = ProducerIds(blocks)

    def again(result: object) -> None:
        given.append(result)
        start(ids.next()).then(given.append)

    start(ids.next()).then(again)
    start(ids.next()).then(given.append)
    blocks.grant()
    assert given == [0, 1, 2]
    assert blocks.asked == []


def test_waiters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRODUCER_ID_WAITERS_MAX", 2)
    blocks, given = Blocks(), []
    ids = ProducerIds(blocks)
    for _ in range(3):
        start(ids.next()).then(given.append)
    assert [type(each) for each in given] == [ProducerIdsUnavailable]


def test_block_reserved_twice_is_a_broken_invariant() -> None:
    ids = ProducerIds(lambda: succeeded(range(1)))
    start(ids.next()).then(lambda _: None)
    with pytest.raises(AssertionError, match="twice"):
        start(ids.next()).then(lambda _: None)
