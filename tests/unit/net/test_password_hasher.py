"""Goal: password hashes are computed beside the loop, and no more wait than the bound says."""

from __future__ import annotations

import asyncio
import hashlib
import threading

import pytest

from dragoman.errors import LoginsOverloadedError
from dragoman.net import password_hasher
from dragoman.net.future import future_of
from dragoman.net.password_hasher import ThreadedHasher


async def test_hashes_are_those_of_hashlib() -> None:
    hasher = ThreadedHasher(asyncio.get_running_loop().call_soon_threadsafe)
    outcomes = [hasher.derive("sha256", b"p", b"s%d" % each, 4096) for each in range(20)]
    found = await asyncio.gather(*map(future_of, outcomes))
    assert found == [hashlib.pbkdf2_hmac("sha256", b"p", b"s%d" % each, 4096) for each in range(20)]


async def test_one_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_hasher, "PASSWORD_HASHES_WAITING_MAX", 2)
    monkeypatch.setattr(password_hasher, "PASSWORD_HASH_THREADS", 1)
    entered, release = threading.Event(), threading.Event()

    def slow(*_: object) -> bytes:
        entered.set()
        release.wait()
        return b"derived"

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", slow)
    hasher = ThreadedHasher(asyncio.get_running_loop().call_soon_threadsafe)
    first = hasher.derive("sha256", b"", b"", 1)
    entered.wait()
    waiting = [hasher.derive("sha256", b"", b"", 1) for _ in range(3)]
    with pytest.raises(LoginsOverloadedError):
        waiting[2].result()
    release.set()
    for each in (first, *waiting[:2]):
        assert await future_of(each) == b"derived"


async def test_threads_end_without_work_and_start_again() -> None:
    hasher = ThreadedHasher(asyncio.get_running_loop().call_soon_threadsafe)
    for _ in range(3):
        await future_of(hasher.derive("sha512", b"p", b"s", 1))


def test_result_for_a_closed_loop_is_dropped() -> None:
    done = threading.Event()

    def closed(*_: object) -> None:
        done.set()
        raise RuntimeError("the loop is closed")

    outcome = ThreadedHasher(closed).derive("sha256", b"p", b"s", 1)
    assert done.wait(10)
    assert not outcome.is_settled
