"""mlog's messages as values. One declaration of each drives both encodings.

The order of fields is their order in JSON, and gives the field numbers in protobuf, from 1. Names
are those of the original's Go structs in Python's spelling; `_GO_NAMES` has the ones whose capitals
do not follow from that. Bytes and lists may be None, which is Go's nil: `null` in JSON, absent in
protobuf. Missing fields have Go's zero values. `fields_of` returns the fields of a message as a
table that both encodings use.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Meta

from dragoman.protocols.mlog.constants import MessageType

# msgspec checks bounds of up to 63 bits; larger values of UInt64 take the slow path (codec.py).
UInt64: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1, title="uint64")]
UInt32: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 32) - 1, title="uint32")]
Int64: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1, title="int64")]
Int32: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1, title="int32")]

_GO_NAMES: Final = {
    "node_id": "NodeID",
    "leader_node_id": "LeaderNodeID",
    "replica_node_id": "ReplicaNodeID",
    "designated_leader_node_id": "DesignatedLeaderNodeID",
    "is_isr": "IsISR",
    "leo": "LEO",
    "leader_leo": "LeaderLEO",
}


def _go_name(name: str) -> str:
    return _GO_NAMES.get(name) or "".join(map(str.capitalize, name.split("_")))


# Unknown keys are an error, so such JSON is decoded again by Go's rules.
class Message(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=_go_name
):
    """Root of all messages."""


# ---- records


class Produce(Message, frozen=True, kw_only=True):
    topic: str = ""
    value: bytes | None = None
    acks: Int32 = 0


class ProduceResp(Message, frozen=True, kw_only=True):
    offset: UInt64 = 0


class ProduceBatch(Message, frozen=True, kw_only=True):
    topic: str = ""
    values: list[bytes | None] | None = None
    acks: Int32 = 0


class ProduceBatchResp(Message, frozen=True, kw_only=True):
    base_offset: UInt64 = 0
    last_offset: UInt64 = 0
    count: UInt32 = 0


class Entry(Message, frozen=True, kw_only=True):
    """A record; the original calls it LogEntry."""

    offset: UInt64 = 0
    value: bytes | None = None


class Fetch(Message, frozen=True, kw_only=True):
    topic: str = ""
    id: str = ""
    offset: UInt64 = 0
    replica_node_id: str = ""


class FetchResp(Message, frozen=True, kw_only=True):
    entry: Entry | None = None


class FetchBatch(Message, frozen=True, kw_only=True):
    topic: str = ""
    id: str = ""
    offset: UInt64 = 0
    max_count: UInt32 = 0
    replica_node_id: str = ""


class FetchBatchResp(Message, frozen=True, kw_only=True):
    entries: list[Entry] | None = None


class FetchStream(FetchBatch, frozen=True, kw_only=True):
    """A FetchBatch that waits for records. The original reserves only the number."""


class FetchStreamResp(FetchBatchResp, frozen=True, kw_only=True): ...


# ---- committed offsets


class CommitOffset(Message, frozen=True, kw_only=True):
    topic: str = ""
    id: str = ""
    offset: UInt64 = 0


class CommitOffsetResp(Message, frozen=True, kw_only=True):
    success: bool = False


class FetchOffset(Message, frozen=True, kw_only=True):
    topic: str = ""
    id: str = ""


class FetchOffsetResp(Message, frozen=True, kw_only=True):
    offset: UInt64 = 0


# ---- topics and leaders


class CreateTopic(Message, frozen=True, kw_only=True):
    topic: str = ""
    #: Replicas besides the leader.
    replica_count: UInt32 = 0
    designated_leader_node_id: str = ""


class CreateTopicResp(Message, frozen=True, kw_only=True):
    topic: str = ""
    replica_node_ids: list[str] | None = None


class DeleteTopic(Message, frozen=True, kw_only=True):
    topic: str = ""


class DeleteTopicResp(Message, frozen=True, kw_only=True):
    topic: str = ""


class FindTopicLeader(Message, frozen=True, kw_only=True):
    topic: str = ""


class FindTopicLeaderResp(Message, frozen=True, kw_only=True):
    leader_addr: str = ""


class FindRaftLeader(Message, frozen=True, kw_only=True): ...


class FindRaftLeaderResp(Message, frozen=True, kw_only=True):
    raft_leader_addr: str = ""


class ReplicaInfo(Message, frozen=True, kw_only=True):
    node_id: str = ""
    is_isr: bool = False
    leo: Int64 = 0


class TopicInfo(Message, frozen=True, kw_only=True):
    name: str = ""
    leader_node_id: str = ""
    leader_epoch: Int64 = 0
    replicas: list[ReplicaInfo] | None = None


class ListTopics(Message, frozen=True, kw_only=True): ...


class ListTopicsResp(Message, frozen=True, kw_only=True):
    topics: list[TopicInfo] | None = None


# ---- between nodes


class ReplicateStream(Message, frozen=True, kw_only=True):
    topic: str = ""
    offset: UInt64 = 0
    batch_size: UInt32 = 0
    replica_node_id: str = ""


class ReplicateResp(Message, frozen=True, kw_only=True):
    topic: str = ""
    #: A batch; see `codec.py`.
    raw_chunk: bytes | None = None
    end_of_stream: bool = False
    leader_leo: Int64 = 0


class ApplyIsrUpdateEvent(Message, frozen=True, kw_only=True):
    topic: str = ""
    replica_node_id: str = ""
    isr: bool = False


class ApplyIsrUpdateEventResp(Message, frozen=True, kw_only=True): ...


class RPCError(Message, frozen=True, kw_only=True, rename=None):
    """The answer to any refused request. The only message whose JSON names are in lower case."""

    code: Int32 = 0
    message: str = ""


#: The message of each type.
MESSAGES: Final[dict[MessageType, type[Message]]] = dict(
    zip(
        MessageType,
        (
            ReplicateStream,
            ReplicateResp,
            Produce,
            ProduceResp,
            ProduceBatch,
            ProduceBatchResp,
            Fetch,
            FetchResp,
            FetchBatch,
            FetchBatchResp,
            FetchStream,
            FetchStreamResp,
            CommitOffset,
            CommitOffsetResp,
            FetchOffset,
            FetchOffsetResp,
            CreateTopic,
            CreateTopicResp,
            DeleteTopic,
            DeleteTopicResp,
            RPCError,
            FindTopicLeader,
            FindTopicLeaderResp,
            FindRaftLeader,
            FindRaftLeaderResp,
            ListTopics,
            ListTopicsResp,
            ApplyIsrUpdateEvent,
            ApplyIsrUpdateEventResp,
        ),
        strict=True,
    )
)
TYPES: Final[dict[type[Message], MessageType]] = {kind: each for each, kind in MESSAGES.items()}
#: The requests of clients, and the reply to each.
REPLIES: Final[dict[type[Message], type[Message]]] = {
    ReplicateStream: ReplicateResp,
    Produce: ProduceResp,
    ProduceBatch: ProduceBatchResp,
    Fetch: FetchResp,
    FetchBatch: FetchBatchResp,
    FetchStream: FetchStreamResp,
    CommitOffset: CommitOffsetResp,
    FetchOffset: FetchOffsetResp,
    CreateTopic: CreateTopicResp,
    DeleteTopic: DeleteTopicResp,
    FindTopicLeader: FindTopicLeaderResp,
    FindRaftLeader: FindRaftLeaderResp,
    ListTopics: ListTopicsResp,
    ApplyIsrUpdateEvent: ApplyIsrUpdateEventResp,
}


class Kind(Enum):
    TEXT = auto()
    BYTES = auto()
    BOOL = auto()
    INT = auto()
    MESSAGE = auto()


class Field(NamedTuple):
    #: From 1, in the order of declaration: protobuf's field number.
    number: int
    name: str
    json_name: str
    kind: Kind
    is_list: bool
    #: Bounds of an integer.
    low: int = 0
    high: int = 0
    #: Type of a nested message.
    message: type[msgspec.Struct] | None = None


_INTEGERS = {
    "uint64": (0, (1 << 64) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
}


@cache
def fields_of(message: type[msgspec.Struct]) -> tuple[Field, ...]:
    return tuple(
        _field(number, each) for number, each in enumerate(msgspec.structs.fields(message), 1)
    )


def _field(number: int, info: msgspec.structs.FieldInfo) -> Field:
    kind = _without_none(info.type)
    is_list = get_origin(kind) is list
    if is_list:
        kind = _without_none(get_args(kind)[0])
    field = Field(number, info.name, info.encode_name, Kind.MESSAGE, is_list)
    simple = {str: Kind.TEXT, bytes: Kind.BYTES, bool: Kind.BOOL}.get(kind)
    if simple is not None:
        return field._replace(kind=simple)
    metadata = getattr(kind, "__metadata__", ())
    if metadata:
        low, high = _INTEGERS[metadata[0].title]
        return field._replace(kind=Kind.INT, low=low, high=high)
    assert issubclass(kind, msgspec.Struct)
    return field._replace(message=kind)


def _without_none(kind: Any) -> Any:
    """`X` of `X | None`."""
    found = [each for each in get_args(kind) if each is not NoneType]
    is_union = NoneType in get_args(kind)
    return found[0] if is_union else kind
