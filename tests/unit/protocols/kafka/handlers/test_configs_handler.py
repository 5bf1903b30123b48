"""Goal: configurations are shown as tools expect: values, sources, types, synonyms, words."""

from __future__ import annotations

import pytest

from dragoman.broker.topics import NewTopic
from dragoman.config.listeners import default_addresses
from dragoman.config.overrides import TOPIC_CONFIG
from dragoman.config.settings import DYNAMIC_KEYS, NODE_KEYS, Settings
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World
from worlds.kafka_admin import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    SET,
    TOPIC,
    describe,
    ends,
    forbidden,
    increment,
    value_of,
)

#: Kafka's numbers for types.
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7


@pytest.mark.parametrize("version", range(1, 5))
def test_topic_shows_every_key_with_value_and_source(
    world: World, wire: Wire, version: int
) -> None:
    world.create("t", config={"retention.ms": "1000"})
    result = describe(wire, TOPIC, "t", version=version)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
    configs = {each.name: each for each in result.configs}
    assert set(configs) == set(TOPIC_CONFIG)
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", 5)
    assert not any(each.read_only or each.is_sensitive for each in configs.values())
    assert all(each.synonyms == [] for each in configs.values())


@pytest.mark.parametrize("version", [3, 4])
def test_types_are_kafkas(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    types = {
        each.name: each.config_type for each in describe(wire, TOPIC, "t", version=version).configs
    }
    assert types["retention.ms"] == LONG
    assert types["segment.bytes"] == INT
    assert types["cleanup.policy"] == LIST
    assert types["compression.type"] == STRING
    assert types["preallocate"] == BOOLEAN
    assert types["min.cleanable.dirty.ratio"] == DOUBLE


def test_documentation_comes_only_when_asked_for(world: World, wire: Wire) -> None:
    world.create("t")
    (plain,) = describe(wire, TOPIC, "t", ["retention.ms"]).configs
    (documented,) = describe(wire, TOPIC, "t", ["retention.ms"], documentation=True).configs
    assert plain.documentation is None
    assert documented.documentation == TOPIC_CONFIG["retention.ms"].doc


def test_synonyms_go_from_the_value_down_to_the_default() -> None:
    settings = Settings(log_retention_ms=5000, explicit=frozenset({"log.retention.ms"}))
    world = World(settings)
    wire = Wire(world)
    world.create("t", config={"retention.ms": "1000"})
    assert not increment(wire, BROKER, "", ("log.retention.ms", SET, "4000")).error_code
    assert not increment(wire, BROKER, "1", ("log.retention.ms", SET, "3000")).error_code
    (config,) = describe(wire, TOPIC, "t", ["retention.ms"], synonyms=True).configs
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "3000", 2),
        ("log.retention.ms", "4000", 3),
        ("log.retention.ms", "5000", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    (config,) = describe(wire, TOPIC, "t", ["flush.ms"], synonyms=True).configs
    assert [(each.name, each.source) for each in config.synonyms] == [("flush.ms", 5)]


@pytest.mark.parametrize("keys", [["retention.ms", "nothing"], ["retention.ms"]])
def test_only_the_keys_asked_for(world: World, wire: Wire, keys: list[str]) -> None:
    world.create("t")
    assert [each.name for each in describe(wire, TOPIC, "t", keys).configs] == ["retention.ms"]


def test_an_empty_list_of_keys_means_all(world: World, wire: Wire) -> None:
    world.create("t")
    assert len(describe(wire, TOPIC, "t", []).configs) == len(TOPIC_CONFIG)


@pytest.mark.parametrize("version", ends(ApiKey.DESCRIBE_CONFIGS))
def test_broker_shows_settings_and_which_may_change(wire: Wire, version: int) -> None:
    result = describe(wire, BROKER, "1", version=version)
    assert result.error_code == 0
    read_only = {each.name for each in result.configs if each.read_only}
    names = [each.name for each in result.configs]
    assert names == sorted(names)
    derived = {
        *("broker.id", "log.dirs", "listeners", "advertised.listeners"),
        "listener.security.protocol.map",
    }
    assert set(names) == set(NODE_KEYS) | derived
    assert read_only == (set(NODE_KEYS) - DYNAMIC_KEYS) | derived
    values = {each.name: each.value for each in result.configs}
    assert (values["broker.id"], values["node.id"]) == ("1", "1")
    assert values["advertised.listeners"] == "kafka://broker.example:9092"
    assert values["log.dirs"] == values["data"] == "dragoman-data"
    addresses = default_addresses().items()
    assert values["listeners"] == ",".join(f"{name}://{address}" for name, address in addresses)


def test_config_sources_of_a_broker_are_distinct() -> None:
    world = World(Settings(num_partitions=2, explicit=frozenset({"num.partitions"})))
    wire = Wire(world)
    assert value_of(wire, BROKER, "1", "num.partitions") == ("2", 4)
    assert value_of(wire, BROKER, "1", "group.max.size") == ("2147483647", 5)
    increment(wire, BROKER, "", ("num.partitions", SET, "3"))
    assert value_of(wire, BROKER, "1", "num.partitions") == ("3", 3)
    increment(wire, BROKER, "1", ("num.partitions", SET, "4"))
    assert value_of(wire, BROKER, "1", "num.partitions") == ("4", 2)


def test_the_default_factor_is_shown_as_it_acts(world: World, wire: Wire) -> None:
    key = "default.replication.factor"
    assert world.broker.settings.default_replication_factor == 0
    assert value_of(wire, BROKER, "1", key) == ("1", 5)
    (config,) = describe(wire, BROKER, "1", [key], synonyms=True).configs
    assert [each.value for each in config.synonyms] == ["1"]
    increment(wire, BROKER, "1", (key, SET, "2"))
    (config,) = describe(wire, BROKER, "1", [key], synonyms=True).configs
    assert (config.value, [each.value for each in config.synonyms]) == ("2", ["2", "1"])
    assert not config.read_only


def test_keys_without_effect_are_shown_where_they_are_kept(wire: Wire) -> None:
    rate, secret = "follower.replication.throttled.rate", "my.plugin.password"
    increment(wire, BROKER, "", (rate, SET, "1000"), (secret, SET, "xyzzy"))
    assert value_of(wire, BROKER, "1", rate) == ("1000", 3)
    increment(wire, BROKER, "1", (rate, SET, "500"))
    assert value_of(wire, BROKER, "1", rate) == ("500", 2)
    (kept,) = describe(wire, BROKER, "1", [rate]).configs
    assert (kept.config_type, kept.read_only, kept.is_sensitive) == (LONG, False, False)
    # What it means is not known: it may be a password, and is not shown, as in Kafka.
    (hidden,) = describe(wire, BROKER, "1", [secret], synonyms=True).configs
    assert (hidden.value, hidden.config_type, hidden.is_sensitive) == (None, 0, True)
    assert [each.value for each in hidden.synonyms] == [None]
    for_all = describe(wire, BROKER, "").configs
    assert [(each.name, each.value) for each in for_all] == [(rate, "1000"), (secret, None)]


def test_broker_without_a_name_shows_what_was_changed_for_all(wire: Wire) -> None:
    assert describe(wire, BROKER, "").configs == []
    increment(wire, BROKER, "", ("num.partitions", SET, "3"))
    increment(wire, BROKER, "1", ("num.partitions", SET, "4"))
    (config,) = describe(wire, BROKER, "").configs
    assert (config.name, config.value, config.config_source) == ("num.partitions", "3", 3)


@pytest.mark.parametrize("version", ends(ApiKey.DESCRIBE_CONFIGS))
@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (BROKER, "-1", ErrorCode.INVALID_REQUEST),
        (BROKER, "1" * 400, ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (0, "t", ErrorCode.INVALID_REQUEST),
        (99, "t", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_does_not_exist_is_refused(
    wire: Wire, resource_type: int, name: str, code: int, version: int
) -> None:
    result = describe(wire, resource_type, name, version=version)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


def test_client_metrics_have_nothing_to_show(wire: Wire) -> None:
    result = describe(wire, CLIENT_METRICS, "any")
    assert (result.error_code, result.configs, result.error_message) == (0, [], None)


def test_group_shows_its_own_values_over_the_nodes(wire: Wire) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    before = {
        each.name: (each.value, each.config_source) for each in describe(wire, GROUP, "g").configs
    }
    assert before == {session: ("45000", 5), heartbeat: ("5000", 5)}
    assert increment(wire, GROUP, "g", (session, SET, "50000")).error_code == 0
    assert value_of(wire, GROUP, "g", session) == ("50000", 8)
    assert value_of(wire, GROUP, "g", heartbeat) == ("5000", 5)
    assert value_of(wire, GROUP, "other", session) == ("45000", 5)
    assert listed(wire, 1, GROUP) == [("g", GROUP)]


def test_one_bad_resource_does_not_spoil_the_others(world: World, wire: Wire) -> None:
    world.create("t")
    resources = [
        m.DescribeConfigsRequestResource(resource_type=TOPIC, resource_name=name)
        for name in ("none", "t")
    ]
    response = wire.ask(m.DescribeConfigsRequest(resources=resources), 4, m.DescribeConfigsResponse)
    assert [each.error_code for each in response.results] == [3, 0]


@pytest.mark.parametrize(
    ("resource", "resource_type", "name", "code"),
    [
        (Resource.TOPIC, TOPIC, "t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (Resource.CLUSTER, BROKER, "1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (Resource.CLUSTER, CLIENT_METRICS, "m", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (Resource.GROUP, GROUP, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_authorizer_is_asked(resource: Resource, resource_type: int, name: str, code: int) -> None:
    wire = forbidden(resource, Operation.DESCRIBE_CONFIGS)
    wire.world.create("t")
    assert describe(wire, resource_type, name).error_code == code


# ---- which resources there are


def listed(wire: Wire, version: int, *types: int) -> list[tuple[str, int]]:
    request = m.ListConfigResourcesRequest(resource_types=list(types))
    response = wire.ask(request, version, m.ListConfigResourcesResponse)
    assert response.error_code == 0
    return [(each.resource_name, each.resource_type) for each in response.config_resources]


def test_version_0_asks_for_client_metrics_and_there_are_none(world: World, wire: Wire) -> None:
    world.create("t")
    assert listed(wire, 0) == []


def test_resources_are_listed_by_type(world: World, wire: Wire) -> None:
    world.create("b")
    world.create("a")
    assert world.create_outcome(NewTopic(name="%hidden")) is None
    assert listed(wire, 1) == [("a", TOPIC), ("b", TOPIC), ("1", BROKER)]
    assert listed(wire, 1, TOPIC, TOPIC) == [("a", TOPIC), ("b", TOPIC)]
    assert listed(wire, 1, BROKER) == [("1", BROKER)]
    assert listed(wire, 1, GROUP, CLIENT_METRICS, BROKER_LOGGER) == []


def test_type_that_is_not_known(wire: Wire) -> None:
    request = m.ListConfigResourcesRequest(resource_types=[TOPIC, 7])
    response = wire.ask(request, 1, m.ListConfigResourcesResponse)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


@pytest.mark.parametrize("version", ends(ApiKey.LIST_CONFIG_RESOURCES))
def test_listing_asks_the_authorizer(version: int) -> None:
    wire = forbidden(Resource.CLUSTER, Operation.DESCRIBE_CONFIGS)
    response = wire.ask(m.ListConfigResourcesRequest(), version, m.ListConfigResourcesResponse)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
