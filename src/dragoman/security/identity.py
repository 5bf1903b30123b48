"""The caller of a connection before any login.

A client's certificate names its user, by `ssl.principal.mapping.rules`. A client without one, or
whose certificate matches no rule, has the principal of its network, where the listener has one for
it. All others are anonymous, and so are those with a name that no user can have.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from dragoman.config.listeners import ListenerSecurity
from dragoman.config.user_names import problem_of
from dragoman.security.access import Caller, Principal
from dragoman.types import Certificate

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network


def initial_caller(
    security: ListenerSecurity,
    certificate: Certificate | None,
    host: str,
    mapping_rules: str = "DEFAULT",
) -> Caller:
    """`host` is the client's address; `mapping_rules` are `ssl.principal.mapping.rules`."""
    name = None if certificate is None else _name_in(certificate, mapping_rules)
    is_proven = name is not None
    if name is None and security.principals:
        name = _name_by_network(security.principals, host)
    if name is None or problem_of(name):
        return Caller(host=host)
    return Caller(Principal("User", name), host, is_proven)


def _name_in(certificate: Certificate, mapping_rules: str) -> str | None:
    # Imported here: few nodes have clients with certificates.
    from dragoman.config.principals import name_in_certificate, parse_principal_rules

    return name_in_certificate(certificate.subject, parse_principal_rules(mapping_rules))


def _name_by_network(principals: tuple[tuple[str, str], ...], host: str) -> str | None:
    # Imported here: only listeners with such principals need it.
    import ipaddress

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    return next((name for network, name in principals if address in _network(network)), None)


@lru_cache(maxsize=1024)
def _network(text: str) -> IPv4Network | IPv6Network:
    import ipaddress

    return ipaddress.ip_network(text, strict=False)
