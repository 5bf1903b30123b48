"""TLS and the login of commands that speak a broker's protocol.

    --tls                       connections are encrypted
    --ca-file FILE              certificates to trust, in place of those of the machine
    --certificate-file FILE     a certificate to show, where the broker asks for one
    --key-file FILE             its key
    --user NAME                 with --password-file FILE; a terminal is asked for the password
    --mechanism NAME            of SASL, for Kafka

A file of certificates implies `--tls`. The user, the password's file and the certificates to trust
may come from the environment instead, as with commands over HTTP (`target.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter

from dragoman.cli.secret_input import asked_password, secret_in
from dragoman.cli.status import USAGE, CommandError
from dragoman.client_core.tls import TlsSettings

if TYPE_CHECKING:
    from dragoman.client.kafka import SaslLogin

Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def _option(text: str) -> Parameter:
    return Parameter(help=text, show_default=False, negative="")


@dataclass(frozen=True, kw_only=True)
class Encryption:
    """Options of commands that connect as a client of a protocol."""

    tls: Annotated[bool, _option("Connect with TLS.")] = False
    ca_file: Annotated[str, _option("CA certificates (PEM) to trust; implies --tls.")] = ""
    certificate_file: Annotated[str, _option("Certificate (PEM) to show; implies --tls.")] = ""
    key_file: Annotated[str, _option("Key (PEM) of the certificate.")] = ""

    def settings(self, environment: Mapping[str, str] = os.environ) -> TlsSettings | None:
        """None without TLS. Raises `CommandError` for files that cannot be used."""
        if self.key_file and not self.certificate_file:
            raise CommandError("--key-file needs --certificate-file", USAGE)
        if not (self.tls or self.ca_file or self.certificate_file):
            return None
        found = TlsSettings(
            ca=self.ca_file or environment.get("DRAGOMAN_CA_FILE", ""),
            certificate=self.certificate_file,
            key=self.key_file,
        )
        # Once before anything connects, where a bad file would look like an unreachable broker.
        found.context()
        return found


EncryptionOptions: TypeAlias = Annotated[Encryption, Parameter(name="*")]
PLAIN: Final = Encryption()


@dataclass(frozen=True, kw_only=True)
class Credentials:
    user: Annotated[str, _option("User to log in as, with --password-file.")] = ""
    password_file: Annotated[str, _option("File with the user's password.")] = ""
    mechanism: Annotated[Mechanism, Parameter(help="SASL mechanism, for Kafka.")] = "SCRAM-SHA-256"

    def resolved(self, environment: Mapping[str, str] = os.environ) -> Credentials:
        """With what the environment adds. Raises `CommandError`."""
        user = self.user or environment.get("DRAGOMAN_USER", "")
        if self.password_file and not user:
            raise CommandError("--password-file needs --user", USAGE)
        password_file = self.password_file or environment.get("DRAGOMAN_PASSWORD_FILE", "")
        return Credentials(user=user, password_file=password_file, mechanism=self.mechanism)

    def password(self) -> str:
        """The password of resolved credentials. Raises `CommandError`."""
        return secret_in(self.password_file) if self.password_file else asked_password(self.user)


LoginOptions: TypeAlias = Annotated[Credentials, Parameter(name="*")]
NO_LOGIN = Credentials()


def spark_security(
    credentials: Credentials, encryption: Encryption, environment: Mapping[str, str] = os.environ
) -> tuple[TlsSettings | None, SaslLogin | None]:
    """For commands that run Spark. Spark reads passwords where it runs and shows options in its
    plans: only a reference to a file is passed on, and a password cannot be typed. Raises
    `CommandError`.
    """
    tls = encryption.settings(environment)
    found = credentials.resolved(environment)
    if not found.user:
        return tls, None
    if not found.password_file:
        raise CommandError("--user needs --password-file, which Spark reads", USAGE)
    # Once before Spark starts, for a file that cannot be read.
    found.password()
    from dragoman.client.kafka import SaslLogin

    password = f"file:{os.path.abspath(found.password_file)}"
    return tls, SaslLogin(mechanism=found.mechanism, name=found.user, password=password)
