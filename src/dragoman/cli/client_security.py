"""The broker that commands over a protocol talk to, with TLS and a login.

    --bootstrap HOST:PORT       listeners of brokers, separated by commas
    --tls                       connections are encrypted
    --ca-file FILE              certificates to trust, in place of those of the machine
    --certificate-file FILE     a certificate to show, where the broker asks for one
    --key-file FILE             its key
    --user NAME                 with --password-file FILE; a terminal is asked for the password
    --mechanism NAME            of SASL, for Kafka
    --context NAME              a named context with all of these (`contexts.py`)

A file of certificates implies `--tls`. The address, the user, the password's file and the
certificates to trust may come from the environment instead, as with commands over HTTP
(`target.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
from cyclopts import Parameter

from dragoman.cli.contexts import Context, Layers, Mechanism
from dragoman.cli.secret_input import asked_password, secret_in
from dragoman.cli.status import USAGE, CommandError
from dragoman.client_core.tls import TlsSettings

if TYPE_CHECKING:
    from dragoman.client.kafka import SaslLogin


def _option(text: str) -> Parameter:
    return Parameter(help=text, show_default=False, negative="")


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a command logs in with; no user: it does not."""

    user: str = ""
    password_file: str = ""
    mechanism: Mechanism = "SCRAM-SHA-256"

    def password(self) -> str:
        """Raises `CommandError`."""
        return secret_in(self.password_file) if self.password_file else asked_password(self.user)


NO_LOGIN: Final = Credentials()


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command connects."""

    bootstrap: str
    tls: TlsSettings | None = None
    credentials: Credentials = NO_LOGIN


@dataclass(frozen=True, kw_only=True)
class BrokerTarget:
    """Options of commands that connect as a client of a protocol. An empty one comes from the
    environment or a context.
    """

    bootstrap: Annotated[
        str | None,
        Parameter(
            name=["--bootstrap", "-b"],
            help="Listeners of brokers, as HOST:PORT, separated by commas. By default the "
            "protocol's port on this machine.",
            show_default=False,
        ),
    ] = None
    tls: Annotated[bool, _option("Connect with TLS.")] = False
    ca_file: Annotated[str, _option("CA certificates (PEM) to trust; implies --tls.")] = ""
    certificate_file: Annotated[str, _option("Certificate (PEM) to show; implies --tls.")] = ""
    key_file: Annotated[str, _option("Key (PEM) of the certificate.")] = ""
    user: Annotated[str, _option("User to log in as, with --password-file.")] = ""
    password_file: Annotated[str, _option("File with the user's password.")] = ""
    mechanism: Annotated[
        Mechanism | None, _option("SASL mechanism, for Kafka. Default: SCRAM-SHA-256.")
    ] = None
    context: Annotated[str, _option("Named context to use, see `dragoman context`.")] = ""

    @property
    def is_secure(self) -> bool:
        """Whether an option is about TLS, a login or a context."""
        return any(getattr(self, each.name) for each in fields(self) if each.name != "bootstrap")

    def resolved(self, default: str, environment: Mapping[str, str] = os.environ) -> Broker:
        """With what the environment and a context add. Raises `CommandError`, also for files that
        cannot be used.
        """
        if self.bootstrap == "":
            # As from a variable of a shell that is not set.
            raise CommandError("--bootstrap: expected HOST:PORT, got an empty text", USAGE)
        if self.key_file and not self.certificate_file:
            raise CommandError("--key-file needs --certificate-file", USAGE)
        options = Context(
            bootstrap=self.bootstrap or "",
            tls=self.tls,
            ca_file=self.ca_file,
            certificate_file=self.certificate_file,
            key_file=self.key_file,
            user=self.user,
            password_file=self.password_file,
            mechanism=self.mechanism or "",
        )
        layers = Layers(options, address="bootstrap", name=self.context, environment=environment)
        if self.password_file and not layers.user:
            raise CommandError("--password-file needs --user", USAGE)
        credentials = Credentials(
            user=layers.user, password_file=layers.password_file, mechanism=layers.mechanism
        )
        return Broker(
            bootstrap=layers.address(default), tls=_settings(layers), credentials=credentials
        )


BrokerOptions: TypeAlias = Annotated[BrokerTarget, Parameter(name="*")]
THIS_MACHINE: Final = BrokerTarget()


def _settings(layers: Layers) -> TlsSettings | None:
    if not layers.wants_tls:
        return None
    certificate, key = layers.certificate
    found = TlsSettings(ca=layers.ca_file, certificate=certificate, key=key)
    # Once before anything connects, where a bad file would look like an unreachable broker.
    found.context()
    return found


def spark_login(credentials: Credentials) -> SaslLogin | None:
    """The login for Spark, which reads passwords where it runs and shows options in its plans: only
    a reference to a file is passed on, and a password cannot be typed. Raises `CommandError`.
    """
    if not credentials.user:
        return None
    if not credentials.password_file:
        raise CommandError("--user needs --password-file, which Spark reads", USAGE)
    # Once before Spark starts, for a file that cannot be read.
    credentials.password()
    from dragoman.client.kafka import SaslLogin

    password = f"file:{os.path.abspath(credentials.password_file)}"
    return SaslLogin(mechanism=credentials.mechanism, name=credentials.user, password=password)
