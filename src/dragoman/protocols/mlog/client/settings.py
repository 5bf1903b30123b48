"""Settings of an mlog client, and the reading of addresses."""

from __future__ import annotations

import msgspec

from dragoman.errors import ConfigError
from dragoman.limits import MLOG_CLIENT_ADDRESSES_MAX
from dragoman.protocols.mlog.constants import Encoding


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. `operation_timeout_s` bounds one call with all its retries."""

    #: JSON is what every server understands.
    encoding: Encoding = Encoding.JSON
    connect_timeout_s: float = 5.0
    #: From a request to its reply; servers take up to 30 s. A later one ends the connection.
    request_timeout_s: float = 30.0
    operation_timeout_s: float = 60.0
    #: How long a topic is looked for that no server knows: nodes may hear late of a new one.
    missing_topic_timeout_s: float = 1.0
    #: Pause before the first retry; it doubles to the maximum.
    backoff_first_s: float = 0.05
    backoff_max_s: float = 1.0
    #: Pause of a consumer that has read everything, as in the original.
    poll_interval_s: float = 0.5
    #: Whether records are sent again when the connection broke before the reply. They may then be
    #: there twice; without it, they may be there although an error was raised.
    repeats_produce: bool = True
    #: Unanswered requests on one connection. The next one waits.
    in_flight_max: int = 128

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, Encoding | bool) and value <= 0:
                raise ConfigError(f"{name}: expected a positive number, got {value}")

    def backoff_s(self, failures: int) -> float:
        """How long to wait after this many failures in a row (1: the first)."""
        return min(self.backoff_max_s, self.backoff_first_s * 2.0 ** min(failures - 1, 30))


def parse_addresses(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Each is `HOST:PORT`, or several with commas. Raises `ConfigError`."""
    found = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    if not 1 <= len(found) <= MLOG_CLIENT_ADDRESSES_MAX:
        raise ConfigError(f"{len(found)} addresses; 1 to {MLOG_CLIENT_ADDRESSES_MAX}")
    for each in found:
        split_address(each)
    return tuple(dict.fromkeys(found))


def split_address(text: str) -> tuple[str, int]:
    """Raises `ConfigError`."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise ConfigError(f"expected HOST:PORT, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
