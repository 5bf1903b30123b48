"""Settings of a RocketMQ client, and addresses of servers."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.client_core import addresses
from dragoman.client_core.connection import RetrySettings, require_positive_numbers
from dragoman.errors import ConfigError
from dragoman.protocols.rocketmq.constants import Serialization

#: The VIP port of a broker is its port less this number; old clients use it by default.
_VIP_PORT_DISTANCE = 2


class ClientSettings(RetrySettings, frozen=True, kw_only=True):
    """Times are in seconds."""

    connect_timeout_s: float = 3.0
    request_timeout_s: float = 5.0
    operation_timeout_s: float = 30.0
    in_flight_max: int = 1024
    #: The intervals of heartbeats to brokers, and of refreshes of routes.
    heartbeat_s: float = 30.0
    route_refresh_s: float = 30.0
    #: Requests are signed when the access key and the secret key are set.
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""
    #: Whether to connect to the VIP port of brokers, which is two below their port.
    vip_channel: bool = False
    #: The part of the client id that distinguishes clients of one machine; random by default.
    instance: str = ""
    serialization: Serialization = Serialization.JSON

    def __post_init__(self) -> None:
        require_positive_numbers(self)
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("access_key and secret_key: expected both or none")

    def __repr__(self) -> str:
        # Errors and logs must not show the secret key and the token.
        return f"ClientSettings(instance={self.instance!r}, access_key={self.access_key!r})"


def parse_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """The addresses in texts, each `HOST:PORT` or several separated by commas or semicolons.

    Raises `ConfigError`.
    """
    return tuple(map(str, addresses.parse_addresses(texts, separators=",;")))


def vip_address(address: str) -> str:
    """The address of the VIP port of a broker. Raises `ConfigError`."""
    host, port = addresses.parse_address(address)
    return str(addresses.Address(host, port - _VIP_PORT_DISTANCE))
