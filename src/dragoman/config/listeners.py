"""Names, default ports and addresses of listeners, and which of them a node opens.

A node may have several listeners of a protocol: `kafka-internal` is another listener of Kafka
clients, with a port, an advertised address and a security of its own. Its name is a name of the
table, a hyphen and a label; of two names that fit, the longest counts.

Each layer of the configuration may name listeners as `NAME=HOST:PORT` or `NAME=off`. The rule is
the same for every layer: one that gives an address to any listener opens only the listeners it
gives addresses to; one that says only `off` closes those and leaves the rest as the layers below
have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.config.keys import near_match
from dragoman.errors import ConfigError

#: Whether connections may, or must, be encrypted or log in.
Requirement: TypeAlias = Literal["off", "optional", "required"]
#: Whether a client is asked for a certificate, and whether it must have one.
ClientCertificates: TypeAlias = Literal["none", "requested", "required"]

_LOOPBACK = "127.0.0.1"
_OFF = "off"
_WILDCARDS = frozenset({"0.0.0.0", "::"})
_LABEL_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LABEL_CHARS_MAX = 40
_LISTENER_KEY = "listener."


class ListenerName(msgspec.Struct, frozen=True):
    """A row of the table of listeners."""

    name: str
    port: int
    serves: str
    #: Whether it is opened when no layer names a listener.
    is_default: bool = True
    #: The protocol of its connections; empty: it has the listener's name.
    protocol: str = ""
    #: Whether there may be others of its kind, with a label.
    may_have_label: bool = True


LISTENER_NAMES = (
    ListenerName("kafka", 9092, "Kafka clients"),
    ListenerName("rocketmq", 9876, "RocketMQ clients: name server"),
    ListenerName("rocketmq-broker", 10911, "RocketMQ clients: broker", protocol="rocketmq"),
    ListenerName("cursus", 9000, "Cursus clients"),
    ListenerName("minibroker", 4222, "minibroker clients"),
    ListenerName("mlog", 9094, "mlog clients"),
    ListenerName("any", 7070, "every protocol, detected from its first bytes"),
    ListenerName("http", 8080, "HTTP API, health and metrics"),
    ListenerName("console", 8081, "browsers: console", may_have_label=False),
    ListenerName(
        "peer",
        9190,
        "other nodes of the cluster",
        is_default=False,
        may_have_label=False,
    ),
)
#: A name of the node's own, for the second port of `rocketmq-broker`.
_RESERVED = "rocketmq-vip"


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        return self.host in _WILDCARDS

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        is_number = self.host.replace(".", "").isdigit()
        return self.host in ("localhost", "::1") or (is_number and self.host.startswith("127."))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ListenerSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """What a listener demands of its connections."""

    #: With `optional`, the first bytes of a connection decide.
    tls: Requirement = "off"
    authentication: Requirement = "off"
    #: SASL mechanisms that clients may log in with, in Kafka's names.
    mechanisms: tuple[str, ...] = ()
    client_certificates: ClientCertificates = "none"
    #: Networks whose clients have a principal without a login, as (network, name of the user). The
    #: first that has the client's address counts.
    principals: tuple[tuple[str, str], ...] = ()


#: The security of a listener without any.
OPEN: Final = ListenerSecurity()


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """A listener to open."""

    name: str
    bind: Address
    #: The address in replies, in place of the bound one.
    advertised: Address | None = None

    @property
    def base(self) -> str:
        """Its name without the label."""
        return base_name(self.name)

    @property
    def protocol(self) -> str:
        """The protocol of its connections."""
        row = row_of(self.name)
        return self.name if row is None else row.protocol or row.name


def row_of(name: str) -> ListenerName | None:
    """The row of a listener: that of its whole name, or else that of the longest name before a
    label; None when there is no such listener.
    """
    fitting = [
        row
        for row in LISTENER_NAMES
        if name == row.name or (row.may_have_label and name.startswith(f"{row.name}-"))
    ]
    row = max(fitting, key=lambda each: len(each.name), default=None)
    if row is None or name == row.name:
        return row
    label = name[len(row.name) + 1 :]
    is_label = 0 < len(label) <= _LABEL_CHARS_MAX and set(label) <= _LABEL_CHARS
    return row if is_label and name != _RESERVED else None


def base_name(name: str) -> str:
    """The name of a listener without its label."""
    row = row_of(name)
    return name if row is None else row.name


def same_label(name: str, base: str) -> str:
    """The listener of another base with the label of this one: `rocketmq-broker-tls` for
    `rocketmq-tls`.
    """
    return base + name[len(base_name(name)) :]


def in_order(names: Iterable[str]) -> list[str]:
    """Listeners in the order of the table, those with a label behind the one without."""
    order = [row.name for row in LISTENER_NAMES]
    return sorted(names, key=lambda name: (order.index(base_name(name)), name))


def listener_key(listener: str, key: str) -> str:
    """The name of a setting of one listener."""
    return f"{_LISTENER_KEY}{listener}.{key}"


def split_listener_key(name: str) -> tuple[str, str] | None:
    """Listener and key of a setting of one listener; None for another setting."""
    listener, _, key = name.removeprefix(_LISTENER_KEY).partition(".")
    is_known = name.startswith(_LISTENER_KEY) and row_of(listener) is not None
    return (listener, key) if is_known else None


def listener_names() -> tuple[str, ...]:
    return tuple(row.name for row in LISTENER_NAMES)


def default_addresses() -> dict[str, Address]:
    """Addresses of the listeners that are opened by default."""
    opened = (row.name for row in LISTENER_NAMES if row.is_default)
    return {name: default_address(name) for name in opened}


def default_address(name: str) -> Address:
    return Address(_LOOPBACK, next(row.port for row in LISTENER_NAMES if row.name == name))


def parse_listen(name: str, text: object) -> Address | None:
    """The address of `NAME=HOST:PORT`, or None for `NAME=off`. Port 0 lets the system choose."""
    _check_name(name)
    if text == _OFF:
        return None
    return parse_address(f"listen {name}", text, port_min=0)


def parse_advertise(name: str, text: object) -> Address:
    """The address of `NAME=HOST:PORT` for replies. Clients must be able to connect to it."""
    _check_name(name)
    address = parse_address(f"advertise {name}", text, port_min=1)
    if address.is_wildcard:
        raise ConfigError(f"advertise {name}: clients cannot connect to {address.host}")
    return address


def overlay(
    opened: Mapping[str, Address], layer: Mapping[str, Address | None]
) -> dict[str, Address]:
    """The listeners open after one more layer (see the module's rule)."""
    asked = {name: address for name, address in layer.items() if address is not None}
    if asked:
        return asked
    return {name: address for name, address in opened.items() if name not in layer}


def split_assignment(option: str, text: str) -> tuple[str, str]:
    """`NAME=VALUE` in two."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise ConfigError(f"{option}: expected NAME=VALUE, got {text!r}")
    return name.strip(), value.strip()


def check_distinct(listeners: tuple[Listener, ...]) -> None:
    """Refuse two listeners on one address, for which the second bind would fail less clearly."""
    seen: dict[Address, str] = {}
    for listener in listeners:
        if listener.bind.port and listener.bind in seen:
            other = seen[listener.bind]
            raise ConfigError(f"listen: {other} and {listener.name} both bind {listener.bind}")
        seen[listener.bind] = listener.name


def _check_name(name: str) -> None:
    if row_of(name) is None:
        raise ConfigError(f"unknown listener {name!r}{near_match(name, listener_names())}")


def parse_address(what: str, text: object, *, port_min: int) -> Address:
    """The address of `HOST:PORT`. Raises `ConfigError` that begins with `what`."""
    wanted = f"{what}: expected HOST:PORT, got {text!r}"
    if not isinstance(text, str):
        raise ConfigError(wanted)
    host, colon, port_text = text.strip().rpartition(":")
    if not colon or not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5):
        raise ConfigError(wanted)
    port = int(port_text)
    if not port_min <= port <= 65535:
        raise ConfigError(f"{what}: expected a port from {port_min} to 65535, got {port}")
    return Address(_parse_host(what, host), port)


def _parse_host(what: str, host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        # Imported here: few configurations need it.
        import ipaddress

        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise ConfigError(f"{what}: {host[1:-1]!r} is not an IPv6 address") from None
    if ":" in host:
        raise ConfigError(f"{what}: write an IPv6 address in brackets, as in [::1]:9092")
    if not host:
        raise ConfigError(f"{what}: the host is missing; 0.0.0.0 means every address")
    if (
        host == "*"
        or len(host) > 253
        or not host.isascii()
        or not host.isprintable()
        or " " in host
    ):
        raise ConfigError(f"{what}: {host!r} is not a host name or address")
    return host
