"""Frames that are announced and never sent."""

from __future__ import annotations

from attack.target import Target, settle

_ANNOUNCEMENT = bytes.fromhex("06400000")
_HOLD_S = 8.0


def announced_frames(listener: str, count: int, target: Target) -> str:
    opened = []
    refused = 0
    for _ in range(count):
        try:
            peer = target.connect(listener)
            peer.sendall(_ANNOUNCEMENT + b"\0")
        except OSError:
            refused += 1
        else:
            opened.append(peer)
    settle(_HOLD_S)
    for peer in opened:
        peer.close()
    return f"{refused} of {count} refused"


ATTACKS = (
    ("frames announced to kafka", lambda target: announced_frames("kafka", 4000, target)),
    ("frames announced to peer", lambda target: announced_frames("peer", 500, target)),
)
