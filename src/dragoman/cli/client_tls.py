"""TLS of commands that speak a broker's protocol.

    --tls                       connections are encrypted
    --ca-file FILE              certificates to trust, in place of those of the machine
    --certificate-file FILE     a certificate to show, where the broker asks for one
    --key-file FILE             its key

A file implies `--tls`. `DRAGOMAN_CA_FILE` names the certificates to trust where TLS is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter

from dragoman.cli.status import USAGE, CommandError
from dragoman.client_core.tls import TlsSettings


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
