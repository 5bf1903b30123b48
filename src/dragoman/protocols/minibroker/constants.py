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
    """Where a subscription starts, and who chooses its partitions."""

    HEAD = 0x00
    OFFSET = 0x01
    GROUP = 0x02


#: Op byte and body together. A frame that announces more ends the connection without a word.
FRAME_BYTES_MAX: Final = 100 << 20
#: Strings have a length of 16 bits; keys are bounded like them by the original's files.
STRING_BYTES_MAX: Final = 0xFFFF
KEY_BYTES_MAX: Final = 0xFFFF
#: The wire's offsets are unsigned, those of every log are not.
OFFSET_MAX: Final = (1 << 63) - 1
#: Of topics that are made for clients of this protocol: any number of segments. In a topic with a
#: limit on them the active segment is never dropped for its age, as in the original.
TOPIC_CONFIG: Final = {"retention.segments": str((1 << 31) - 1)}
