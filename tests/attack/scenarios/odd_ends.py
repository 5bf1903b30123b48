"""Connections that end in odd ways: nonsense, and half of them closed while something waits."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack, suppress

from attack.target import Target, settle

_HOLD_S = 8.0
_TEN_MINUTES_MS = 600_000


def nonsense(listeners: tuple[str, ...], count: int, target: Target) -> None:
    """Each begins with bytes that no protocol has, and would be a line of the log."""
    for number in range(count):
        with suppress(OSError), target.connect(listeners[number % len(listeners)]) as peer:
            peer.sendall(b"\xff" * 64)
    settle(_HOLD_S)


def half_closed(count: int, target: Target) -> str:
    """Each waits for records that do not come, and closes its half."""
    poll = _fetch("bystander", 1 << 40)
    with ExitStack() as sockets:
        peers = []
        for _ in range(count):
            peer = sockets.enter_context(target.connect("kafka"))
            peer.sendall(poll)
            peer.shutdown(socket.SHUT_WR)
            peers.append(peer)
        settle(_HOLD_S)
        answered = 0
        for peer in peers:
            peer.setblocking(False)
            with suppress(OSError):
                answered += bool(peer.recv(1 << 16))
        return f"{answered} of {count} answered, {target.descriptors()} descriptors"


def _fetch(topic: str, bytes_min: int) -> bytes:
    """A Fetch of version 4 that waits for more bytes than there are."""
    name = topic.encode()
    body = struct.pack(">hhih", 1, 4, 7, -1)
    body += struct.pack(">iiiib", -1, _TEN_MINUTES_MS, min(bytes_min, 0x7FFFFFFF), 1 << 20, 0)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    return struct.pack(">i", len(body)) + body


_ALL = ("kafka", "rocketmq", "cursus", "minibroker", "mlog", "any", "http", "peer")
ATTACKS = (
    ("ends: nonsense", lambda target: nonsense(_ALL, 4000, target)),
    ("ends: half closed", lambda target: half_closed(1000, target)),
)
