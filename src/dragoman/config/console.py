"""What the process of a console is started with, as one line of JSON on its standard input."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.config.settings import TlsOptions

PasswordMechanism: TypeAlias = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
#: SASL mechanisms that take a password, the best first.
PASSWORD_MECHANISMS: Final[tuple[PasswordMechanism, ...]] = (
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    "PLAIN",
)


class KafkaTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where records are read and written."""

    #: Addresses, separated by commas; empty: pages of records say why there are none.
    bootstrap: str = ""
    is_encrypted: bool = False
    #: The file with the authorities to trust; empty: those of the machine.
    authorities: str = ""
    #: The certificate that the console shows, and its key; empty: it shows none.
    certificate: str = ""
    key: str = ""
    #: Why no user can log in there, with the remedy.
    obstacle: str = ""


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    #: URL of a node's HTTP listener; a node's own console shows it, and may have none.
    server: str = ""
    #: The file with the authorities to trust for it; empty: those of the machine.
    ca_file: str = ""
    #: The data directory of the node that has started the process, which is reached by the
    #: directory's socket; empty: the node is reached by `server`.
    data: str = ""
    kafka: KafkaTarget = KafkaTarget()
    #: The path under which a proxy shows the console; without a slash at its end.
    base_path: str = ""
    #: The machine's own names, by which browsers may reach the console, beside addresses and
    #: `localhost`.
    hosts: tuple[str, ...] = ()
    #: Names that the operator has added; their pages may use the console, too.
    allowed_hosts: tuple[str, ...] = ()
    #: Whether the console listens on this machine only.
    is_local: bool = True
    #: Files and options of TLS with browsers; None: they connect without.
    tls: TlsOptions | None = None
    session_idle_s: float = 30 * 60
    session_life_s: float = 12 * 60 * 60
    #: Seconds without a connection and a session after which the process ends; 0: never.
    idle_s: float = 0
