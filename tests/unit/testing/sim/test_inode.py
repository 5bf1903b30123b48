"""One simulated file: pending changes, what a sync forgets, what a power cut takes back.

The outcomes a power cut may have are in `test_disk.py`; here are the two ends of the odds, where
the outcome is certain, and the bookkeeping.
"""

from __future__ import annotations

from random import Random

import pytest

from dragoman.testing.sim.file import Inode, Odds

ALL = Odds(1.0, 0.0)


class Never(Random):
    """A source whose draws are always in favour of losing."""

    def random(self) -> float:
        return 0.999

    def randrange(self, *_: object, **__: object) -> int:
        return 0


def changed() -> Inode:
    inode = Inode()
    inode.write(b"a" * 1000, 0, False)
    inode.sync()
    inode.write(b"b" * 1000, 500, False)
    inode.truncate(1200)
    inode.write(b"c" * 100, 1250, False)
    return inode


def test_with_every_draw_lost_the_durable_bytes_come_back() -> None:
    inode = changed()
    kept, lost = inode.settle(Never(), Odds(0.0, 0.0))
    assert inode.data == b"a" * 1000
    assert (kept, lost > 0) == (0, True)
    assert not inode.pending


def test_with_every_draw_kept_the_visible_bytes_stay() -> None:
    inode = changed()
    visible = bytes(inode.data)
    assert visible == b"a" * 500 + b"b" * 700 + bytes(50) + b"c" * 100
    _, lost = inode.settle(Random(1), ALL)
    assert inode.data == visible
    assert lost == 0


def test_a_durable_write_with_nothing_pending_leaves_nothing_pending() -> None:
    inode = Inode()
    inode.write(b"abc", 0, True)
    assert not inode.pending
    inode.write(b"def", 3, False)
    inode.write(b"ghi", 6, True)
    assert len(inode.pending) == 2


@pytest.mark.parametrize("before", range(4))
def test_a_sync_that_began_earlier_covers_the_changes_before_it(before: int) -> None:
    inode = Inode()
    for index in range(before):
        inode.write(bytes([65 + index]), 600 * index, False)
    began = inode.recorded
    inode.write(b"later", 5000, False)
    inode.sync(began)
    assert len(inode.pending) == 1
    inode.settle(Never(), Odds(0.0, 0.0))
    assert len(inode.data) == max(0, 600 * (before - 1) + 1)


def test_a_sync_that_began_before_another_one_ended_forgets_nothing_newer() -> None:
    inode = Inode()
    inode.write(b"a", 0, False)
    began = inode.recorded
    inode.sync()
    inode.write(b"b", 1, False)
    inode.write(b"c", 2, False)
    inode.sync(began)
    assert len(inode.pending) == 2


def test_lost_pages_stay_visible_and_are_replaced_when_written_again() -> None:
    inode = Inode()
    inode.write(b"a" * 1024, 0, False)
    inode.sync()
    inode.write(b"b" * 1024, 0, False)
    inode.lose_pages(Never(), Odds(0.0, 0.0))
    assert inode.data == b"b" * 1024
    assert inode.stable == b"a" * 1024
    inode.write(b"c", 600, False)
    inode.sync()
    inode.settle(Random(1), ALL)
    assert inode.data == b"a" * 512 + b"b" * 88 + b"c" + b"b" * 423


def test_a_truncation_after_lost_pages_is_synced_like_any_other() -> None:
    inode = Inode()
    inode.write(b"a" * 1024, 0, False)
    inode.lose_pages(Random(1), ALL)
    inode.truncate(700)
    inode.sync()
    inode.settle(Random(1), ALL)
    assert inode.data == b"a" * 700
