"""What the commands that read and write records log in with at a broker.

    --user NAME            with --password-file FILE; a terminal is asked for the password
    --mechanism NAME       of SASL, for Kafka

Each may come from the environment instead, as with commands over HTTP (`target.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from dragoman.cli.status import USAGE, CommandError
from dragoman.cli.target import asked_password, secret_in

Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, kw_only=True)
class Credentials:
    user: Annotated[
        str,
        Parameter(help="User to log in as, with --password-file.", show_default=False),
    ] = ""
    password_file: Annotated[
        str, Parameter(help="File with the user's password.", show_default=False)
    ] = ""
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
