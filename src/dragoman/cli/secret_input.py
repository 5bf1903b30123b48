"""Passwords and other secrets of commands: from a file, the environment, standard input, or a
terminal.

They are never arguments, which others on the machine can read. No error shows one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter

from dragoman import limits
from dragoman.cli.status import USAGE, CommandError

_STDIN: Final = "stdin"
_FORMS: Final = "file:PATH, env:NAME or stdin"
Reference: TypeAlias = Annotated[
    str,
    Parameter(
        help=f"Where the secret is: {_FORMS}. A terminal is asked otherwise.", show_default=False
    ),
]


def asked_password(user: str) -> str:
    """The password that a person types. Raises `CommandError` without a terminal."""
    if not sys.stdin.isatty():
        raise CommandError(f"--user {user} needs --password-file", USAGE)
    import getpass

    try:
        return getpass.getpass(f"Password of {user}: ")
    except EOFError:
        raise CommandError("no password was given", USAGE) from None


def secret_in(path: str) -> str:
    """The only line of a file. Raises `CommandError`."""
    try:
        with open(path, "rb") as file:
            data = file.read(limits.CLI_SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", USAGE) from None
    return _line(data, path)


def new_secret(what: str, reference: str, environment: Mapping[str, str] = os.environ) -> str:
    """`what` names the secret in questions and errors. Raises `CommandError`."""
    kind, _, place = reference.partition(":")
    if not reference:
        return _asked(what)
    if reference == _STDIN:
        return _line(sys.stdin.buffer.read(limits.CLI_SECRET_BYTES_MAX + 1), "standard input")
    if kind == "file" and place:
        return secret_in(place)
    if kind == "env" and place:
        return _line(os.fsencode(environment.get(place, "")), f"the variable {place}")
    # The text may be the secret itself: it is not repeated.
    raise CommandError(f"the {what} is no argument: give {_FORMS}", USAGE)


def _asked(what: str) -> str:
    if not sys.stdin.isatty():
        raise CommandError(f"the {what} is missing: give {_FORMS}", USAGE)
    import getpass

    try:
        text = getpass.getpass(f"New {what}: ")
        if getpass.getpass(f"New {what} again: ") != text:
            raise CommandError(f"the {what} was not repeated correctly", USAGE)
    except EOFError:
        raise CommandError(f"no {what} was given", USAGE) from None
    return text


def _line(data: bytes, place: str) -> str:
    try:
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        text = ""
    if not text or len(data) > limits.CLI_SECRET_BYTES_MAX or "\n" in text:
        raise CommandError(f"{place}: expected one line of text, the secret", USAGE)
    return text
