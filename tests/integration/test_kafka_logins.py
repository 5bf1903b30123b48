"""Goal: this package's Kafka client logs in to a node, and says why it could not.

Method: a broker on loopback with users, and the blocking and the asyncio client.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from dragoman.client.kafka import (
    BlockingKafkaClient,
    ClientSettings,
    KafkaClient,
    LoginFailedError,
    NewRecord,
    SaslLogin,
    SaslMechanism,
    TopicPartition,
)
from dragoman.errors import ConfigError
from dragoman.protocols.kafka import messages as m
from dragoman.testing import EphemeralBroker
from nodes.process import SOURCE
from worlds.tokens import jwk, key_set, rsa_key, token

PASSWORDS: list[SaslMechanism] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EphemeralBroker]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set(jwk(rsa_key(), "1")))
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "connection.failed.authentication.delay.ms": "0",
    }
    users = {"alice": "secret", "zoé": "geheim=,wort"}
    with EphemeralBroker(settings=settings, users=users, listeners=("kafka",)) as running:
        yield running


def settings(**fields: object) -> ClientSettings:
    login = SaslLogin(**fields)  # type: ignore[arg-type]
    return ClientSettings(login=login, operation_timeout_s=10)


def topics(broker: EphemeralBroker, made: ClientSettings) -> set[str]:
    async def ask() -> set[str]:
        async with KafkaClient(broker.bootstrap_servers, made) as client:
            return set((await client.cluster()).topics)

    return asyncio.run(ask())


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize(("name", "password"), [("alice", "secret"), ("zoé", "geheim=,wort")])
def test_login_by_password(
    broker: EphemeralBroker, mechanism: SaslMechanism, name: str, password: str
) -> None:
    made = settings(mechanism=mechanism, name=name, password=password)
    topics(broker, made)


def test_password_may_be_a_reference(
    broker: EphemeralBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("secret\n")
    assert topics(broker, settings(name="alice", password=f"file:{tmp_path}/password")) <= {
        "logins"
    }
    monkeypatch.setenv("ALICE", "secret")
    topics(broker, settings(name="alice", password="env:ALICE"))
    with pytest.raises(ConfigError):
        topics(broker, settings(name="alice", password="file:/no/such/file"))


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("bob", "secret")])
def test_wrong_password_is_an_error_at_once(
    broker: EphemeralBroker, mechanism: SaslMechanism, name: str, password: str
) -> None:
    made = settings(mechanism=mechanism, name=name, password=password)
    with pytest.raises(LoginFailedError, match="Authentication failed") as caught:
        topics(broker, made)
    assert password not in str(caught.value)


def test_login_by_token(broker: EphemeralBroker) -> None:
    calls = []

    def fresh() -> str:
        calls.append(1)
        return token(rsa_key(), sub="carol", exp=4_000_000_000)

    topics(broker, settings(mechanism="OAUTHBEARER", token=fresh))
    assert calls
    with pytest.raises(LoginFailedError, match="invalid_token"):
        topics(broker, settings(mechanism="OAUTHBEARER", token="a.b.c"))


def test_unsigned_token_is_refused(broker: EphemeralBroker) -> None:
    text = jwt.encode({"sub": "alice", "exp": 4_000_000_000}, "", algorithm="none")
    with pytest.raises(LoginFailedError, match="invalid_token"):
        topics(broker, settings(mechanism="OAUTHBEARER", token=text))


def test_records_are_written_and_read_after_a_login(broker: EphemeralBroker) -> None:
    made = settings(name="alice", password="secret")
    with BlockingKafkaClient(broker.bootstrap_servers, made) as client:
        client.produce_records("logins", [NewRecord(value=b"v")])
        with client.reader({TopicPartition("logins", 0): 0}) as reader:
            assert next(iter(reader)).value == b"v"


async def test_client_logs_in_again_before_its_session_ends() -> None:
    options = {"connections.max.reauth.ms": "60000"}
    async with EphemeralBroker(
        settings=options, users={"alice": "secret"}, listeners=("kafka",)
    ) as broker:
        made = settings(name="alice", password="secret")
        async with KafkaClient(broker.bootstrap_servers, made) as client:
            first = client._cluster._bootstrap[0]
            channel = await first._lanes["control"].connected()
            now = asyncio.get_running_loop().time()
            assert channel._login_due == pytest.approx(now + 51, abs=5)
            # As if the time had come: one request logs in, the others wait.
            channel._login_due = 0.0
            requests = [m.MetadataRequest(topics=[]) for _ in range(5)]
            replies = await asyncio.gather(
                *(first.ask(m.MetadataResponse, each) for each in requests)
            )
            assert all(each.brokers for each in replies)
            assert channel.is_open
            assert channel._login_due > now


def test_listener_without_logins_refuses_one() -> None:
    with (
        EphemeralBroker(listeners=("kafka",)) as broker,
        pytest.raises(LoginFailedError, match="takes no logins"),
    ):
        topics(broker, settings(name="alice", password="secret"))


def test_mechanism_that_is_not_offered_is_named(broker: EphemeralBroker) -> None:
    options = {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    with EphemeralBroker(settings=options, users={"a": "b"}, listeners=("kafka",)) as narrow:
        made = settings(mechanism="PLAIN", name="a", password="b")
        with pytest.raises(LoginFailedError, match="the broker offers SCRAM-SHA-512"):
            topics(narrow, made)


def test_secrets_are_not_shown() -> None:
    made = settings(name="alice", password="hidden")
    assert "hidden" not in repr(made)
    assert "hidden" not in repr(settings(mechanism="OAUTHBEARER", token="hidden"))


@pytest.mark.parametrize(
    "fields", [{}, {"name": "a"}, {"password": "b"}, {"mechanism": "OAUTHBEARER"}]
)
def test_incomplete_credentials_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        settings(**fields)


# ---- commands


def run(broker: EphemeralBroker, *words: str, lines: str = "", **environment: str) -> str:
    """Standard output of a command, or its last line on standard error."""
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-m", "dragoman.cli.main"),
            *(*words, "-b", broker.bootstrap_servers),
        ],
        input=lines,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": SOURCE, "PATH": os.environ["PATH"], **environment},
        timeout=100,
        check=False,
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode else done.stdout


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_commands_log_in(broker: EphemeralBroker, tmp_path: Path, mechanism: str) -> None:
    path = tmp_path / "password"
    path.write_text("secret\n")
    login = ("--user", "alice", "--password-file", str(path), "--mechanism", mechanism)
    topic = f"from-{mechanism}"
    assert run(broker, "produce", topic, *login, lines="one\n") == ""
    assert run(broker, "consume", topic, *login) == "one\n"
    variables = {"DRAGOMAN_USER": "alice", "DRAGOMAN_PASSWORD_FILE": str(path)}
    assert run(broker, "consume", topic, "--mechanism", mechanism, **variables) == "one\n"
    path.write_text("wrong\n")
    failure = run(broker, "consume", topic, *login)
    assert "SASL_AUTHENTICATION_FAILED" in failure
    assert "wrong" not in failure


def test_commands_refuse_logins_that_a_protocol_has_not(broker: EphemeralBroker) -> None:
    for protocol in ("mlog", "minibroker"):
        failure = run(broker, "consume", "t", "--protocol", protocol, "--user", "alice", "-F")
        assert "--user: not possible" in failure
    assert "--password-file needs --user" in run(broker, "consume", "t", "--password-file", "x")
    assert "needs --password-file" in run(broker, "consume", "t", "--user", "alice")
