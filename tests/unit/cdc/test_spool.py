"""Transactions under way: what was spooled comes back in order, without what was rolled back."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from struct import pack

import pytest

from dragoman.cdc import spool as module
from dragoman.cdc.spool import Spool, SpoolFullError


def message(xid: int, text: str, kind: str = "I") -> bytes:
    return kind.encode() + pack(">I", xid) + text.encode()


def block(spool: Spool, xid: int, *messages: bytes) -> None:
    spool.open(xid)
    for each in messages:
        spool.append(each)
    spool.close()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(str(tmp_path / "spool"))


def test_blocks_of_transactions_are_put_together(spool: Spool) -> None:
    block(spool, 7, message(7, "a"), message(7, "b"))
    block(spool, 8, message(8, "x" * 100_000))
    block(spool, 7, message(7, "c", "U"))
    assert list(spool.messages(7)) == [b"Ia", b"Ib", b"Uc"]
    assert list(spool.messages(8)) == [b"I" + b"x" * 100_000]
    assert list(spool.messages(9)) == []


def test_where_a_transaction_came_from_is_of_no_interest(spool: Spool) -> None:
    """The one message of a block that has no xid."""
    origin = b"O" + pack(">Q", 0) + b"eu\0"
    block(spool, 7, origin, message(7, "a"))
    assert list(spool.messages(7)) == [b"Ia"]


def test_directory_is_emptied_at_the_start_and_files_go_with_their_transactions(
    tmp_path: Path,
) -> None:
    (tmp_path / "left").write_bytes(b"over")
    spool = Spool(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    block(spool, 7, message(7, "a"))
    assert spool.size > 0
    assert len(list(tmp_path.iterdir())) == 1
    spool.drop(7)
    spool.drop(7)
    assert list(tmp_path.iterdir()) == []
    assert spool.size == 0


def test_part_that_is_rolled_back_is_cut_off_with_those_within_it(spool: Spool) -> None:
    block(spool, 7, message(7, "a"), message(8, "b"), message(9, "c"), message(8, "d"))
    # The database tells of inner ones first, and 8 is where the file is cut last.
    spool.cut(7, 9)
    spool.cut(7, 8)
    block(spool, 7, message(7, "e"), message(10, "f"))
    assert list(spool.messages(7)) == [b"Ia", b"Ie", b"If"]
    spool.cut(7, 10)
    spool.cut(7, 99)
    assert list(spool.messages(7)) == [b"Ia", b"Ie"]
    spool.cut(7, 7)
    assert list(spool.messages(7)) == []
    assert spool.size == 0


def test_outer_part_whose_first_change_follows_an_inner_ones(spool: Spool) -> None:
    block(spool, 7, message(7, "a"), message(9, "b"), message(8, "c"), message(9, "d"))
    spool.cut(7, 9)
    spool.cut(7, 8)
    assert list(spool.messages(7)) == [b"Ia"]


def test_descriptions_of_tables_survive_the_part_that_they_came_with(spool: Spool) -> None:
    block(spool, 7, message(7, "a"), message(8, "t", "R"), message(8, "b"))
    spool.cut(7, 8)
    block(spool, 7, message(7, "c"))
    assert list(spool.messages(7)) == [b"Ia", b"Rt", b"Ic"]
    block(spool, 8, message(8, "t", "R"))
    assert list(spool.messages(8)) == [b"Rt"]


def test_histories_with_savepoints_come_out_as_a_stack_would_have_them(tmp_path: Path) -> None:
    for seed in range(200):
        dice = random.Random(seed)
        spool = Spool(str(tmp_path / "spool"))
        following, number = 101, 0
        #: Savepoints that are open, each with the messages written since and xids used since.
        stack: list[tuple[list[bytes], list[int]]] = [([], [])]
        xids = [100]
        for _ in range(dice.randrange(60)):
            match dice.choice("wwwwsrb"):
                case "w":
                    number += 1
                    block(spool, 100, message(xids[-1], str(number)))
                    stack[-1][0].append(f"I{number}".encode())
                case "s":
                    stack.append(([], []))
                    xids.append(following)
                    following += 1
                case "r" if len(stack) > 1:
                    written, used = stack.pop()
                    stack[-1][0].extend(written)
                    stack[-1][1].extend((*used, xids.pop()))
                case "b" if len(stack) > 1:
                    _, used = stack.pop()
                    for each in (*used, xids.pop()):
                        spool.cut(100, each)
        expected = [each for written, _ in stack for each in written]
        assert list(spool.messages(100)) == expected, seed


def test_full_disk_is_said_in_words(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAPTURE_SPOOL_BUFFER_BYTES", 16)
    spool.open(7)
    assert spool._file is not None
    spool._file.close()

    class Full:
        def write(self, _data: bytes) -> int:
            raise OSError(errno.ENOSPC, "no space")

        def close(self) -> None: ...

    spool._file = Full()  # type: ignore[assignment]
    with pytest.raises(SpoolFullError, match=r"no space is left in .*free some"):
        spool.append(message(7, "a"))


def test_bound_of_all_files_is_kept(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAPTURE_SPOOL_BYTES_MAX", 100)
    block(spool, 7, message(7, "a" * 60))
    spool.open(8)
    with pytest.raises(SpoolFullError, match="streaming"):
        spool.append(message(8, "a" * 60))
    spool.close()
