"""Settings that clients share: their policy for retries, and the check of their numbers."""

from __future__ import annotations

from enum import IntEnum

import pytest

from dragoman.client_core.settings import RetrySettings, require_positive_numbers
from dragoman.errors import ConfigError


class Color(IntEnum):
    BLACK = 0


class Settings(RetrySettings, frozen=True, kw_only=True):
    color: Color = Color.BLACK
    is_dark: bool = False
    name: str = ""
    size: int = 1
    in_flight_max: int = 3

    def __post_init__(self) -> None:
        require_positive_numbers(self)


def test_policy_is_made_of_the_settings() -> None:
    settings = Settings(operation_timeout_s=9, backoff_first_s=1, backoff_max_s=3)
    assert settings.retry_policy.timeout_s == 9
    assert [settings.backoff_s(failures) for failures in (1, 2, 3)] == [1, 2, 3]


def test_a_protocol_has_defaults_of_its_own() -> None:
    assert Settings().in_flight_max == 3
    assert Settings(in_flight_max=4).in_flight_max == 4


@pytest.mark.parametrize("wrong", [{"size": 0}, {"backoff_max_s": -0.5}, {"in_flight_max": 0}])
def test_numbers_are_positive_and_nothing_else_is_taken_for_one(wrong: dict[str, float]) -> None:
    name, value = next(iter(wrong.items()))
    with pytest.raises(ConfigError, match=f"{name}: expected a positive number, got {value}"):
        Settings(**wrong)
