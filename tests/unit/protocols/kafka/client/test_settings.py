"""Bootstrap lists and back-off: what is accepted, what is refused, and by how much time spreads."""

from __future__ import annotations

import random

import pytest

from dragoman.errors import ConfigError
from dragoman.limits import KAFKA_CLIENT_BOOTSTRAP_MAX
from dragoman.protocols.kafka.client.settings import ClientSettings, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a", [("a", 9092)]),
        (" a:1 , b:2,", [("a", 1), ("b", 2)]),
        ("a:1,a:1", [("a", 1)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
        ("a:65535", [("a", 65535)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:x",
        "a:1:2",
        "::1",
        "[::1",
        "[::1]x",
        "a b:1",
        "a:\u0661",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_bootstrap(text)


def test_list_is_bounded() -> None:
    with pytest.raises(ConfigError, match="at most"):
        parse_bootstrap(",".join(f"h{n}" for n in range(KAFKA_CLIENT_BOOTSTRAP_MAX + 1)))


def test_backoff_doubles_to_its_maximum_give_or_take_a_fifth() -> None:
    settings = ClientSettings(backoff_first_s=0.1, backoff_max_s=1.0)
    dice = random.Random(7)
    for failures, middle in ((1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (10_000, 1.0)):
        pauses = [settings.backoff_s(failures, dice) for _ in range(200)]
        assert min(pauses) >= 0.8 * middle
        assert max(pauses) <= 1.2 * middle
        assert max(pauses) - min(pauses) > 0.3 * middle


@pytest.mark.parametrize(
    "wrong",
    [
        {"connect_timeout_s": 0},
        {"request_timeout_s": -1},
        {"operation_timeout_s": 0},
        {"backoff_first_s": 2.0, "backoff_max_s": 1.0},
        {"in_flight_max": 0},
        {"in_flight_max": 100_000},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ClientSettings(**wrong)
