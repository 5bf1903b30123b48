"""How the process of a capture connects to Kafka's protocol of its own node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dragoman.config.listeners import Address
from dragoman.config.settings import Settings
from dragoman.net.listener import OpenListener

#: Listeners with Kafka's protocol.
_KAFKA = ("kafka", "any")
#: The mechanism of captures.
_SCRAM = "SCRAM-SHA-256"


class KafkaAccess(NamedTuple):
    """How a process on this machine connects to the nodes."""

    #: The address at which the node serves Kafka's protocol; empty: it does not.
    bootstrap: str
    takes_logins: bool = False
    #: Why processes cannot connect, with the remedy, or an empty text.
    obstacle: str = ""
    is_encrypted: bool = False
    #: The file with the authorities to trust; empty: those of the machine.
    authorities: str = ""


def local_access(listeners: Iterable[OpenListener], settings: Settings) -> KafkaAccess:
    """The way that demands the least of the process, of all listeners with Kafka's protocol."""
    choices = [_access(each, settings) for each in listeners if each.listener.base in _KAFKA]
    if not choices:
        return KafkaAccess("")
    return min(choices, key=lambda each: (bool(each.obstacle), each.is_encrypted))


def _access(opened: OpenListener, settings: Settings) -> KafkaAccess:
    name = opened.name
    security = settings.listener_security(name)
    takes_logins = security.authentication != "off"
    obstacle = ""
    if security.tls != "off" and security.client_certificates == "required":
        obstacle = f"the listener {name} requires certificates, which captures do not have"
    elif takes_logins and _SCRAM not in security.mechanisms:
        obstacle = f"captures log in by SCRAM-SHA-256, which the listener {name} does not offer"
    if obstacle:
        obstacle += ": open another listener, such as kafka-local=127.0.0.1:9095, for them"
    is_encrypted = security.tls == "required"
    address = opened.bound
    if address.is_wildcard:
        address = Address("::1" if ":" in address.host else "127.0.0.1", address.port)
    if is_encrypted and opened.advertised is not None:
        # The node's certificate has its name.
        address = opened.advertised
    return KafkaAccess(
        str(address),
        takes_logins,
        obstacle,
        is_encrypted,
        settings.listener_tls(name).ca_file if is_encrypted else "",
    )
