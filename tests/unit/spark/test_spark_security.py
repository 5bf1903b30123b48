"""Goal: Kafka's settings of logins and TLS mean what they mean there; secrets are never shown."""

from __future__ import annotations

import pickle

import pytest

from dragoman.client.kafka import SaslLogin
from dragoman.client_core.tls import TlsSettings
from dragoman.errors import ConfigError
from dragoman.spark.options import parse, parse_sink

MODULES = "org.apache.kafka.common.security"
PLAIN = f'{MODULES}.plain.PlainLoginModule required username="a" password="b";'
SCRAM = f"{MODULES}.scram.ScramLoginModule required username=a password=b ;"
BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def login_of(**settings: str) -> SaslLogin | None:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}
    sink = {key: value for key, value in (BASE | given).items() if key != "subscribe"}
    found = parse(BASE | given, "batch").security
    assert parse_sink(sink).security == found
    assert pickle.loads(pickle.dumps(found)) == found
    return found.login


def test_default_is_no_login_and_no_tls() -> None:
    found = parse(BASE, "batch").security
    assert (found.login, found.tls) == (None, None)
    assert login_of(security_protocol="plaintext") is None


@pytest.mark.parametrize(
    ("mechanism", "config"),
    [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("scram-sha-512", SCRAM)],
)
def test_login_modules_name_user_and_password(mechanism: str, config: str) -> None:
    found = login_of(
        security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=config
    )
    assert found is not None
    assert (found.mechanism, found.name, found.password) == (mechanism.upper(), "a", "b")
    assert not found.allow_clear_text


def test_quoted_values_may_have_any_character() -> None:
    config = 'x.ScramLoginModule required\n username="a \\"b\\"" password="c;=\\\\d" extra="1";'
    found = login_of(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=config
    )
    assert found is not None
    assert (found.name, found.password) == ('a "b"', "c;=\\d")


def test_token_is_in_a_file() -> None:
    found = login_of(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="file:///run/token",
    )
    assert found is not None
    assert (found.mechanism, found.token) == ("OAUTHBEARER", "file:/run/token")


def test_tls_files_are_pem() -> None:
    given = BASE | {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.keystore.location": "/me.pem",
    }
    assert parse(given, "batch").security.tls == TlsSettings(ca="/ca.pem", certificate="/me.pem")


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka.security.protocol": "SOME"},
        {"kafka.security.protocol": "SSL"},
        {"kafka.security.protocol": "PLAINTEXT"},
        {"kafka.sasl.mechanism": "GSSAPI"},
        {"kafka.sasl.mechanism": ""},
        {"kafka.sasl.jaas.config": ""},
        {"kafka.sasl.jaas.config": "hidden"},
        {"kafka.sasl.jaas.config": 'x.PlainLoginModule required username="a" password="hidden"'},
        {"kafka.sasl.jaas.config": 'x.PlainLoginModule required username="a" password="hidden;'},
        {"kafka.sasl.jaas.config": 'x.PlainLoginModule required password="hidden";'},
        {"kafka.sasl.jaas.config": 'x.PlainLoginModule required username="hidden";'},
        {"kafka.sasl.jaas.config": SCRAM},
        {"kafka.sasl.mechanism": "OAUTHBEARER"},
        {
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
        },
        {"kafka.ssl.truststore.type": "JKS"},
        {"kafka.ssl.endpoint.identification.algorithm": ""},
        {"kafka.ssl.key.password": "hidden"},
        {"kafka.sasl.login.class": "x"},
    ],
)
def test_settings_that_cannot_be_obeyed_are_refused(wrong: dict[str, str]) -> None:
    given = BASE | {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": PLAIN,
    }
    with pytest.raises(ConfigError) as caught:
        parse(given | wrong, "batch")
    assert "hidden" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    given = BASE | {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": PLAIN.replace('"b"', '"hidden"'),
    }
    assert "hidden" not in repr(parse(given, "batch"))
