"""Rates as Kafka measures them for quotas. No clock: times are passed in, in seconds."""

from __future__ import annotations

from collections import deque

from dragoman.limits import QUOTA_SAMPLE_S, QUOTA_SAMPLES


class SampledRate:
    """The average of the last eleven samples of a second, the current one included.

    A young rate counts as if it had been zero for ten samples before, so that a burst is allowed.
    """

    __slots__ = ("_samples", "_total")

    def __init__(self) -> None:
        #: Beginning and amount of each sample.
        self._samples: deque[list[float]] = deque()
        self._total = 0.0

    def record(self, now: float, amount: float) -> None:
        self._forget(now)
        samples = self._samples
        if not samples or now - samples[-1][0] >= QUOTA_SAMPLE_S:
            samples.append([now, 0.0])
        samples[-1][1] += amount
        self._total += amount

    def per_second(self, now: float) -> float:
        self._forget(now)
        if not self._samples:
            return 0.0
        window = QUOTA_SAMPLE_S * (QUOTA_SAMPLES - 1)
        elapsed = now - self._samples[0][0]
        if elapsed < window:
            # As many whole samples are added as are missing.
            elapsed += (QUOTA_SAMPLES - 1 - int(elapsed / QUOTA_SAMPLE_S)) * QUOTA_SAMPLE_S
        return self._total / elapsed

    def throttle_s(self, now: float, limit: float) -> float:
        """The time for which nothing may happen so that the rate falls to the limit."""
        rate = self.per_second(now)
        if rate <= limit:
            return 0.0
        return (rate - limit) / limit * QUOTA_SAMPLE_S * QUOTA_SAMPLES

    def _forget(self, now: float) -> None:
        samples, oldest = self._samples, now - QUOTA_SAMPLE_S * QUOTA_SAMPLES
        while samples and samples[0][0] <= oldest:
            self._total -= samples.popleft()[1]


class TokenBucket:
    """Permits that come back at a rate, up to those of eleven seconds. The last request may take
    more than there are (KIP-599).
    """

    __slots__ = ("_at", "_tokens")

    def __init__(self, now: float, limit: float) -> None:
        self._at = now
        self._tokens = limit * QUOTA_SAMPLE_S * QUOTA_SAMPLES

    def wait_s(self, now: float, limit: float) -> float:
        """The time until a request may begin; 0 if it may begin now."""
        most = limit * QUOTA_SAMPLE_S * QUOTA_SAMPLES
        self._tokens = min(most, self._tokens + (now - self._at) * limit)
        self._at = now
        return max(0.0, -self._tokens / limit)

    def take(self, amount: float) -> None:
        """Called after `wait_s` of the same moment."""
        self._tokens -= amount
