"""Named contexts: where commands connect and what they log in with, kept in a file of the user.

    current = "production"

    [context."production"]
    server = "https://broker1.example:8080"
    bootstrap = "broker1.example:9092,broker2.example:9092"
    token_file = "/home/alice/.config/dragoman/production.token"
    ca_file = "/etc/ssl/example.pem"

Values come from four layers: options, variables of the environment, a context, defaults. A context
is a whole, so that the login of one cluster is never sent to another:

- `--context NAME` is an option: the variables do not count then.
- The current context (`DRAGOMAN_CONTEXT`, else `dragoman context use`) counts only if neither an
  option nor a variable names the address.

The file has paths of secrets, never secrets. It is refused if other users may write to it, because
they could send a login elsewhere.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.cli.status import USAGE, CommandError
from dragoman.limits import CONFIG_FILE_BYTES_MAX
from dragoman.operating_system import platforms

VARIABLE: Final = "DRAGOMAN_CONTEXT"
VARIABLE_OF_FILE: Final = "DRAGOMAN_CONTEXTS"
#: Names that need no quotes in a shell.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
Address: TypeAlias = Literal["server", "bootstrap"]


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one layer says. An empty value leaves the choice to the next layer."""

    server: str = ""
    bootstrap: str = ""
    token_file: str = ""
    user: str = ""
    password_file: str = ""
    mechanism: Mechanism | Literal[""] = ""
    #: Whether connections to brokers are encrypted. URLs of servers say so themselves.
    tls: bool = False
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


#: Fields with the path of a file.
FILES: Final = ("token_file", "password_file", "ca_file", "certificate_file", "key_file")
#: Fields that the environment may give, as DRAGOMAN_ and the name in capitals.
VARIABLES: Final = ("server", "bootstrap", "token_file", "user", "password_file", "ca_file")


class Contexts(msgspec.Struct, forbid_unknown_fields=True):
    """The file."""

    current: str = ""
    context: dict[str, Context] = {}


class Layers:
    """The layers of one command, the strongest first."""

    def __init__(
        self,
        options: Context,
        *,
        address: Address,
        name: str = "",
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`name` is that of the option `--context`. Raises `CommandError`."""
        self._address = address
        self._layers = [options]
        self._context_name = name
        if not name:
            self._layers.append(_of(environment))
            if not self._first_text(address):
                self._context_name = current_name(environment)
        if self._context_name:
            self._layers.append(find(self._context_name, environment))

    def address(self, default: str) -> str:
        """Raises `CommandError` for a context without this address: the default is not meant."""
        found = self._first_text(self._address)
        if not found and self._context_name:
            raise CommandError(
                f"context {self._context_name!r} has no {self._address}",
                USAGE,
                hint=f"give --{self._address}, or `dragoman context add {self._context_name} "
                f"--{self._address} ADDRESS`",
            )
        return found or default

    @property
    def token_file(self) -> str:
        """For HTTP. The first layer with a login decides, and prefers its token to its user."""
        return next((each.token_file for each in self._layers if each.token_file or each.user), "")

    @property
    def user(self) -> str:
        return self._first_text("user")

    @property
    def password_file(self) -> str:
        return self._first_text("password_file")

    @property
    def ca_file(self) -> str:
        return self._first_text("ca_file")

    @property
    def wants_tls(self) -> bool:
        """Whether connections to brokers are encrypted. A file with authorities implies it as an
        option only: elsewhere it may be meant for https.
        """
        return any(each.tls or each.certificate_file for each in self._layers) or bool(
            self._layers[0].ca_file
        )

    @property
    def certificate(self) -> tuple[str, str]:
        """The files of a certificate and its key, from one layer."""
        for each in self._layers:
            if each.certificate_file:
                return each.certificate_file, each.key_file
        return "", ""

    @property
    def mechanism(self) -> Mechanism:
        for each in self._layers:
            if each.mechanism:
                return each.mechanism
        return "SCRAM-SHA-256"

    def _first_text(self, field: str) -> str:
        found = (getattr(each, field) for each in self._layers)
        return next((each for each in found if each), "")


def _of(environment: Mapping[str, str]) -> Context:
    given = {name: environment.get(f"DRAGOMAN_{name.upper()}", "") for name in VARIABLES}
    return msgspec.structs.replace(Context(), **given)


# ---- the file


def contexts_file(environment: Mapping[str, str] = os.environ) -> Path:
    """The file of this user, which need not exist."""
    if named := environment.get(VARIABLE_OF_FILE):
        return Path(named).absolute()
    if folder := environment.get("XDG_CONFIG_HOME"):
        return Path(folder).absolute() / "dragoman" / "contexts.toml"
    if sys.platform == "win32" and (folder := environment.get("APPDATA")):
        return Path(folder) / "dragoman" / "contexts.toml"
    # Unlike `Path.expanduser`, this does not fail for a user without a home.
    return Path(os.path.expanduser("~/.config/dragoman/contexts.toml"))


def current_name(environment: Mapping[str, str] = os.environ) -> str:
    """The name of the current context; empty if there is none. Raises `CommandError`."""
    return environment.get(VARIABLE, "") or read(contexts_file(environment)).current


def find(name: str, environment: Mapping[str, str] = os.environ) -> Context:
    """A context, with absolute paths. Raises `CommandError`."""
    path = contexts_file(environment)
    found = read(path)
    if name not in found.context:
        known = ", ".join(sorted(found.context)) or "none"
        raise CommandError(
            f"there is no context {name!r} in {path}; known: {known}",
            USAGE,
            code="unknown_context",
        )
    return with_files(found.context[name], path.parent)


def with_files(context: Context, folder: Path) -> Context:
    """The context with absolute paths; relative ones begin in the folder."""
    files = {name: getattr(context, name) for name in FILES}
    return msgspec.structs.replace(
        context,
        **{name: str(folder / os.path.expanduser(path)) for name, path in files.items() if path},
    )


def read(path: Path) -> Contexts:
    """Empty when there is no file. Raises `CommandError`."""
    try:
        with open(path, "rb", opener=platforms.never_waiting) as file:
            _check_writers(path, os.fstat(file.fileno()))
            data = file.read(CONFIG_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from None
    if len(data) > CONFIG_FILE_BYTES_MAX:
        raise _wrong(path, f"larger than {CONFIG_FILE_BYTES_MAX} bytes")
    # Imported here: most users have no such file.
    import tomllib

    try:
        found = msgspec.convert(tomllib.loads(data.decode()), Contexts)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise _wrong(path, f"not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise _wrong(path, _said(error)) from None
    for name in found.context:
        check_name(name)
    return found


def _check_writers(path: Path, found: os.stat_result) -> None:
    if sys.platform == "win32":
        return
    if not stat.S_ISREG(found.st_mode):
        raise _wrong(path, "not a regular file")
    if found.st_uid not in (os.geteuid(), 0):
        raise _wrong(path, "another user owns it")
    if found.st_mode & _OTHERS_MAY_WRITE:
        raise _wrong(path, "other users may write to it", f"chmod go-w {path}")


def _said(error: msgspec.ValidationError) -> str:
    text = str(error).replace("Object ", "").replace("object ", "").replace("`$.", "`")
    if "unknown field `password`" in text or "unknown field `token`" in text:
        text += "; secrets are in files: password_file, token_file"
    return text


def _wrong(path: Path, reason: str, hint: str = "") -> CommandError:
    return CommandError(f"{path}: {reason}", USAGE, code="contexts_file", hint=hint)


def check_name(name: str) -> None:
    """Raises `CommandError`."""
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"expected a name of 1 to 64 letters, digits, '.', '_' and '-', got {name!r}", USAGE
        )


@contextmanager
def changed(path: Path) -> Iterator[Contexts]:
    """The contents of the file, which are written when the block ends without an error. Commands at
    the same time take turns. Raises `CommandError`.
    """
    try:
        # A link to the file stays one.
        path = Path(os.path.realpath(path))
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        with platforms.turn_in(str(path.parent)):
            contexts = read(path)
            yield contexts
            write(path, contexts)
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from None


def write(path: Path, contexts: Contexts) -> None:
    """Replace the file as a whole; only this user can read it. Raises `CommandError`."""
    # Imported here: only commands that change the file write it.
    import tempfile

    try:
        # A temporary file has mode 0600 from the beginning.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write("\n".join(_toml(contexts)) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from None


def _toml(contexts: Contexts) -> Iterable[str]:
    from dragoman.config.reference import toml_value

    yield "# Contexts of the command `dragoman`, written by `dragoman context`."
    if contexts.current:
        yield f"current = {toml_value(contexts.current)}"
    for name in sorted(contexts.context):
        yield ""
        yield f"[context.{toml_value(name)}]"
        for field, value in msgspec.structs.asdict(contexts.context[name]).items():
            if value:
                yield f"{field} = {toml_value(value)}"
