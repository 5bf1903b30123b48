"""Addresses of databases as libpq takes them, `postgresql://…` or `host=… password=…`: what in them
is secret, and which server they lead to.

What cannot be read for sure is hidden altogether.
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
    # As libpq reads it: only spaces of ASCII part the pairs.
    re.DOTALL | re.ASCII,
)
#: An address, or a part of one, in the place of a value. After `user= password=…`, with nothing for
#: the user, libpq takes all that follows for it.
_NESTED = re.compile(rf"(?:^|[\s'\"?&])(?:{'|'.join(sorted(_SECRETS))})\s*=|://\S*@")
#: Shorter words would be found in any text.
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
    """The keyword, if there is one, whose value holds a secret that belongs to another."""
    return next((key for key in found if key not in _SECRETS and has_nested(found[key])), None)


def has_nested(value: str) -> bool:
    """Whether a value holds a secret as addresses do."""
    return _NESTED.search(value) is not None


def compose(parameters: Mapping[str, str]) -> str:
    """`keyword=value …`, as libpq takes it."""
    return " ".join(f"{key}={_quoted(value)}" for key, value in parameters.items())


def hide_secrets(text: str, dsn: str) -> str:
    """A text, such as an error of the driver, in which the address may be found, or its parts."""
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
    """Host and port, or lists of them; None: not known."""
    found = parameters(dsn)
    if found is None or "service" in found:
        return None
    return found.get("hostaddr") or found.get("host", ""), found.get("port") or _PORT


def parameters(dsn: str) -> dict[str, str] | None:
    """By keyword; None for what libpq might read otherwise than it is read here."""
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
    # As libpq does: the user ends at the first @ that comes before any slash.
    user = re.match(r"([^@/]*)@", rest)
    if user is not None:
        name, colon, password = user[1].partition(":")
        found["user"] = unquote(name)
        if colon:
            found["password"] = unquote(password)
        rest = rest[user.end() :]
    if "@" in rest.partition("?")[0]:
        # Perhaps of a password with characters in it that should have been escaped.
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
        # A + is itself here, unlike in forms; `ssl=true` is how Java's driver says it.
        key, value = unquote(key), unquote(value)
        if (key, value) == ("ssl", "true"):
            key, value = "sslmode", "require"
        found[key] = value
    return found


def _quoted(value: str) -> str:
    if value and not re.search(r"[\s'\\]", value):
        return value
    return "'" + re.sub(r"(['\\])", r"\\\1", value) + "'"
