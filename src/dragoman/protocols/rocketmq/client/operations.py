"""The operations of RocketMQ's administration, as a table.

A row is named like the method of `RocketmqAdmin` that sends it, in capitals. It has the request
code, the servers that the request is sent to, the names of its fields in the order of their values,
its body, and the decoder of its result. `docs/reference/rocketmq-admin.md` shows the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.client.messages import received
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Request
from dragoman.types import Buffer

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)
Content = TypeVar("Content")
Kind = TypeVar("Kind", bound=msgspec.Struct)
Value: TypeAlias = str | int | bool | None


class RareRequest(IntEnum):
    """Requests that only Apache RocketMQ serves."""

    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355
    UPDATE_AND_CREATE_STATIC_TOPIC = 513
    ADD_BROKER = 902
    REMOVE_BROKER = 903
    GET_BROKER_HA_STATUS = 907
    CONTROLLER_ELECT_MASTER = 1002
    CONTROLLER_GET_METADATA_INFO = 1005
    CONTROLLER_GET_SYNC_STATE_DATA = 1006
    GET_BROKER_EPOCH_CACHE = 1007
    UPDATE_CONTROLLER_CONFIG = 1009
    GET_CONTROLLER_CONFIG = 1010
    CLEAN_BROKER_DATA = 1011
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002
    GET_COLD_DATA_FLOW_CTR_INFO = 2003
    SET_COMMITLOG_READ_MODE = 2004


class Retry(Enum):
    """When a request is retried. All operations are idempotent."""

    UNTIL_TIMEOUT = "until the time-out"
    ONCE = "once, after a lost connection"
    NEVER = "never"


class Servers(Enum):
    """The servers that an operation is sent to."""

    NAME_SERVER = "a name server"
    NAME_SERVERS = "every name server"
    BROKER = "the broker"
    MASTERS = "the broker, or all masters"
    TOPIC_BROKERS = "the brokers of the topic"
    GROUP_BROKERS = "the brokers of the group"
    QUEUE_BROKER = "the broker of the queue"
    MESSAGE_BROKER = "the broker of the message"
    CONTROLLER = "the controller"

    @property
    def retry(self) -> Retry:
        match self:
            case Servers.NAME_SERVER:
                return Retry.UNTIL_TIMEOUT
            case Servers.NAME_SERVERS | Servers.CONTROLLER:
                return Retry.NEVER
            case _:
                return Retry.ONCE


# ---- bodies and answers


class PlainAccess(msgspec.Struct, frozen=True, kw_only=True):
    """An account of 4.x. Its permissions have the form `topic=PUB|SUB`."""

    access_key: str
    secret_key: str
    white_remote_address: str = ""
    is_admin: bool = False
    default_topic_perm: str = "DENY"
    default_group_perm: str = "DENY"
    topic_perms: tuple[str, ...] = ()
    group_perms: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"PlainAccess(access_key={self.access_key!r}, is_admin={self.is_admin})"


class Body(Generic[Content]):
    """The body of a request, and its name on the reference page."""

    def __init__(self, name: str, encode: Callable[[Content], bytes]) -> None:
        self.name = name
        self.encode = encode


class Answer(Generic[Result_co]):
    """The decoder of an operation's response, and its name on the reference page."""

    def __init__(self, name: str, read: Callable[[Command], Result_co]) -> None:
        """`read` may raise `KeyError` and `ValueError` for missing or wrong fields."""
        self.name = name
        self.read = read


def _body(kind: type[Kind]) -> Body[Kind]:
    return Body(kind.__name__, bodies.encode)


_LINES: Final = Body[Mapping[str, str]]("lines of settings", bodies.write_lines)
_TEXT: Final = Body[str]("text", str.encode)
_NAMES: Final = Body[list[str]]("list of names", msgspec.json.encode)
_OBJECT: Final = Body[Mapping[str, object]]("object", msgspec.json.encode)


def _struct(kind: type[Kind]) -> Answer[Kind]:
    return Answer(kind.__name__, lambda response: bodies.decode(response.body, kind))


def _part(kind: type[Kind], read: Callable[[Kind], Result]) -> Answer[Result]:
    """An answer that is a member of a struct."""
    return Answer(kind.__name__, lambda response: read(bodies.decode(response.body, kind)))


def _number(field: str) -> Answer[int]:
    return Answer(f"`{field}`", lambda response: int(response.fields[field]))


def _count(field: str) -> Answer[int]:
    return Answer(f"`{field}`", lambda response: int(response.fields.get(field, 0)))


def _table(data: Buffer, member: str) -> dict[str, json.Json]:
    """The object under this name, or the whole body, because servers differ."""
    found = json.read(data, dict)
    inner = found.get(member, found)
    return inner if isinstance(inner, dict) else {}


def _is_list(data: Buffer) -> bool:
    """Whether the body is a list. Other servers send an object with a list in it."""
    return bytes(data[:1]) == b"["


class _Users(bodies.Body):
    users: list[bodies.UserInfo] = []


class _Acls(bodies.Body):
    acls: list[bodies.AclInfo] = []


class _Producers(bodies.Body):
    data: dict[str, json.Json]


def _read_kv_list(response: Command) -> dict[str, str]:
    return {name: str(value) for name, value in _table(response.body, "table").items()}


def _read_producers(response: Command) -> dict[str, list[bodies.ProducerInfo]]:
    data = bodies.encode(_Producers(data=_table(response.body, "data")))
    return bodies.decode(data, bodies.ProducerTable).data


def _read_subscription(response: Command) -> bodies.SubscriptionData | None:
    if not response.body:
        return None
    # Some brokers send the subscription without the group.
    if b'"subscriptionData"' not in bytes(response.body):
        return bodies.decode(response.body, bodies.SubscriptionData)
    return bodies.decode(response.body, bodies.GroupSubscription).subscription_data


def _read_time_spans(response: Command) -> list[bodies.QueueTimeSpan]:
    if _is_list(response.body):
        return json.read(response.body, list[bodies.QueueTimeSpan])
    return bodies.decode(response.body, bodies.ConsumeTimeSpan).consume_time_span_set


def _read_group_offsets(found: bodies.GroupOffsets) -> dict[str, dict[bodies.MessageQueue, int]]:
    return {client: bodies.by_queue(table) for client, table in found.consumer_table.items()}


def _read_moved(response: Command) -> dict[bodies.MessageQueue, int]:
    found = _table(response.body, "offsetTable")
    return bodies.by_queue({key: each for key, each in found.items() if isinstance(each, int)})


def _read_users(response: Command) -> list[bodies.UserInfo]:
    if _is_list(response.body):
        return json.read(response.body, list[bodies.UserInfo])
    return bodies.decode(response.body or b"{}", _Users).users


def _read_acls(response: Command) -> list[bodies.AclInfo]:
    if _is_list(response.body):
        return json.read(response.body, list[bodies.AclInfo])
    return bodies.decode(response.body or b"{}", _Acls).acls


def _optional(kind: type[Kind]) -> Answer[Kind | None]:
    return Answer(
        kind.__name__,
        lambda response: bodies.decode(response.body, kind) if response.body else None,
    )


_NOTHING: Final = Answer[None]("nothing", lambda _: None)
_FIELDS: Final = Answer("fields", lambda response: response.fields)
_JSON: Final = Answer[json.Json](
    "object", lambda response: json.read(response.body, dict) if response.body else None
)
_SETTINGS: Final = Answer("lines of settings", lambda response: bodies.read_lines(response.body))
_TOPICS: Final = _part(bodies.TopicList, lambda found: sorted(found.topic_list))
_OFFSET: Final = _number("offset")
_MESSAGES: Final = Answer("messages", lambda response: received(response.body))
_KV_VALUE: Final = Answer("`value`", lambda response: response.fields.get("value", ""))


# ---- rows


class Operation(Generic[Result_co]):
    """A row of the table."""

    def __init__(self, code: int, to: Servers, *fields: str, answer: Answer[Result_co]) -> None:
        self.code = code
        self.to = to
        self.fields = fields
        self.answer = answer


class Upload(Operation[Result_co], Generic[Content, Result_co]):
    """An operation whose request has a body."""

    def __init__(
        self, code: int, to: Servers, *fields: str, body: Body[Content], answer: Answer[Result_co]
    ) -> None:
        super().__init__(code, to, *fields, answer=answer)
        self.body = body


def _command(code: int, to: Servers, *fields: str) -> Operation[None]:
    """An operation without a result."""
    return Operation(code, to, *fields, answer=_NOTHING)


def _upload(code: int, to: Servers, *fields: str, body: Body[Content]) -> Upload[Content, None]:
    """An operation with a body and without a result."""
    return Upload(code, to, *fields, body=body, answer=_NOTHING)


_NAME_SERVER, _NAME_SERVERS = Servers.NAME_SERVER, Servers.NAME_SERVERS
_BROKER, _MASTERS, _CONTROLLER = Servers.BROKER, Servers.MASTERS, Servers.CONTROLLER
_OF_TOPIC, _OF_GROUP = Servers.TOPIC_BROKERS, Servers.GROUP_BROKERS
_OF_QUEUE, _OF_MESSAGE = Servers.QUEUE_BROKER, Servers.MESSAGE_BROKER

#: The fields that name a queue.
_QUEUE: Final = ("topic", "queueId", "bname")
_TOPIC_CONFIG: Final = (
    *("topic", "defaultTopic", "readQueueNums", "writeQueueNums", "perm"),
    *("topicFilterType", "topicSysFlag", "order", "attributes"),
)
# fmt: off

# The cluster, as name servers know it.
EXAMINE_BROKER_CLUSTER_INFO = Operation(
    Request.GET_BROKER_CLUSTER_INFO, _NAME_SERVER, answer=_struct(bodies.ClusterInfo))
FETCH_ALL_TOPIC_LIST = Operation(
    Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _NAME_SERVER, answer=_TOPICS)
FETCH_TOPICS_BY_CLUSTER = Operation(
    Request.GET_TOPICS_BY_CLUSTER, _NAME_SERVER, "cluster", answer=_TOPICS)
FETCH_SYSTEM_TOPIC_LIST = Operation(
    Request.GET_SYSTEM_TOPIC_LIST_FROM_NS, _NAME_SERVER, answer=_TOPICS)
WIPE_WRITE_PERM_OF_BROKER = Operation(
    Request.WIPE_WRITE_PERM_OF_BROKER, _NAME_SERVERS, "brokerName", answer=_count("wipeTopicCount"))
ADD_WRITE_PERM_OF_BROKER = Operation(
    Request.ADD_WRITE_PERM_OF_BROKER, _NAME_SERVERS, "brokerName", answer=_count("addTopicCount"))
PUT_KV_CONFIG = _command(Request.PUT_KV_CONFIG, _NAME_SERVERS, "namespace", "key", "value")
GET_KV_CONFIG = Operation(
    Request.GET_KV_CONFIG, _NAME_SERVER, "namespace", "key", answer=_KV_VALUE)
DELETE_KV_CONFIG = _command(Request.DELETE_KV_CONFIG, _NAME_SERVERS, "namespace", "key")
GET_KV_LIST_BY_NAMESPACE = Operation(
    Request.GET_KVLIST_BY_NAMESPACE, _NAME_SERVER, "namespace",
    answer=Answer("table", _read_kv_list))
GET_NAME_SERVER_CONFIG = Operation(Request.GET_NAMESRV_CONFIG, _NAME_SERVERS, answer=_SETTINGS)
UPDATE_NAME_SERVER_CONFIG = _upload(Request.UPDATE_NAMESRV_CONFIG, _NAME_SERVERS, body=_LINES)

# Brokers.
FETCH_BROKER_RUNTIME_STATS = Operation(
    Request.GET_BROKER_RUNTIME_INFO, _BROKER,
    answer=_part(bodies.KvTable, lambda found: found.table))
GET_BROKER_CONFIG = Operation(Request.GET_BROKER_CONFIG, _BROKER, answer=_SETTINGS)
UPDATE_BROKER_CONFIG = _upload(Request.UPDATE_BROKER_CONFIG, _BROKER, body=_LINES)
VIEW_BROKER_STATS_DATA = Operation(
    Request.VIEW_BROKER_STATS_DATA, _BROKER, "statsName", "statsKey",
    answer=_struct(bodies.BrokerStats))
CLEAN_EXPIRED_CONSUMER_QUEUE = _command(Request.CLEAN_EXPIRED_CONSUMEQUEUE, _MASTERS)
DELETE_EXPIRED_COMMIT_LOG = _command(Request.DELETE_EXPIRED_COMMITLOG, _MASTERS)
CLEAN_UNUSED_TOPIC = _command(Request.CLEAN_UNUSED_TOPIC, _MASTERS)

# Topics.
CREATE_TOPIC = _command(Request.UPDATE_AND_CREATE_TOPIC, _MASTERS, *_TOPIC_CONFIG)
CREATE_STATIC_TOPIC = _upload(
    RareRequest.UPDATE_AND_CREATE_STATIC_TOPIC, _BROKER, *_TOPIC_CONFIG, body=_OBJECT)
DELETE_TOPIC_IN_BROKER = _command(Request.DELETE_TOPIC_IN_BROKER, _BROKER, "topic")
DELETE_TOPIC_IN_NAME_SERVER = _command(
    Request.DELETE_TOPIC_IN_NAMESRV, _NAME_SERVERS, "topic", "clusterName")
EXAMINE_TOPIC_STATS = Operation(
    Request.GET_TOPIC_STATS_INFO, _OF_TOPIC, "topic",
    answer=_part(bodies.TopicStats, lambda found: bodies.by_queue(found.offset_table)))
EXAMINE_TOPIC_CONFIG = Operation(
    Request.GET_TOPIC_CONFIG, _BROKER, "topic", answer=_struct(bodies.TopicConfig))
GET_ALL_TOPIC_CONFIG = Operation(
    Request.GET_ALL_TOPIC_CONFIG, _BROKER,
    answer=_part(bodies.TopicConfigTable, lambda found: found.topic_config_table))
GET_SYSTEM_TOPIC_LIST_FROM_BROKER = Operation(
    Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _BROKER, answer=_TOPICS)
QUERY_TOPIC_CONSUME_BY_WHO = Operation(
    Request.QUERY_TOPIC_CONSUME_BY_WHO, _OF_TOPIC, "topic",
    answer=_part(bodies.GroupList, lambda found: found.group_list))

# Groups.
CREATE_SUBSCRIPTION_GROUP = _upload(
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _MASTERS,
    body=_body(bodies.SubscriptionGroupConfig))
DELETE_SUBSCRIPTION_GROUP = _command(
    Request.DELETE_SUBSCRIPTIONGROUP, _MASTERS, "groupName", "cleanOffset")
EXAMINE_SUBSCRIPTION_GROUP_CONFIG = Operation(
    Request.GET_SUBSCRIPTIONGROUP_CONFIG, _BROKER, "group",
    answer=_struct(bodies.SubscriptionGroupConfig))
GET_ALL_SUBSCRIPTION_GROUP = Operation(
    Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _BROKER,
    answer=_part(bodies.SubscriptionGroupTable, lambda found: found.subscription_group_table))
UPDATE_AND_GET_GROUP_READ_FORBIDDEN = Operation(
    Request.UPDATE_AND_GET_GROUP_FORBIDDEN, _BROKER, "group", "topic", "readable",
    answer=_struct(bodies.GroupForbidden))
SET_MESSAGE_REQUEST_MODE = _upload(
    Request.SET_MESSAGE_REQUEST_MODE, _BROKER, body=_body(bodies.RequestMode))
EXAMINE_CONSUMER_CONNECTION_INFO = Operation(
    Request.GET_CONSUMER_CONNECTION_LIST, _OF_GROUP, "consumerGroup",
    answer=_struct(bodies.ConsumerConnection))
EXAMINE_PRODUCER_CONNECTION_INFO = Operation(
    Request.GET_PRODUCER_CONNECTION_LIST, _OF_TOPIC, "producerGroup",
    answer=_struct(bodies.ProducerConnection))
GET_ALL_PRODUCER_INFO = Operation(
    Request.GET_ALL_PRODUCER_INFO, _BROKER, answer=Answer("ProducerTable", _read_producers))
GET_CONSUMER_RUNNING_INFO = Operation(
    Request.GET_CONSUMER_RUNNING_INFO, _OF_GROUP, "consumerGroup", "clientId", "jstackEnable",
    answer=_struct(bodies.ConsumerRunningInfo))
QUERY_TOPICS_BY_CONSUMER = Operation(
    Request.QUERY_TOPICS_BY_CONSUMER, _OF_GROUP, "group", answer=_TOPICS)
QUERY_SUBSCRIPTION = Operation(
    Request.QUERY_SUBSCRIPTION_BY_CONSUMER, _OF_TOPIC, "group", "topic",
    answer=Answer("SubscriptionData", _read_subscription))

# Offsets.
MIN_OFFSET = Operation(Request.GET_MIN_OFFSET, _OF_QUEUE, *_QUEUE, answer=_OFFSET)
MAX_OFFSET = Operation(Request.GET_MAX_OFFSET, _OF_QUEUE, *_QUEUE, answer=_OFFSET)
SEARCH_OFFSET = Operation(
    Request.SEARCH_OFFSET_BY_TIMESTAMP, _OF_QUEUE, *_QUEUE, "timestamp", answer=_OFFSET)
EARLIEST_MESSAGE_STORE_TIME = Operation(
    Request.GET_EARLIEST_MSG_STORETIME, _OF_QUEUE, *_QUEUE, answer=_number("timestamp"))
QUERY_CONSUME_OFFSET = Operation(
    Request.QUERY_CONSUMER_OFFSET, _OF_QUEUE, *_QUEUE, "consumerGroup", "setZeroIfNotFound",
    answer=_OFFSET)
UPDATE_CONSUME_OFFSET = _command(
    Request.UPDATE_CONSUMER_OFFSET, _OF_QUEUE, *_QUEUE, "consumerGroup", "commitOffset")
EXAMINE_CONSUME_STATS = Operation(
    Request.GET_CONSUME_STATS, _OF_GROUP, "consumerGroup", "topic",
    answer=_struct(bodies.ConsumeStats))
FETCH_CONSUME_STATS_IN_BROKER = Operation(
    Request.GET_BROKER_CONSUME_STATS, _BROKER, "isOrder", answer=_struct(bodies.BrokerConsumeStats))
QUERY_CONSUME_TIME_SPAN = Operation(
    Request.QUERY_CONSUME_TIME_SPAN, _OF_TOPIC, "topic", "group",
    answer=Answer("ConsumeTimeSpan", _read_time_spans))
GET_CONSUME_STATUS = Operation(
    Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, _OF_TOPIC, "topic", "group", "clientAddr",
    answer=_part(bodies.GroupOffsets, _read_group_offsets))
CLONE_GROUP_OFFSET = _command(
    Request.CLONE_GROUP_OFFSET, _OF_TOPIC, "srcGroup", "destGroup", "topic", "offline")
RESET_OFFSET_BY_TIMESTAMP = Operation(
    Request.INVOKE_BROKER_TO_RESET_OFFSET, _OF_TOPIC, "topic", "group", "timestamp", "isForce",
    answer=Answer("table", _read_moved))

# Messages.
QUERY_MESSAGE_BY_ID = Operation(
    Request.VIEW_MESSAGE_BY_ID, _OF_MESSAGE, "offset", "topic", answer=_MESSAGES)
QUERY_MESSAGE = Operation(
    Request.QUERY_MESSAGE, _OF_TOPIC,
    *("topic", "key", "maxNum", "beginTimestamp", "endTimestamp", "_UNIQUE_KEY_QUERY"),
    answer=_MESSAGES)
QUERY_CONSUME_QUEUE = Operation(
    Request.QUERY_CONSUME_QUEUE, _OF_QUEUE,
    *("topic", "queueId", "index", "count", "consumerGroup"),
    answer=_struct(bodies.ConsumeQueueView))
CONSUME_MESSAGE_DIRECTLY = Operation(
    Request.CONSUME_MESSAGE_DIRECTLY, _OF_MESSAGE,
    *("consumerGroup", "clientId", "msgId", "brokerName", "topic"),
    answer=_struct(bodies.DirectConsumption))
RESUME_CHECK_HALF_MESSAGE = _command(
    Request.RESUME_CHECK_HALF_MESSAGE, _OF_MESSAGE, "topic", "msgId")

# Users and rules of 5.x, then accounts of 4.x.
CREATE_USER = _upload(Request.AUTH_CREATE_USER, _BROKER, "username", body=_body(bodies.UserInfo))
UPDATE_USER = _upload(Request.AUTH_UPDATE_USER, _BROKER, "username", body=_body(bodies.UserInfo))
DELETE_USER = _command(Request.AUTH_DELETE_USER, _BROKER, "username")
GET_USER = Operation(Request.AUTH_GET_USER, _BROKER, "username", answer=_optional(bodies.UserInfo))
LIST_USERS = Operation(
    Request.AUTH_LIST_USER, _BROKER, "filter", answer=Answer("list of UserInfo", _read_users))
CREATE_ACL = _upload(Request.AUTH_CREATE_ACL, _BROKER, "subject", body=_body(bodies.AclInfo))
UPDATE_ACL = _upload(Request.AUTH_UPDATE_ACL, _BROKER, "subject", body=_body(bodies.AclInfo))
DELETE_ACL = _command(Request.AUTH_DELETE_ACL, _BROKER, "subject", "resource", "policyType")
GET_ACL = Operation(Request.AUTH_GET_ACL, _BROKER, "subject", answer=_optional(bodies.AclInfo))
LIST_ACLS = Operation(
    Request.AUTH_LIST_ACL, _BROKER, "subjectFilter", "resourceFilter",
    answer=Answer("list of AclInfo", _read_acls))
CREATE_AND_UPDATE_PLAIN_ACCESS = _command(
    Request.UPDATE_AND_CREATE_ACL_CONFIG, _BROKER,
    *("accessKey", "secretKey", "whiteRemoteAddress", "admin"),
    *("defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms"))
DELETE_PLAIN_ACCESS = _command(Request.DELETE_ACL_CONFIG, _BROKER, "accessKey")
UPDATE_GLOBAL_WHITE_ADDRESSES = _command(
    Request.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, _BROKER, "globalWhiteAddrs")
EXAMINE_PLAIN_ACCESS_VERSION = Operation(
    Request.GET_BROKER_CLUSTER_ACL_INFO, _BROKER, answer=_FIELDS)

# Operations that only RocketMQ's brokers have.
GET_BROKER_HA_STATUS = Operation(RareRequest.GET_BROKER_HA_STATUS, _BROKER, answer=_JSON)
GET_BROKER_EPOCH_CACHE = Operation(RareRequest.GET_BROKER_EPOCH_CACHE, _BROKER, answer=_JSON)
ADD_BROKER_TO_CONTAINER = _upload(RareRequest.ADD_BROKER, _BROKER, body=_LINES)
REMOVE_BROKER_FROM_CONTAINER = _command(RareRequest.REMOVE_BROKER, _BROKER, "brokerIdentity")
UPDATE_COLD_DATA_FLOW_CONTROL = _upload(
    RareRequest.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, _BROKER, body=_LINES)
REMOVE_COLD_DATA_FLOW_CONTROL = _upload(
    RareRequest.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, _BROKER, body=_TEXT)
GET_COLD_DATA_FLOW_CONTROL = Operation(
    RareRequest.GET_COLD_DATA_FLOW_CTR_INFO, _BROKER, answer=_JSON)
SET_COMMIT_LOG_READ_AHEAD_MODE = _command(
    RareRequest.SET_COMMITLOG_READ_MODE, _BROKER, "READ_AHEAD_MODE")
EXPORT_ROCKSDB_CONFIG = _command(
    RareRequest.EXPORT_ROCKSDB_CONFIG_TO_JSON, _BROKER, "configType")
CHECK_ROCKSDB_WRITE_PROGRESS = Operation(
    RareRequest.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _BROKER, "topic", "checkStoreTime", answer=_JSON)

# Controllers, which elect masters in RocketMQ 5.x clusters.
GET_CONTROLLER_METADATA = Operation(
    RareRequest.CONTROLLER_GET_METADATA_INFO, _CONTROLLER, answer=_FIELDS)
GET_IN_SYNC_STATE_DATA = Upload(
    RareRequest.CONTROLLER_GET_SYNC_STATE_DATA, _CONTROLLER, body=_NAMES, answer=_JSON)
ELECT_MASTER = Operation(
    RareRequest.CONTROLLER_ELECT_MASTER, _CONTROLLER,
    *("clusterName", "brokerName", "brokerId", "designateElect"), answer=_FIELDS)
GET_CONTROLLER_CONFIG = Operation(
    RareRequest.GET_CONTROLLER_CONFIG, _CONTROLLER, answer=_SETTINGS)
UPDATE_CONTROLLER_CONFIG = _upload(
    RareRequest.UPDATE_CONTROLLER_CONFIG, _CONTROLLER, body=_LINES)
CLEAN_CONTROLLER_BROKER_DATA = _command(
    RareRequest.CLEAN_BROKER_DATA, _CONTROLLER,
    "clusterName", "brokerName", "isCleanLivingBroker")
# fmt: on
