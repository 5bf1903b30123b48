"""Connections to the captured database, and explanations of its errors.

Addresses are secured first (`captures/addresses.py`). libpq's error message can quote an address
that it could not parse, including the password. So the message is shown only if the address was
parsed, and with the password removed.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, TypeAlias

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dragoman.captures.addresses import FILES, NO_FILE, hide_secrets, secured, without_secrets
from dragoman.captures.addresses import parameters as parameters_of
from dragoman.errors import CdcError, ConfigError
from dragoman.limits import CAPTURE_FILE_BYTES_MAX

Row: TypeAlias = tuple[Any, ...]
Connection: TypeAlias = psycopg.AsyncConnection[Row]
CONNECT_TIMEOUT_S = 10
#: The first release with `require_auth`.
_LIBPQ_MIN = 160_000
_SYSTEM = "system"
_GONE = re.compile(r"(publication|replication slot) \S+ does not exist")

WAL_LEVEL_REMEDY = (
    "ALTER SYSTEM SET wal_level = 'logical'; then restart PostgreSQL (on RDS: parameter"
    " rds.logical_replication = 1; Cloud SQL: flag cloudsql.logical_decoding = on)"
)
#: Part of an error text of libpq or the server → the meaning, the remedy, and whether a retry may
#: help.
_REFUSALS: tuple[tuple[str, str, str, bool], ...] = (
    (
        "authentication method requirement",
        "{host} requests the password of {user} in a way that reveals it",
        "configure scram-sha-256 there (password_encryption and pg_hba.conf), or use TLS:"
        " sslmode=verify-full in the DSN",
        False,
    ),
    (
        "password authentication failed",
        "the database refuses the password of {user}",
        "check user and password in the DSN (a password in a URL is percent-encoded)",
        False,
    ),
    (
        "no password supplied",
        "the database requests a password and the DSN has none",
        "add it to the DSN: postgresql://{user}:PASSWORD@{host}/{dbname}",
        False,
    ),
    (
        "no pg_hba.conf entry",
        "the database does not admit {user} from this machine to {dbname} or for replication",
        "add a line to pg_hba.conf: `host {dbname} {user} ADDRESS/32 scram-sha-256`, and reload",
        False,
    ),
    *(
        (sign, "the database has ended the connection", "wait until it is back", True)
        for sign in (
            "SSL connection has been closed",
            "SSL SYSCALL error",
            "unexpected eof",
            "no COPY in progress",
        )
    ),
    (
        "SSL",
        "TLS with {host} failed",
        "set sslmode (disable, require, verify-full) and sslrootcert in the DSN to match the"
        " server",
        False,
    ),
    (
        "role ",
        "the role {user} does not exist",
        "CREATE ROLE {user} LOGIN REPLICATION PASSWORD '…';",
        False,
    ),
    (
        "database ",
        "the database {dbname} does not exist at {host}",
        "name an existing one in the DSN; `psql -l` lists them",
        False,
    ),
    (
        "connection slots",
        "the database has no connection left",
        "raise max_connections, or end sessions that are not needed",
        True,
    ),
    ("too many clients", "the database has no connection left", "raise max_connections", True),
    ("starting up", "the database is starting", "wait", True),
    ("not yet accepting", "the database is starting", "wait", True),
    (
        "server closed the connection",
        "the database has ended the connection",
        "wait until it is back",
        True,
    ),
    ("shutting down", "the database is shutting down", "wait until it is back", True),
    ("resolve host", "the host {host} cannot be resolved", "check the host in the DSN", True),
    (
        "translate host name",
        "the host {host} cannot be resolved",
        "check the host in the DSN",
        True,
    ),
    ("refused", "nothing listens at {host}:{port}", "start the database, or correct the DSN", True),
    (
        "timeout",
        "{host}:{port} does not respond",
        "check the host, the port and the firewalls in between",
        True,
    ),
)
_NOT_TEXT = "22021"


class SourceError(CdcError):
    """The database refuses a request or cannot be reached. `what` describes the problem."""

    code = "cdc"

    def __init__(self, what: str, remedy: str, *, is_transient: bool = False) -> None:
        super().__init__(f"{what}: {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy
        #: Whether a later retry may succeed without an operator.
        self.is_transient = is_transient


async def connect(
    dsn: str,
    *,
    name: str,
    settings: dict[str, str] | None = None,
    autocommit: bool = True,
    parameters: dict[str, str] | None = None,
) -> Connection:
    """`settings` apply to the session, `parameters` to libpq. Raises `SourceError`."""
    given = _understood(dsn)
    given.setdefault("connect_timeout", str(CONNECT_TIMEOUT_S))
    given.setdefault("fallback_application_name", f"dragoman {name}")
    # A server that vanishes silently is detected within a minute.
    given.setdefault("keepalives_idle", "20")
    given.setdefault("keepalives_interval", "10")
    given.setdefault("keepalives_count", "3")
    # No keepalives are sent while sent data is unacknowledged.
    given.setdefault("tcp_user_timeout", "60000")
    # Overrides PGCLIENTENCODING and the encoding of the database, which may be SQL_ASCII.
    given["client_encoding"] = "UTF8"
    given |= parameters or {}
    if settings:
        own = " ".join(f"-c {key}={_option(value)}" for key, value in settings.items())
        given["options"] = f"{given.get('options') or ''} {own}".strip()
    try:
        return await psycopg.AsyncConnection.connect(
            make_conninfo("", **given), autocommit=autocommit
        )
    except psycopg.Error as error:
        raise refusal(error, dsn) from None


def _understood(dsn: str) -> dict[str, Any]:
    if pq.version() < _LIBPQ_MIN:
        raise SourceError(
            "this release of libpq cannot restrict authentication methods",
            "pip install 'psycopg[binary]', or install libpq 16 or later",
        )
    strange = SourceError(
        "the DSN is not valid",
        "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the"
        " password percent-encoded",
    )
    if parameters_of(dsn) is None:
        raise strange
    try:
        given = conninfo_to_dict(secured(dsn))
    except ConfigError as error:
        what, _, remedy = str(error).partition(": ")
        raise SourceError(what, remedy) from None
    except psycopg.Error:
        raise strange from None
    for keyword in FILES:
        named = given.get(keyword)
        if named and named not in (NO_FILE, _SYSTEM):
            _check_file(keyword, str(named))
    return given


def _check_file(keyword: str, path: str) -> None:
    """Raises `SourceError` unless the path is a regular file: a device or a pipe may be endless."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise SourceError(
            f"the DSN's {keyword} cannot be read: {error.strerror}",
            "it must be a file on the machine that runs the capture",
        ) from None
    is_folder = keyword == "sslcrldir"
    is_fit = stat.S_ISDIR(found.st_mode) if is_folder else stat.S_ISREG(found.st_mode)
    if not is_fit or (not is_folder and found.st_size > CAPTURE_FILE_BYTES_MAX):
        raise SourceError(
            f"the DSN's {keyword} is not a regular file, or is too large",
            f"name a regular file of at most {CAPTURE_FILE_BYTES_MAX} bytes",
        )


def _option(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def refusal(error: psycopg.Error, dsn: str) -> SourceError:
    """Explain an error of the database, without the secrets of the address."""
    given = parameters_of(dsn) or {}
    text = hide_secrets(" ".join(str(error).split()), dsn)
    known = {
        "user": given.get("user") or "the user",
        "host": given.get("host") or given.get("hostaddr") or "this machine",
        "port": given.get("port") or 5432,
        "dbname": given.get("dbname") or given.get("user") or "the database",
    }
    if error.sqlstate is None:  # no query was sent yet, or the connection is lost
        for sign, what, remedy, is_transient in _REFUSALS:
            if sign in text and (sign[-1] != " " or "does not exist" in text):
                return SourceError(
                    f"{what.format(**known)} ({_last_sentence(text)})",
                    remedy.format(**known),
                    is_transient=is_transient,
                )
        return SourceError(
            f"{without_secrets(dsn)} cannot be reached ({_last_sentence(text)})",
            "check the DSN and whether the database runs",
            is_transient=True,
        )
    if "wal_level" in text:
        return SourceError(f"error of the database: {text}", WAL_LEVEL_REMEDY)
    gone = _GONE.search(text)
    if gone is not None:
        return SourceError(
            f"{gone[0].replace('does not exist', 'is gone')}, and changes since then were not"
            " captured",
            "remove the capture and add it again: a new snapshot replaces the lost changes",
        )
    if error.sqlstate == _NOT_TEXT:
        return SourceError(
            f"a row has text that is not UTF-8, which only SQL_ASCII databases accept ({text})",
            "correct the text in the database, then remove the capture and add it again: a new"
            " snapshot replaces the lost changes",
        )
    # Classes of SQLSTATE: connection, rollback, resources, operator intervention, system; and the
    # codes of a slot in use and of a standby, which may be promoted.
    is_transient = error.sqlstate[:2] in {"08", "40", "53", "57", "58"} or error.sqlstate in {
        "55006",
        "25006",
    }
    remedy = "" if is_transient else "run `dragoman cdc doctor`"
    return SourceError(f"error of the database: {text}", remedy, is_transient=is_transient)


def _last_sentence(text: str) -> str:
    """The last reason in libpq's message, which lists every address that was tried."""
    for sign in ("FATAL:", "failed:", "error:"):
        before, found, after = text.rpartition(sign)
        if found and before:
            return after.strip()
    return text
