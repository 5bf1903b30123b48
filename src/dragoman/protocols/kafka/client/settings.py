"""The settings of a Kafka client."""

from __future__ import annotations

from dragoman.client_core.connection import RetrySettings
from dragoman.errors import ConfigError
from dragoman.limits import KAFKA_IN_FLIGHT_MAX

DEFAULT_PORT = 9092


class ClientSettings(RetrySettings, frozen=True, kw_only=True):
    """Times are in seconds. A fetch gets its own waiting time on top of `request_timeout_s`.

    Pauses before retries are spread by a fifth.
    """

    client_id: str = "dragoman"
    #: From the start of a connection to the broker's list of versions.
    connect_timeout_s: float = 10.0
    in_flight_max: int = 5
    #: Metadata older than this is asked for again before it is used.
    metadata_age_max_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("connect_timeout_s", "request_timeout_s", "operation_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: expected a positive time, got {getattr(self, name)}")
        if not 0 <= self.backoff_first_s <= self.backoff_max_s:
            raise ConfigError("backoff_first_s: expected 0 to backoff_max_s")
        if not 1 <= self.in_flight_max <= KAFKA_IN_FLIGHT_MAX:
            raise ConfigError(f"in_flight_max: expected 1 to {KAFKA_IN_FLIGHT_MAX}")
