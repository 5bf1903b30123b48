"""mlog's error codes and fixed texts.

`handlers/session.py` maps the broker's errors to them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    UNKNOWN = 0
    TOPIC_REQUIRED = 1
    TOPIC_NAME_REQUIRED = 2
    TOPIC_NOT_FOUND = 3
    NOT_TOPIC_LEADER = 4
    VALUES_REQUIRED = 5
    READ_OFFSET = 6
    COMMIT_OFFSET = 7
    RECOVER_OFFSETS = 8
    REPLICA_COUNT_INVALID = 9
    LEADER_ADDR_REQUIRED = 10
    RAFT_LEADER_UNAVAILABLE = 11
    TOPIC_EXISTS = 12
    NOT_ENOUGH_NODES = 13
    CANNOT_REACH_LEADER = 14
    INVALID_ACK_MODE = 15
    TIMEOUT_CATCH_UP = 16


#: Dragoman's text for a client without a principal on a listener that requires one.
ANONYMOUS_REFUSED_TEXT: Final = "authentication required: no certificate and no known address"
TOPIC_REQUIRED_TEXT: Final = "topic is required"
TOPIC_NAME_REQUIRED_TEXT: Final = "topic name is required"
VALUE_REQUIRED_TEXT: Final = "value is required"
VALUES_REQUIRED_TEXT: Final = "values are required"
NOT_LEADER_TEXT: Final = "this node is not the topic leader; produce to the topic leader"
CATCH_UP_TEXT: Final = (
    "failed to wait for all followers to catch up: timeout before all followers caught up"
)


def topic_not_found(topic: str) -> str:
    return f"topic {topic} not found: topic not found"


def beyond_watermark(offset: int, last_readable: int) -> str:
    return (
        f"failed to read offset {offset}: offset {offset} is beyond high watermark "
        f"{last_readable} (uncommitted data): log: offset beyond high watermark"
    )
