"""Numbers of mlog's wire: message types, encodings and the bound on a payload."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class MessageType(IntEnum):
    """In the order of the original's declaration (section 3 of the specification)."""

    REPLICATE_STREAM = 0
    REPLICATE_RESP = 1
    PRODUCE = 2
    PRODUCE_RESP = 3
    PRODUCE_BATCH = 4
    PRODUCE_BATCH_RESP = 5
    FETCH = 6
    FETCH_RESP = 7
    FETCH_BATCH = 8
    FETCH_BATCH_RESP = 9
    FETCH_STREAM = 10
    FETCH_STREAM_RESP = 11
    COMMIT_OFFSET = 12
    COMMIT_OFFSET_RESP = 13
    FETCH_OFFSET = 14
    FETCH_OFFSET_RESP = 15
    CREATE_TOPIC = 16
    CREATE_TOPIC_RESP = 17
    DELETE_TOPIC = 18
    DELETE_TOPIC_RESP = 19
    RPC_ERROR = 20
    FIND_TOPIC_LEADER = 21
    FIND_TOPIC_LEADER_RESP = 22
    FIND_RAFT_LEADER = 23
    FIND_RAFT_LEADER_RESP = 24
    LIST_TOPICS = 25
    LIST_TOPICS_RESP = 26
    APPLY_ISR_UPDATE_EVENT = 27
    APPLY_ISR_UPDATE_EVENT_RESP = 28


class Encoding(Enum):
    """The encoding of payloads. A connection uses one from its first frame on."""

    JSON = "json"
    PROTOBUF = "protobuf"


class AckMode(IntEnum):
    NONE = 0
    LEADER = 1
    ALL = 2


#: A frame begins with its type and the size of its payload.
HEADER_FORMAT: Final = ">HI"
#: Size of the type, which precedes the payload size.
LEAD_BYTES: Final = 2
PAYLOAD_BYTES_MAX: Final = 4 << 20
#: The id of a client that does not give one.
DEFAULT_ID: Final = "default"
