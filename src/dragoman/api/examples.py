"""Examples of the values of every operation, for the OpenAPI document and the page at `/docs`.

An example is made from the type: each field gets the value below that goes with its name, else its
default, else a plain value of its type. What only makes sense as a whole is given as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from dragoman.api.declaration import Operation, Parameter

#: Whole values, by the name of their type.
_WHOLE: Final[Mapping[str, object]] = {
    "AccessRuleFilter": {"principal": "User:alice", "resource": "topic"},
    "CaptureCheck": {"name": "shop"},
    "ChangedQuota": {
        "entity": {"user": "alice", "client_id": "billing"},
        "before": {"consumer_byte_rate": 2097152},
        "after": {"consumer_byte_rate": 2097152, "producer_byte_rate": 1048576},
    },
    "ClientQuota": {
        "entity": {"user": "alice", "client_id": "billing"},
        "quotas": {"producer_byte_rate": 1048576},
    },
    "ClusterKeyStatus": {
        "current": "0badcafe",
        "nodes": [{"node": 1, "keys": ["0badcafe"], "problem": ""}],
        "sealed": {"0badcafe": 3},
        "clear": 0,
    },
    "DecidingQuota": {
        "key": "producer_byte_rate",
        "value": 1048576,
        "entity": {"user": "alice", "client_id": "billing"},
    },
    "Definition": {
        "name": "shop",
        "dsn": "host=db dbname=shop user=cdc",
        "tables": ["public.orders"],
    },
    "Election": {"topic": "orders"},
    "FigureQuery": {
        "names": ["bytes_in_per_second", "bytes_out_per_second"],
        "from": "-30m",
        "step_s": 60,
    },
    "FigureSeries": {
        "name": "topic_bytes_in_per_second",
        "labels": {"topic": "orders", "protocol": "kafka"},
        "unit": "bytes per second",
        "over_nodes": "sum",
        "nodes": [1],
    },
    "FigureValues": {
        "name": "bytes_in_per_second",
        "labels": {"protocol": "kafka"},
        "node": None,
        "values": [512.5, None, 498.25],
    },
    "LeftOut": {"budget": "topic traffic", "count": 12},
    "MlogEvents": {"items": [{"event_type": 1, "data": {"topic": "orders"}}]},
    "NewMoves": {"topic": "orders", "nodes": [1, 2, 3]},
    "NewPartitions": {"total": 6},
    "NewRecords": {
        "records": [{"key": "k-1", "value": {"json": {"amount": 12}}}, {"value": "text"}]
    },
    "NewSettings": {"values": {"log.retention.ms": "86400000"}},
    "NewTopic": {"name": "orders", "partitions": 3, "config": {"retention.ms": "3600000"}},
    "NewUser": {"name": "alice", "password": "a long password"},
    "NewToken": {"label": "dashboards", "read_only": True},
    "OffsetReset": {"to": "@-15m", "topics": ["orders"]},
    "Payload": {"encoding": "text", "data": "paid", "size": 4, "is_cut": False},
    "QuotaChange": {
        "entity": {"user": "alice", "client_id": "billing"},
        "set": {"producer_byte_rate": 1048576},
    },
    "QuotaQuestion": {"user": "alice", "client_id": "billing", "address": "10.0.0.7"},
    "QuotaUse": {
        "key": "producer_byte_rate",
        "user": "alice",
        "client_id": "billing",
        "address": None,
        "quota": 1048576,
        "rate": 1310720.5,
        "throttled": True,
    },
    "TopicChange": {"set": {"retention.ms": "3600000"}, "unset": ["segment.bytes"]},
    "Transfer": {"metadata_to": 2},
    "Truncation": {"before": "@-7d"},
}
#: Values of fields, by name.
_FIELDS: Final[Mapping[str, object]] = {
    "address": "10.0.0.2:7071",
    "after": 12,
    "advertised": "broker-1:9092",
    "before": 5,
    "bound": "127.0.0.1:9092",
    "client_id": "billing-1",
    "cluster_id": "uJGVPWqR3DXBAPHBXLAoGw",
    "committed_offset": 5,
    "coordinator": 1,
    "detail": "done",
    "end_offset": 12,
    "expires_ms": 1_800_000_000_000,
    "feature_level": 5,
    "file": "pipeline.toml",
    "group": "billing",
    "high_watermark": 12,
    "host": "10.0.0.7",
    "id": "kafka-17",
    "in_sync": [1],
    "label": "dashboards",
    "lag_records": 7,
    "lag_seconds": 1.5,
    "leader": 1,
    "listener": "kafka",
    "log_end_offset": 12,
    "log_start_offset": 0,
    "member_id": "billing-1-5f0c",
    "members": 1,
    "name": "orders",
    "next": None,
    "node": 1,
    "node_id": 1,
    "offset": 7,
    "partition": 0,
    "partitions": 3,
    "peer": "10.0.0.7:50312",
    "principal": "User:alice",
    "protocol": "kafka",
    "records": 36,
    "replicas": [1],
    "replication_factor": 1,
    "size_bytes": 4096,
    "state": "Stable",
    "subject": "CN=broker-1",
    "timestamp": 1_769_860_800_000,
    "token_id": "1",
    "topic": "orders",
    "topic_id": "61880ecdfd48293e22da2e11b46fd512",
    "user": "User:alice",
    "value": "3600000",
    "version": "0.1.0",
}
#: Values of fields that mean something else in some types.
_FIELDS_OF: Final[Mapping[tuple[str, str], object]] = {
    ("CaptureDescription", "name"): "shop",
    ("FigureRange", "step_s"): 60,
    ("FigureRange", "times"): [1_769_860_740_000, 1_769_860_800_000, 1_769_860_860_000],
    ("FigureRange", "unreachable"): [],
    ("ChangedSetting", "name"): "log.retention.ms",
    ("ChangedSetting", "value"): "86400000",
    ("GroupUsage", "topics"): ["orders"],
    ("TopicKey", "choices"): [],
    ("TopicKey", "effective"): True,
    ("TopicKey", "meaning"): "Age after which records are deleted; -1: never.",
    ("TopicKey", "name"): "retention.ms",
    ("TopicKey", "type"): "long",
    ("TopicUsage", "groups"): 1,
    ("CertificateStatus", "listener"): "kafka-tls",
    ("CertificateStatus", "problem"): "",
    ("ConfigValue", "effective"): True,
    ("ConfigValue", "name"): "retention.ms",
    ("ConfigValue", "source"): "topic",
    ("Definition", "name"): "shop",
    ("GroupAssignment", "partitions"): [0, 1],
    ("KeyCommand", "command"): "rotate",
    ("ListenerStatus", "name"): "kafka",
    ("PipelineStatus", "name"): "daily",
    ("PipelineStatus", "state"): "running",
    ("ReadRecord", "value"): _WHOLE["Payload"],
    ("Status", "state"): "streaming",
    ("UserDescription", "name"): "alice",
    ("UserSummary", "name"): "alice",
}
#: Names in paths, by what comes before them.
_NAMES: Final[Mapping[str, str]] = {
    "topics": "orders",
    "groups": "billing",
    "captures": "shop",
    "nodes": "2",
    "users": "alice",
    "connections": "kafka-17",
    "tokens": "1",
    "partitions": "0",
}


def example_of(kind: type) -> object:
    """An example of a type, as plain values of JSON."""
    return _value(inspect.type_info(kind))


def parameter_example(operation: Operation, parameter: Parameter) -> str | None:
    """The example of a parameter; None: leave it out."""
    if parameter.place == "path":
        before, _, _ = operation.path.partition(f"/{{{parameter.name}}}")
        return _NAMES[before.rpartition("/")[2]]
    # Every other parameter is optional, except this one.
    return "orders" if parameter.name == "topic" else None


def _struct(kind: inspect.StructType) -> object:
    whole = _WHOLE.get(kind.cls.__name__)
    if whole is not None:
        return whole
    found: dict[str, object] = {}
    for field in kind.fields:
        common = _FIELDS.get(field.name, msgspec.UNSET)
        value = _FIELDS_OF.get((kind.cls.__name__, field.name), common)
        if value is not msgspec.UNSET and _fits(value, kind, field):
            found[field.encode_name] = value
        elif field.required:
            found[field.encode_name] = _value(field.type)
        elif field.default is not msgspec.NODEFAULT:
            found[field.encode_name] = msgspec.to_builtins(field.default)
        else:
            assert field.default_factory is not msgspec.NODEFAULT
            found[field.encode_name] = msgspec.to_builtins(field.default_factory())
    return found


def _fits(value: object, kind: inspect.StructType, field: inspect.Field) -> bool:
    """Whether a value is one of a field's type."""
    annotation: Any = _annotations(kind.cls)[field.name]
    try:
        msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        return False
    return True


def _annotations(kind: type) -> Mapping[str, object]:
    from typing import get_type_hints

    return get_type_hints(kind, include_extras=True)


def _value(kind: inspect.Type) -> object:
    match kind:
        case inspect.StructType():
            return _struct(kind)
        case inspect.UnionType(types):
            return _value(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [_value(item)]
        case inspect.LiteralType(values):
            return values[0]
        case inspect.EnumType(cls):
            return next(iter(cls)).value
        case inspect.IntType(ge=lowest):
            return lowest or 0
        case inspect.FloatType():
            return 0.0
        case inspect.BoolType():
            return False
        case inspect.StrType():
            return "text"
        case inspect.DictType():
            return {}
        case inspect.Metadata(type=inner):
            return _value(inner)
        case _:
            return None
