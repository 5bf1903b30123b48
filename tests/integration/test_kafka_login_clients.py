"""Goal: stock clients log in by every mechanism, and report what was refused in their own words.

    client            wrong password, unknown user, expired or forged token       no right
    confluent-kafka   _AUTHENTICATION                                             29
    kafka-python      KafkaTimeoutError; its log: SaslAuthenticationFailedError   see below
    aiokafka          KafkaConnectionError; its log: SaslAuthenticationFailed     see below

The last two raise `TopicAuthorizationFailedError` for a right that is missing.

Method: each client produces one record, with the credentials of the case, to a broker on loopback.
The first attempt that the broker refuses is the result: these clients try again until a time-out.
"""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Iterator
from typing import Final

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaError, Producer

from dragoman.testing import EphemeralBroker
from worlds.tokens import jwk, key_set, rsa_key, token

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAIT_S: Final = 30
FOREVER: Final = 4_000_000_000
GOOD, WRONG, UNKNOWN, POOR = (
    ("alice", "secret"),
    ("alice", "wrong"),
    ("nobody", "secret"),
    ("carol", "secret"),
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set(jwk(rsa_key(), "1")))
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "super.users": "User:alice",
    }
    users = {"alice": "secret", "carol": "secret"}
    with EphemeralBroker(settings=settings, users=users, listeners=("kafka",)) as broker:
        yield broker.bootstrap_servers


def bearer(case: str) -> str:
    match case:
        case "expired":
            return token(rsa_key(), sub="alice", exp=int(time.time()) - 600)
        case "forged":
            return token(rsa_key(1), sub="alice", exp=FOREVER)
        case name:
            return token(rsa_key(), sub=name, exp=FOREVER)


TOKENS: Final = {
    "alice": "",
    "carol": "no right",
    "expired": "refused",
    "forged": "refused",
}
LOGINS: Final = {GOOD: "", WRONG: "refused", UNKNOWN: "refused", POOR: "no right"}
CASES: Final = [
    *((mechanism, login, result) for mechanism in PASSWORDS for login, result in LOGINS.items()),
    *(("OAUTHBEARER", (name, ""), result) for name, result in TOKENS.items()),
]


# ---- confluent-kafka


def confluent(address: str, mechanism: str, name: str, password: str) -> str:
    errors: list[KafkaError] = []
    settings: dict[str, object] = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "error_cb": errors.append,
        "message.timeout.ms": WAIT_S * 1000,
    }
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (bearer(name), float(FOREVER))
    else:
        settings |= {"sasl.username": name, "sasl.password": password}
    delivered: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce("t", b"v", on_delivery=lambda error, _: delivered.append(error))
    until = time.monotonic() + WAIT_S
    while not delivered and time.monotonic() < until:
        producer.poll(0.05)
        if any(each.code() == KafkaError._AUTHENTICATION for each in errors):
            producer.purge()
            producer.flush(5)
            return "_AUTHENTICATION"
    (error,) = delivered
    if error is None:
        return ""
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    return "29"


@pytest.mark.parametrize(("mechanism", "login", "result"), CASES)
def test_confluent_kafka(address: str, mechanism: str, login: tuple[str, str], result: str) -> None:
    words = {"refused": "_AUTHENTICATION", "no right": "29"}
    assert confluent(address, mechanism, *login) == words.get(result, "")


# ---- kafka-python


class PythonToken(PythonTokenProvider):
    def __init__(self, case: str) -> None:
        self.case = case

    def token(self) -> str:
        return bearer(self.case)


def kafka_python(address: str, mechanism: str, name: str, password: str, patience_ms: int) -> str:
    with warnings.catch_warnings():
        # It leaves sockets behind when it cannot log in.
        warnings.simplefilter("ignore", ResourceWarning)
        found = _kafka_python(address, mechanism, name, password, patience_ms)
        gc.collect()
    return found


def _kafka_python(address: str, mechanism: str, name: str, password: str, patience_ms: int) -> str:
    is_token = mechanism == "OAUTHBEARER"
    try:
        producer = KafkaProducer(
            bootstrap_servers=address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=None if is_token else name,
            sasl_plain_password=None if is_token else password,
            sasl_oauth_token_provider=PythonToken(name) if is_token else None,
            bootstrap_timeout_ms=patience_ms,
        )
    except Exception as error:  # noqa: BLE001 - its class is the result
        return type(error).__name__
    try:
        producer.send("t", b"v").get(WAIT_S)
    except Exception as error:  # noqa: BLE001 - its class is the result
        return type(error).__name__
    finally:
        producer.close(timeout=5)
    return ""


@pytest.mark.parametrize(("mechanism", "login", "result"), CASES)
def test_kafka_python(
    address: str,
    mechanism: str,
    login: tuple[str, str],
    result: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = {"refused": "KafkaTimeoutError", "no right": "TopicAuthorizationFailedError"}
    is_refused = result == "refused"
    # A client that is refused tries again until its time is over.
    patience_ms = 2000 if is_refused else WAIT_S * 1000
    assert kafka_python(address, mechanism, *login, patience_ms) == words.get(result, "")
    assert ("SaslAuthenticationFailedError" in caplog.text) == is_refused
    assert ("[Error 58] SaslAuthenticationFailedError" in caplog.text) == (result == "refused")


# ---- aiokafka


class AioToken(AbstractTokenProvider):
    def __init__(self, case: str) -> None:
        self.case = case

    async def token(self) -> str:
        return bearer(self.case)


async def aio(address: str, mechanism: str, name: str, password: str) -> str:
    is_token = mechanism == "OAUTHBEARER"
    producer = AIOKafkaProducer(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=None if is_token else name,
        sasl_plain_password=None if is_token else password,
        sasl_oauth_token_provider=AioToken(name) if is_token else None,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            await producer.start()
            await producer.send_and_wait("t", b"v")
    except Exception as error:  # noqa: BLE001 - its class is the result
        return type(error).__name__
    finally:
        await producer.stop()
    return ""


@pytest.mark.parametrize(("mechanism", "login", "result"), CASES)
async def test_aiokafka(
    address: str,
    mechanism: str,
    login: tuple[str, str],
    result: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = {"refused": "KafkaConnectionError", "no right": "TopicAuthorizationFailedError"}
    assert await aio(address, mechanism, *login) == words.get(result, "")
    # It takes the challenge of a refused token for a success; the next request ends the connection.
    is_said = result == "refused" and mechanism != "OAUTHBEARER"
    assert ("[Error 58] SaslAuthenticationFailed" in caplog.text) == is_said
