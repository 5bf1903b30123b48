"""Which listeners other machines reach without a login.

A node opens its listeners to its own machine by default. It does not start with one that other
machines reach and that demands no login, unless its operator says that this is meant.
"""

from __future__ import annotations

from dragoman.config.listeners import Listener
from dragoman.config.settings import Settings

PEER = "peer"
CONSOLE = "console"


def exposed(settings: Settings) -> list[Listener]:
    """Listeners that other machines reach without a login."""
    return [
        each
        for each in settings.listeners
        if not each.bind.is_loopback and not _demands_login(settings, each.name)
    ]


def _demands_login(settings: Settings, name: str) -> bool:
    if name == CONSOLE:
        # It demands one of browsers on other machines whatever its settings say.
        return True
    security = settings.listener_security(name)
    if name == PEER:
        # Clients may have certificates of the same authority as nodes.
        return security.authentication == "required"
    has_certificates = security.tls == "required" and security.client_certificates == "required"
    return security.authentication == "required" or has_certificates


def exposure(listeners: list[Listener]) -> str:
    """What the listeners do, for the operator."""
    where = ", ".join(f"{each.name} on {each.bind}" for each in listeners)
    return f"other machines reach {where} without a login"


def remedy(listeners: list[Listener]) -> str:
    """What to type."""
    keys = " ".join(f"--set listener.{each.name}.authentication=required" for each in listeners)
    if any(each.name == PEER for each in listeners):
        keys += " --set listener.peer.tls=required --set peer.secret.file=FILE"
    port = listeners[0].bind.port
    return (
        f"type `{keys}` and create users with `dragoman user create NAME` on this machine, or"
        f" `--listen {listeners[0].name}=127.0.0.1:{port}` to serve this machine only, or"
        " `--insecure` to let them in"
    )
