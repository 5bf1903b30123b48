"""Goal: no client can flood the log, whatever it sends before it is authenticated.

Method: a node over real sockets, connections that talk nonsense on every listener, and what the
loggers were given.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
import uvloop

from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.limits import LIMITED_LOG_LINES_MAX
from nodes.thread import Running

LISTENERS = (
    *("kafka", "rocketmq", "rocketmq-broker", "cursus", "minibroker", "mlog", "any", "http"),
)
#: More than one interval has room for.
CONNECTIONS = 3 * LIMITED_LOG_LINES_MAX
NONSENSE = {
    "bytes that no protocol has": b"\xff" * 64,
    "a frame that is too large": b"\x7f\xff\xff\xff",
    "a request of an unknown kind": b"\0\0\0\x0a\x7f\xff\0\0\0\0\0\1\xff\xff",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "text": b"HELO example.org\r\n\r\n",
}


@pytest.fixture
def running() -> Iterator[Running]:
    listeners = tuple(Listener(name=name, bind=Address("127.0.0.1", 0)) for name in LISTENERS)
    node = Running(uvloop.new_event_loop, Settings(listeners=listeners))
    yield node
    node.stop()


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_costs_a_few_lines(
    running: Running, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for opened in running.node.listeners.opened:
        for _ in range(CONNECTIONS):
            peer = socket.create_connection(("127.0.0.1", opened.bound.port), 60)
            with peer, suppress(OSError):
                peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass
    # One kind of line for what is wrong with connections, another for what is no HTTP.
    assert len(caplog.records) <= 2 * LIMITED_LOG_LINES_MAX
