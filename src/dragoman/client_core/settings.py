"""The settings that clients share; each protocol's client adds its own and its defaults.

Times are in seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dragoman.client_core.retry import RetryPolicy
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    # Only the type checker needs it; most clients start faster without the ports.
    from dragoman.world import Random


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    connect_timeout_s: float = 5.0
    #: From a request to its reply. A later reply ends the connection.
    request_timeout_s: float = 30.0
    #: Unanswered requests on one connection. The next one waits.
    in_flight_max: int = 64


class RetrySettings(ConnectionSettings, frozen=True, kw_only=True):
    #: Bounds one call with all its retries.
    operation_timeout_s: float = 60.0
    #: Pause before the first retry; it doubles to the maximum.
    backoff_first_s: float = 0.05
    backoff_max_s: float = 1.0

    @property
    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(self.operation_timeout_s, self.backoff_first_s, self.backoff_max_s)

    def backoff_s(self, failures: int, random: Random | None = None) -> float:
        """How long to wait after this many failures in a row (1: the first)."""
        return self.retry_policy.pause_s(failures, random)


def require_positive_numbers(settings: msgspec.Struct) -> None:
    """Every number is a time, a size or a count above zero. Raises `ConfigError`."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if type(value) in (int, float) and value <= 0:
            raise ConfigError(f"{name}: expected a positive number, got {value}")
