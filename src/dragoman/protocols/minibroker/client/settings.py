"""How a minibroker client behaves."""

from __future__ import annotations

import msgspec

from dragoman.errors import ConfigError
from dragoman.limits import MINIBROKER_CLIENT_ADDRESSES_MAX

_DEFAULT_PORT = 4222


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds. The pauses are those of the original client."""

    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
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
    #: Requests on their way; more wait for a reply.
    in_flight_max: int = 256
    #: Records that wait to be taken from one subscription; past it the connection is not read.
    queue_records_max: int = 1000


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """`HOST[:PORT],…`. Raises `ConfigError`."""
    addresses = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or part.strip().endswith("]"):
            host, port = part.strip(), str(_DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
            raise ConfigError(f"expected HOST:PORT, got {part.strip()!r}")
        addresses.append((host, int(port)))
    if len(addresses) > MINIBROKER_CLIENT_ADDRESSES_MAX:
        raise ConfigError(f"more than {MINIBROKER_CLIENT_ADDRESSES_MAX} addresses")
    return tuple(addresses)
