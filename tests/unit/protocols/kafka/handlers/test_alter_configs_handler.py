"""Goal: both ways to alter configurations change exactly what was requested, or nothing."""

from __future__ import annotations

import pytest

from dragoman.config.settings import DYNAMIC_KEYS, NODE_KEYS
from dragoman.limits import CONFIG_KEYS_PER_REQUEST_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World
from worlds.kafka_admin import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    ends,
    forbidden,
    increment,
    value_of,
)

ALTER = ends(ApiKey.ALTER_CONFIGS)
INCREMENTAL = ends(ApiKey.INCREMENTAL_ALTER_CONFIGS)


def replace(
    wire: Wire,
    resource_type: int,
    name: str,
    *configs: tuple[str, str | None],
    version: int = 2,
    validate_only: bool = False,
) -> m.AlterConfigsResponseResource:
    resource = m.AlterConfigsRequestResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[m.AlterConfigsRequestConfig(name=key, value=value) for key, value in configs],
    )
    request = m.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (result,) = wire.ask(request, version, m.AlterConfigsResponse).responses
    return result


def config(world: World, topic: str = "t") -> dict[str, str]:
    return world.broker.image.topics[topic].config


# ---- the old request


@pytest.mark.parametrize("version", ALTER)
def test_replacing_forgets_what_is_not_named(world: World, wire: Wire, version: int) -> None:
    world.create("t", config={"retention.ms": "1", "segment.ms": "2"})
    result = replace(wire, TOPIC, "t", ("retention.ms", "5"), version=version)
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.resource_type, result.resource_name) == (TOPIC, "t")
    assert config(world) == {"retention.ms": "5"}
    assert world.broker.partitions.find("t", 0).config.retention_ms == 5


@pytest.mark.parametrize("version", ALTER)
def test_replacing_a_brokers_changes(world: World, wire: Wire, version: int) -> None:
    assert not replace(wire, BROKER, "1", ("num.partitions", "3"), version=version).error_code
    assert not replace(wire, BROKER, "1", ("group.max.size", "9"), version=version).error_code
    settings = world.broker.settings
    assert (settings.num_partitions, settings.group_max_size) == (1, 9)


@pytest.mark.parametrize("version", ALTER)
def test_replacing_only_to_validate(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    ask = {"version": version, "validate_only": True}
    assert not replace(wire, TOPIC, "t", ("retention.ms", "5"), **ask).error_code
    assert not replace(wire, BROKER, "", ("num.partitions", "5"), **ask).error_code
    bad = replace(wire, TOPIC, "t", ("retention.ms", "x"), **ask)
    assert bad.error_code == ErrorCode.INVALID_CONFIG
    assert config(world) == {}
    assert world.broker.image.node_configs == {}


def test_replacement_without_a_value(world: World, wire: Wire) -> None:
    world.create("t")
    result = replace(wire, TOPIC, "t", ("retention.ms", None))
    assert result.error_code == ErrorCode.INVALID_REQUEST


# ---- the new request, topics


@pytest.mark.parametrize("version", INCREMENTAL)
def test_set_and_delete_leave_other_keys(world: World, wire: Wire, version: int) -> None:
    world.create("t", config={"retention.ms": "1", "segment.ms": "2"})
    changes = (("retention.ms", DELETE, None), ("max.message.bytes", SET, "50"))
    result = increment(wire, TOPIC, "t", *changes, version=version)
    assert (result.error_code, result.error_message) == (0, None)
    assert config(world) == {"segment.ms": "2", "max.message.bytes": "50"}
    assert world.broker.partitions.find("t", 0).config.max_message_bytes == 50
    assert value_of(wire, TOPIC, "t", "retention.ms") == ("604800000", 5)


def test_deleting_what_is_not_set_is_no_error(world: World, wire: Wire) -> None:
    world.create("t")
    assert not increment(wire, TOPIC, "t", ("retention.ms", DELETE, None)).error_code


@pytest.mark.parametrize("version", INCREMENTAL)
def test_lists_grow_and_shrink(world: World, wire: Wire, version: int) -> None:
    world.create("t")

    def change(operation: int, value: str) -> int:
        row = ("cleanup.policy", operation, value)
        return increment(wire, TOPIC, "t", row, version=version).error_code

    assert change(APPEND, "compact") == 0
    assert config(world) == {"cleanup.policy": "delete,compact"}
    assert change(APPEND, "compact") == 0
    assert config(world) == {"cleanup.policy": "delete,compact"}
    assert change(SUBTRACT, "delete") == 0
    assert config(world) == {"cleanup.policy": "compact"}
    assert change(SUBTRACT, "compact") == 0
    assert config(world) == {"cleanup.policy": ""}
    assert change(APPEND, "compost") == ErrorCode.INVALID_CONFIG
    assert config(world) == {"cleanup.policy": ""}


def test_empty_lists_may_grow(world: World, wire: Wire) -> None:
    world.create("t")
    key = "leader.replication.throttled.replicas"
    assert not increment(wire, TOPIC, "t", (key, APPEND, "0:1, 1:1")).error_code
    assert config(world) == {key: "0:1,1:1"}
    assert not increment(wire, TOPIC, "t", (key, SUBTRACT, "0:1,1:1")).error_code
    assert config(world) == {key: ""}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_can_be_added_to(world: World, wire: Wire, operation: int) -> None:
    world.create("t")
    result = increment(wire, TOPIC, "t", ("retention.ms", operation, "1"))
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert "retention.ms is not a list" in (result.error_message or "")


@pytest.mark.parametrize("version", INCREMENTAL)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("nothing", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("nothing", DELETE, None)], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", -1, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST),
        (
            [(f"k{i}", SET, "1") for i in range(CONFIG_KEYS_PER_REQUEST_MAX + 1)],
            ErrorCode.INVALID_REQUEST,
        ),
        ([("segment.ms", SET, "1"), ("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_changes_of_a_topic_change_nothing(
    world: World,
    wire: Wire,
    changes: list[tuple[str, int, str | None]],
    code: int,
    version: int,
) -> None:
    world.create("t", config={"retention.ms": "7"})
    result = increment(wire, TOPIC, "t", *changes, version=version)
    assert result.error_code == code
    assert result.error_message
    assert config(world) == {"retention.ms": "7"}


@pytest.mark.parametrize("version", INCREMENTAL)
@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "m", ErrorCode.INVALID_CONFIG),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_altered(
    wire: Wire, resource_type: int, name: str, code: int, version: int
) -> None:
    result = increment(wire, resource_type, name, ("k", SET, "v"), version=version)
    assert result.error_code == code
    assert result.error_message


def test_same_resource_twice_is_refused_both_times(world: World, wire: Wire) -> None:
    world.create("t")
    change = m.IncrementalAlterConfigsRequestConfig(name="segment.ms", value="1")
    resource = m.IncrementalAlterConfigsRequestResource(
        resource_type=TOPIC, resource_name="t", configs=[change]
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource, resource])
    response = wire.ask(request, 1, m.IncrementalAlterConfigsResponse)
    assert [each.error_code for each in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert config(world) == {}


def test_a_request_without_resources_has_an_empty_reply(wire: Wire) -> None:
    request = m.IncrementalAlterConfigsRequest()
    assert wire.ask(request, 1, m.IncrementalAlterConfigsResponse).responses == []


def test_changes_sent_without_waiting_all_count(world: World, wire: Wire) -> None:
    world.create("t")
    keys = ("retention.ms", "segment.ms", "max.message.bytes")
    for key in keys:
        change = m.IncrementalAlterConfigsRequestConfig(name=key, value="7")
        resource = m.IncrementalAlterConfigsRequestResource(
            resource_type=TOPIC, resource_name="t", configs=[change]
        )
        wire.send(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    world.settle()
    for reply in wire.replies():
        assert isinstance(reply.message, m.IncrementalAlterConfigsResponse)
        assert reply.message.responses[0].error_code == 0
    assert config(world) == dict.fromkeys(keys, "7")


def test_altered_topics_stay_so_over_a_restart(world: World, wire: Wire) -> None:
    world.create("t")
    increment(wire, TOPIC, "t", ("retention.ms", SET, "7"))
    wire.lose()
    again = world.reopened()
    assert again.broker.partitions.find("t", 0).config.retention_ms == 7


# ---- the new request, brokers


@pytest.mark.parametrize("version", INCREMENTAL)
@pytest.mark.parametrize("name", ["1", ""])
def test_brokers_are_altered(world: World, wire: Wire, name: str, version: int) -> None:
    row = ("num.partitions", SET, "3")
    assert not increment(wire, BROKER, name, row, version=version).error_code
    assert world.broker.settings.num_partitions == 3
    row = ("log.cleanup.policy", APPEND, "compact")
    assert not increment(wire, BROKER, name, row, version=version).error_code
    assert world.broker.settings.log_cleanup_policy == ("delete", "compact")
    row = ("num.partitions", DELETE, "")
    assert not increment(wire, BROKER, name, row, version=version).error_code
    assert world.broker.settings.num_partitions == 1


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize("version", INCREMENTAL)
def test_groups_are_altered_and_stay_so_over_a_restart(
    world: World, wire: Wire, version: int
) -> None:
    changes = ((SESSION, SET, "50000"), (HEARTBEAT, SET, "6000"))
    assert increment(wire, GROUP, "g", *changes, version=version).error_code == 0
    assert increment(wire, GROUP, "g", (HEARTBEAT, DELETE, None)).error_code == 0
    assert world.broker.group_configs.of("g") == {SESSION: "50000"}
    again = world.reopened()
    assert again.broker.group_configs.of("g") == {SESSION: "50000"}
    assert increment(Wire(again), GROUP, "g", (SESSION, DELETE, None)).error_code == 0
    assert again.broker.image.group_configs == {}


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("", (SESSION, SET, "50000"), ErrorCode.INVALID_REQUEST),
        ("g", (SESSION, SET, "44999"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, SET, "60001"), ErrorCode.INVALID_CONFIG),
        ("g", (HEARTBEAT, SET, "4999"), ErrorCode.INVALID_CONFIG),
        ("g", (HEARTBEAT, SET, "soon"), ErrorCode.INVALID_CONFIG),
        ("g", ("retention.ms", SET, "1"), ErrorCode.INVALID_CONFIG),
        ("g", (SESSION, APPEND, "1"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_changes_of_a_group(
    world: World, wire: Wire, name: str, change: tuple[str, int, str], code: int
) -> None:
    assert increment(wire, GROUP, name, change).error_code == code
    assert world.broker.image.group_configs == {}


def test_groups_with_configurations_are_bounded(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.broker.configs.GROUP_CONFIGS_MAX", 1)
    assert increment(wire, GROUP, "a", (SESSION, SET, "50000")).error_code == 0
    refused = increment(wire, GROUP, "b", (SESSION, SET, "50000"))
    assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert increment(wire, GROUP, "a", (SESSION, SET, "51000")).error_code == 0


def test_what_is_for_all_does_not_build_on_what_is_for_one(world: World, wire: Wire) -> None:
    key = "log.cleanup.policy"
    assert not increment(wire, BROKER, "1", (key, SET, "compact")).error_code
    assert not increment(wire, BROKER, "", (key, APPEND, "delete")).error_code
    assert world.broker.image.node_configs[-1] == {key: "delete"}


@pytest.mark.parametrize("key", sorted(set(NODE_KEYS) - DYNAMIC_KEYS))
def test_read_only_keys_refuse(world: World, wire: Wire, key: str) -> None:
    result = increment(wire, BROKER, "1", (key, SET, "1"))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == f"{key} can only be set when the node is started"
    assert world.broker.image.node_configs == {}


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize(
    "change",
    [
        ("num.partitions", SET, "0"),
        ("num.io.threads", SET, "0"),
        ("follower.replication.throttled.rate", SET, "fast"),
        ("plugin.classes", APPEND, "one"),
        ("", SET, "1"),
        (" padded", SET, "1"),
    ],
)
def test_bad_changes_of_a_broker(
    world: World, wire: Wire, name: str, change: tuple[str, int, str]
) -> None:
    result = increment(wire, BROKER, name, change)
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert world.broker.image.node_configs == {}


def test_the_last_policy_may_be_taken_away(world: World, wire: Wire) -> None:
    world.create("t")
    assert not increment(wire, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")).error_code
    assert world.broker.partitions.find("t", 0).config.cleanup_policy == ()
    assert value_of(wire, TOPIC, "t", "cleanup.policy") == ("", 1)
    assert not increment(wire, TOPIC, "t", ("cleanup.policy", APPEND, "compact")).error_code
    assert world.broker.partitions.find("t", 0).config.cleanup_policy == ("compact",)
    assert not increment(wire, BROKER, "1", ("log.cleanup.policy", SET, "")).error_code
    assert world.broker.settings.log_cleanup_policy == ()


INERT = {
    "follower.replication.throttled.rate": "1000",
    "num.io.threads": "16",
    "my.plugin.endpoint": "host:1234",
}


@pytest.mark.parametrize("name", ["1", ""])
def test_keys_without_effect_are_kept_and_removed(world: World, wire: Wire, name: str) -> None:
    before = world.broker.settings
    rows = [(key, SET, text) for key, text in INERT.items()]
    assert not increment(wire, BROKER, name, *rows, ("num.partitions", SET, "3")).error_code
    assert world.broker.settings.num_partitions == 3
    again = world.reopened(kill=True)
    assert again.broker.settings.num_partitions == 3
    (kept,) = again.broker.image.node_configs.values()
    assert kept == {**INERT, "num.partitions": "3"}
    wire = Wire(again)
    gone = [(key, DELETE, None) for key in (*INERT, "never.set", "num.partitions")]
    assert not increment(wire, BROKER, name, *gone).error_code
    assert [*again.broker.image.node_configs.values()] in ([], [{}])
    assert again.broker.settings == before


def test_keys_without_effect_may_be_replaced(world: World, wire: Wire) -> None:
    assert not replace(wire, BROKER, "1", *INERT.items()).error_code
    assert not replace(wire, BROKER, "1", ("num.io.threads", "4")).error_code
    assert world.broker.image.node_configs[1] == {"num.io.threads": "4"}
    refused = replace(wire, BROKER, "1", ("num.io.threads", "many"))
    assert refused.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("key", ["log.dirs", "broker.id", "listeners", "process.roles"])
def test_what_kafka_reads_at_the_start_is_read_only(world: World, wire: Wire, key: str) -> None:
    result = increment(wire, BROKER, "1", (key, SET, "1"))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert world.broker.image.node_configs == {}


def test_keys_without_effect_are_bounded(
    world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.limits.INERT_CONFIG_KEYS_MAX", 3)
    monkeypatch.setattr("dragoman.limits.INERT_CONFIG_BYTES_MAX", 100)
    for number in range(3):
        assert not increment(wire, BROKER, "1", (f"key{number}", SET, "x")).error_code
    for change in (("key3", SET, "x"), ("key0", SET, "x" * 100)):
        assert increment(wire, BROKER, "1", change).error_code == ErrorCode.INVALID_CONFIG
    assert not increment(wire, BROKER, "", ("key3", SET, "x")).error_code
    assert len(world.broker.image.node_configs[1]) == 3


@pytest.mark.parametrize("version", INCREMENTAL)
def test_only_to_validate(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    ask = {"version": version, "validate_only": True}
    assert not increment(wire, TOPIC, "t", ("retention.ms", SET, "5"), **ask).error_code
    assert not increment(wire, BROKER, "1", ("num.partitions", SET, "5"), **ask).error_code
    assert increment(wire, TOPIC, "t", ("retention.ms", SET, "x"), **ask).error_code == 40
    assert increment(wire, BROKER, "1", ("node.id", SET, "5"), **ask).error_code == 42
    assert increment(wire, TOPIC, "none", ("retention.ms", SET, "5"), **ask).error_code == 3
    assert config(world) == {}
    assert world.broker.image.node_configs == {}


@pytest.mark.parametrize(
    ("resource", "resource_type", "name", "code"),
    [
        (Resource.TOPIC, TOPIC, "t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (Resource.CLUSTER, BROKER, "1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_authorizer_is_asked(resource: Resource, resource_type: int, name: str, code: int) -> None:
    wire = forbidden(resource, Operation.ALTER_CONFIGS)
    wire.world.create("t")
    assert increment(wire, resource_type, name, ("retention.ms", SET, "1")).error_code == code
    assert replace(wire, resource_type, name, ("retention.ms", "1")).error_code == code
    assert config(wire.world) == {}


def test_client_that_leaves_before_the_answer(world: World, wire: Wire) -> None:
    """The change is made although the client has gone."""
    world.create("t")
    change = m.IncrementalAlterConfigsRequestConfig(name="segment.ms", value="1")
    resource = m.IncrementalAlterConfigsRequestResource(
        resource_type=TOPIC, resource_name="t", configs=[change]
    )
    wire.send(m.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    wire.lose()
    world.settle()
    assert config(world) == {"segment.ms": "1"}
