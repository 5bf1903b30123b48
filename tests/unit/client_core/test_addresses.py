"""Addresses of servers and lists of them: what is accepted, what is refused, and in which order."""

from __future__ import annotations

import pytest

from dragoman.client_core.addresses import Address, Rotation, parse_address, parse_addresses
from dragoman.errors import ConfigError
from dragoman.limits import CLIENT_ADDRESSES_MAX


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        (" a:1 , b:2,", [("a", 1), ("b", 2)]),
        ("a:1, b,[::1]:2,[::2]", [("a", 1), ("b", 9092), ("::1", 2), ("::2", 9092)]),
        ("a:1,a:1", [("a", 1)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
        ("a:65535", [("a", 65535)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_addresses((text,), default_port=9092)) == addresses


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:99999",
        "a:x",
        "a:1:2",
        "::1",
        "[::1",
        "[::1]x",
        "[]:1",
        "a b:1",
        "a:\u0661",
        "a:" + "1" * 5000,
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_addresses((text,), default_port=9092)


def test_port_is_mandatory_without_a_default() -> None:
    assert parse_address("a:1") == Address("a", 1)
    # Servers write their own addresses without brackets, too.
    assert parse_address("::1:9094") == parse_address("[::1]:9094") == Address("::1", 9094)
    for text in ("a", "[::1]", "a:", ":1", ""):
        with pytest.raises(ConfigError, match="expected HOST:PORT"):
            parse_address(text)


def test_lists_may_come_in_several_texts_and_with_several_separators() -> None:
    found = parse_addresses(("a:1;b:2", "c:3,a:1"), separators=",;")
    assert found == (("a", 1), ("b", 2), ("c", 3))
    with pytest.raises(ConfigError):
        parse_addresses(("a:1;b:2",))


def test_list_is_bounded() -> None:
    fitting = ",".join(f"h{n}" for n in range(CLIENT_ADDRESSES_MAX))
    assert len(parse_addresses((fitting,), default_port=1)) == CLIENT_ADDRESSES_MAX
    for longer in (f"{fitting},h", ",".join(["a"] * (CLIENT_ADDRESSES_MAX + 1))):
        with pytest.raises(ConfigError, match="at most"):
            parse_addresses((longer,), default_port=1)
    with pytest.raises(ConfigError, match="at least one"):
        parse_addresses(())


def test_address_is_shown_as_it_is_written() -> None:
    for text in ("a:1", "[::1]:2"):
        assert str(parse_address(text)) == text


def test_rotation_tries_the_preferred_address_first_and_then_the_others_in_turn() -> None:
    a, b, c = (Address(host, 1) for host in "abc")
    rotation = Rotation((a, b))
    rotation.move_on()
    assert rotation.first == b
    rotation.prefer(a)
    assert (rotation.first, len(rotation)) == (a, 2)
    rotation.prefer(c)
    order = []
    for _ in range(len(rotation)):
        order.append(rotation.first)
        rotation.move_on()
    assert order == [c, a, b]
    assert rotation.first == c
