"""Addresses of servers: `HOST:PORT`, alone or in a list, and which server of a list is tried first.

An IPv6 address is written in brackets. Without them it is accepted only where the port is
mandatory, because `::1:9092` is ambiguous where it is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dragoman.errors import ConfigError
from dragoman.limits import CLIENT_ADDRESSES_MAX


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, default_port: int | None = None) -> Address:
    """`HOST:PORT`, or `HOST` where there is a default port. Raises `ConfigError`."""
    wrong = ConfigError(f"expected HOST:PORT, got {text!r}")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise wrong
    elif default_port is None:
        host = text.rpartition(":")[0]
        rest = text[len(host) :]
    else:
        host = text.partition(":")[0]
        rest = text[len(host) :]
    if not host or not host.isprintable() or " " in host or host.count(":") == 1:
        raise wrong
    if not rest and default_port is not None:
        return Address(host, default_port)
    port = rest[1:]
    if not rest.startswith(":") or not (port.isascii() and port.isdigit() and len(port) < 10):
        raise wrong
    if not 0 < int(port) < 65536:
        raise wrong
    return Address(host, int(port))


def parse_addresses(
    texts: Iterable[str], *, default_port: int | None = None, separators: str = ","
) -> tuple[Address, ...]:
    """The distinct addresses in texts that list them with separators.

    Raises `ConfigError` when there is none, or more than `CLIENT_ADDRESSES_MAX`.
    """
    parts: list[str] = []
    for text in texts:
        for separator in separators[1:]:
            text = text.replace(separator, separators[0])
        parts += filter(None, map(str.strip, text.split(separators[0])))
    if not parts:
        raise ConfigError("expected at least one HOST:PORT")
    if len(parts) > CLIENT_ADDRESSES_MAX:
        raise ConfigError(f"{len(parts)} addresses; at most {CLIENT_ADDRESSES_MAX}")
    return tuple(dict.fromkeys(parse_address(part, default_port) for part in parts))


class Rotation:
    """Addresses in the order in which they are tried."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._addresses = list(addresses)
        assert self._addresses

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def first(self) -> Address:
        return self._addresses[0]

    def move_on(self) -> None:
        """The first address becomes the last."""
        self._addresses.append(self._addresses.pop(0))

    def prefer(self, address: Address) -> None:
        """Try this address first from now on, whether or not it was in the list."""
        others = [each for each in self._addresses if each != address]
        self._addresses = [address, *others]
