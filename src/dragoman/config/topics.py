"""The configuration of topics: Kafka's keys, one of ours, and the typed values that the broker
uses.

A topic stores only its overrides, as text. A key without an override takes the node's default,
which for some keys is a setting of the node (`retention.ms` follows `log.retention.ms`), as in
Kafka. Keys marked without effect are accepted, kept and shown because Kafka clients set and expect
them; nothing here obeys them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from dragoman import limits
from dragoman.config.keys import LONG_MAX, Key, Kind, Source, Value, format_value, near_match
from dragoman.config.settings import (
    CLEANUP_POLICIES,
    COMPRESSIONS,
    DYNAMIC_KEYS,
    NODE_KEYS,
    TIMESTAMP_TYPES,
    Compression,
    Settings,
    TimestampType,
)
from dragoman.errors import ConfigError


class TopicKey(Key, frozen=True, kw_only=True):
    #: Setting of the node that is this key's default; empty: `default` is.
    node_key: str = ""
    #: Text of the default where no setting of the node gives it.
    default: str = ""
    #: Whether the broker obeys the key. One without effect is accepted and shown, no more.
    effective: bool = True

    def default_text(self, settings: Settings) -> str:
        return format_value(settings.value(self.node_key)) if self.node_key else self.default


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The effective configuration of a topic, typed. Topics with the same overrides share one."""

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
    """A value that a key has, or would have if what comes before were not there."""

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
    #: The value above and all that it hides, down to the default.
    synonyms: tuple[Synonym, ...] = ()
    #: It can only be set when the node is started.
    is_read_only: bool = False


def _row(
    name: str,
    kind: Kind,
    doc: str,
    *,
    node_key: str = "",
    default: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> TopicKey:
    return TopicKey(
        name=name,
        kind=kind,
        doc=doc,
        node_key=node_key,
        default=default,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
    )


def _ignored(
    name: str,
    kind: Kind,
    default: str,
    why: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
) -> TopicKey:
    return TopicKey(
        name=name,
        kind=kind,
        default=default,
        doc=why,
        minimum=minimum,
        maximum=maximum,
        effective=False,
    )


_FOREVER = str(LONG_MAX)
_NO_TIERS = "There is no remote storage."
_NO_FLUSH = "The node's `durability` decides when writes are durable."
_NO_THROTTLE = "Replication is not throttled."
_NO_LEVEL = "The codec's default level is used."

TOPIC_CONFIG: dict[str, TopicKey] = {
    key.name: key
    for key in (
        _row(
            "cleanup.policy",
            Kind.LIST,
            "`delete` drops old segments by age and size, `compact` keeps the last record of each"
            " key; `compact,delete` does both.",
            node_key="log.cleanup.policy",
            choices=CLEANUP_POLICIES,
        ),
        _row(
            "compression.type",
            Kind.STRING,
            "`producer` keeps batches as they come; another codec recompresses those that differ.",
            node_key="compression.type",
            choices=COMPRESSIONS,
        ),
        _ignored("compression.gzip.level", Kind.INT, "-1", _NO_LEVEL, minimum=-1, maximum=9),
        _ignored("compression.lz4.level", Kind.INT, "9", _NO_LEVEL, minimum=1, maximum=17),
        _ignored("compression.zstd.level", Kind.INT, "3", _NO_LEVEL, minimum=-131072, maximum=22),
        _row(
            "delete.retention.ms",
            Kind.LONG,
            "How long a compacted topic keeps tombstones.",
            node_key="log.cleaner.delete.retention.ms",
            minimum=0,
        ),
        _ignored(
            "file.delete.delay.ms",
            Kind.LONG,
            "60000",
            "The file of a dropped segment goes when no manifest lists it any more.",
            minimum=0,
        ),
        _ignored("flush.messages", Kind.LONG, _FOREVER, _NO_FLUSH, minimum=1),
        _ignored("flush.ms", Kind.LONG, _FOREVER, _NO_FLUSH, minimum=0),
        _ignored("follower.replication.throttled.replicas", Kind.LIST, "", _NO_THROTTLE),
        _row(
            "index.interval.bytes",
            Kind.INT,
            "Bytes of log between two entries of the sparse index.",
            default="4096",
            minimum=0,
        ),
        _ignored("leader.replication.throttled.replicas", Kind.LIST, "", _NO_THROTTLE),
        _ignored("local.retention.bytes", Kind.LONG, "-2", _NO_TIERS, minimum=-2),
        _ignored("local.retention.ms", Kind.LONG, "-2", _NO_TIERS, minimum=-2),
        _row(
            "max.compaction.lag.ms",
            Kind.LONG,
            "Longest time a record may wait for compaction.",
            default=_FOREVER,
            minimum=1,
        ),
        _row(
            "max.message.bytes",
            Kind.INT,
            "Largest record batch.",
            node_key="message.max.bytes",
            minimum=0,
        ),
        _row(
            "message.timestamp.after.max.ms",
            Kind.LONG,
            "How far a record's timestamp may lie ahead of the clock.",
            default="3600000",
            minimum=0,
        ),
        _row(
            "message.timestamp.before.max.ms",
            Kind.LONG,
            "How far a record's timestamp may lie behind the clock.",
            default=_FOREVER,
            minimum=0,
        ),
        _row(
            "message.timestamp.type",
            Kind.STRING,
            "Whether a record keeps its producer's time or gets the time of the append.",
            node_key="log.message.timestamp.type",
            choices=TIMESTAMP_TYPES,
        ),
        _row(
            "min.cleanable.dirty.ratio",
            Kind.DOUBLE,
            "Share of the log not yet compacted from which compaction starts.",
            node_key="log.cleaner.min.cleanable.ratio",
            minimum=0,
            maximum=1,
        ),
        _row(
            "min.compaction.lag.ms",
            Kind.LONG,
            "Shortest time a record stays as written.",
            default="0",
            minimum=0,
        ),
        _row(
            "min.insync.replicas",
            Kind.INT,
            "Replicas that must be in sync for a write with `acks=all`.",
            node_key="min.insync.replicas",
            minimum=1,
        ),
        _ignored("preallocate", Kind.BOOLEAN, "false", "Segments are never preallocated."),
        _ignored("remote.log.copy.disable", Kind.BOOLEAN, "false", _NO_TIERS),
        _ignored("remote.log.delete.on.disable", Kind.BOOLEAN, "false", _NO_TIERS),
        _ignored("remote.storage.enable", Kind.BOOLEAN, "false", _NO_TIERS),
        _row(
            "retention.bytes",
            Kind.LONG,
            "Size of a partition past which its oldest segments are dropped; -1: no limit.",
            node_key="log.retention.bytes",
            minimum=-1,
        ),
        _row(
            "retention.ms",
            Kind.LONG,
            "Age past which segments are dropped; -1: no limit.",
            node_key="log.retention.ms",
            minimum=-1,
        ),
        _row(
            "retention.segments",
            Kind.INT,
            "Segments of a partition past which the oldest are dropped; -1: no limit. Kafka has no"
            " such key.",
            default="-1",
            minimum=-1,
        ),
        _row(
            "segment.bytes",
            Kind.INT,
            "Size at which a new segment begins.",
            node_key="log.segment.bytes",
            minimum=14,
        ),
        _ignored(
            "segment.index.bytes",
            Kind.INT,
            "10485760",
            "An index grows with its segment.",
            minimum=4,
        ),
        _ignored(
            "segment.jitter.ms", Kind.LONG, "0", "Segments roll when their age says so.", minimum=0
        ),
        _row(
            "segment.ms",
            Kind.LONG,
            "Age at which a new segment begins.",
            node_key="log.roll.ms",
            minimum=1,
        ),
        _ignored(
            "unclean.leader.election.enable",
            Kind.BOOLEAN,
            "false",
            "A replica outside the in-sync set never becomes leader.",
        ),
    )
}


def validate_topic_config(overrides: Mapping[str, str]) -> None:
    """Refuse an unknown key, a value out of bounds, or values that contradict each other.

    Raises `ConfigError` that names the key, and the closest known one for an unknown key.
    """
    values = {name: _read(name, text) for name, text in overrides.items()}
    _check_lags(values)


def describe_topic_config(settings: Settings, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every key of a topic with its value and where that comes from, in order of name."""
    return [
        _describe_topic_key(key, settings, overrides)
        for key in sorted(TOPIC_CONFIG.values(), key=lambda key: key.name)
    ]


def describe_node_config(settings: Settings) -> list[ConfigEntry]:
    """Every key of the node with its value and where that comes from, in order of name."""
    return [
        _entry(key, _node_synonyms(settings, name), is_read_only=name not in DYNAMIC_KEYS)
        for name, key in sorted(NODE_KEYS.items())
    ]


def _describe_topic_key(
    key: TopicKey, settings: Settings, overrides: Mapping[str, str]
) -> ConfigEntry:
    synonyms: list[Synonym] = []
    if key.name in overrides:
        synonyms.append(Synonym(key.name, overrides[key.name], Source.TOPIC))
    if key.node_key:
        synonyms += _node_synonyms(settings, key.node_key)
    else:
        synonyms.append(Synonym(key.name, key.default, Source.DEFAULT))
    return _entry(key, synonyms)


def _node_synonyms(settings: Settings, name: str) -> list[Synonym]:
    return [Synonym(name, format_value(value), source) for source, value in settings.origins(name)]


def _entry(key: Key, synonyms: list[Synonym], *, is_read_only: bool = False) -> ConfigEntry:
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
    # The throttling lists are the only ones that may be empty, and nothing obeys them.
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
    return msgspec.convert(values, TopicConfig)
