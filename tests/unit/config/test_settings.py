"""The table of the node's keys against the typed settings, and contradictions between settings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dragoman.config.consistency import (
    check_consistent,
    connections_by_address,
    etcd_addresses,
    problem_of_base_path,
    super_users,
)
from dragoman.config.keys import format_value
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import NODE_KEYS, Settings
from dragoman.errors import ConfigError

NOT_KEYS = {"listeners", "explicit", "overlay", "per_listener"}


def test_every_field_has_a_key_and_every_key_a_field() -> None:
    assert {key.attribute for key in NODE_KEYS.values()} == (
        set(Settings.__struct_fields__) - NOT_KEYS
    )


@pytest.mark.parametrize("key", NODE_KEYS.values(), ids=lambda key: key.name)
def test_default_is_a_value_the_key_accepts(key) -> None:
    default = Settings().value(key.name)
    assert key.read(format_value(default)) == default


def test_defaults_have_the_types_of_their_fields() -> None:
    fields = {name: getattr(Settings(), name) for name in Settings.__struct_fields__}
    assert msgspec.convert(fields, Settings) == Settings()


def test_settings_are_hashable_values() -> None:
    assert Settings() == Settings()
    assert hash(Settings()) == hash(Settings())
    with pytest.raises(AttributeError):
        Settings().num_partitions = 2  # type: ignore[misc]


def test_listener_is_found_by_name() -> None:
    listener = Settings().listener("kafka")
    assert listener is not None
    assert listener.bind.port == 9092
    assert Settings().listener("peer") is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            Settings(group_min_session_timeout_ms=2_000_000),
            "group.min.session.timeout.ms (2000000) is above"
            " group.max.session.timeout.ms (1800000)",
        ),
        (
            Settings(message_max_bytes=2_000_000, socket_request_max_bytes=1_999_999),
            "message.max.bytes (2000000) is above socket.request.max.bytes (1999999)",
        ),
        (
            Settings(memory_budget_bytes=1 << 20),
            "socket.request.max.bytes (104857600) is above memory.budget.bytes (1048576)",
        ),
        (Settings(data=""), "data: expected a directory, got nothing"),
        (
            Settings(metadata_etcd_prefix="/"),
            "metadata.etcd.prefix: expected a name, got nothing",
        ),
        (
            Settings(metadata_etcd_endpoints=("grpc://a:1",)),
            "metadata.etcd.endpoints: expected https://HOST:PORT or http://, got 'grpc://a:1'",
        ),
        (
            Settings(metadata_etcd_endpoints=("https://a:1", "b:1")),
            "metadata.etcd.endpoints: expected all with https:// or none",
        ),
        (
            Settings(metadata_quorum="etcd", metadata_etcd_ca_file="ca.pem"),
            "metadata.etcd.ca.file: only for metadata.etcd.endpoints with https://",
        ),
        (
            Settings(
                metadata_quorum="etcd",
                metadata_etcd_endpoints=("https://a:1",),
                metadata_etcd_key_file="key.pem",
            ),
            "metadata.etcd.key.file: needs metadata.etcd.certificate.file",
        ),
        (
            Settings(metadata_quorum="etcd", metadata_etcd_user="u"),
            "metadata.etcd.user and metadata.etcd.password need each other",
        ),
        (
            Settings(
                metadata_quorum="etcd", metadata_etcd_user="u", metadata_etcd_password="secret"
            ),
            "metadata.etcd.password: expected file:/PATH or env:NAME",
        ),
        (
            Settings(metadata_etcd_endpoints=("http://a:1", "http://b")),
            "metadata.etcd.endpoints: expected HOST:PORT, got 'b'",
        ),
    ],
)
def test_contradiction_is_refused(settings: Settings, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        check_consistent(settings)


def test_keys_of_tokens_come_by_tls_or_from_a_file() -> None:
    for url in ("", "https://a/keys", "file:///keys.json"):
        check_consistent(Settings(sasl_oauthbearer_jwks_endpoint_url=url))
    clear = Settings(sasl_oauthbearer_jwks_endpoint_url="http://a/keys")
    for settings in (clear, Settings(sasl_oauthbearer_jwks_endpoint_url="file://host/keys")):
        with pytest.raises(ConfigError, match="expected https"):
            check_consistent(settings)
    check_consistent(msgspec.structs.replace(clear, sasl_oauthbearer_insecure_http=True))


def test_endpoints_of_etcd() -> None:
    settings = Settings(metadata_etcd_endpoints=("http://a:1/", "b:2", "http://[::1]:3"))
    assert [str(each) for each in etcd_addresses(settings)] == ["a:1", "b:2", "[::1]:3"]
    assert [str(each) for each in etcd_addresses(Settings())] == ["127.0.0.1:2379"]


PEER = Settings(listeners=(Listener(name="peer", bind=Address("127.0.0.1", 9190)),))


def peer_settings(**own: str) -> Settings:
    keys = tuple((f"listener.peer.{key.replace('_', '.')}", each) for key, each in own.items())
    return msgspec.structs.replace(PEER, per_listener=keys)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (peer_settings(authentication="required"), "listener.peer.tls to required first"),
        (
            peer_settings(
                authentication="required", tls="optional", ssl_certificate_file="node.pem"
            ),
            "listener.peer.tls to required first",
        ),
        (
            peer_settings(
                authentication="required", tls="required", ssl_certificate_file="node.pem"
            ),
            "nodes need peer.secret.file, or certificates",
        ),
        (
            msgspec.structs.replace(PEER, peer_certificate_names=("node-{node}",)),
            "peer.certificate.names: expected",
        ),
        (
            msgspec.structs.replace(PEER, peer_certificate_names=("DNS:node",)),
            "peer.certificate.names: expected",
        ),
    ],
)
def test_settings_that_would_part_nodes_are_refused(settings: Settings, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_consistent(settings)


def test_nodes_recognise_each_other_by_secret_or_certificate() -> None:
    by_certificate = {
        "authentication": "required",
        "tls": "required",
        "ssl_certificate_file": "node.pem",
    }
    check_consistent(
        peer_settings(**by_certificate, ssl_client_auth="required", ssl_ca_file="ca.pem")
    )
    by_secret = peer_settings(**by_certificate)
    check_consistent(msgspec.structs.replace(by_secret, peer_secret_file="/secret"))
    # A node on its own has no such listener.
    alone = Settings(authentication="required")
    check_consistent(alone)


def test_import_needs_nothing_heavy() -> None:
    """The broker and the command line both start with the configuration."""
    script = "import sys, dragoman.config; print(*sorted(sys.modules))"
    source = Path(__file__).parents[3] / "src"
    loaded = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(source)},
    ).stdout.split()
    heavy = {"rich", "cyclopts", "asyncio", "logging", "tomllib", "difflib", "ipaddress", "json"}
    assert heavy.isdisjoint(loaded)


def test_addresses_with_a_cap_of_their_own_are_written_as_peers_are() -> None:
    given = ("10.0.0.1:3", "[0:0:0:0:0:0:0:1]:4", "FE80::A:5")
    found = connections_by_address(Settings(max_connections_per_ip_overrides=given))
    assert found == {"10.0.0.1": 3, "::1": 4, "fe80::a": 5}


@pytest.mark.parametrize(
    "text", ["proxy.example:3", "10.0.0.1", ":3", "10.0.0.1:-3", "10.0.0.300:1"]
)
def test_cap_of_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected ADDRESS:NUMBER"):
        connections_by_address(Settings(max_connections_per_ip_overrides=(text,)))


def test_super_users_are_separated_as_in_kafka() -> None:
    settings = Settings(super_users=" User:root;User:CN=admin,O=Example; ")
    assert super_users(settings) == ("User:root", "User:CN=admin,O=Example")
    assert super_users(Settings()) == ()


@pytest.mark.parametrize(
    "text", ["root", "User:", "User:*", "User:ANONYMOUS", "User:a\0", "Node:1", "a:b"]
)
def test_super_users_are_named_users(text: str) -> None:
    with pytest.raises(ConfigError, match=r"super\.users: expected User:NAME"):
        super_users(Settings(super_users=text))


@pytest.mark.parametrize("path", ["", "/dragoman", "/a/b-c_d.e~f"])
def test_base_path_of_the_console(path: str) -> None:
    assert not problem_of_base_path(path)


@pytest.mark.parametrize("path", ["dragoman", "/", "/a/", "//a", "/a//b", "/a b", "/a;b", "/ä"])
def test_base_path_that_no_cookie_can_have_is_refused(path: str) -> None:
    assert "expected a path such as /dragoman" in problem_of_base_path(path)
    with pytest.raises(ConfigError, match=r"^console\.base\.path: expected a path"):
        check_consistent(Settings(console_base_path=path))
