"""Settings of a RocketMQ client, and the addresses that it is given."""

from __future__ import annotations

import msgspec

from dragoman.errors import ConfigError
from dragoman.limits import ROCKETMQ_CLIENT_ADDRESSES_MAX
from dragoman.protocols.rocketmq.constants import Serialization

#: The VIP port of a broker is its port less this number; old clients use it by default.
_VIP_PORT_DISTANCE = 2


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds. `operation_timeout_s` bounds one call with all its retries."""

    connect_timeout_s: float = 3.0
    #: The time from a request to its reply.
    request_timeout_s: float = 5.0
    operation_timeout_s: float = 30.0
    #: The pause before the first retry; it doubles up to the maximum.
    backoff_first_s: float = 0.05
    backoff_max_s: float = 1.0
    #: The bound on unanswered requests of one connection. The next one waits.
    in_flight_max: int = 1024
    #: The intervals of heartbeats to brokers, and of requests for routes to name servers.
    heartbeat_s: float = 30.0
    route_refresh_s: float = 30.0
    #: Requests are signed when the access key and the secret key are set.
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""
    #: Whether connections go to the VIP port of brokers, which is two below their port.
    vip_channel: bool = False
    #: The part of the client id that differs among clients of one machine; random by default.
    instance: str = ""
    serialization: Serialization = Serialization.JSON

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(
                value, bool | Serialization
            )
            if is_number and value <= 0:
                raise ConfigError(f"{name}: expected a positive number, got {value}")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("access_key and secret_key: expected both or none")

    def __repr__(self) -> str:
        # Errors and logs must not show the secret key and the token.
        return f"ClientSettings(instance={self.instance!r}, access_key={self.access_key!r})"

    def backoff_s(self, failures: int) -> float:
        """The pause after a number of consecutive failures, which is 1 after the first."""
        return min(self.backoff_max_s, self.backoff_first_s * 2.0 ** min(failures - 1, 30))


def parse_addresses(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses in texts, each `HOST:PORT` or several with commas or semicolons.

    Raises `ConfigError`.
    """
    parts = (part.strip() for text in texts for part in text.replace(";", ",").split(","))
    found = tuple(dict.fromkeys(part for part in parts if part))
    if not 1 <= len(found) <= ROCKETMQ_CLIENT_ADDRESSES_MAX:
        raise ConfigError(f"{len(found)} addresses; 1 to {ROCKETMQ_CLIENT_ADDRESSES_MAX}")
    for each in found:
        split_address(each)
    return found


def split_address(text: str) -> tuple[str, int]:
    """The host and the port of an address. Raises `ConfigError`."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise ConfigError(f"expected HOST:PORT, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def vip_address(address: str) -> str:
    """The address of the VIP port of a broker. Raises `ConfigError`."""
    host, _, port = address.rpartition(":")
    split_address(address)
    return f"{host}:{int(port) - _VIP_PORT_DISTANCE}"
