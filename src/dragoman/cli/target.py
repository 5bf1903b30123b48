"""The node that commands over HTTP talk to, and what they log in with there.

    --server URL           a node's HTTP listener, or `unix:DIR` with the node's data directory
    --token-file FILE      an API token
    --user NAME            with --password-file FILE; a terminal is asked for the password
    --ca-file FILE         certificates that sign those of nodes, for https
    --context NAME         a named context with all of these (`contexts.py`)

Each option may come from the environment or from a context instead. Secrets are in files: arguments
and the environment of a process can be read by others on the machine.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from cyclopts import Parameter

from dragoman.cli.contexts import Context, Layers
from dragoman.cli.secret_input import asked_password, secret_in
from dragoman.cli.status import USAGE, CommandError

if TYPE_CHECKING:
    import ssl

DEFAULT_URL: Final = "http://127.0.0.1:8080"


def _option(text: str) -> Parameter:
    return Parameter(help=text, show_default=False)


@dataclass(frozen=True, kw_only=True)
class Target:
    """Options of every command over HTTP. An empty one comes from the environment or a context."""

    server: Annotated[
        str,
        _option(f"URL of a node's HTTP listener, or unix:DIR. Default: {DEFAULT_URL}."),
    ] = ""
    token_file: Annotated[str, _option("File with an API token.")] = ""
    user: Annotated[str, _option("User to log in as, with --password-file.")] = ""
    password_file: Annotated[str, _option("File with the user's password.")] = ""
    ca_file: Annotated[str, _option("CA certificates (PEM) for https.")] = ""
    context: Annotated[str, _option("Named context to use, see `dragoman context`.")] = ""

    def resolved(self, environment: Mapping[str, str] = os.environ) -> Target:
        """With what the environment and a context add. Raises `CommandError`."""
        if self.user and self.token_file:
            raise CommandError("--user and --token-file exclude each other", USAGE)
        options = Context(
            server=self.server,
            token_file=self.token_file,
            user=self.user,
            password_file=self.password_file,
            ca_file=self.ca_file,
        )
        layers = Layers(options, address="server", name=self.context, environment=environment)
        if self.password_file and not layers.user:
            raise CommandError("--password-file needs --user", USAGE)
        return Target(
            server=layers.address(DEFAULT_URL),
            token_file=layers.token_file,
            user="" if layers.token_file else layers.user,
            password_file=layers.password_file,
            ca_file=layers.ca_file,
        )

    def authorization(self) -> str:
        """The header of a resolved target; empty without credentials. Raises `CommandError`."""
        if self.token_file:
            token = secret_in(self.token_file)
            if not token.isascii() or not token.isprintable() or " " in token:
                raise CommandError(f"{self.token_file} does not contain an API token", USAGE)
            return f"Bearer {token}"
        if not self.user:
            return ""
        if ":" in self.user:
            raise CommandError("--user: HTTP has no colon in names of users", USAGE)
        password = (
            secret_in(self.password_file) if self.password_file else asked_password(self.user)
        )
        return "Basic " + base64.b64encode(f"{self.user}:{password}".encode()).decode()

    def tls(self) -> ssl.SSLContext:
        """The context for https. Raises `CommandError`."""
        # Imported here: it takes some milliseconds, and http does not need it.
        import ssl

        try:
            return ssl.create_default_context(cafile=self.ca_file or None)
        except ssl.SSLError as error:
            raise CommandError(f"--ca-file {self.ca_file}: {error}", USAGE) from None
        except OSError as error:
            reason = error.strerror or error
            raise CommandError(f"--ca-file {self.ca_file}: {reason}", USAGE) from None


Server: TypeAlias = Annotated[Target, Parameter(name="*")]
DEFAULT_SERVER: Final = Target()
