"""Addresses of databases as libpq takes them, `postgresql://…` or `host=… password=…`: their
secrets, and the server that they name.

An address that cannot be parsed with certainty is hidden as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

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
