"""Hosts in settings: the nodes of a cluster, and lists of hosts that are allowed.

An operator names the nodes of a cluster as `1@host:port,2@host:port`, with the addresses on which
nodes connect to each other. A node finds itself among them by its `node.id`, and founds the cluster
together with the others when none of them has any data yet.

Lists of allowed hosts hold names, names with a wildcard in front, addresses and networks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dragoman.config.listeners import Address, parse_address
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


def network_and_name(text: str) -> tuple[str, str]:
    """The parts of `NETWORK=NAME`."""
    network, _, name = text.partition("=")
    return network.strip(), name.strip().removeprefix("User:")


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
    # Imported here: only addresses need it, and the import would slow every start.
    import ipaddress

    network = _network(entry)
    try:
        return network is not None and ipaddress.ip_address(host) in network
    except ValueError:
        return False


def is_network(text: str) -> bool:
    """Whether the text is an address or a network."""
    return _network(text) is not None


def _network(text: str) -> IPv4Network | IPv6Network | None:
    import ipaddress

    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def parse_nodes(entries: Iterable[str]) -> dict[int, Address]:
    nodes: dict[int, Address] = {}
    for entry in entries:
        number, at, address = entry.partition("@")
        if not at or not (number.isascii() and number.isdigit() and len(number) <= 9):
            raise ConfigError(f"cluster: expected NODE@HOST:PORT, got {entry!r}")
        node_id = int(number)
        if node_id in nodes:
            raise ConfigError(f"cluster: node {node_id} is named twice")
        parsed = parse_address(f"cluster: node {node_id}", address, port_min=1)
        if parsed.is_wildcard:
            raise ConfigError(f"cluster: node {node_id}: others cannot connect to {parsed.host}")
        if parsed in nodes.values():
            raise ConfigError(f"cluster: two nodes at {parsed}")
        nodes[node_id] = parsed
    return nodes


def own_address(nodes: Mapping[int, Address], node_id: int) -> Address:
    """The address of the node itself. Raises `ConfigError` when it is not among the nodes."""
    if node_id not in nodes:
        known = ", ".join(map(str, sorted(nodes)))
        raise ConfigError(f"cluster: node.id is {node_id}, and the cluster has nodes {known}")
    return nodes[node_id]
