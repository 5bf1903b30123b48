"""Goal: rates are those that Kafka's brokers measure for their quotas.

Method: sequences of amounts and times, with the rates of Kafka's `Rate` and `TokenBucket`.
"""

from __future__ import annotations

import pytest

from dragoman.broker.rates import SampledRate, TokenBucket


def test_young_rate_counts_as_if_ten_samples_were_empty() -> None:
    rate = SampledRate()
    assert rate.per_second(5.0) == 0.0
    rate.record(100.0, 1000)
    assert rate.per_second(100.0) == 100.0
    assert rate.per_second(100.5) == pytest.approx(1000 / 10.5)
    assert rate.per_second(109.0) == pytest.approx(1000 / 10)


def test_amounts_are_forgotten_with_their_sample() -> None:
    rate = SampledRate()
    for second in range(20):
        rate.record(float(second), 10)
    # Samples of the seconds 9 to 19.
    assert rate.per_second(19.0) == pytest.approx(110 / 10)
    assert rate.per_second(29.5) == pytest.approx(10 / 10.5)
    assert rate.per_second(31.0) == 0.0
    assert len(rate._samples) == 0


def test_samples_are_bounded() -> None:
    rate = SampledRate()
    for step in range(10_000):
        rate.record(step * 0.1, 1)
    assert len(rate._samples) <= 12
    assert rate.per_second(1000.0) == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize(("amount", "expected"), [(1000, 0.0), (2000, 11.0), (11_000, 110.0)])
def test_throttling_lasts_until_the_rate_has_fallen(amount: int, expected: float) -> None:
    rate = SampledRate()
    rate.record(0.0, amount)
    assert rate.throttle_s(0.0, 100.0) == pytest.approx(expected)


def test_what_was_given_back_does_not_count() -> None:
    rate = SampledRate()
    rate.record(0.0, 5000)
    rate.record(0.0, -5000)
    assert rate.throttle_s(0.0, 1.0) == 0.0


def test_bucket_holds_eleven_seconds_and_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(0.0, 2.0)
    assert bucket.wait_s(0.0, 2.0) == 0.0
    bucket.take(30)
    assert bucket.wait_s(0.0, 2.0) == 4.0
    assert bucket.wait_s(3.0, 2.0) == 1.0
    assert bucket.wait_s(4.0, 2.0) == 0.0
    # It fills no further than its size.
    bucket.wait_s(1000.0, 2.0)
    bucket.take(22)
    assert bucket.wait_s(1000.0, 2.0) == 0.0
    bucket.take(1)
    assert bucket.wait_s(1000.0, 2.0) == 0.5
