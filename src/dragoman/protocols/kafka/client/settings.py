"""Settings of a client, and the reading of bootstrap lists."""

from __future__ import annotations

import msgspec

from dragoman.errors import ConfigError
from dragoman.limits import KAFKA_CLIENT_BOOTSTRAP_MAX, KAFKA_IN_FLIGHT_MAX
from dragoman.world import Random

DEFAULT_PORT = 9092


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. `operation_timeout_s` bounds one call with all its retries."""

    client_id: str = "dragoman"
    #: From the start of a connection to the broker's list of versions.
    connect_timeout_s: float = 10.0
    #: From a request to its reply; a fetch gets its own waiting time on top. A connection that
    #: keeps a reply longer is closed.
    request_timeout_s: float = 30.0
    operation_timeout_s: float = 60.0
    #: Pause before the first retry; it doubles to the maximum, give or take a fifth.
    backoff_first_s: float = 0.05
    backoff_max_s: float = 1.0
    #: Unanswered requests on one connection. The next one waits.
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

    def backoff_s(self, failures: int, random: Random) -> float:
        """How long to wait after this many failures in a row (1: the first)."""
        assert failures > 0
        # The exponent is capped before it makes a float overflow.
        pause = min(self.backoff_max_s, self.backoff_first_s * 2.0 ** min(failures - 1, 30))
        return pause * random.uniform(0.8, 1.2)


def parse_bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    """`HOST[:PORT],HOST[:PORT],…`, with IPv6 addresses in brackets. Raises `ConfigError`."""
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError("expected at least one HOST:PORT")
    if len(addresses) > KAFKA_CLIENT_BOOTSTRAP_MAX:
        raise ConfigError(f"{len(addresses)} addresses; at most {KAFKA_CLIENT_BOOTSTRAP_MAX}")
    return tuple(dict.fromkeys(addresses))


def _parse_address(text: str) -> tuple[str, int]:
    wrong = ConfigError(f"expected HOST:PORT, got {text!r}")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise wrong
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
        rest = text[len(host) :]
    if not host or not host.isprintable() or " " in host or rest == ":":
        raise wrong
    if not port:
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise wrong
    return host, int(port)
