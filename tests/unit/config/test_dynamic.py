"""Goal: settings changed at run time lie over the others, and only those that may change do."""

from __future__ import annotations

import pytest

from dragoman.config.consistency import check_consistent
from dragoman.config.dynamic import ReadOnlyKeyError, require_dynamic, with_changes
from dragoman.config.keys import Source, format_value
from dragoman.config.overrides import describe_node_config, describe_topic_config
from dragoman.config.settings import DYNAMIC_KEYS, NODE_KEYS, Settings
from dragoman.errors import ConfigError

STARTED = Settings(num_partitions=2, explicit=frozenset({"num.partitions"}))


def test_no_changes_are_the_same_settings() -> None:
    assert with_changes(STARTED, Source.DYNAMIC_NODE, {}) is STARTED


def test_the_layer_above_wins_and_all_below_stay_known() -> None:
    for_all = with_changes(STARTED, Source.DYNAMIC_CLUSTER, {"num.partitions": "3"})
    own = with_changes(for_all, Source.DYNAMIC_NODE, {"num.partitions": "4"})
    assert own.num_partitions == 4
    assert own.origins("num.partitions") == [
        (Source.DYNAMIC_NODE, 4),
        (Source.DYNAMIC_CLUSTER, 3),
        (Source.NODE, 2),
        (Source.DEFAULT, 1),
    ]
    assert own.origins("fetch.max.bytes") == [(Source.DEFAULT, 57_671_680)]
    assert own.explicit == STARTED.explicit


def test_topic_defaults_follow_and_say_from_where() -> None:
    changed = with_changes(STARTED, Source.DYNAMIC_CLUSTER, {"log.retention.ms": "7"})
    entries = {each.key.name: each for each in describe_topic_config(changed, {})}
    entry = entries["retention.ms"]
    assert (entry.text, entry.source) == ("7", Source.DYNAMIC_CLUSTER)
    assert [(each.name, each.text) for each in entry.synonyms] == [
        ("log.retention.ms", "7"),
        ("log.retention.ms", "604800000"),
    ]


@pytest.mark.parametrize("name", sorted(DYNAMIC_KEYS))
def test_every_live_key_takes_its_own_value(name: str) -> None:
    text = format_value(Settings().value(name))
    changed = with_changes(Settings(), Source.DYNAMIC_NODE, {name: text})
    assert changed.value(name) == Settings().value(name)
    assert changed.origins(name)[0] == (Source.DYNAMIC_NODE, Settings().value(name))


@pytest.mark.parametrize("name", sorted(set(NODE_KEYS) - DYNAMIC_KEYS))
def test_every_other_key_is_refused(name: str) -> None:
    with pytest.raises(ReadOnlyKeyError, match=name.replace(".", r"\.")):
        with_changes(Settings(), Source.DYNAMIC_NODE, {name: "1"})


def test_read_only_keys_are_those_that_are_not_live() -> None:
    shown = {each.key.name for each in describe_node_config(Settings()) if each.is_read_only}
    assert shown == set(NODE_KEYS) - DYNAMIC_KEYS
    assert set(NODE_KEYS) >= DYNAMIC_KEYS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num.partition": "1"}, "unknown key 'num.partition'; did you mean 'num.partitions'?"),
        ({"num.partitions": "0"}, "num.partitions: expected"),
        ({"num.partitions": ""}, "num.partitions: expected"),
        ({"group.min.session.timeout.ms": "1800001"}, "group.min.session.timeout.ms (1800001) is"),
        ({"message.max.bytes": "104857601"}, "message.max.bytes (104857601) is above"),
    ],
)
def test_bad_changes_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_consistent(with_changes(Settings(), Source.DYNAMIC_NODE, changes))
    assert str(refused.value).startswith(message)
    assert not isinstance(refused.value, ReadOnlyKeyError)


def test_require_dynamic_tells_unknown_from_read_only() -> None:
    require_dynamic("num.partitions")
    with pytest.raises(ReadOnlyKeyError):
        require_dynamic("node.id")
    with pytest.raises(ConfigError, match="unknown key"):
        require_dynamic("nothing")


def test_setting_of_one_listener_changes_while_the_node_runs() -> None:
    started = Settings(
        ssl_certificate_file="node.pem", per_listener=(("listener.kafka.tls", "optional"),)
    )
    for_all = with_changes(started, Source.DYNAMIC_CLUSTER, {"authentication": "required"})
    own = with_changes(
        for_all,
        Source.DYNAMIC_NODE,
        {"listener.kafka.tls": "required", "listener.kafka-x.authentication": "off"},
    )
    assert own.listener_security("kafka").tls == "required"
    assert own.listener_security("kafka").authentication == "required"
    assert own.listener_security("kafka-x").authentication == "off"
    assert own.origins("listener.kafka.tls") == [
        (Source.DYNAMIC_NODE, "required"),
        (Source.DEFAULT, "off"),
    ]
    shown = {each.key.name: each.text for each in describe_node_config(own)}
    assert shown["listener.kafka.tls"] == "required"
    with pytest.raises(ConfigError, match=r"listener\.kafka\.tls: expected one of"):
        with_changes(own, Source.DYNAMIC_NODE, {"listener.kafka.tls": "yes"})


def test_tls_without_a_certificate_is_refused_at_run_time() -> None:
    changed = with_changes(Settings(), Source.DYNAMIC_CLUSTER, {"listener.kafka.tls": "optional"})
    with pytest.raises(ConfigError, match="TLS needs ssl"):
        check_consistent(changed)
    own = {"ssl.certificate.file": "node.pem"}
    check_consistent(with_changes(changed, Source.DYNAMIC_NODE, own))
