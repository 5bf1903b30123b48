"""TLS and the login of commands that run Spark.

Spark reads passwords where it runs and shows options in its plans, so only a reference to a file is
handed over: a password cannot be typed at the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dragoman.cli.client_tls import Encryption
from dragoman.cli.credentials import Credentials
from dragoman.cli.status import USAGE, CommandError

if TYPE_CHECKING:
    from dragoman.client.kafka import SaslLogin, TlsSettings


def security(
    credentials: Credentials, encryption: Encryption, environment: Mapping[str, str] = os.environ
) -> tuple[TlsSettings | None, SaslLogin | None]:
    """Raises `CommandError`."""
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
