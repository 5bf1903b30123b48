"""The caller before any login: the certificate's user, the network's, or nobody."""

from __future__ import annotations

import pytest

from dragoman.config.listeners import OPEN, ListenerSecurity
from dragoman.security.access import ANONYMOUS, Caller, Principal
from dragoman.security.identity import initial_caller
from dragoman.types import Certificate

ALICE = Certificate("CN=alice,O=Example")
BY_NETWORK = ListenerSecurity(
    principals=(("10.1.2.3", "one"), ("10.0.0.0/8", "ten"), ("fd00::/8", "six"))
)
MAPPING = "RULE:^CN=([a-z]+),.*$/$1/"


def test_client_of_an_open_listener_is_anonymous() -> None:
    assert initial_caller(OPEN, None, "10.1.2.3") == Caller(ANONYMOUS, "10.1.2.3")


def test_certificate_names_the_user_before_the_network_does() -> None:
    caller = initial_caller(BY_NETWORK, ALICE, "10.1.2.3", MAPPING)
    assert caller == Caller(Principal("User", "alice"), "10.1.2.3", is_proven=True)
    assert initial_caller(OPEN, ALICE, "").name == "CN=alice,O=Example"


def test_certificate_that_no_rule_matches_counts_as_none() -> None:
    stranger = Certificate("CN=Alice,O=Example")
    assert initial_caller(OPEN, stranger, "10.1.2.3", MAPPING).principal == ANONYMOUS
    assert initial_caller(BY_NETWORK, stranger, "10.1.2.3", MAPPING) == Caller(
        Principal("User", "one"), "10.1.2.3"
    )


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("10.1.2.3", "one"),
        ("10.1.2.4", "ten"),
        ("::ffff:10.9.9.9", "ten"),
        ("fd12::1", "six"),
        ("11.0.0.1", "ANONYMOUS"),
        ("", "ANONYMOUS"),
        ("pipe", "ANONYMOUS"),
    ],
)
def test_first_network_with_the_address_names_the_user(host: str, name: str) -> None:
    found = initial_caller(BY_NETWORK, None, host)
    assert found.name == name
    assert not found.is_proven


@pytest.mark.parametrize("name", ["", "*", "ANONYMOUS", "a\n", "a" * 256])
def test_impossible_names_leave_a_client_anonymous(name: str) -> None:
    mapping = "RULE:^CN=([^,]*).*$/$1/"
    certificate = Certificate(f"CN={name},O=Example")
    by_network = ListenerSecurity(principals=(("10.0.0.0/8", name),))
    for security in (OPEN, BY_NETWORK):
        found = initial_caller(security, certificate, "10.1.2.3", mapping)
        assert found == Caller(ANONYMOUS, "10.1.2.3", is_proven=False)
    assert initial_caller(by_network, None, "10.1.2.3") == Caller(ANONYMOUS, "10.1.2.3")
