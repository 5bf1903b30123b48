"""Settings of a Kafka client: what is refused, and by how much pauses spread."""

from __future__ import annotations

import random

import pytest

from dragoman.errors import ConfigError
from dragoman.protocols.kafka.client.values import ClientSettings


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
