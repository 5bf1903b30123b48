"""How readers and writers log in, and which certificates they trust, by Kafka's settings.

`kafka.sasl.jaas.config` names a user and a password as Kafka's login modules do. A password may be
`file:PATH` or `env:NAME`, which every executor resolves for itself. Key stores and trust stores are
PEM files. No value of these settings appears in an error, a plan or a `repr`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec

from dragoman.client.kafka import SaslLogin, SaslMechanism
from dragoman.client_core.tls import TlsSettings
from dragoman.errors import ConfigError

PROTOCOL: Final = "kafka.security.protocol"
MECHANISM: Final = "kafka.sasl.mechanism"
JAAS: Final = "kafka.sasl.jaas.config"
TOKEN_URL: Final = "kafka.sasl.oauthbearer.token.endpoint.url"
TRUST_STORE: Final = "kafka.ssl.truststore.location"
TRUST_STORE_TYPE: Final = "kafka.ssl.truststore.type"
KEY_STORE: Final = "kafka.ssl.keystore.location"
KEY_STORE_TYPE: Final = "kafka.ssl.keystore.type"
IDENTIFICATION: Final = "kafka.ssl.endpoint.identification.algorithm"
#: The settings, which are options of the source and of the sink, with defaults and meanings.
SETTINGS: Final = (
    (PROTOCOL, "PLAINTEXT", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`"),
    (MECHANISM, "", "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`"),
    (
        JAAS,
        "",
        'a login module with `username="..."` and `password="..."`; a password may be `file:PATH`'
        " or `env:NAME`, read by every executor",
    ),
    (TOKEN_URL, "", "for `OAUTHBEARER`: `file:///PATH` of a token, read by every executor"),
    (TRUST_STORE, "", "PEM file with the authorities of brokers; by default those of the machine"),
    (TRUST_STORE_TYPE, "PEM", "`PEM`; Java's own formats cannot be read"),
    (KEY_STORE, "", "PEM file with a client certificate and its key"),
    (KEY_STORE_TYPE, "PEM", "`PEM`"),
    (IDENTIFICATION, "https", "`https`: the broker's certificate has to name its host"),
)
_MECHANISMS: Final[dict[str, SaslMechanism]] = {
    "PLAIN": "PLAIN",
    "SCRAM-SHA-256": "SCRAM-SHA-256",
    "SCRAM-SHA-512": "SCRAM-SHA-512",
    "OAUTHBEARER": "OAUTHBEARER",
}
_MODULES: Final = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": tuple(_MECHANISMS)[1:3]}
_CONFIG: Final = re.compile(
    r"\s*(?:[\w$]+\.)*(?P<module>\w+)\s+(?:required|requisite|sufficient|optional)"
    r"(?P<options>(?:\s+\w+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\s\";]+))*)\s*;\s*",
    re.DOTALL,
)
_OPTION: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\";]+))", re.DOTALL)


class ClientSecurity(msgspec.Struct, frozen=True, kw_only=True):
    login: SaslLogin | None = None
    tls: TlsSettings | None = None


def parse_security(text: Callable[[str], str]) -> ClientSecurity:
    """`text` gives the value of a setting. Raises `ConfigError`, which shows no secret."""
    protocol = text(PROTOCOL).upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ConfigError(
            f"{PROTOCOL}: expected PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, got {protocol!r}"
        )
    tls = _tls(text) if protocol.endswith("SSL") else None
    login = _login(text) if protocol.startswith("SASL") else None
    if login is None and (text(MECHANISM) or text(JAAS)):
        raise ConfigError(f"{MECHANISM} and {JAAS} need {PROTOCOL} SASL_PLAINTEXT or SASL_SSL")
    if tls is None and (text(TRUST_STORE) or text(KEY_STORE)):
        raise ConfigError(f"{TRUST_STORE} and {KEY_STORE} need {PROTOCOL} SSL or SASL_SSL")
    if login is not None and tls is None:
        # The protocol's name says that nothing is encrypted.
        login = msgspec.structs.replace(login, allow_clear_text=True)
    return ClientSecurity(login=login, tls=tls)


def _tls(text: Callable[[str], str]) -> TlsSettings:
    for name in (TRUST_STORE_TYPE, KEY_STORE_TYPE):
        if text(name).upper() != "PEM":
            raise ConfigError(f"{name}: expected PEM, got {text(name)!r}")
    if text(IDENTIFICATION).lower() != "https":
        raise ConfigError(f"{IDENTIFICATION}: expected https, got {text(IDENTIFICATION)!r}")
    return TlsSettings(ca=text(TRUST_STORE), certificate=text(KEY_STORE))


def _login(text: Callable[[str], str]) -> SaslLogin:
    mechanism = _MECHANISMS.get(text(MECHANISM).upper())
    if mechanism is None:
        expected = ", ".join(_MECHANISMS)
        raise ConfigError(f"{MECHANISM}: expected one of {expected}, got {text(MECHANISM)!r}")
    if mechanism == "OAUTHBEARER":
        url = text(TOKEN_URL)
        if not url.startswith("file:///"):
            raise ConfigError(f"{TOKEN_URL}: expected file:///PATH of a file with a token")
        return SaslLogin(mechanism=mechanism, token="file:" + url.removeprefix("file://"))
    name, password = _credentials(mechanism, text(JAAS))
    return SaslLogin(mechanism=mechanism, name=name, password=password)


def _credentials(mechanism: str, config: str) -> tuple[str, str]:
    found = _CONFIG.fullmatch(config)
    if found is None:
        _refuse("it is not MODULE required NAME=VALUE ... ;")
    if mechanism not in _MODULES.get(found["module"], ()):
        _refuse(f"its module is not one for {mechanism}")
    options = {
        key: bare or re.sub(r"\\(.)", r"\1", quoted)
        for key, quoted, bare in _OPTION.findall(found["options"])
    }
    name, password = options.get("username", ""), options.get("password", "")
    if not name or not password:
        _refuse("it lacks username or password")
    return name, password


def _refuse(why: str) -> NoReturn:
    raise ConfigError(f"{JAAS}: {why} (the value is not shown)")
