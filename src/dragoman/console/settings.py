"""What the process of a console is started with, as one line of JSON on its standard input."""

from __future__ import annotations

import msgspec


class KafkaTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where records are read and written."""

    #: Addresses, separated by commas; empty: pages of records say why there are none.
    bootstrap: str = ""
    is_encrypted: bool = False
    #: The file with the authorities to trust; empty: those of the machine.
    authorities: str = ""
    #: The SASL mechanism to log in by; empty: the listener takes no logins.
    mechanism: str = ""
    #: Why nobody can log in there, with the remedy.
    obstacle: str = ""


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    #: URL of a node's HTTP listener.
    server: str
    #: The file with the authorities to trust for it; empty: those of the machine.
    ca_file: str = ""
    kafka: KafkaTarget = KafkaTarget()
    #: The path under which a proxy shows the console; without a slash at its end.
    base_path: str = ""
    #: Names beside addresses, `localhost` and this machine's own by which browsers may reach it.
    hosts: tuple[str, ...] = ()
    #: Whether the console listens on this machine only.
    is_local: bool = True
    #: Whether the browser reaches it by https, so that its cookie is for https only.
    is_encrypted: bool = False
    #: Seconds without a connection after which the process ends; 0: never.
    idle_s: float = 0
