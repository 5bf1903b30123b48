"""Addresses of databases as libpq takes them, `postgresql://…` or `host=… password=…`: their
secrets, the server that they name, and the policy for those that clients give to a node.

An address that cannot be parsed with certainty is hidden as a whole.

A node has secrets of its own: password files, service files, certificates, an environment. libpq
would take from them whatever an address leaves out, and send a password in clear text to any server
that asks. A secured address

    uses nothing of the node that it does not name,
    leads to the host that it names,
    reveals a password only by SCRAM, or over TLS or a local socket,
    names only hosts that the operator of the node allows.

The address that is checked is the address that is used: it is composed anew from the parsed values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote

from dragoman.errors import ConfigError

_HIDDEN = "********"
_SECRETS = frozenset(
    {
        "oauth_client_secret",
        "passfile",
        "password",
        "scram_client_key",
        "scram_server_key",
        "sslpassword",
    }
)
_SCHEMES = ("postgresql://", "postgres://")
_PAIR = re.compile(
    r"\s*(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)(?:[^\s\\]|\\.)*|(?=\s|\Z))\s*",
    # As in libpq, only ASCII spaces separate the pairs.
    re.DOTALL | re.ASCII,
)
#: An address, or a part of one, in the place of a value: libpq takes the rest of `user=
#: password=…`, where the user is missing, for the user.
_NESTED = re.compile(rf"(?:^|[\s'\"?&])(?:{'|'.join(sorted(_SECRETS))})\s*=|://\S*@")
#: Shorter words occur in any text.
_WORD_MIN = 3
_PORT = "5432"


def without_secrets(dsn: str) -> str:
    """The address with secrets hidden."""
    found = parameters(dsn)
    if found is None:
        return _HIDDEN
    shown = {
        key: _HIDDEN if key in _SECRETS or has_nested(value) else value
        for key, value in found.items()
    }
    return compose(shown)


def misplaced(found: Mapping[str, str]) -> str | None:
    """The first keyword whose value contains the secret of another keyword; None: there is none."""
    return next((key for key in found if key not in _SECRETS and has_nested(found[key])), None)


def has_nested(value: str) -> bool:
    """Whether a value contains a secret in the form of an address."""
    return _NESTED.search(value) is not None


def compose(parameters: Mapping[str, str]) -> str:
    """The address as `keyword=value …`."""
    return " ".join(f"{key}={_quoted(value)}" for key, value in parameters.items())


def hide_secrets(text: str, dsn: str) -> str:
    """Hide the address and its secrets in a text, such as an error of the driver."""
    words = {dsn}
    for key, value in (parameters(dsn) or {}).items():
        is_nested = has_nested(value)
        inner = parameters(value) or {} if is_nested else {}
        secret = [inner[each] for each in inner if each in _SECRETS]
        if key in _SECRETS or is_nested:
            secret.append(value)
        for each in secret:
            words |= {each, quote(each), quote(each, safe=""), _quoted(each)}
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= _WORD_MIN:
            text = text.replace(word, _HIDDEN)
    return text


def server_of(dsn: str) -> tuple[str, str] | None:
    """Host and port, or lists of them; None if they are not known."""
    found = parameters(dsn)
    if found is None or "service" in found:
        return None
    return found.get("hostaddr") or found.get("host", ""), found.get("port") or _PORT


def parameters(dsn: str) -> dict[str, str] | None:
    """The values by keyword; None for an address that libpq may parse differently."""
    scheme = next((each for each in _SCHEMES if dsn.startswith(each)), None)
    if scheme is not None:
        return _of_uri(dsn.removeprefix(scheme))
    found: dict[str, str] = {}
    at = 0
    while at < len(dsn):
        pair = _PAIR.match(dsn, at)
        if pair is None:
            return None
        key, value = pair.groups()
        inner = value[1:-1] if value.startswith("'") else value
        found[key] = re.sub(r"\\(.)", r"\1", inner, flags=re.DOTALL)
        at = pair.end()
    return found


def _of_uri(rest: str) -> dict[str, str] | None:
    """`[user[:password]@][host[:port],…][/database][?key=value&…]`"""
    found: dict[str, str] = {}
    # As in libpq, the user ends at the first @ before any slash.
    user = re.match(r"([^@/]*)@", rest)
    if user is not None:
        name, colon, password = user[1].partition(":")
        found["user"] = unquote(name)
        if colon:
            found["password"] = unquote(password)
        rest = rest[user.end() :]
    if "@" in rest.partition("?")[0]:
        # Possibly of a password with characters that should have been escaped.
        return None
    where, _, query = rest.partition("?")
    netloc, slash, database = where.partition("/")
    places = [re.fullmatch(r"(\[[^]]*\]|[^:]*)(?::(\d*))?", each) for each in netloc.split(",")]
    if not all(places):
        return None
    if netloc:
        found["host"] = ",".join(unquote(each[1].strip("[]")) for each in places if each)
        found["port"] = ",".join(each[2] or _PORT for each in places if each)
    if slash and database:
        found["dbname"] = unquote(database)
    for pair in query.split("&") if query else ():
        key, equals, value = pair.partition("=")
        if not equals or "=" in value:
            return None
        # A + is literal here, unlike in forms. `ssl=true` is the spelling of the Java driver.
        key, value = unquote(key), unquote(value)
        if (key, value) == ("ssl", "true"):
            key, value = "sslmode", "require"
        found[key] = value
    return found


def _quoted(value: str) -> str:
    if value and not re.search(r"[\s'\\]", value):
        return value
    return "'" + re.sub(r"(['\\])", r"\\\1", value) + "'"


# ---- the policy for addresses that clients give to a node


#: A path that never exists; libpq looks for `~/.pgpass` when none is named.
NO_FILE = "/dev/null/none"
#: Keywords that name files of the node.
FILES = ("passfile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir")
_TAKEN = frozenset(
    (
        *("host", "port", "dbname", "user", "password", "options", "client_encoding"),
        *("application_name", "fallback_application_name", "connect_timeout", "tcp_user_timeout"),
        *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
        *("target_session_attrs", "load_balance_hosts", "channel_binding", "require_auth"),
        *("requirepeer", "min_protocol_version", "max_protocol_version"),
        *("sslmode", "sslnegotiation", "sslcompression", "sslcertmode", "sslpassword", "sslsni"),
        *("ssl_min_protocol_version", "ssl_max_protocol_version", "gssencmode", "krbsrvname"),
        *("scram_client_key", "scram_server_key"),
        *FILES,
    )
)
_REFUSED = {
    "hostaddr": "it leads elsewhere than the host says; write the address as host",
    "service": "it stands in files of the node; write out what it stands for",
    "servicefile": "it names a file of the node; write out what it stands for",
    "sslkeylogfile": "it makes the node write its TLS keys to a file",
    "gssdelegation": "it hands the node's own credentials on",
    "replication": "captures set it themselves",
}
_TLS_MODES = frozenset(("require", "verify-ca", "verify-full"))
#: Methods that reveal nothing to the server; `none` is a server that asks for nothing, such as one
#: that trusts the client or checks a certificate.
_SECRET_METHODS = ("scram-sha-256", "none")
_OPEN_METHODS = ("password", "md5")
#: These use tickets of the node, and so only an address that names them gets them.
_TICKET_METHODS = ("gss", "sspi")
_METHODS = (*_OPEN_METHODS, *_SECRET_METHODS, *_TICKET_METHODS)


def capture_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that captures: without the variables of libpq, such as
    PGPASSWORD and PGHOSTADDR, and without the address for the command line, which may be in the
    shell that started the node.
    """
    return {
        name: text
        for name, text in environment.items()
        if not name.startswith("PG") and name != "DRAGOMAN_CDC_DSN"
    }


def secured(dsn: str, may_reach: Callable[[str], bool] | None = None) -> str:
    """The address as it is to be used, `keyword=value …`. Securing it again does not change it.

    `may_reach` says whether a host, or the directory of a socket, is allowed. Raises `ConfigError`
    with a text without secrets.
    """
    given = parameters(dsn)
    if given is None:
        raise ConfigError(
            "the DSN cannot be read for sure: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE,"
            " with special characters of the password percent-encoded"
        )
    if any("\0" in each for pair in given.items() for each in pair):
        # libpq would stop there and miss what is added here.
        raise ConfigError("the DSN has a zero byte")
    for keyword in given:
        if keyword not in _TAKEN:
            why = _REFUSED.get(keyword, "it is no parameter that captures take")
            raise ConfigError(f"the DSN has {keyword!r}: {why}")
    wrong = misplaced(given)
    if wrong is not None:
        raise ConfigError(
            f"the DSN's {wrong} holds what looks like a password: is a value missing before it?"
        )
    hosts = given.get("host", "").split(",")
    _check_hosts(hosts, may_reach)
    _check_files(given)
    is_local = all(each.startswith(("/", "@")) or not each for each in hosts)
    used = dict(given)
    used["require_auth"] = _methods(given, is_local=is_local)
    used.setdefault("passfile", NO_FILE)
    if "sslcert" not in given:
        # Otherwise the node's own certificate, `~/.postgresql/postgresql.crt`, would be sent.
        used["sslcertmode"] = "disable"
    used.setdefault("gssencmode", "disable")
    return compose(used)


def _check_hosts(hosts: list[str], may_reach: Callable[[str], bool] | None) -> None:
    if may_reach is None:
        return
    for host in hosts:
        if not host:
            raise ConfigError("the DSN names no host, and only some may be captured from here")
        if not may_reach(host):
            raise ConfigError(
                f"databases at {host} may not be captured from here: capture.allowed.hosts of the"
                " node names those that may"
            )


def _check_files(given: dict[str, str]) -> None:
    for keyword in FILES:
        named = given.get(keyword)
        is_system = keyword == "sslrootcert" and named == "system"
        # A relative path depends on the working directory, and `engine:key` loads a library.
        if named is not None and not is_system and not named.startswith("/"):
            raise ConfigError(f"the DSN's {keyword} has to be the whole path of a file")
    if ("sslcert" in given) != ("sslkey" in given):
        raise ConfigError("the DSN has to name both sslcert and sslkey, or neither")
    if "sslcert" not in given and given.get("sslcertmode") == "require":
        raise ConfigError("the DSN requires a certificate: name sslcert and sslkey")


def _usual(*, is_sealed: bool) -> tuple[str, ...]:
    return (*_OPEN_METHODS, *_SECRET_METHODS) if is_sealed else _SECRET_METHODS


def _methods(given: dict[str, str], *, is_local: bool) -> str:
    """The value of `require_auth` for libpq."""
    is_sealed = given.get("sslmode") in _TLS_MODES or is_local
    # No server, not even one with a certificate, gets a password of the node's file in clear text.
    is_own = given.get("passfile", NO_FILE) == NO_FILE
    usual = _usual(is_sealed=is_sealed and is_own)
    if not given.get("require_auth"):
        return ",".join(usual)
    asked = [each.strip() for each in given["require_auth"].split(",")]
    if any(each.startswith("!") for each in asked):
        asked = [each for each in _METHODS if f"!{each}" not in asked]
    refused = [each for each in asked if each not in (*usual, *_TICKET_METHODS)]
    if refused:
        named = ", ".join(each if each in _METHODS else "an unknown method" for each in refused)
        raise ConfigError(
            f"the DSN's require_auth has {named}: passwords are given away"
            " by scram-sha-256, or over TLS (sslmode=verify-full) with a password that the DSN has"
            " itself"
        )
    return ",".join(asked)


def with_methods(dsn: str, environment: Mapping[str, str]) -> str:
    """An address of an operator, which may use the files and variables of libpq. Only
    `require_auth` is added, unless the address has it.
    """
    given = parameters(dsn)
    keeps = given is None or "require_auth" in given or "PGREQUIREAUTH" in environment
    if given is None or keeps or "service" in given or "PGSERVICE" in environment:
        return dsn
    host = given.get("host") or given.get("hostaddr")
    host = host or environment.get("PGHOST") or environment.get("PGHOSTADDR") or ""
    mode = given.get("sslmode") or environment.get("PGSSLMODE", "")
    is_local = all(each.startswith(("/", "@")) or not each for each in host.split(","))
    is_sealed = mode in _TLS_MODES or is_local
    return compose(given | {"require_auth": ",".join(_usual(is_sealed=is_sealed))})
