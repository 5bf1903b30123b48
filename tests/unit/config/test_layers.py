"""File, environment and flags: precedence, origins, every key from every place, and refusals."""

from __future__ import annotations

import re

import pytest

from dragoman.config.keys import Key, Kind, format_value
from dragoman.config.layers import Assignment, ConfigFile, Flags, environment_name, load
from dragoman.config.listeners import Address, listener_names
from dragoman.config.reference import toml_value
from dragoman.config.settings import NODE_KEYS, Settings
from dragoman.errors import ConfigError


def from_file(text: str, **environment: str):
    return load(file=ConfigFile("node.toml", text), environment=environment, flags=Flags()).settings


def from_environment(**environment: str):
    return load(file=None, environment=environment, flags=Flags()).settings


def from_flags(*assignments: str, listen: tuple[str, ...] = (), advertise: tuple[str, ...] = ()):
    pairs = (assignment.split("=", 1) for assignment in assignments)
    flags = Flags(
        assignments=tuple(Assignment("--set", key, text) for key, text in pairs),
        listen=listen,
        advertise=advertise,
    )
    return load(file=None, environment={}, flags=flags).settings


AT_ANOTHER_KEYS_MINIMUM = {
    "group.consumer.session.timeout.ms",
    "group.consumer.heartbeat.interval.ms",
}


def another_value(key: Key):
    """An accepted value other than the default, near it so that no contradiction arises."""
    default = Settings().value(key.name)
    match key.kind:
        case Kind.BOOLEAN:
            return not default
        case Kind.INT | Kind.LONG:
            is_least = default == key.bounds()[0] or key.name in AT_ANOTHER_KEYS_MINIMUM
            return default + 1 if is_least else default - 1
        case Kind.DOUBLE:
            return default / 2
        case Kind.LIST:
            if key.name == "cluster":
                return ("1@127.0.0.1:12379",)
            if key.name.endswith(".allowed.hosts"):
                return ("elsewhere.example.org",)
            if key.name == "max.connections.per.ip.overrides":
                return ("127.0.0.1:12379",)
            if key.name == "principals":
                return ("10.0.0.0/8=batch", "fd00::/8=User:batch")
            return tuple(reversed(key.choices)) or ("http://127.0.0.1:12379",)
        case Kind.STRING:
            if key.name == "super.users":
                return "User:root;User:CN=admin,O=Example"
            if key.name == "ssl.principal.mapping.rules":
                return "RULE:^CN=([a-z]+),.*$/$1/U,DEFAULT"
            if key.name == "console.base.path":
                return "/dragoman"
            if key.name == "sasl.oauthbearer.jwks.endpoint.url":
                return "https://elsewhere.example.org/keys"
            others = [word for word in key.choices if word != default]
            return others[0] if others else "elsewhere"


@pytest.mark.parametrize("key", NODE_KEYS.values(), ids=lambda key: key.name)
def test_every_key_can_be_set_in_every_place(key: Key) -> None:
    value = another_value(key)
    text = format_value(value)
    # TLS needs a certificate.
    needed = {"ssl.certificate.file": "node.pem"} if key.name == "tls" else {}
    file = "".join(f"{name} = '{each}'\n" for name, each in needed.items())
    assert from_file(f"{file}{key.name} = {toml_value(value)}").value(key.name) == value
    environment = {environment_name(name): each for name, each in needed.items()}
    environment[environment_name(key.name)] = text
    assert from_environment(**environment).value(key.name) == value
    settings = from_flags(
        *(f"{name}={each}" for name, each in needed.items()), f"{key.name}={text}"
    )
    assert settings.value(key.name) == value
    assert settings.explicit == {key.name, *needed}


def test_nothing_given_is_all_defaults() -> None:
    assert load(file=None, environment={"PATH": "/bin"}, flags=Flags()).settings == Settings()


def test_flags_win_over_environment_and_environment_over_file() -> None:
    configuration = load(
        file=ConfigFile(
            "node.toml", "num.partitions = 2\nnode.id = 2\ngroup.max.size = 2\n[listen]\nhttp='off'"
        ),
        environment={"DRAGOMAN_NUM_PARTITIONS": "3", "DRAGOMAN_NODE_ID": "3"},
        flags=Flags(assignments=(Assignment("--node-id", "node.id", "4"),)),
    )
    settings = configuration.settings
    assert (settings.group_max_size, settings.num_partitions, settings.node_id) == (2, 3, 4)
    origins = configuration.origins
    assert origins["group.max.size"] == "file node.toml"
    assert origins["num.partitions"] == "environment DRAGOMAN_NUM_PARTITIONS"
    assert origins["node.id"] == "flag --node-id"
    assert origins["data"] == "default"
    assert origins["listen.kafka"] == "default"
    assert "listen.http" not in origins


def test_later_flag_of_the_same_key_counts() -> None:
    assert from_flags("num.partitions=2", "num.partitions=3").num_partitions == 3


def test_quoted_and_tabled_keys_are_the_same_key() -> None:
    for text in ("num.partitions = 3", '"num.partitions" = 3', "[num]\npartitions = 3"):
        assert from_file(text).num_partitions == 3


def test_file_takes_text_and_arrays() -> None:
    settings = from_file('num.partitions = "3"\nlog.cleanup.policy = ["compact", "delete"]')
    assert settings.num_partitions == 3
    assert settings.log_cleanup_policy == ("compact", "delete")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "num.partition = 3",
            "unknown key 'num.partition' (file node.toml); did you mean 'num.partitions'?",
        ),
        ("num = 3", "unknown key 'num' (file node.toml)"),
        (
            "num.partitions = 0",
            "num.partitions: expected a 32-bit integer from 1 to 10000, got 0 (file node.toml)",
        ),
        ("num.partitions.more = 3", "unknown key 'num.partitions.more' (file node.toml)"),
        ("num.partitions = 1979-05-27", "num.partitions: expected"),
        ('"num.partitions" = 3\n[num]\npartitions = 4', "num.partitions is given twice"),
        ("num.partitions = ", "node.toml is not TOML: "),
        ("a = " + "[" * 5000, "node.toml is not TOML: "),
        ("listen = 'kafka=127.0.0.1:1'", "listen: expected a table"),
        ("advertise = 1", "advertise: expected a table"),
        ("[listen]\nkafka = 9092", "listen kafka: expected HOST:PORT, got 9092 (file node.toml)"),
        ("[listen]\nkafak = 'off'", "unknown listener 'kafak'"),
        ("[listen.kafka]\nport = 1", "listen kafka: expected HOST:PORT"),
    ],
)
def test_bad_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_file(text)
    assert str(caught.value).startswith(message)


def test_mistake_behind_an_override_is_still_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"^num.partitions: .*\(file node.toml\)$"):
        from_file("num.partitions = 'x'", DRAGOMAN_NUM_PARTITIONS="3")


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (
            "DRAGOMAN_NUM_PARTITION",
            "3",
            "unknown environment variable 'DRAGOMAN_NUM_PARTITION';"
            " did you mean 'DRAGOMAN_NUM_PARTITIONS'?",
        ),
        (
            "DRAGOMAN_SEVER",
            "http://localhost:8080",
            "unknown environment variable 'DRAGOMAN_SEVER'; did you mean 'DRAGOMAN_SERVER'?",
        ),
        (
            "DRAGOMAN_NUM_PARTITIONS",
            "three",
            "num.partitions: expected a 32-bit integer from 1 to 10000, got 'three'"
            " (environment DRAGOMAN_NUM_PARTITIONS)",
        ),
        ("DRAGOMAN_LISTEN", "kafka", "environment DRAGOMAN_LISTEN: expected NAME=VALUE"),
        ("DRAGOMAN_LISTEN", "kafka=off,kafka=off", "listener 'kafka' is given twice"),
        ("DRAGOMAN_ADVERTISE", "kafka=off", "advertise kafka: expected HOST:PORT"),
        ("DRAGOMAN_", "x", "unknown environment variable"),
    ],
)
def test_bad_environment_is_refused(variable: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_environment(**{variable: text})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "variable",
    [
        "DRAGOMAN_SERVICE_HOST",
        "DRAGOMAN_SERVICE_PORT",
        "DRAGOMAN_SERVICE_PORT_KAFKA",
        "DRAGOMAN_PORT",
        "DRAGOMAN_PORT_9092_TCP",
        "DRAGOMAN_PORT_9092_TCP_ADDR",
        "DRAGOMAN_HEADLESS_SERVICE_HOST",
        "DRAGOMAN_CONFIG",
    ],
)
def test_variables_that_are_no_settings_are_ignored(variable: str) -> None:
    assert from_environment(**{variable: "tcp://10.0.0.1:9092"}) == Settings()


def test_environment_names_are_distinct_and_no_service_links() -> None:
    names = [environment_name(key) for key in NODE_KEYS]
    assert len(set(names)) == len(names)
    assert environment_name("num.partitions") == "DRAGOMAN_NUM_PARTITIONS"


def test_any_address_opens_only_the_named_listeners() -> None:
    (listener,) = from_flags(listen=("kafka=0.0.0.0:19092",)).listeners
    assert (listener.name, listener.bind) == ("kafka", Address("0.0.0.0", 19092))
    assert listener.advertised is None


def test_off_closes_only_that_listener() -> None:
    listeners = from_flags(listen=("http=off",)).listeners
    assert {each.name for each in listeners} == set(listener_names()) - {"http", "peer"}


def test_off_in_a_higher_layer_closes_what_a_lower_one_opened() -> None:
    text = '[listen]\nkafka = "127.0.0.1:1"\nhttp = "127.0.0.1:2"'
    (listener,) = from_file(text, DRAGOMAN_LISTEN="http=off").listeners
    assert (listener.name, listener.bind.port) == ("kafka", 1)


def test_all_listeners_may_be_off() -> None:
    off = ", ".join(f"{name}=off" for name in listener_names())
    assert from_environment(DRAGOMAN_LISTEN=off).listeners == ()


def test_listeners_keep_the_order_of_the_table() -> None:
    order = listener_names()
    backwards = (f"{name}=127.0.0.1:{port}" for port, name in enumerate(reversed(order), 1))
    settings = from_flags(listen=tuple(backwards))
    assert tuple(listener.name for listener in settings.listeners) == order


def test_advertised_address_goes_with_its_listener() -> None:
    settings = from_flags(advertise=("kafka=broker.example:19092",))
    kafka = settings.listener("kafka")
    assert kafka is not None
    assert kafka.advertised == Address("broker.example", 19092)


def test_advertised_address_of_a_closed_listener_has_no_effect() -> None:
    settings = from_flags(listen=("kafka=off",), advertise=("kafka=broker.example:19092",))
    assert settings.listener("kafka") is None


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        (("kafka=127.0.0.1:1", "kafka=127.0.0.1:2"), "listener 'kafka' is given twice"),
        (("kafka=127.0.0.1:1", "http=127.0.0.1:1"), "kafka and http both bind 127.0.0.1:1"),
        (("kafka:127.0.0.1:1",), "--listen: expected NAME=VALUE"),
        (("console-b=127.0.0.1:1",), "unknown listener 'console-b'"),
    ],
)
def test_bad_listen_is_refused(listen: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_flags(listen=listen)


def test_contradiction_across_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is above group\.max\.session\.timeout\.ms"):
        from_file("group.max.session.timeout.ms = 5", DRAGOMAN_GROUP_MIN_SESSION_TIMEOUT_MS="6")


# ---- several listeners of a kind, and settings of one of them

CERTIFICATE = "ssl.certificate.file=node.pem"


def test_further_listeners_of_a_kind_have_addresses_of_their_own() -> None:
    settings = from_flags(
        listen=(
            "rocketmq-broker-tls=0.0.0.0:3",
            "kafka-tls=0.0.0.0:2",
            "kafka=127.0.0.1:1",
            "kafka-internal=127.0.0.1:4",
        ),
        advertise=("kafka-tls=broker.example:9093",),
    )
    assert [(each.name, each.base, each.protocol) for each in settings.listeners] == [
        ("kafka", "kafka", "kafka"),
        ("kafka-internal", "kafka", "kafka"),
        ("kafka-tls", "kafka", "kafka"),
        ("rocketmq-broker-tls", "rocketmq-broker", "rocketmq"),
    ]
    advertised = {each.name: each.advertised for each in settings.listeners if each.advertised}
    assert advertised == {"kafka-tls": Address("broker.example", 9093)}


@pytest.mark.parametrize(
    "name", ["kafka-", "kafka-TLS", "kafka-a.b", "kafka_tls", "peer-x", "rocketmq-vip", "kafkatls"]
)
def test_name_that_is_no_kind_and_label_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown listener"):
        from_flags(listen=(f"{name}=127.0.0.1:1",))


def test_setting_of_one_listener_can_be_given_in_every_place() -> None:
    file = 'ssl.certificate.file = "node.pem"\n[listener.kafka-tls]\ntls = "required"\n'
    variable = {"DRAGOMAN_LISTENER_KAFKA_TLS_TLS": "required"}
    certificate = {"DRAGOMAN_SSL_CERTIFICATE_FILE": "node.pem"}
    for settings in (
        from_file(file),
        from_environment(**variable, **certificate),
        from_flags(CERTIFICATE, "listener.kafka-tls.tls=required"),
    ):
        assert settings.listener_security("kafka-tls").tls == "required"
        assert settings.listener_security("kafka").tls == "off"
        assert settings.value("listener.kafka-tls.tls") == "required"
        assert settings.value("listener.kafka.tls") == "off"
        assert settings.listener_tls("kafka-tls").certificate_file == "node.pem"


def test_variable_of_a_listener_has_hyphens_where_the_name_has() -> None:
    settings = from_environment(
        DRAGOMAN_LISTENER_ROCKETMQ_BROKER_A_B_SSL_CLIENT_AUTH="requested",
        DRAGOMAN_LISTENER_KAFKA_SASL_ENABLED_MECHANISMS="PLAIN",
    )
    own = settings.listener_security("rocketmq-broker-a-b")
    assert own.client_certificates == "requested"
    assert settings.listener_security("kafka").mechanisms == ("PLAIN",)


def test_listeners_own_value_goes_before_the_nodes_wherever_it_is_given() -> None:
    settings = from_file(
        "[listener.kafka]\nauthentication = 'optional'", DRAGOMAN_AUTHENTICATION="required"
    )
    assert settings.listener_security("kafka").authentication == "optional"
    assert settings.listener_security("http").authentication == "required"


def test_networks_name_users() -> None:
    settings = from_flags("principals=10.0.0.0/8=batch, ::1=User:local")
    principals = settings.listener_security("mlog").principals
    assert principals == (("10.0.0.0/8", "batch"), ("::1", "local"))


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ("listener.kafka.tls=maybe", "listener.kafka.tls: expected one of off, optional, required"),
        ("listener.kafka.ssl.key=x", "did you mean 'listener.kafka.ssl.key.file'"),
        ("listener.kafak.tls=off", "unknown key 'listener.kafak.tls'"),
        ("listener.kafka.num.partitions=1", "unknown key"),
        ("listener.kafka.tls=required", "TLS needs ssl.certificate.file and ssl.key.file"),
        ("tls=optional", "TLS needs ssl.certificate.file"),
        ("listener.kafka.principals=ten=batch", "listener.kafka.principals: expected NETWORK=NAME"),
        ("principals=10.0.0.0/8", "principals: expected NETWORK=NAME"),
        ("principals=10.0.0.0/8=User:*", r"principals: '\*' names no user"),
        ("principals=10.0.0.0/8=ANONYMOUS", "principals: 'ANONYMOUS' names no user"),
        ("principals=10.0.0.0/8=a\tb", "principals: the name .* has invisible characters"),
        (f"principals=10.0.0.0/8={'a' * 256}", "principals: the name of a user has at most 255"),
        ("ssl.principal.mapping.rules=RULE:x", "ssl.principal.mapping.rules: expected DEFAULT"),
    ],
)
def test_bad_security_is_refused(assignment: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        from_flags(assignment)


def test_clients_certificates_need_the_authorities_of_clients() -> None:
    with pytest.raises(ConfigError, match=r"listener kafka: ssl\.client\.auth needs ssl\.ca\.file"):
        from_flags(CERTIFICATE, "tls=required", "listener.kafka.ssl.client.auth=required")
