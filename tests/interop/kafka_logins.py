"""Logins of Kafka's Java client, confluent-kafka, KafkaJS and kcat, with and without TLS.

Each case is one process, which connects to a broker, produces a record, and prints the class of the
error that it got; confluent-kafka is called in this one. The clients in Python without TLS are in
`tests/integration/test_kafka_login_clients.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import confluent_kafka
import java_client
import jwt
import kafkajs_client
import kcat_client
from confluent_kafka import KafkaError, Producer
from login_results import NONE, Found

from dragoman.certificates import write_pair
from dragoman.testing import EphemeralBroker
from worlds.tls import TlsFiles, authority
from worlds.tokens import jwk, key_set, rsa_key, token

PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS: Final[dict[str, dict[str, str]]] = {
    "kafka": {},
    "kafka-tls": {"tls": "required"},
    "kafka-mutual": {"tls": "required", "ssl.client.auth": "required"},
    "kafka-scram": {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},
}
WAIT_MS: Final = 15_000


class Login(NamedTuple):
    """What a client is given."""

    listener: str = "kafka"
    #: The file of an authority; without one, there is no TLS.
    ca: str = ""
    #: Files of a certificate and its key.
    pair: tuple[str, str] | None = None
    mechanism: str = ""
    name: str = ""
    #: The password, or the file with a token.
    secret: str = ""

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.ca else "PLAINTEXT")


class Case(NamedTuple):
    section: str
    title: str
    login: Login
    is_allowed: bool = False


# ---- cases


def bearer(case: str) -> str:
    now = int(time.time())
    expires = now - 600 if case == "expired token" else now + 3600
    name = "carol" if case == "no right" else "alice"
    key = rsa_key(1) if case == "forged token" else rsa_key()
    return token(key, sub=name, exp=expires, iat=now - 1000, scope="kafka")


def password_and_token_cases(directory: Path, ca: str) -> Iterator[Case]:
    base = Login(listener="kafka-tls", ca=ca) if ca else Login()
    section = f"Kafka: logins, {'SASL_SSL' if ca else 'SASL_PLAINTEXT'}"
    for mechanism in PASSWORDS:
        for title, name, secret in (
            ("good", "alice", "secret"),
            ("wrong password", "alice", "wrong"),
            ("unknown user", "nobody", "secret"),
            ("no right", "carol", "secret"),
        ):
            login = base._replace(mechanism=mechanism, name=name, secret=secret)
            yield Case(section, f"{mechanism}: {title}", login, title == "good")
    for title in ("good", "expired token", "forged token", "no right"):
        path = directory / title.replace(" ", "-")
        path.write_text(bearer(title))
        login = base._replace(mechanism="OAUTHBEARER", secret=str(path))
        yield Case(section, f"OAUTHBEARER: {title}", login, title == "good")
    if not ca:
        login = Login("kafka-scram", "", None, "PLAIN", "alice", "secret")
        yield Case(section, "a mechanism that is not offered", login)
    yield Case(section, "no login where it is required", base)


def certificate_cases(files: TlsFiles, other_ca: str) -> Iterator[Case]:
    section = "Kafka: TLS and client certificates"
    mutual = Login("kafka-mutual", files.ca)
    for title, pair in (
        ("good", files.client("alice")),
        ("certificate of another authority", files.client("alice", name="foreign")),
        ("expired certificate", files.client("old", days=-1)),
        ("no certificate where it is required", None),
        ("no right", files.client("carol")),
    ):
        yield Case(section, f"SSL: {title}", mutual._replace(pair=pair), title == "good")
    login = Login("kafka-tls", files.ca, None, "PLAIN", "alice", "secret")
    for title, changed in (
        ("the client does not trust the node's authority", login._replace(ca=other_ca)),
        ("the node's certificate has another name", login._replace(listener="kafka-elsewhere")),
        ("a client without TLS where it is required", login._replace(ca="")),
        ("a client with TLS where there is none", login._replace(listener="kafka")),
    ):
        yield Case(section, title, changed)


# ---- clients


def java_settings(login: Login, servers: str, directory: Path) -> dict[str, str]:
    settings = {
        "bootstrap.servers": servers,
        "security.protocol": login.protocol,
        "max.block.ms": str(WAIT_MS),
        "delivery.timeout.ms": str(WAIT_MS),
        "request.timeout.ms": str(WAIT_MS - 5000),
    }
    if login.ca:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": login.ca}
    if login.pair:
        both = directory / "keystore.pem"
        both.write_bytes(b"".join(Path(each).read_bytes() for each in login.pair))
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
    if login.mechanism:
        settings |= java_sasl(login)
    return settings


def java_sasl(login: Login) -> dict[str, str]:
    packages = "org.apache.kafka.common.security."
    options = f'username="{login.name}" password="{login.secret}"'
    match login.mechanism:
        case "OAUTHBEARER":
            return {
                "sasl.mechanism": login.mechanism,
                "sasl.jaas.config": f"{packages}oauthbearer.OAuthBearerLoginModule required;",
                "sasl.oauthbearer.token.endpoint.url": f"file://{login.secret}",
                # By default, a token is not replaced in its first minute and its last five.
                "sasl.login.refresh.min.period.seconds": "0",
                "sasl.login.refresh.buffer.seconds": "0",
                "sasl.login.callback.handler.class": (
                    f"{packages}oauthbearer.OAuthBearerLoginCallbackHandler"
                ),
            }
        case "PLAIN":
            module = f"{packages}plain.PlainLoginModule"
        case _:
            module = f"{packages}scram.ScramLoginModule"
    return {
        "sasl.mechanism": login.mechanism,
        "sasl.jaas.config": f"{module} required {options};",
    }


def java(login: Login, servers: str, directory: Path, seconds: int = 0) -> str:
    """Records for so many seconds; 0: one record."""
    path = directory / "java.properties"
    settings = java_settings(login, servers, directory)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{login.secret}"
    options = (allowed, *java_client.OPTIONS, "-cp", java_client.CLASS_PATH)
    return last_line(["java", *options, "Login", str(path), str(seconds)])


def kafkajs(login: Login, servers: str, directory: Path, seconds: int = 0) -> str:
    # By default, it logs in again in the last ten seconds of a session: if that is short, at every
    # request, which the broker refuses, as Kafka does.
    settings: dict[str, object] = {"brokers": [servers], "reauthenticationThreshold": 5000}
    if login.ca:
        settings["ssl"] = {"ca": Path(login.ca).read_text()}
        if login.pair:
            certificate, key = (Path(each).read_text() for each in login.pair)
            settings["ssl"] |= {"cert": certificate, "key": key}  # type: ignore[operator]
    if login.mechanism == "OAUTHBEARER":
        settings["sasl"] = {"mechanism": "oauthbearer", "tokenFile": login.secret}
    elif login.mechanism:
        settings["sasl"] = {
            "mechanism": login.mechanism.lower(),
            "username": login.name,
            "password": login.secret,
        }
    path = directory / "kafkajs.json"
    path.write_text(json.dumps(settings))
    return last_line(["node", str(kafkajs_client.BUILD / "login.mjs"), str(path), str(seconds)])


def librdkafka_settings(login: Login) -> dict[str, str]:
    settings = {"security.protocol": login.protocol, "message.timeout.ms": str(WAIT_MS)}
    if login.ca:
        settings["ssl.ca.location"] = login.ca
    if login.pair:
        certificate, key = login.pair
        settings |= {"ssl.certificate.location": certificate, "ssl.key.location": key}
    if login.mechanism:
        settings["sasl.mechanism"] = login.mechanism
    if login.name:
        settings |= {"sasl.username": login.name, "sasl.password": login.secret}
    return settings


def confluent(login: Login, servers: str, directory: Path, seconds: int = 0) -> str:
    errors: list[KafkaError] = []

    def token_of(_: object) -> tuple[str, float]:
        text = Path(login.secret).read_text()
        expires = jwt.decode(text, options={"verify_signature": False})["exp"]
        # It takes no token that it would have to replace at once.
        return text, float(expires) if expires > time.time() else time.time() + 60

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            errors.append(error)

    settings: dict[str, object] = {
        **librdkafka_settings(login),
        "bootstrap.servers": servers,
        "error_cb": errors.append,
        "log_level": 0,
    }
    if login.mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = token_of
    producer = Producer(settings)
    end = time.monotonic() + seconds
    while True:
        producer.produce("t", b"v", on_delivery=delivered)
        while len(producer) and not errors:
            producer.poll(0.1)
        if errors or time.monotonic() >= end:
            break
        producer.poll(0.1)
    producer.purge()
    producer.flush(5)
    return errors[0].name() if errors else ""


def kcat(login: Login, servers: str, directory: Path) -> str:
    if login.mechanism == "OAUTHBEARER":
        # It has no call to get a token by, only an OIDC client, which Debian's build lacks.
        return NONE
    if login.mechanism.startswith("SCRAM") and kcat_client.librdkafka_version() < (2, 6, 1):
        # Its second message has its own nonce twice, which RFC 5802, section 5.1, makes a server
        # refuse. Kafka 4 does, too.
        return NONE
    settings = librdkafka_settings(login)
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    words = [kcat_client.TOOL, "-P", "-b", servers, "-t", "t", *options]
    done = subprocess.run(words, input="v", capture_output=True, text=True, timeout=120)
    if done.returncode == 0:
        return ""
    # The first is the reason, the last that no broker is left.
    found = re.search(r"^% .*?((?:Local|Broker): [^:\n]+)", done.stderr, re.MULTILINE)
    return found[1] if found else done.stderr


def last_line(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return (done.stdout.strip().splitlines() or [""])[-1]


# ---- runs


JAVA: Final = (f"Java client {java_client.JavaClient.version}", java_client.set_up, java)
CONFLUENT: Final = (f"confluent-kafka {confluent_kafka.__version__}", lambda: "", confluent)
KAFKAJS: Final = (
    f"KafkaJS {kafkajs_client.KafkaJSClient.version}",
    kafkajs_client.set_up,
    kafkajs,
)
KCAT: Final = (f"kcat {kcat_client.KcatClient.version}", kcat_client.set_up, kcat)
Client: TypeAlias = tuple[str, Callable[[], str], Callable[..., str]]


def available(*clients: Client) -> dict[str, Callable[..., str]]:
    """Those that can be run here."""
    found = {}
    for name, set_up, report in clients:
        reason = set_up()
        if reason:
            print(f"not run: {name} ({reason})")
        else:
            found[name] = report
    return found


def run(words: str) -> Iterator[Found]:
    """Every case with these words in its title, with every client."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        files = TlsFiles(directory)
        other_ca = directory / "other.pem"
        other_ca.write_bytes(authority("foreign").pair.certificate)
        cases = [
            *password_and_token_cases(directory, ""),
            *password_and_token_cases(directory, files.ca),
            *certificate_cases(files, str(other_ca)),
        ]
        with _broker(directory, files) as broker:
            for client, report in available(JAVA, CONFLUENT, KAFKAJS, KCAT).items():
                for section, title, login, is_allowed in cases:
                    if words in title:
                        said = report(login, broker.address(login.listener), directory)
                        yield Found(section, client, title, is_allowed, said)


def _broker(directory: Path, files: TlsFiles) -> EphemeralBroker:
    """One whose listeners demand logins. Alice may do everything, Carol nothing."""
    keys = directory / "keys.json"
    keys.write_bytes(key_set(jwk(rsa_key(), "1")))
    elsewhere = authority().server(["elsewhere.example"])
    certificate, key = write_pair(str(directory), "elsewhere", elsewhere)
    own = LISTENERS | {
        "kafka-elsewhere": {
            "tls": "required",
            "ssl.certificate.file": certificate,
            "ssl.key.file": key,
        }
    }
    settings = {
        **files.settings,
        "sasl.enabled.mechanisms": ",".join((*PASSWORDS, "OAUTHBEARER")),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "super.users": "User:alice",
        **{f"listener.{name}.{key}": value for name in own for key, value in own[name].items()},
    }
    users = {"alice": "secret", "carol": "secret"}
    return EphemeralBroker(settings=settings, users=users, listeners=tuple(own))
