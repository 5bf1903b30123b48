"""TLS and the login of Spark's readers and writers, from the settings of Kafka's clients.

The names are Kafka's. Certificates are files in PEM, on every machine of the Spark cluster; Java's
key stores are refused. A password in `kafka.sasl.jaas.config` may be a reference, `file:PATH` or
`env:NAME`, which keeps it out of Spark's plans and pages. No value of these options is in an error
or a log line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from dragoman.client.kafka import SaslLogin, SaslMechanism, TlsSettings
from dragoman.errors import ConfigError

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final[dict[str, SaslMechanism]] = {
    "PLAIN": "PLAIN",
    "SCRAM-SHA-256": "SCRAM-SHA-256",
    "SCRAM-SHA-512": "SCRAM-SHA-512",
    "OAUTHBEARER": "OAUTHBEARER",
}
_TOKEN_URL: Final = "kafka.sasl.oauthbearer.token.endpoint.url"
_STORES: Final = ("kafka.ssl.truststore.type", "kafka.ssl.keystore.type")
#: A value of JAAS: a word, or text in quotes, in which a quote or a backslash may be escaped.
_JAAS: Final = r'\b%s\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))'


class Security(NamedTuple):
    tls: TlsSettings | None
    login: SaslLogin | None


def parse_security(text: Callable[[str], str]) -> Security:
    """`text` returns an option's value or its default. Raises `ConfigError`."""
    protocol = text("kafka.security.protocol").upper()
    if protocol not in _PROTOCOLS:
        expected = ", ".join(_PROTOCOLS)
        raise ConfigError(f"kafka.security.protocol: expected one of {expected}")
    tls = _tls(text) if protocol.endswith("SSL") else None
    login = _login(text) if protocol.startswith("SASL") else None
    if login is not None and tls is None:
        # The name of the protocol says that nothing is encrypted.
        login = msgspec.structs.replace(login, allow_clear_text=True)
    return Security(tls, login)


def options_of(tls: TlsSettings | None, login: SaslLogin | None) -> dict[str, str]:
    """The options that `parse_security` reads as these settings. Paths become absolute.

    The login is one with a password, which should be a reference: Spark shows options in plans.
    """
    names = ("PLAINTEXT", "SSL") if login is None else ("SASL_PLAINTEXT", "SASL_SSL")
    found = {"kafka.security.protocol": names[tls is not None]}
    if tls is not None:
        files = {
            "kafka.ssl.truststore.location": tls.ca,
            "kafka.ssl.keystore.location": tls.certificate,
            "kafka.ssl.key.location": tls.key,
        }
        # Spark's processes may have a different working directory.
        found |= {name: os.path.abspath(path) for name, path in files.items() if path}
    if login is not None:
        name, password = (
            re.sub(r'(["\\])', r"\\\1", each) for each in (login.name, login.password)
        )
        found["kafka.sasl.mechanism"] = login.mechanism
        found["kafka.sasl.jaas.config"] = f'required username="{name}" password="{password}";'
    return found


def _tls(text: Callable[[str], str]) -> TlsSettings:
    for name in _STORES:
        if text(name).upper() != "PEM":
            raise ConfigError(f"{name}: expected PEM; key stores of Java are not read")
    if text("kafka.ssl.endpoint.identification.algorithm").lower() != "https":
        raise ConfigError(
            "kafka.ssl.endpoint.identification.algorithm: expected https; without it, anyone may"
            " be the broker"
        )
    settings = TlsSettings(
        ca=text("kafka.ssl.truststore.location"),
        # As with Kafka, the certificate and its key are in one file, unless the key is named.
        certificate=text("kafka.ssl.keystore.location"),
        key=text("kafka.ssl.key.location"),
    )
    # Files that cannot be used are reported by the driver, not by each task.
    settings.context()
    return settings


def _login(text: Callable[[str], str]) -> SaslLogin:
    mechanism = _MECHANISMS.get(text("kafka.sasl.mechanism").upper())
    if mechanism is None:
        expected = ", ".join(_MECHANISMS)
        raise ConfigError(f"kafka.sasl.mechanism: expected one of {expected}")
    if mechanism == "OAUTHBEARER":
        url = text(_TOKEN_URL)
        if not url.startswith("file:///"):
            raise ConfigError(f"{_TOKEN_URL}: expected file:///PATH of a file with a token")
        return SaslLogin(mechanism=mechanism, token="file:" + url.removeprefix("file://"))
    config = text("kafka.sasl.jaas.config")
    found = [re.search(_JAAS % each, config) for each in ("username", "password")]
    if not all(found):
        raise ConfigError('kafka.sasl.jaas.config: expected username="…" and password="…"')
    name, password = (each[2] or re.sub(r"\\(.)", r"\1", each[1] or "") for each in found if each)
    return SaslLogin(mechanism=mechanism, name=name, password=password)
