"""Where logins come from: what counts as one address, and the addresses that are known.

A guesser with many addresses could take all the room that logins have before they are decided. A
part of it is therefore kept for addresses from which a login has succeeded lately.
"""

from __future__ import annotations

from dragoman.limits import LOGIN_ORIGINS_KEPT_MAX

_HOST_BITS = 64
_SITE_BITS = 80


def origin_of(host: str) -> str:
    """What counts as one address: of IPv6 the first 64 bits, because a client has all the rest."""
    return _prefix(host, _HOST_BITS)


def network_of(host: str) -> str:
    """What one site has: of IPv6 the first 48 bits."""
    return _prefix(host, _SITE_BITS)


def _prefix(host: str, bits: int) -> str:
    if ":" not in host:
        return host
    # Imported here: few clients use IPv6.
    import ipaddress

    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> bits << bits))


class KnownOrigins:
    """The origins from which logins have succeeded, the longest unused one first."""

    def __init__(self) -> None:
        self._origins: dict[str, None] = {}

    def __contains__(self, origin: str) -> bool:
        return origin in self._origins

    def add(self, host: str) -> None:
        """Note that a login from this host has succeeded."""
        origin = origin_of(host)
        self._origins.pop(origin, None)
        self._origins[origin] = None
        if len(self._origins) > LOGIN_ORIGINS_KEPT_MAX:
            del self._origins[next(iter(self._origins))]
