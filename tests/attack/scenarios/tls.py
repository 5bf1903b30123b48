"""TLS that is begun and not ended: hellos without an answer, cut ones, a few bytes, garbage."""

from __future__ import annotations

import os
import ssl
from contextlib import ExitStack, suppress

from attack.target import Target, settle
from worlds.tls import MemoryPeer

#: Just beyond the time that a node gives a handshake.
_HOLD_S = 11.0


def _hello() -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return MemoryPeer(context).handshake()


def half_open(count: int, target: Target) -> str:
    """Each sends a hello, and does not answer what the node has signed for it."""
    hello = _hello()
    refused = 0
    before = target.resident_bytes()
    with ExitStack() as sockets:
        for _ in range(count):
            try:
                sockets.enter_context(target.connect("kafka-tls")).sendall(hello)
            except OSError:
                refused += 1
        settle(_HOLD_S)
        return _per_connection(target, before, count, refused)


def few_bytes(listener: str, count: int, target: Target) -> str:
    """Each sends the five bytes that begin a record of TLS, and no more."""
    refused = 0
    before = target.resident_bytes()
    with ExitStack() as sockets:
        for _ in range(count):
            try:
                sockets.enter_context(target.connect(listener)).sendall(b"\x16\x03\x01\x02\x00")
            except OSError:
                refused += 1
        settle(_HOLD_S)
        return _per_connection(target, before, count, refused)


def _per_connection(target: Target, before: int, count: int, refused: int) -> str:
    each = (target.peak_bytes - before) / count / 1024
    return f"{each:.1f} KB at the peak for each of {count}, {refused} refused"


def garbage(count: int, target: Target) -> None:
    """Each begins like TLS and goes on with noise: the node has to find out what is wrong."""
    for number in range(count):
        size = number % 16_000 + 1
        data = b"\x16\x03\x01" + size.to_bytes(2, "big") + os.urandom(size)
        with suppress(OSError), target.connect("kafka-tls") as peer:
            peer.sendall(data)
            peer.recv(1)


_NODES = (1, 3)
ATTACKS = (
    ("tls: 10,000 half-open", lambda target: half_open(10_000, target), (), _NODES, True),
    (
        "tls: 4,000 times five bytes",
        lambda target: few_bytes("any", 4000, target),
        (),
        (1, 3),
        True,
    ),
    ("tls: garbage", lambda target: garbage(2000, target), (), _NODES, True),
)
