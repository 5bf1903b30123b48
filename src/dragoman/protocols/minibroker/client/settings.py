"""The settings of a minibroker client."""

from __future__ import annotations

from dragoman.client_core.retry import RetryPolicy
from dragoman.client_core.settings import ConnectionSettings

DEFAULT_PORT = 4222


class ClientSettings(ConnectionSettings, frozen=True, kw_only=True):
    """Times are in seconds. The pauses are those of the original client."""

    #: How long a request is tried again over new connections before its failure is raised.
    retry_for_s: float = 60.0
    #: Whether a PUB is sent again when its connection broke before the reply. The record may then
    #: be there twice; without it, it may be there although `ConnectionLostError` was raised.
    repeats_publish: bool = True
    #: Between rounds over all addresses.
    reconnect_pause_s: float = 0.5
    #: After "not leader", and after a failed try.
    redirect_pause_s: float = 0.25
    retry_pause_s: float = 0.15
    #: Between heartbeats of group members; the server waits 15 s.
    heartbeat_interval_s: float = 5.0
    in_flight_max: int = 256
    #: Records that wait to be taken from one subscription; past it the connection is not read.
    queue_records_max: int = 1000

    @property
    def retry_policy(self) -> RetryPolicy:
        """Pauses of equal length, as in the original client."""
        return RetryPolicy(self.retry_for_s, self.retry_pause_s, self.retry_pause_s)
