"""The configuration of topics and of groups, under Kafka's names: overrides over the node's settings.

A topic stores only its overrides, as text. A key without an override takes the node's default,
which for some keys is a setting of the node (`retention.ms` follows `log.retention.ms`), as in
Kafka. Keys marked without effect are accepted, stored and shown because Kafka clients set and
expect them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from dragoman import limits
from dragoman.config.keys import (
    LONG_MAX,
    Accepted,
    Key,
    Kind,
    Source,
    Value,
    format_value,
    near_match,
    table_rows,
)
from dragoman.config.settings import (
    NODE_KEYS,
    Compression,
    Settings,
    TimestampType,
    is_dynamic,
    node_key,
)
from dragoman.errors import ConfigError


class TopicKey(Key, frozen=True, kw_only=True):
    #: The setting of the node that is the default; empty: the default is `default`.
    node_key: str = ""
    #: The text of the default of a key without `node_key`.
    default: str = ""
    #: Whether the key has an effect. Keys without one are accepted and shown.
    effective: bool = True

    def default_text(self, settings: Settings) -> str:
        return format_value(settings.value(self.node_key)) if self.node_key else self.default


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The typed configuration of a topic. Topics with the same overrides share an instance."""

    cleanup_policy: tuple[str, ...]
    compression_type: Compression
    delete_retention_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: TimestampType
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    retention_segments: int
    segment_bytes: int
    segment_ms: int
    #: Whether nothing in a batch has to be changed, or decoded, before it is appended. Known in
    #: advance, because it is asked for each batch.
    takes_batches_as_they_are: bool = False

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_retained_by_age_or_size(self) -> bool:
        return "delete" in self.cleanup_policy

    @staticmethod
    def build(settings: Settings, overrides: Mapping[str, str]) -> TopicConfig:
        """The node's defaults with a topic's overrides over them.

        Cheap to repeat: results are shared, so ten thousand topics without overrides hold one
        object. Raises `ConfigError` as `validate_topic_config` does.
        """
        return _build(settings, tuple(sorted(overrides.items())))


class Synonym(msgspec.Struct, frozen=True):
    """A value that a key has, or would have without the synonyms before it."""

    name: str
    text: str
    source: Source


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One key as shown to clients: `key` says its kind and meaning, `text` its value as Kafka
    writes it.
    """

    key: Key
    text: str
    source: Source
    #: The effective value and those that it overrides, down to the default.
    synonyms: tuple[Synonym, ...] = ()
    #: Whether it can be set only when the node is started.
    is_read_only: bool = False
    #: Whether the value is not shown; `text` is empty then.
    is_secret: bool = False


# The tables are data, one key a line, and read best unwrapped.
# ruff: noqa: E501

#: Key, what it accepts, its default (`=` and the node's setting that gives it), and its meaning.
_EFFECTIVE = table_rows(f"""
cleanup.policy                  | list ,delete,compact | =log.cleanup.policy             | `delete` drops old segments by age and size, `compact` keeps the last record of each key; `compact,delete` does both, nothing neither.
compression.type                | string producer,uncompressed,gzip,snappy,lz4,zstd | =compression.type                | `producer` keeps batches as they come; another codec recompresses those that differ.
delete.retention.ms             | long 0..     | =log.cleaner.delete.retention.ms | How long a compacted topic keeps tombstones.
index.interval.bytes            | int 0..      | 4096                             | Bytes of log between two entries of the sparse index.
max.compaction.lag.ms           | long 1..     | {LONG_MAX}                       | Longest time a record may wait for compaction.
max.message.bytes               | int 0..      | =message.max.bytes               | Largest record batch. A compressed one may expand to 32 MiB, or to this if that is more.
message.timestamp.after.max.ms  | long 0..     | 3600000                          | How far a record's timestamp may lie ahead of the clock.
message.timestamp.before.max.ms | long 0..     | {LONG_MAX}                       | How far a record's timestamp may lie behind the clock.
message.timestamp.type          | string CreateTime,LogAppendTime | =log.message.timestamp.type      | Whether a record keeps its producer's time or gets the time of the append.
min.cleanable.dirty.ratio       | double 0..1  | =log.cleaner.min.cleanable.ratio | Share of the log not yet compacted from which compaction starts.
min.compaction.lag.ms           | long 0..     | 0                                | Shortest time a record stays as written.
min.insync.replicas             | int 1..      | =min.insync.replicas             | Replicas that must be in sync for a write with `acks=all`.
retention.bytes                 | long -1..    | =log.retention.bytes             | Size of a partition past which its oldest segments are dropped; -1: no limit.
retention.ms                    | long -1..    | =log.retention.ms                | Age past which segments are dropped; -1: no limit.
retention.segments              | int -1..     | =log.retention.segments          | Segments of a partition, the active one included, past which the oldest are dropped, as soon as a new one begins; -1: no limit. A topic with a limit never drops its active segment for its age. Kafka has no such key.
segment.bytes                   | int 14..     | =log.segment.bytes               | Size at which a new segment begins.
segment.ms                      | long 1..     | =log.roll.ms                     | Age at which a new segment begins.
""")

#: Keys that are accepted and shown, without effect: key, what it accepts, its default and why.
_IGNORED = table_rows(f"""
compression.gzip.level                  | int -1..9        | -1         | The codec's default level is used.
compression.lz4.level                   | int 1..17        | 9          | The codec's default level is used.
compression.zstd.level                  | int -131072..22  | 3          | The codec's default level is used.
dragoman.cursus.policy                  | string           |            | Settings of Cursus clients without a counterpart here, as `key=value` words. Kafka has no such key.
dragoman.rocketmq.topic                 | string           |            | Settings of RocketMQ clients without a counterpart here, as `key=value` words. Kafka has no such key.
dragoman.value.schema                   | string           |            | The schema of values, for readers: fields of JSON as Spark's DDL, or an Avro schema or Protobuf descriptors in a JSON object. Kafka has no such key.
file.delete.delay.ms                    | long 0..         | 60000      | The file of a dropped segment goes when no manifest lists it any more.
flush.messages                          | long 1..         | {LONG_MAX} | The node's `durability` decides when writes are durable.
flush.ms                                | long 0..         | {LONG_MAX} | The node's `durability` decides when writes are durable.
follower.replication.throttled.replicas | list             |            | Replication is not throttled.
leader.replication.throttled.replicas   | list             |            | Replication is not throttled.
local.retention.bytes                   | long -2..        | -2         | There is no remote storage.
local.retention.ms                      | long -2..        | -2         | There is no remote storage.
preallocate                             | boolean          | false      | Segments are never preallocated.
remote.log.copy.disable                 | boolean          | false      | There is no remote storage.
remote.log.delete.on.disable            | boolean          | false      | There is no remote storage.
remote.storage.enable                   | boolean          | false      | There is no remote storage.
segment.index.bytes                     | int 4..          | 10485760   | An index grows with its segment.
segment.jitter.ms                       | long 0..         | 0          | Segments roll when their age says so.
unclean.leader.election.enable          | boolean          | false      | A replica outside the in-sync set never becomes leader.
""")


def _topic_key(name: str, accepts: str, default: str, doc: str, effective: bool) -> TopicKey:
    return TopicKey(
        name=name,
        doc=doc,
        **Accepted.parse(accepts)._asdict(),
        node_key=default[1:] if default.startswith("=") else "",
        default="" if default.startswith("=") else default,
        effective=effective,
    )


TOPIC_CONFIG = {
    name: _topic_key(name, accepts, default, doc, rows is _EFFECTIVE)
    for rows in (_EFFECTIVE, _IGNORED)
    for name, accepts, default, doc in rows
}


def validate_topic_config(overrides: Mapping[str, str]) -> None:
    """Refuse an unknown key, a value out of bounds, or values that contradict each other.

    Raises `ConfigError` that names the key, and the closest known one for an unknown key.
    """
    values = {name: _read(name, text) for name, text in overrides.items()}
    _check_lags(values)


def describe_topic_config(settings: Settings, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every key of a topic with its value and origin, in order of name."""
    return [
        _describe_topic_key(key, settings, overrides)
        for key in sorted(TOPIC_CONFIG.values(), key=lambda key: key.name)
    ]


def describe_node_config(settings: Settings) -> list[ConfigEntry]:
    """Every key of the node, and those that listeners have values of their own for, with value and
    origin, in order of name.
    """
    own = {name: node_key(name) for name, _ in settings.per_listener}
    return [
        config_entry(key, node_synonyms(settings, name), is_read_only=not is_dynamic(name))
        for name, key in sorted({**NODE_KEYS, **own}.items())
        if key is not None
    ]


def _describe_topic_key(
    key: TopicKey, settings: Settings, overrides: Mapping[str, str]
) -> ConfigEntry:
    synonyms: list[Synonym] = []
    if key.name in overrides:
        synonyms.append(Synonym(key.name, overrides[key.name], Source.TOPIC))
    if key.node_key:
        synonyms += node_synonyms(settings, key.node_key)
    else:
        synonyms.append(Synonym(key.name, key.default, Source.DEFAULT))
    return config_entry(key, synonyms)


def node_synonyms(settings: Settings, name: str) -> list[Synonym]:
    return [Synonym(name, format_value(value), source) for source, value in settings.origins(name)]


def config_entry(key: Key, synonyms: list[Synonym], *, is_read_only: bool = False) -> ConfigEntry:
    return ConfigEntry(
        key=key,
        text=synonyms[0].text,
        source=synonyms[0].source,
        synonyms=tuple(synonyms),
        is_read_only=is_read_only,
    )


def _read(name: str, text: str) -> Value:
    key = TOPIC_CONFIG.get(name)
    if key is None:
        raise ConfigError(f"unknown topic configuration {name!r}{near_match(name, TOPIC_CONFIG)}")
    # Only the throttling lists, which have no effect, may be empty.
    if key.kind is Kind.LIST and not key.choices and not text.strip():
        return ()
    return key.read(text)


def _check_lags(values: Mapping[str, Value]) -> None:
    shortest = values.get("min.compaction.lag.ms")
    longest = values.get("max.compaction.lag.ms")
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise ConfigError(
            f"min.compaction.lag.ms ({shortest}) is above max.compaction.lag.ms ({longest})"
        )


@lru_cache(maxsize=limits.TOPIC_CONFIGS_CACHED)
def _build(settings: Settings, overrides: tuple[tuple[str, str], ...]) -> TopicConfig:
    given = dict(overrides)
    validate_topic_config(given)
    values: dict[str, Value] = {
        key.attribute: _read(name, given.get(name, key.default_text(settings)))
        for name, key in TOPIC_CONFIG.items()
        if key.effective
    }
    built = msgspec.convert(values, TopicConfig)
    return msgspec.structs.replace(
        built,
        takes_batches_as_they_are=built.compression_type == "producer"
        and built.message_timestamp_type == "CreateTime"
        and not built.is_compacted,
    )


SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"


class GroupKey(Key, frozen=True, kw_only=True):
    #: Settings of the node: the default, and the bounds of the group's value.
    node_key: str
    default: str = ""
    lower_key: str
    upper_key: str


GROUP_CONFIG: dict[str, GroupKey] = {
    name: GroupKey(
        name=name,
        kind=Kind.INT,
        minimum=1,
        doc=doc,
        node_key=f"group.{name}",
        lower_key=f"group.consumer.min.{what}",
        upper_key=f"group.consumer.max.{what}",
    )
    for name, what, doc in (
        (
            HEARTBEAT_INTERVAL,
            "heartbeat.interval.ms",
            "How often members of the consumer group (KIP-848) send heartbeats.",
        ),
        (
            SESSION_TIMEOUT,
            "session.timeout.ms",
            "How long a member of the consumer group may go without a heartbeat before it is removed.",
        ),
    )
}


def check_group_config(settings: Settings, overrides: Mapping[str, str]) -> None:
    """Raises `ConfigError` unless a group may have these overrides."""
    values: dict[str, int] = {}
    for name, text in overrides.items():
        key = GROUP_CONFIG.get(name)
        if key is None:
            raise ConfigError(
                f"unknown group configuration {name!r}{near_match(name, GROUP_CONFIG)}"
            )
        values[name] = _number(key.read(text))
        low, high = (_number(settings.value(each)) for each in (key.lower_key, key.upper_key))
        if not low <= values[name] <= high:
            raise ConfigError(f"{name}: expected {low} to {high}, got {text}")
    heartbeat, session = (
        values.get(name, _number(settings.value(GROUP_CONFIG[name].node_key)))
        for name in (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)
    )
    if heartbeat >= session:
        raise ConfigError(f"{HEARTBEAT_INTERVAL} ({heartbeat}) must be below {session}")


def describe_group_config(settings: Settings, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every key of a group with its value and origin, in order of name."""
    entries = []
    for name, key in GROUP_CONFIG.items():
        own = [Synonym(name, overrides[name], Source.GROUP)] if name in overrides else []
        entries.append(config_entry(key, own + node_synonyms(settings, key.node_key)))
    return entries


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
