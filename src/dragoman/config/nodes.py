"""The nodes of a cluster as an operator names them: `1@host:port,2@host:port`.

The addresses are those on which nodes talk to each other. A node finds itself among them by its
`node.id`, and founds the cluster together with the others when none of them has any data yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dragoman.config.listeners import Address, parse_address
from dragoman.errors import ConfigError


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
    """Raises `ConfigError` when the node is not among them."""
    if node_id not in nodes:
        known = ", ".join(map(str, sorted(nodes)))
        raise ConfigError(f"cluster: node.id is {node_id}, and the cluster has nodes {known}")
    return nodes[node_id]
