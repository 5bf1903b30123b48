"""JSON bodies of requests and responses (spec, sections 5 to 7), for both sides of a connection.

Decoding is lenient where clients differ: enumerations may be names or numbers, numbers may be
strings, and sets may be null or absent. A table by queue has strings as keys (`keyed`, `by_queue`);
`json.write` converts them to the format that the peer reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.rocketmq import json
from dragoman.protocols.rocketmq.constants import LANGUAGES, READ_AND_WRITE, RECONSUME_TIMES_MAX
from dragoman.types import Buffer

Kind = TypeVar("Kind", bound=msgspec.Struct)
Cell = TypeVar("Cell")


class Body(msgspec.Struct, rename="camel", kw_only=True):
    """A body with member names in camelCase."""


def decode(data: Buffer, kind: type[Kind]) -> Kind:
    """Raises `DecodeError`."""
    return json.read(data, kind, _named)


def encode(body: msgspec.Struct, *, object_keys: bool = False) -> bytes:
    """Compact JSON; `object_keys` as in `json.write`."""
    return json.write(body, object_keys=object_keys)


# ---- enumerations


class ConsumeType(StrEnum):
    ACTIVELY = "CONSUME_ACTIVELY"
    PASSIVELY = "CONSUME_PASSIVELY"
    POP = "CONSUME_POP"


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFrom(StrEnum):
    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    #: This value and the next two are deprecated in Java, and mean `LAST_OFFSET`.
    LAST_AND_MIN_AT_FIRST_BOOT = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class DirectResult(StrEnum):
    """The result of consuming a message on an operator's request."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    ROLLBACK = "CR_ROLLBACK"
    COMMIT = "CR_COMMIT"
    THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    RETURN_NULL = "CR_RETURN_NULL"


#: The names of enumeration values that some clients send as numbers.
_BY_NUMBER: Final[dict[str, tuple[str, ...]]] = {
    "consumeType": tuple(ConsumeType),
    "messageModel": tuple(MessageModel),
    "consumeFromWhere": tuple(ConsumeFrom),
    "language": LANGUAGES,
}


def _named(name: str, value: json.Json) -> json.Json:
    names = _BY_NUMBER.get(name)
    if names is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:3])
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return value


# ---- queues


class MessageQueue(msgspec.Struct, rename="camel", kw_only=True, frozen=True, order=True):
    """A queue. It compares in the order in which all members of a group must sort queues."""

    topic: str
    broker_name: str
    queue_id: int


def queue_key(queue: MessageQueue) -> str:
    """The key of a queue in a table."""
    return json.write(queue).decode()


def by_queue(table: Mapping[str, Cell]) -> dict[MessageQueue, Cell]:
    """A table by queue. Raises `DecodeError` for a key that is not a queue."""
    return {decode(key.encode(), MessageQueue): cell for key, cell in table.items()}


def keyed(table: Mapping[MessageQueue, Cell]) -> dict[str, Cell]:
    return {queue_key(queue): cell for queue, cell in table.items()}


# ---- routes and the cluster


class DataVersion(Body):
    counter: int = 0
    timestamp: int = 0
    state_version: int = 0


class BrokerData(Body):
    broker_name: str
    cluster: str = ""
    #: Addresses by broker id; 0 is the master.
    broker_addrs: dict[str, str] = {}


class QueueData(Body):
    broker_name: str
    read_queue_nums: int = 4
    write_queue_nums: int = 4
    perm: int = READ_AND_WRITE
    topic_sys_flag: int = 0


class TopicRouteData(Body):
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | msgspec.UnsetType = msgspec.UNSET


class ClusterInfo(Body):
    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMemberGroup(Body):
    broker_member_group: BrokerData | None = None


class TopicList(Body):
    topic_list: list[str] = []
    broker_addr: str | None = None


class KvTable(Body):
    """A table of strings, such as the runtime statistics of a broker."""

    table: dict[str, str] = {}


# ---- heartbeats and members


class SubscriptionData(Body):
    topic: str
    sub_string: str = "*"
    tags_set: list[str] = []
    #: Hashes of tags. They are unreliable, because some clients send zeros.
    code_set: list[int] = []
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class CheckClient(Body):
    """A subscription for the broker to check."""

    subscription_data: SubscriptionData | None = None


class ProducerData(Body):
    group_name: str


class ConsumerData(Body):
    group_name: str
    consume_type: ConsumeType = ConsumeType.PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFrom = ConsumeFrom.LAST_OFFSET
    unit_mode: bool = False
    subscription_data_set: list[SubscriptionData] = []


class HeartbeatData(Body):
    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class ConsumerIds(Body):
    consumer_id_list: list[str] = []


class LockBatch(Body):
    """A request to lock or to unlock queues."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []
    only_this_broker: bool | msgspec.UnsetType = msgspec.UNSET


class LockedBatch(Body):
    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class Connection(Body):
    client_id: str
    client_addr: str = ""
    language: str = "JAVA"
    version: int = 0


class ConsumerConnection(Body):
    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType = ConsumeType.PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFrom = ConsumeFrom.LAST_OFFSET


class ProducerConnection(Body):
    connection_set: list[Connection] = []


class ProducerInfo(Body):
    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body):
    #: By group.
    data: dict[str, list[ProducerInfo]] = {}


# ---- topics and groups


class TopicConfig(Body):
    topic_name: str
    read_queue_nums: int = 4
    write_queue_nums: int = 4
    perm: int = READ_AND_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}


class TopicConfigTable(Body):
    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class TopicConfigList(Body):
    topic_config_list: list[TopicConfig] = []


class SubscriptionGroupConfig(Body):
    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = RECONSUME_TIMES_MAX
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = {}


class SubscriptionGroupTable(Body):
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    #: By group, then by topic.
    forbidden_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class SubscriptionGroupList(Body):
    group_config_list: list[SubscriptionGroupConfig] = []


class GroupForbidden(Body):
    topic: str
    group: str
    readable: bool = True


class GroupList(Body):
    group_list: list[str] = []


class GroupSubscription(Body):
    """The subscription of a group to one topic."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


# ---- offsets and statistics; tables are by queue


class TopicOffset(Body):
    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(Body):
    offset_table: dict[str, TopicOffset] = {}
    topic_put_tps: float = 0.0


class OffsetWrapper(Body):
    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(Body):
    offset_table: dict[str, OffsetWrapper] = {}
    consume_tps: float = 0.0


class BrokerConsumeStats(Body):
    #: Each entry has the statistics of one group, by its name.
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str = ""
    total_diff: int = 0
    total_inflight_diff: int = 0


class QueueTimeSpan(Body):
    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class ConsumeTimeSpan(Body):
    consume_time_span_set: list[QueueTimeSpan] = []


class ResetOffset(Body):
    """Both the response to an operator, and the request to the members."""

    offset_table: dict[str, int] = {}


class QueueOffset(MessageQueue, frozen=True):
    offset: int


class ResetOffsetList(Body):
    """The request to C++ members."""

    offset_table: list[QueueOffset] = []


class ClientOffsets(Body):
    """The offsets of a member."""

    message_queue_table: dict[str, int] = {}


class GroupOffsets(Body):
    """The offsets of members by client id."""

    consumer_table: dict[str, dict[str, int]] = {}
    message_queue_table: dict[str, int] = {}


class CorrectionOffsets(Body):
    #: By queue id.
    correction_offsets: dict[str, int] = {}


class ConsumerOffsets(Body):
    """All offsets of a broker: by `topic@group`, then by queue id."""

    offset_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class DelayOffsets(Body):
    #: By delay level.
    offset_table: dict[str, int] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class StatsItem(Body):
    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStats(Body):
    stats_minute: StatsItem = msgspec.field(default_factory=StatsItem)
    stats_hour: StatsItem = msgspec.field(default_factory=StatsItem)
    stats_day: StatsItem = msgspec.field(default_factory=StatsItem)


class ConsumeQueueEntry(Body):
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class ConsumeQueueView(Body):
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueEntry] = []
    max_queue_index: int = 0
    min_queue_index: int = 0


# ---- requests to members


class ProcessQueueInfo(Body):
    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    #: Spelt as on the wire.
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(Body):
    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(Body):
    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    #: By queue.
    mq_table: dict[str, ProcessQueueInfo] = {}
    #: By topic.
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None


class DirectConsumption(Body):
    """The result of consuming a message on one member, for an operator."""

    order: bool = False
    auto_commit: bool = True
    consume_result: DirectResult = DirectResult.SUCCESS
    remark: str | None = None
    spent_time_mills: int = 0


# ---- assignments by the broker


class QueryAssignment(Body):
    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: MessageModel = MessageModel.CLUSTERING


class QueueAssignment(Body):
    message_queue: MessageQueue
    mode: str = "PULL"
    attachments: dict[str, str] = {}


class Assignments(Body):
    message_queue_assignments: list[QueueAssignment] = []


class RequestMode(Body):
    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0


# ---- users and permissions


class UserInfo(Body):
    username: str
    password: str | None = None
    user_type: str = "Normal"
    user_status: str = "enable"

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type}, {self.user_status})"


class AclEntry(Body):
    resource: str
    actions: list[str] = []
    source_ips: list[str] = []
    decision: str = "Allow"


class AclPolicy(Body):
    policy_type: str = "Custom"
    entries: list[AclEntry] = []


class AclInfo(Body):
    subject: str
    policies: list[AclPolicy] = []


# ---- lines


def read_lines(data: Buffer) -> dict[str, str]:
    """Configuration as `name=value` lines. Raises `DecodeError`."""
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"configuration is not text: {error}") from None
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def write_lines(table: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in table.items()).encode()
