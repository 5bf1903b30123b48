"""Op codes, subscription modes and bounds of the minibroker wire (spec, sections 2 and 3)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Op(IntEnum):
    """The first byte of every frame."""

    PUB = 0x01
    SUB = 0x02
    UNSUB = 0x03
    COMMIT = 0x04
    QUIT = 0x05
    HEARTBEAT = 0x06
    OK = 0x10
    ERR = 0x11
    MSG = 0x20
    REBALANCE = 0x21


class Mode(IntEnum):
    """Where a subscription starts, and whether the group assigns its partitions."""

    HEAD = 0x00
    OFFSET = 0x01
    GROUP = 0x02


#: Bound on op and body together. A larger frame closes the connection without a reply.
FRAME_BYTES_MAX: Final = 100 << 20
#: Strings have a length of 16 bits. The original's files bound keys in the same way.
STRING_BYTES_MAX: Final = 0xFFFF
KEY_BYTES_MAX: Final = 0xFFFF
#: Offsets are unsigned on the wire, but signed in the log.
OFFSET_MAX: Final = (1 << 63) - 1
#: Configuration of topics created for clients of this protocol: any number of segments. Where a
#: number is set, the active segment is never deleted for its age, as in the original.
TOPIC_CONFIG: Final = {"retention.segments": str((1 << 31) - 1)}
