"""Ports for nodes that must know theirs before they start, or keep them over restarts.

A process takes a block of ports and holds its first one until it ends, so that tests that run
beside it take theirs elsewhere. All blocks are below the ports that the system gives to clients.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle

HOST = "127.0.0.1"
_BLOCK = 400
_FIRST = range(20_000, 32_000, _BLOCK)


def free_ports() -> Iterator[int]:
    """Ports without a listener, each only once until all of this process were given."""
    _, ports = _block()
    for port in ports:
        if _is_free(port):
            yield port


def free_row(length: int) -> int:
    """The first of some ports without a listener that follow each other."""
    row: list[int] = []
    for port in free_ports():
        row = [*row, port] if row and port == row[-1] + 1 else [port]
        if len(row) == length:
            return row[0]
    raise AssertionError("ports never end")


@cache
def _block() -> tuple[socket.socket, Iterator[int]]:
    for first in _FIRST:
        claim = socket.socket()
        try:
            claim.bind((HOST, first))
        except OSError:
            claim.close()
        else:
            return claim, cycle(range(first + 1, first + _BLOCK))
    raise RuntimeError("other processes have taken all blocks of ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
