"""What a node starts the process of its console with: how it reaches the node and its records.

API        the socket of the console in the data directory, whatever listeners are open
records    a listener with Kafka's protocol, where users log in with what they log in here with
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dragoman.config.console import PASSWORD_MECHANISMS, ConsoleSettings, KafkaTarget
from dragoman.config.listeners import Address, ListenerSecurity
from dragoman.config.settings import Settings
from dragoman.net.listener import OpenListener

#: Listeners with Kafka's protocol.
_KAFKA: Final = ("kafka", "any")
#: A name of this machine for URLs, where a listener has every address.
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
#: Seconds without a connection and a session until the process ends.
_IDLE_S: Final = 300.0
NO_USERS: Final = (
    "no user can log in yet, and others on the network reach this console: create a user with"
    " `dragoman user create NAME` on the node's machine, or in its container"
)


def console_settings(
    opened: Iterable[OpenListener], settings: Settings, data: str, names: Iterable[str]
) -> ConsoleSettings:
    """`data` is the data directory with the console's socket, `names` are the node's own."""
    known = list(opened)
    console = next(each for each in known if each.listener.base == "console")
    security = settings.listener_security(console.name)
    return ConsoleSettings(
        server=_http_url(known, settings),
        data=data,
        kafka=_kafka_target(known, settings),
        base_path=settings.console_base_path,
        hosts=tuple(sorted(set(names))),
        allowed_hosts=settings.http_allowed_hosts,
        is_local=console.bound.is_loopback,
        tls=None if security.tls == "off" else settings.listener_tls(console.name),
        session_idle_s=settings.console_session_idle_ms / 1000,
        session_life_s=settings.console_session_life_ms / 1000,
        idle_s=_IDLE_S,
    )


def console_security(configured: ListenerSecurity, *, is_required: bool) -> ListenerSecurity:
    """What the console's listener demands: credentials always count, and are required where others
    on the network reach it, and once there are users.
    """
    return ListenerSecurity(
        tls=configured.tls,
        authentication="required" if is_required else "optional",
        mechanisms=configured.mechanisms,
        principals=configured.principals,
    )


def _http_url(opened: Iterable[OpenListener], settings: Settings) -> str:
    """The URL for command lines that pages show; empty: there is no listener with HTTP."""
    for each in opened:
        if each.listener.base == "http":
            security = settings.listener_security(each.name)
            scheme = "https" if security.tls == "required" else "http"
            return f"{scheme}://{_reachable(each, is_named=scheme == 'https')}"
    return ""


def _kafka_target(opened: Iterable[OpenListener], settings: Settings) -> KafkaTarget:
    """Where users can log in, rather than where all are anonymous; without TLS, if possible."""
    choices = []
    for each in opened:
        if each.listener.base in _KAFKA:
            security = settings.listener_security(each.name)
            found = _target(each, settings, security)
            is_open_to_all = security.authentication == "off"
            choices.append(((bool(found.obstacle), is_open_to_all, found.is_encrypted), found))
    return min(choices, key=lambda each: each[0], default=((), KafkaTarget()))[1]


def _target(opened: OpenListener, settings: Settings, security: ListenerSecurity) -> KafkaTarget:
    name = opened.name
    is_encrypted = security.tls == "required"
    has_mechanism = any(each in security.mechanisms for each in PASSWORD_MECHANISMS)
    obstacle = ""
    if is_encrypted and security.client_certificates == "required":
        obstacle = f"the listener {name} requires certificates, which the console does not have"
    elif security.authentication != "off" and not has_mechanism:
        obstacle = f"the listener {name} offers no mechanism that takes a password"
    if obstacle:
        obstacle += ": open another listener, such as kafka-local=127.0.0.1:9095, for it"
    return KafkaTarget(
        bootstrap=str(_reachable(opened, is_named=is_encrypted)),
        is_encrypted=is_encrypted,
        authorities=settings.listener_tls(name).ca_file if is_encrypted else "",
        obstacle=obstacle,
    )


def _reachable(opened: OpenListener, *, is_named: bool) -> Address:
    """An address of a listener for programs on this machine; `is_named`: that of its certificate,
    if it has one.
    """
    if is_named and opened.advertised is not None:
        return opened.advertised
    bound = opened.bound
    return Address(_LOOPBACK.get(bound.host, bound.host), bound.port)
