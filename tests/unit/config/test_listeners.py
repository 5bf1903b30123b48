"""Listener addresses: parsing, refusal of names without a server, and the rule of layers."""

from __future__ import annotations

import pytest

from dragoman.config.listeners import (
    LISTENER_NAMES,
    Address,
    Listener,
    check_distinct,
    default_addresses,
    overlay,
    parse_advertise,
    parse_listen,
    split_assignment,
)
from dragoman.errors import ConfigError

KAFKA = Address("127.0.0.1", 9092)
HTTP = Address("127.0.0.1", 8080)


def test_names_and_ports_are_those_of_the_design() -> None:
    assert {row.name: row.port for row in LISTENER_NAMES} == {
        "kafka": 9092,
        "rocketmq": 9876,
        "rocketmq-broker": 10911,
        "cursus": 9000,
        "minibroker": 4222,
        "mlog": 9094,
        "any": 7070,
        "http": 8080,
        "console": 8081,
        "peer": 9190,
    }


def test_defaults_are_all_but_peer_on_loopback() -> None:
    assert default_addresses().keys() == {row.name for row in LISTENER_NAMES} - {"peer"}
    assert {address.host for address in default_addresses().values()} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092), "127.0.0.1:9092"),
        ("localhost:0", Address("localhost", 0), "localhost:0"),
        ("[::1]:9092", Address("::1", 9092), "[::1]:9092"),
        ("[0:0::1]:1", Address("::1", 1), "[::1]:1"),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535), "0.0.0.0:65535"),
    ],
)
def test_address_is_read_and_shown(text: str, address: Address, shown: str) -> None:
    assert parse_listen("kafka", text) == address
    assert str(address) == shown


def test_off_is_no_address() -> None:
    assert parse_listen("http", "off") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9092", "expected HOST:PORT"),
        ("localhost", "expected HOST:PORT"),
        ("localhost:", "expected HOST:PORT"),
        ("localhost:http", "expected HOST:PORT"),
        ("localhost:-1", "expected HOST:PORT"),
        ("localhost:99999999999999999999", "expected HOST:PORT"),
        ("localhost:٣", "expected HOST:PORT"),
        ("localhost:65536", "expected a port from 0 to 65535, got 65536"),
        (":9092", "the host is missing"),
        ("::1:9092", "in brackets"),
        ("[::zz]:9092", "not an IPv6 address"),
        ("[]:9092", "not an IPv6 address"),
        ("*:9092", "not a host name"),
        ("a b:1", "not a host name"),
        ("h\x00st:1", "not a host name"),
        ("x" * 300 + ":1", "not a host name"),
        (9092, "expected HOST:PORT"),
    ],
)
def test_bad_address_is_refused(text: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_listen("kafka", text)


def test_unknown_listener_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"unknown listener 'kafak'; did you mean 'kafka'\?"):
        parse_listen("kafak", "127.0.0.1:1")


@pytest.mark.parametrize("text", ["0.0.0.0:9092", "[::]:9092", "example.org:0", "off"])
def test_address_that_no_client_can_reach_is_not_advertised(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^advertise kafka: "):
        parse_advertise("kafka", text)


def test_advertised_address_is_read() -> None:
    assert parse_advertise("kafka", "broker.example:19092") == Address("broker.example", 19092)


def test_layer_with_an_address_opens_only_what_it_names() -> None:
    other = Address("0.0.0.0", 1)
    assert overlay({"kafka": KAFKA, "http": HTTP}, {"kafka": other}) == {"kafka": other}
    assert overlay({"http": HTTP}, {"kafka": other, "http": None}) == {"kafka": other}


def test_layer_with_only_off_closes_only_what_it_names() -> None:
    assert overlay({"kafka": KAFKA, "http": HTTP}, {"http": None}) == {"kafka": KAFKA}
    assert overlay({"kafka": KAFKA}, {}) == {"kafka": KAFKA}


@pytest.mark.parametrize("text", ["kafka", "=x", "kafka=", " = "])
def test_assignment_needs_both_sides(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--listen: expected NAME=VALUE"):
        split_assignment("--listen", text)


def test_two_listeners_on_one_address_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"kafka and http both bind 127\.0\.0\.1:9092"):
        check_distinct((Listener(name="kafka", bind=KAFKA), Listener(name="http", bind=KAFKA)))


def test_port_zero_may_be_asked_for_twice() -> None:
    free = Address("127.0.0.1", 0)
    check_distinct((Listener(name="kafka", bind=free), Listener(name="http", bind=free)))
