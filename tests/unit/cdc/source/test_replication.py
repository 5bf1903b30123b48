"""Frames from a connection: a waiter is called back, and can wait again after that.

What libpq would do is played over a pair of sockets.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from dragoman.captures.definition import Definition
from dragoman.cdc.source.connection import refusal
from dragoman.cdc.source.replication import ReplicationConnection

SHOP = Definition(name="shop", dsn="postgresql://h/d", tables=("t",))


class PlayedLibpq:
    """Each datagram is a frame."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._frames: list[bytes] = []
        self.socket = end.fileno()

    def get_copy_data(self, _: int) -> tuple[int, bytes]:
        return (len(self._frames[0]), self._frames.pop(0)) if self._frames else (0, b"")

    def consume_input(self) -> None:
        # As libpq does, it is called without anything being there.
        with suppress(BlockingIOError):
            self._frames.append(self._end.recv(100, socket.MSG_DONTWAIT))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        yield one, other


async def test_who_was_called_back_may_wait_again(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """As when a transaction has to be finished before the capture can be paused."""
    here, there = ends
    connection: Any = SimpleNamespace(
        pgconn=PlayedLibpq(here), info=SimpleNamespace(server_version=180000)
    )
    replication = ReplicationConnection(connection, SHOP)
    waiting = asyncio.create_task(replication.receive())
    await asyncio.sleep(0)
    replication.interrupt()
    assert await waiting == []
    # There was no waiter: the next one is called back.
    replication.interrupt()
    assert await replication.receive() == []
    waiting = asyncio.create_task(replication.receive())
    await asyncio.sleep(0)
    assert not waiting.done()
    there.send(b"frame")
    async with asyncio.timeout(30):
        assert await waiting == [b"frame"]


def test_unencodable_text_error_names_a_remedy() -> None:
    error = psycopg.errors.CharacterNotInRepertoire('invalid byte sequence for encoding "UTF8"')
    found = refusal(error, SHOP.dsn)
    assert "text that is not UTF-8" in found.what
    assert "a new snapshot" in found.remedy
    assert not found.is_transient


@pytest.mark.parametrize(
    ("words", "is_transient"),
    [
        ("SSL connection has been closed unexpectedly", True),
        ("SSL SYSCALL error: EOF detected", True),
        ("SSL SYSCALL error: Connection reset by peer", True),
        ("SSL error: unexpected eof while reading", True),
        ("server closed the connection unexpectedly", True),
        ("no COPY in progress", True),
        ("SSL error: certificate verify failed", False),
        ("server does not support SSL, but SSL was required", False),
    ],
)
def test_a_connection_that_was_ended_is_waited_for_with_tls_too(
    words: str, is_transient: bool
) -> None:
    assert refusal(psycopg.OperationalError(words), SHOP.dsn).is_transient is is_transient
