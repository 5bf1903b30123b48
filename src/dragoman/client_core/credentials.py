"""Credentials of clients. Their secrets appear in no `repr`, and may be references.

A reference names the place of a secret: `file:PATH`, without the line's end, or `env:NAME`. It is
resolved when a client is made or logs in.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from dragoman.errors import ConfigError

_FILE: Final = "file:"
_ENVIRONMENT: Final = "env:"
_SECRET_BYTES_MAX: Final = 4096


def is_reference(secret: str) -> bool:
    """Whether `resolved` takes a text for the place of a secret."""
    return secret.startswith((_FILE, _ENVIRONMENT))


def resolved(secret: str) -> str:
    """The secret, or what it refers to. Raises `ConfigError`, whose text has no secret."""
    if secret.startswith(_FILE):
        path = secret.removeprefix(_FILE)
        try:
            with Path(path).open("rb") as file:
                data = file.read(_SECRET_BYTES_MAX + 1)
            found = data.decode().rstrip("\r\n")
        except OSError as error:
            raise ConfigError(f"secret in file {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"secret in file {path}: not UTF-8") from None
        if len(data) > _SECRET_BYTES_MAX:
            raise ConfigError(f"secret in file {path}: more than {_SECRET_BYTES_MAX} bytes")
    elif secret.startswith(_ENVIRONMENT):
        name = secret.removeprefix(_ENVIRONMENT)
        found = os.environ.get(name, "")
    else:
        found = secret
    if not found:
        raise ConfigError(f"secret {secret!r} is empty" if secret else "the secret is empty")
    return found


class AccessKey(msgspec.Struct, frozen=True):
    """An access key, which is the name of a user, and the secret that signs its requests."""

    access_key: str
    secret: str
    #: Sent and signed with each request, for brokers that give temporary keys.
    security_token: str = ""

    def __repr__(self) -> str:
        return f"AccessKey({self.access_key!r})"


class Login(msgspec.Struct, frozen=True):
    """The name and the password of a user."""

    name: str
    password: str
    #: Whether the password may be sent without TLS to other machines.
    allow_clear_text: bool = False

    def __repr__(self) -> str:
        return f"Login({self.name!r})"
