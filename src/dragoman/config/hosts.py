"""Lists of hosts in settings: names, names with a wildcard in front, addresses and networks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

_ANY = "*"
_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")


def host_matches(host: str, allowed: Iterable[str]) -> bool:
    """Whether one of a list of hosts covers a host, which comes without a port:

    `*` any; `name` itself; `*.name` names below it; an address or a network (`10.0.0.0/8`) an
    address; a directory (`/run/postgresql`) the sockets in it.
    """
    return any(_covers(each, host) for each in allowed)


def check_hosts(key: str, allowed: Iterable[str]) -> None:
    """Raises `ConfigError` for an entry that could never match."""
    for each in allowed:
        name = each.lower().removeprefix("*.")
        is_name = bool(name) and set(name) <= _NAME_CHARS
        if not (each == _ANY or each.startswith("/") or is_name or _network(each)):
            raise ConfigError(
                f"{key}: expected names, *.names, addresses, networks or directories of sockets,"
                f" got {each!r}"
            )


def _covers(entry: str, host: str) -> bool:
    if entry.startswith("/"):
        return host.rstrip("/") == entry.rstrip("/")
    entry, host = entry.lower(), host.lower().removesuffix(".")
    if entry in (_ANY, host):
        return True
    if entry.startswith("*."):
        return host.endswith(entry[1:])
    # Only addresses need it, and every start of a node would pay for it.
    import ipaddress

    network = _network(entry)
    try:
        return network is not None and ipaddress.ip_address(host) in network
    except ValueError:
        return False


def _network(text: str) -> IPv4Network | IPv6Network | None:
    import ipaddress

    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
