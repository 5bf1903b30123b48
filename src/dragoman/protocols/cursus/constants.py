"""Numbers and words of Cursus's wire."""

from __future__ import annotations

from typing import Final

#: First two bytes of a binary batch.
BATCH_MAGIC: Final = 0xBA7C
#: Published clients send frames of up to 64 MiB. The original broker and its Go client accept up to
#: 16 MiB, so larger frames are not sent.
FRAME_BYTES_MAX: Final = 64 << 20
SENT_FRAME_BYTES_MAX: Final = 16 << 20
DECOMPRESSED_BYTES_MAX: Final = 16 << 20
BATCH_MESSAGES_MAX: Final = 100_000

#: The values of `acks`. An empty one means "1".
ACKS: Final = frozenset({"", "0", "1", "-1", "all"})
ACKS_OF_ALL: Final = frozenset({"-1", "all"})

_COMMANDS: Final = """
CREATE DELETE LIST METADATA DESCRIBE HELP LIST_OFFSETS PUBLISH CONSUME STREAM SUBSCRIBE
REGISTER_GROUP FIND_COORDINATOR JOIN_GROUP SYNC_GROUP LEAVE_GROUP HEARTBEAT FETCH_OFFSET
COMMIT COMMIT_OFFSET BATCH_COMMIT GROUP_STATUS LIST_GROUPS PROTOCOL_INFO NEGOTIATE AUTH
INIT_PRODUCER_ID BEGIN_TXN TXN_PUBLISH SEND_OFFSETS_TO_TXN END_TXN TXN_STATUS
APPEND_STREAM STREAM_VERSION READ_STREAM SAVE_SNAPSHOT READ_SNAPSHOT
LIST_CLUSTER CLUSTER_STATUS ELECT_LEADER
"""
_INTERNAL_COMMANDS: Final = """
REPLICATE_MESSAGE RAFT_APPLY REPLICATE_SNAPSHOT LIST_SNAPSHOTS FETCH_SNAPSHOT CATCHUP_SNAPSHOTS
INTERNAL_BATCH
"""
_BARE_COMMANDS: Final = """
LIST HELP LIST_GROUPS PROTOCOL_INFO NEGOTIATE AUTH FIND_COORDINATOR LIST_CLUSTER CLUSTER_STATUS
"""
#: The commands of clients, as HELP lists them.
COMMANDS: Final = tuple(_COMMANDS.split())
#: Commands between the original's brokers, which are refused.
INTERNAL_COMMANDS: Final = frozenset(_INTERNAL_COMMANDS.split())
#: Commands that are valid without arguments.
BARE_COMMANDS: Final = frozenset(_BARE_COMMANDS.split())
#: Commands of the first published protocol page, whose arguments have no names, with the arguments
#: in their order there.
POSITIONAL: Final[dict[str, tuple[str, ...]]] = {
    "CREATE": ("topic", "partitions"),
    "DELETE": ("topic",),
    "METADATA": ("topic",),
    "DESCRIBE": ("topic",),
    "CONSUME": ("topic", "partition", "offset"),
    "STREAM": ("topic", "partition", "offset"),
    "SUBSCRIBE": ("topic", "group"),
    "JOIN_GROUP": ("topic", "group", "member"),
    "SYNC_GROUP": ("topic", "group", "member", "generation"),
    "LEAVE_GROUP": ("topic", "group", "member"),
    "HEARTBEAT": ("topic", "group", "consumer", "member", "generation"),
    "COMMIT": ("topic", "group", "partition", "offset"),
    "BATCH_COMMIT": ("topic", "group", "member", "generation", "offsets"),
}

FEATURES: Final = (
    "event_sourcing_v1",
    "idempotent_producer_v1",
    "offset_resume_v1",
    "stream_control_v1",
    "structured_errors_v1",
    "topic_compaction_v1",
)
STRUCTURED_ERRORS: Final = "structured_errors_v1"

OK: Final = "OK"
PARTIAL: Final = "PARTIAL"
ERROR: Final = "ERROR"
ERROR_PREFIX: Final = "ERROR: "
STREAM_CONTROL: Final = "STREAM_CONTROL"
