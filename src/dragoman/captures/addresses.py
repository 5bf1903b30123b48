"""Addresses of databases in the forms of libpq, `postgresql://…` or `host=… password=…`: their
secrets, their server, and the policy for addresses that clients send to a node.

An address that cannot be parsed with certainty is hidden as a whole.

A node has secrets of its own: password files, service files, certificates, an environment. libpq
would complete an address from them, and send a password in clear text to any server that requests
it. A secured address

    uses nothing of the node that it does not name,
    leads to the host that it names,
    reveals a password only by SCRAM, or over TLS or a local socket,
    names only hosts that the operator of the node allows.

Whether it may name what belongs to the node (`borrowed`) is a question of rights: see `rights.py`.

The address that is checked is the address that is used: it is composed from the parsed values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dragoman.errors import ConfigError
from dragoman.security.secrets import is_reference

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
#: An address, or a part of one, as a value. In `user= password=…`, where the user is missing, libpq
#: parses the rest as the user.
_NESTED = re.compile(rf"(?:^|[\s'\"?&])(?:{'|'.join(sorted(_SECRETS))})\s*=|://\S*@")
#: Shorter secrets are not hidden, because they occur in any text.
_WORD_MIN = 3
_PORT = "5432"


def without_secrets(dsn: str) -> str:
    """The address with its secrets hidden."""
    found = parameters(dsn)
    if found is None:
        return _HIDDEN
    shown = {key: _HIDDEN if _is_hidden(key, value) else value for key, value in found.items()}
    return compose(shown)


def _is_hidden(key: str, value: str) -> bool:
    # A reference to a secret is none.
    return (key in _SECRETS and not is_reference(value)) or has_nested(value)


def has_secret(dsn: str) -> bool:
    """Whether the address itself has a secret, and not only the name of a file or variable."""
    found = parameters(dsn)
    return found is None or any(
        _is_hidden(key, value) and key != "passfile" for key, value in found.items()
    )


def resolved(dsn: str, resolve: Callable[[str], str]) -> str:
    """The address with `file:` and `env:` references in place of secrets replaced by the secrets
    of this node, for immediate use. `resolve` may raise `SecretError`.

    Secure the address before: which methods may use the secret depends on where it is from.
    """
    found = parameters(dsn)
    if found is None or not any(is_reference(found[key]) for key in found if key in _SECRETS):
        return dsn
    return compose(
        {key: resolve(value) if key in _SECRETS else value for key, value in found.items()}
    )


def misplaced(found: Mapping[str, str]) -> str | None:
    """The first keyword whose value contains the secret of another keyword, or None."""
    return next((key for key in found if key not in _SECRETS and has_nested(found[key])), None)


def has_nested(value: str) -> bool:
    """Whether a value contains a secret in the form of an address."""
    return _NESTED.search(value) is not None


def compose(parameters: Mapping[str, str]) -> str:
    """The address as `keyword=value …`."""
    return " ".join(f"{key}={_quoted(value)}" for key, value in parameters.items())


def hide_secrets(text: str, dsn: str) -> str:
    """Hide the address and its secrets in a text, such as an error of the driver."""
    from urllib.parse import quote

    words = {dsn}
    for key, value in (parameters(dsn) or {}).items():
        if is_reference(value) and not has_nested(value):
            continue
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
    """Host and port, or lists of them; None if the address does not determine them."""
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
    # Imported here, and below: few nodes have captures.
    from urllib.parse import unquote

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
        # The @ may belong to a password with characters that should have been escaped.
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
#: Values of these keywords that name no file of the node's operator.
_NOT_OF_NODE = {"passfile": NO_FILE, "sslrootcert": "system"}
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
    "hostaddr": "it overrides the host; give the address as host",
    "service": "it refers to a file of the node; give the parameters of the service instead",
    "servicefile": "it names a file of the node; give the parameters of the service instead",
    "sslkeylogfile": "it makes the node write its TLS keys to a file",
    "gssdelegation": "it delegates the node's own credentials",
    "replication": "captures set it themselves",
}
_TLS_MODES = frozenset(("require", "verify-ca", "verify-full"))
#: Methods that reveal no secret to the server. With `none` the server requests no password, because
#: it trusts the client or checks a certificate.
_SECRET_METHODS = ("scram-sha-256", "none")
_OPEN_METHODS = ("password", "md5")
#: Methods that use tickets of the node, so an address has to name them.
_TICKET_METHODS = ("gss", "sspi")
_METHODS = (*_OPEN_METHODS, *_SECRET_METHODS, *_TICKET_METHODS)


def secured(dsn: str, may_reach: Callable[[str], bool] | None = None) -> str:
    """The address to connect with, as `keyword=value …`. Securing it again does not change it.

    `may_reach` says whether a host, or the directory of a socket, is allowed. Raises `ConfigError`
    with a text without secrets.
    """
    given = parameters(dsn)
    if given is None:
        raise ConfigError(
            "the DSN is ambiguous: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with"
            " special characters of the password percent-encoded"
        )
    if any("\0" in each for pair in given.items() for each in pair):
        # libpq would stop at the zero byte and ignore the parameters that are added here.
        raise ConfigError("the DSN has a zero byte")
    for keyword in given:
        if keyword not in _TAKEN:
            why = _REFUSED.get(keyword, "captures do not support this parameter")
            raise ConfigError(f"the DSN has {keyword!r}: {why}")
    wrong = misplaced(given)
    if wrong is not None:
        raise ConfigError(
            f"the DSN's {wrong} seems to contain a password: is a value missing before it?"
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
            raise ConfigError(
                "the DSN names no host: give one of capture.allowed.hosts of the node"
            )
        if not may_reach(host):
            raise ConfigError(
                f"databases at {host} may not be captured: capture.allowed.hosts of the node does"
                " not include it"
            )


def _check_files(given: dict[str, str]) -> None:
    for keyword in FILES:
        named = given.get(keyword)
        is_system = keyword == "sslrootcert" and named == "system"
        # A relative path depends on the working directory, and `engine:key` loads a library.
        if named is not None and not is_system and not named.startswith("/"):
            raise ConfigError(f"the DSN's {keyword} has to be the absolute path of a file")
    if ("sslcert" in given) != ("sslkey" in given):
        raise ConfigError("the DSN has to name both sslcert and sslkey, or neither")
    if "sslcert" not in given and given.get("sslcertmode") == "require":
        raise ConfigError("the DSN requires a certificate: name sslcert and sslkey")


def _usual(*, is_sealed: bool) -> tuple[str, ...]:
    return (*_OPEN_METHODS, *_SECRET_METHODS) if is_sealed else _SECRET_METHODS


def _methods(given: dict[str, str], *, is_local: bool) -> str:
    """The value of `require_auth` for libpq."""
    is_sealed = given.get("sslmode") in _TLS_MODES or is_local
    # A password that the node has, and not the sender of the address, is never sent in clear text,
    # not even over TLS: the server might be the sender's.
    is_own = given.get("passfile", NO_FILE) == NO_FILE and not is_reference(
        given.get("password", "")
    )
    usual = _usual(is_sealed=is_sealed and is_own)
    if not given.get("require_auth"):
        return ",".join(usual)
    wanted = _named_methods(given["require_auth"])
    refused = [each for each in wanted if each not in (*usual, *_TICKET_METHODS)]
    if refused:
        named = ", ".join(each if each in _METHODS else "an unknown method" for each in refused)
        raise ConfigError(
            f"the DSN's require_auth has {named}: use scram-sha-256, or TLS (sslmode=verify-full)"
            " with a password in the DSN"
        )
    return ",".join(wanted)


def _named_methods(text: str) -> list[str]:
    """The methods of `require_auth`, also of a list of what it excludes."""
    wanted = [each.strip() for each in text.split(",")]
    if any(each.startswith("!") for each in wanted):
        return [each for each in _METHODS if f"!{each}" not in wanted]
    return wanted


def borrowed(dsn: str) -> str:
    """The first keyword by which the address uses a file, a variable or a Kerberos ticket of the
    node, or an empty text. The same for an address that was secured.
    """
    given = parameters(dsn)
    if given is None:
        return "address"
    for keyword, value in given.items():
        is_file = keyword in FILES and value != _NOT_OF_NODE.get(keyword)
        if is_file or (keyword in _SECRETS and is_reference(value)):
            return keyword
    if given.get("gssencmode", "disable") != "disable":
        return "gssencmode"
    methods = _named_methods(given.get("require_auth", ""))
    return "require_auth" if set(_TICKET_METHODS) & set(methods) else ""


def with_methods(dsn: str, environment: Mapping[str, str]) -> str:
    """An operator's address, which may use the files and variables of libpq, with `require_auth`
    added unless it is set.
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
