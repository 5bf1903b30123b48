"""Topic configuration: Kafka's table, overrides over defaults, sharing, and refusals."""

from __future__ import annotations

import pytest

from dragoman.config.keys import Source
from dragoman.config.overrides import (
    TOPIC_CONFIG,
    TopicConfig,
    describe_node_config,
    describe_topic_config,
    validate_topic_config,
)
from dragoman.config.settings import NODE_KEYS, Settings
from dragoman.errors import ConfigError

#: Kafka 4.3, as listed by its DescribeConfigs.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.storage.enable": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_keys_and_defaults_are_kafkas_and_three_of_ours() -> None:
    described = {each.key.name: each.text for each in describe_topic_config(Settings(), {})}
    ours = {
        "retention.segments": "-1",
        "dragoman.cursus.policy": "",
        "dragoman.rocketmq.topic": "",
        "dragoman.value.schema": "",
    }
    assert described == KAFKA_DEFAULTS | ours


def test_every_default_is_valid() -> None:
    validate_topic_config(KAFKA_DEFAULTS)


def test_typed_fields_are_the_effective_keys() -> None:
    effective = {key.attribute for key in TOPIC_CONFIG.values() if key.effective}
    derived = {"takes_batches_as_they_are"}
    assert set(TopicConfig.__struct_fields__) == effective | derived


def test_node_defaults_exist_and_share_their_bounds() -> None:
    for key in TOPIC_CONFIG.values():
        if key.node_key:
            node_key = NODE_KEYS[key.node_key]
            assert (node_key.kind, node_key.choices) == (key.kind, key.choices)
            assert node_key.bounds() == key.bounds()


def test_override_wins_over_node_and_node_over_default() -> None:
    settings = Settings(log_retention_ms=1000, log_segment_bytes=2048, log_roll_ms=5)
    config = TopicConfig.build(settings, {"segment.bytes": "4096"})
    assert (config.retention_ms, config.segment_bytes, config.segment_ms) == (1000, 4096, 5)
    assert config.min_cleanable_dirty_ratio == 0.5
    assert config.cleanup_policy == ("delete",)


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ({"log_retention_bytes": 7}, "retention_bytes"),
        ({"log_retention_segments": 7}, "retention_segments"),
        ({"message_max_bytes": 7}, "max_message_bytes"),
        ({"log_cleaner_delete_retention_ms": 7}, "delete_retention_ms"),
        ({"min_insync_replicas": 7}, "min_insync_replicas"),
        ({"log_cleaner_min_cleanable_ratio": 0.25}, "min_cleanable_dirty_ratio"),
        ({"compression_type": "zstd"}, "compression_type"),
        ({"log_message_timestamp_type": "LogAppendTime"}, "message_timestamp_type"),
        ({"log_cleanup_policy": ("compact",)}, "cleanup_policy"),
    ],
)
def test_node_setting_is_the_topics_default(setting: dict, field: str) -> None:
    config = TopicConfig.build(Settings(**setting), {})
    assert getattr(config, field) == next(iter(setting.values()))


def test_cleanup_policies_are_distinct() -> None:
    both = TopicConfig.build(Settings(), {"cleanup.policy": "compact,delete"})
    compact = TopicConfig.build(Settings(), {"cleanup.policy": "compact"})
    assert (both.is_compacted, both.is_retained_by_age_or_size) == (True, True)
    assert (compact.is_compacted, compact.is_retained_by_age_or_size) == (True, False)


def test_topics_with_the_same_overrides_share_one_object() -> None:
    plain = {id(TopicConfig.build(Settings(), {})) for _ in range(100)}
    one = TopicConfig.build(Settings(), {"retention.ms": "1", "segment.ms": "2"})
    other = TopicConfig.build(Settings(), {"segment.ms": "2", "retention.ms": "1"})
    assert len(plain) == 1
    assert one is other


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"retention.msec": "1"},
            "unknown topic configuration 'retention.msec'; did you mean 'retention.ms'?",
        ),
        (
            {"retention.ms": "-2"},
            "retention.ms: expected a 64-bit integer of at least -1, got '-2'",
        ),
        ({"cleanup.policy": "compost"}, "cleanup.policy: expected a comma-separated list of"),
        ({"cleanup.policy": ","}, "cleanup.policy: expected"),
        ({"segment.bytes": "13"}, "segment.bytes: expected"),
        ({"preallocate": "maybe"}, "preallocate: expected true or false"),
        ({"compression.zstd.level": "23"}, "compression.zstd.level: expected"),
        ({"message.format.version": "2.0"}, "unknown topic configuration"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
            "min.compaction.lag.ms (10) is above max.compaction.lag.ms (9)",
        ),
    ],
)
def test_bad_override_is_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as validated:
        validate_topic_config(overrides)
    with pytest.raises(ConfigError) as built:
        TopicConfig.build(Settings(), overrides)
    assert str(validated.value).startswith(message)
    assert str(built.value) == str(validated.value)


def test_throttling_list_may_be_set_and_empty() -> None:
    validate_topic_config({"leader.replication.throttled.replicas": "0:1,1:2"})
    validate_topic_config({"leader.replication.throttled.replicas": ""})


def test_description_says_where_a_value_comes_from() -> None:
    settings = Settings(log_retention_ms=5, explicit=frozenset({"log.retention.ms"}))
    entries = {each.key.name: each for each in describe_topic_config(settings, {"segment.ms": "9"})}
    shown = {
        name: (entries[name].text, entries[name].source)
        for name in ("segment.ms", "retention.ms", "segment.bytes", "flush.ms")
    }
    assert shown == {
        "segment.ms": ("9", Source.TOPIC),
        "retention.ms": ("5", Source.NODE),
        "segment.bytes": ("1073741824", Source.DEFAULT),
        "flush.ms": ("9223372036854775807", Source.DEFAULT),
    }


def test_node_description_tells_set_keys_from_defaults() -> None:
    settings = Settings(num_partitions=1, explicit=frozenset({"num.partitions"}))
    entries = {each.key.name: each for each in describe_node_config(settings)}
    assert list(entries) == sorted(NODE_KEYS)
    assert entries["num.partitions"].source is Source.NODE
    assert entries["delete.topic.enable"].source is Source.DEFAULT
    assert entries["delete.topic.enable"].text == "true"
