"""The requests that are sent to every version, in `requests.json`: by listener, a name and bytes.

    python -m golden.requests

writes the file anew. Requests are of every operation of the five protocols, those of Kafka in every
version that is served, once with nothing in them and once about things that are there; and the
vectors of the specifications. Both versions get the same bytes, so the file only changes when there
is more to ask.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from dragoman.log.batch import Record, build_batch
from dragoman.protocols.cursus.constants import COMMANDS, INTERNAL_COMMANDS
from dragoman.protocols.kafka import codec, messages, notation
from dragoman.protocols.kafka.constants import ACCEPTED_VERSIONS, ApiKey
from dragoman.protocols.mlog import codec as mlog_codec
from dragoman.protocols.mlog import messages as mlog
from dragoman.protocols.mlog.constants import Encoding
from dragoman.protocols.rocketmq.constants import Request as RocketmqRequest
from golden.conversations import conversations
from protocols.request_vectors import REQUESTS as VECTORS

PATH = Path(__file__).with_name("requests.json")
_TIME_MS = 1_704_067_200_000
_TOPIC = "orders"

# ---- Kafka


def _records() -> bytes:
    return bytes(build_batch([Record(key=b"k", value=b"hello", timestamp=_TIME_MS)]))


#: What fields of some structures hold: the beginning of a class name, then the name of a field.
_KAFKA_SPECIAL: tuple[tuple[str, str, object], ...] = (
    ("JoinGroupRequest", "group_id", "members"),
    ("SyncGroupRequest", "group_id", "members"),
    ("LeaveGroupRequest", "group_id", "members"),
    ("HeartbeatRequest", "group_id", "members"),
    ("ConsumerGroup", "group_id", "newer-members"),
    ("CreateTopicsRequestConfig", "name", "retention.ms"),
    ("CreateTopicsRequestConfig", "value", "100000"),
    ("AlterConfigsRequestConfig", "name", "retention.ms"),
    ("AlterConfigsRequestConfig", "value", "100000"),
    ("IncrementalAlterConfigsRequestConfig", "name", "retention.ms"),
    ("IncrementalAlterConfigsRequestConfig", "value", "100000"),
    ("CreateTopicsRequest", "assignments", []),
    ("CreatePartitionsRequest", "assignments", None),
    ("CreatePartitionsRequest", "count", 3),
    ("DescribeConfigsRequest", "configuration_keys", None),
    ("InitProducerIdRequest", "producer_id", -1),
    ("InitProducerIdRequest", "producer_epoch", -1),
    ("InitProducerIdRequest", "transaction_timeout_ms", 10_000),
    ("FetchRequest", "session_epoch", -1),
    ("FetchRequest", "forgotten_topics_data", []),
)
#: Parts of names of fields: there is none of what they name.
_NONE = ("replica_id", "leader_epoch", "last_fetched_epoch", "generation_id", "retention_time_ms")
#: What fields are called, and what they ask about: the first part of a name that fits.
_KAFKA_VALUES: tuple[tuple[str, object], ...] = (
    ("transactional_id", "transaction"),
    ("instance_id", None),
    ("member_id", ""),
    ("group", "group"),
    ("protocol_type", "consumer"),
    ("topic", _TOPIC),
    ("resource_name", _TOPIC),
    ("name", _TOPIC),
    ("key", "group"),
    ("session_timeout", 10_000),
    ("rebalance_timeout", 10_000),
    ("timeout_ms", 1000),
    ("max_wait", 100),
    ("max_bytes", 1 << 20),
    ("resource_type", 2),
    ("num_partitions", 2),
    ("replication_factor", 1),
    ("acks", -1),
    ("count", 2),
    ("timestamp", -2),
)


def _kafka_value(field: notation.FieldSpec, kind: notation.TypeSpec, version: int) -> object:
    if kind.struct is not None:
        return _kafka_struct(kind.struct, version)
    if kind.element is not None:
        return [_kafka_value(field, kind.element, version)]
    if any(part in field.name for part in _NONE):
        return -1
    if kind.kind == "records":
        return _records()
    if kind.kind in ("str", "str16", "i8", "i16", "i32", "i64"):
        wanted = str if kind.kind.startswith("str") else int
        for part, value in _KAFKA_VALUES:
            if part in field.name and (isinstance(value, wanted) or value is None):
                return value if value is not None or field.is_nullable(version) else ""
        return "range" if wanted is str else 0
    plain = {"bool": False, "uuid": bytes(16), "bytes": b"bytes", "u16": 1, "f64": 1.5}
    return plain[kind.kind]


def _kafka_struct(spec: notation.StructSpec, version: int) -> messages.Message:
    special = {name: value for start, name, value in _KAFKA_SPECIAL if _is_in(spec, start)}
    values = {
        field.name: (
            special[field.name]
            if field.name in special
            else _kafka_value(field, field.type, version)
        )
        for field in spec.fields
        if version in field.versions and field.tag is None
    }
    made: messages.Message = getattr(messages, spec.class_name)(**values)
    return made


def _is_in(spec: notation.StructSpec, start: str) -> bool:
    return spec.class_name.startswith(start)


#: First, so that the others find something; the last ones take it away.
_FIRST = (ApiKey.CREATE_TOPICS, ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP)
_LAST = (ApiKey.DELETE_RECORDS, ApiKey.DELETE_GROUPS, ApiKey.DELETE_TOPICS)


def _kafka() -> Iterator[tuple[str, bytes]]:
    middle = [key for key in sorted(ACCEPTED_VERSIONS) if key not in _FIRST + _LAST]
    for key in (*_FIRST, *middle, *_LAST):
        name = notation.name_of(key, "Request")
        assert name is not None
        versions = ACCEPTED_VERSIONS[key]
        spec = notation.message(name).struct
        for version in range(versions.low, versions.high + 1):
            for label, message in (
                ("empty", getattr(messages, name)()),
                ("filled", _kafka_struct(spec, version)),
            ):
                frame = codec.join(codec.encode_request(message, version, 7, "golden"))
                yield f"{name} v{version} {label}", frame


# ---- the others

_CURSUS_ARGUMENTS = (
    "topic=t event_sourcing=true partition=0 partitions=2 group=g member=m consumer=m generation=1 "
    "offset=0 key=k producerId=txn-0000000000000000 epoch=0 seqNum=1 transactional_id=x version=1 "
    "from_version=0 result=commit action=commit event_type=e schema_version=1 isIdempotent=false "
    "wait_ms=100 offsets=P0:1 message=hello"
)
_CURSUS_FIRST = ("CREATE", "PUBLISH", "REGISTER_GROUP", "JOIN_GROUP", "INIT_PRODUCER_ID")
_CURSUS_LAST = ("LEAVE_GROUP", "DELETE")


def _cursus() -> Iterator[tuple[str, bytes]]:
    words = (*COMMANDS, *sorted(INTERNAL_COMMANDS))
    middle = [word for word in words if word not in _CURSUS_FIRST + _CURSUS_LAST]
    for word in (*_CURSUS_FIRST, *middle, *_CURSUS_LAST):
        for label, text in (("bare", word), ("filled", f"{word} {_CURSUS_ARGUMENTS}")):
            # With the two bytes of a topic's size that some clients send, and without.
            for prefix in (b"", b"\0\0"):
                payload = prefix + text.encode()
                name = f"{word} {label}{', prefixed' if prefix else ''}"
                yield name, struct.pack(">I", len(payload)) + payload


_ROCKETMQ_FIELDS = {
    **dict.fromkeys(("topic", "b", "defaultTopic", "originTopic"), "T"),
    **dict.fromkeys(("consumerGroup", "group", "producerGroup", "a", "groupName", "c"), "g"),
    **dict.fromkeys(("queueId", "e", "sysFlag", "f", "flag", "reconsumeTimes", "j"), "0"),
    **dict.fromkeys(("queueOffset", "commitOffset", "offset", "delayLevel", "subVersion"), "0"),
    **dict.fromkeys(("maxMsgNums", "readQueueNums", "writeQueueNums", "d"), "4"),
    **dict.fromkeys(("bornTimestamp", "g", "timestamp", "beginTimestamp", "bornTime"), "1"),
    **dict.fromkeys(("endTimestamp", "invisibleTime", "pollTime"), "2000"),
    "suspendTimeoutMillis": "0",
    "defaultTopicQueueNums": "4",
    "properties": "KEYS\x01k\x02",
    "i": "KEYS\x01k\x02",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "subscription": "*",
    "namespace": "n",
    "key": "k",
    "value": "v",
    "clientID": "client",
    "clientId": "client",
    "clientGroup": "g",
    "msgId": "0",
    "maxNum": "32",
    "commitLogOffset": "0",
    "srcGroup": "g",
    "destGroup": "h",
    "subject": "User:s",
    "username": "u",
    "cluster": "DragomanCluster",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "T",
    "brokerName": "node-1",
    "n": "node-1",
}
_ROCKETMQ_BODIES = {
    RocketmqRequest.HEART_BEAT: (
        b'{"clientID":"client","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName"'
        b':"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":'
        b'"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{"topic":"T","subString":"*"}]}]}'
    ),
    **dict.fromkeys(
        (RocketmqRequest.LOCK_BATCH_MQ, RocketmqRequest.UNLOCK_BATCH_MQ),
        b'{"consumerGroup":"g","clientId":"client","mqSet":[{"topic":"T","brokerName":"node-1",'
        b'"queueId":0}]}',
    ),
    RocketmqRequest.QUERY_ASSIGNMENT: (
        b'{"topic":"T","consumerGroup":"g","clientId":"client","strategyName":"AVG",'
        b'"messageModel":"CLUSTERING"}'
    ),
    RocketmqRequest.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: b'{"groupName":"g","retryMaxTimes":3}',
}
_ROCKETMQ_FIRST = (
    RocketmqRequest.UPDATE_AND_CREATE_TOPIC,
    RocketmqRequest.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RocketmqRequest.HEART_BEAT,
    RocketmqRequest.PUT_KV_CONFIG,
)
_ROCKETMQ_LAST = (
    RocketmqRequest.UNREGISTER_CLIENT,
    RocketmqRequest.DELETE_KV_CONFIG,
    RocketmqRequest.DELETE_SUBSCRIPTIONGROUP,
    RocketmqRequest.DELETE_TOPIC_IN_BROKER,
    RocketmqRequest.DELETE_TOPIC_IN_NAMESRV,
)


def _rocketmq() -> Iterator[tuple[str, bytes]]:
    bodies = {"empty": b"", "object": b"{}", "text": b"hello"}
    middle = [code for code in RocketmqRequest if code not in _ROCKETMQ_FIRST + _ROCKETMQ_LAST]
    for code in (*_ROCKETMQ_FIRST, *middle, *_ROCKETMQ_LAST):
        for label, body in bodies.items():
            if label == "object":
                body = _ROCKETMQ_BODIES.get(code, body)
            fields = {} if label == "empty" else _ROCKETMQ_FIELDS
            header = json.dumps(
                {
                    "code": int(code),
                    "extFields": fields,
                    "flag": 0,
                    "language": "JAVA",
                    "opaque": 7,
                    "serializeTypeCurrentRPC": "JSON",
                    "version": 399,
                },
                separators=(",", ":"),
            ).encode()
            sizes = struct.pack(">II", 4 + len(header) + len(body), len(header))
            yield f"{code.name} {label}", sizes + header + body


_MLOG_VALUES: dict[str, object] = {"topic": "orders", "value": b"hello", "id": "c1", "count": 1}


def _mlog() -> Iterator[tuple[str, bytes]]:
    first = [mlog.CreateTopic, mlog.Produce, mlog.ProduceBatch]
    kinds = [*first, *(kind for kind in mlog.REPLIES if kind not in first)]
    for kind in (*kinds, *mlog.REPLIES.values()):
        fields = kind.__struct_fields__
        filled = kind(**{name: value for name, value in _MLOG_VALUES.items() if name in fields})
        for label, message in (("empty", kind()), ("filled", filled)):
            for encoding in Encoding:
                name = f"{kind.__name__} {label} {encoding.name.lower()}"
                yield name, mlog_codec.encode_frame(message, encoding)


def requests() -> dict[str, list[tuple[str, bytes]]]:
    """By listener; `rocketmq-broker` gets those of `rocketmq`."""
    vectors = {
        protocol: [
            (f"{protocol} vector {number}", bytes.fromhex(each))
            for number, each in enumerate(frames)
        ]
        for protocol, frames in VECTORS.items()
    }
    return {
        "kafka": [*vectors["kafka"], *_kafka()],
        "minibroker": vectors["minibroker"],
        "cursus": [*vectors["cursus"], *_cursus()],
        "mlog": [*vectors["mlog"], *_mlog()],
        "rocketmq": [*vectors["rocketmq"], *_rocketmq()],
        "any": [pair for frames in vectors.values() for pair in frames],
    }


def main() -> None:
    found = {
        listener: [[name, data.hex()] for name, data in frames]
        for listener, frames in requests().items()
    }
    spoken = {
        name: {**each._asdict(), "frames": [[what, data.hex()] for what, data in each.frames]}
        for name, each in conversations().items()
    }
    lists = [_listed(listener, frames) for listener, frames in found.items()]
    lists.append(_listed("conversations", list(spoken.items())))
    PATH.write_text("{\n" + ",\n".join(lists) + "\n}\n")
    print({name: len(each) for name, each in (*found.items(), ("conversations", spoken))})


def _listed(name: str, rows: Sequence[object]) -> str:
    """A row to a line, so that a change of one is a change of a line."""
    return f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]"


if __name__ == "__main__":
    main()
