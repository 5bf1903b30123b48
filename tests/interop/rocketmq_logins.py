"""TLS, client certificates and signatures of RocketMQ's Java clients.

Each case is one process, which sends a message over TLS; in good cases a consumer reads it, too.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import rocketmq_java_client
from login_results import Found
from remote_client import RemoteError
from rocketmq_client import Message, RocketmqClient
from rocketmq_operations import collect
from rocketmq_signatures import ALICE, BOB, ToolsOnly

from dragoman.certificates import write_pair
from dragoman.security.access import Operation, Resource
from dragoman.testing import EphemeralBroker
from nodes.users import add_user, allow, enforce
from worlds.tls import TlsFiles, authority

SECTION: Final = "RocketMQ: TLS, client certificates and signatures"
TOPIC: Final = "tls"
GROUP: Final = "reads-tls"
CLIENTS: Final = (rocketmq_java_client.RocketmqJava49, rocketmq_java_client.RocketmqJava53)
#: By label, the settings of a name server and of a broker.
LABELS: Final[dict[str, dict[str, str]]] = {
    "": {},
    "-tls": {"tls": "required"},
    "-mutual": {"tls": "required", "ssl.client.auth": "required"},
    "-elsewhere": {"tls": "required"},
}


class Case(NamedTuple):
    title: str
    #: Of the listeners.
    label: str = "-tls"
    #: The properties of `tls.config.file`; None: a client without TLS.
    tls: dict[str, str] | None = None
    key: tuple[str, str] | None = ALICE
    is_allowed: bool = False
    is_file: bool = True


def cases(files: TlsFiles, other_ca: str) -> Iterator[Case]:
    trusts = {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": files.ca,
    }

    def certified(pair: tuple[str, str]) -> dict[str, str]:
        return trusts | {"tls.client.certPath": pair[0], "tls.client.keyPath": pair[1]}

    yield Case("good, by tls.config.file", tls=trusts, is_allowed=True)
    yield Case("good, by system properties", tls=trusts, is_allowed=True, is_file=False)
    yield Case("tls.enable alone, which trusts every node", tls={}, is_allowed=True)
    elsewhere = "the node's certificate has another name, which is not checked"
    yield Case(elsewhere, label="-elsewhere", tls=trusts, is_allowed=True)
    other = trusts | {"tls.client.trustCertPath": other_ca}
    yield Case("the client does not trust the node's authority", tls=other)
    yield Case("a client without TLS where it is required")
    yield Case("a client with TLS where there is none", label="", tls=trusts)
    yield Case("wrong secret", tls=trusts, key=(ALICE[0], "alice-87654321"))
    yield Case("unknown access key", tls=trusts, key=("nobody", "alice-12345678"))
    yield Case("unsigned", tls=trusts, key=None)
    yield Case("no right", tls=trusts, key=BOB)
    for title, pair in (
        ("good", files.client("alice")),
        ("certificate of another authority", files.client("alice", name="foreign")),
        ("expired certificate", files.client("old", days=-1)),
        ("no right", files.client("bob")),
    ):
        yield Case(f"SSL: {title}", "-mutual", certified(pair), None, is_allowed=title == "good")
    yield Case("SSL: no certificate where it is required", "-mutual", trusts, None)


def options(case: Case, directory: Path) -> tuple[str, ...]:
    """What the JVM is given."""
    if case.tls is None:
        return ()
    if not case.is_file:
        return ("-Dtls.enable=true", *(f"-D{name}={value}" for name, value in case.tls.items()))
    path = directory / "tls.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in case.tls.items()))
    return ("-Dtls.enable=true", f"-Dtls.config.file={path}")


def run(words: str) -> Iterator[Found]:
    """Every case with these words in its title, with every client."""
    reason = rocketmq_java_client.set_up()
    if reason:
        print(f"not run: RocketMQ Java ({reason})")
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        files = TlsFiles(directory)
        other_ca = directory / "other.pem"
        other_ca.write_bytes(authority("foreign").pair.certificate)
        tried = [each for each in cases(files, str(other_ca)) if words in each.title]
        for client in CLIENTS:
            for case in tried:
                # A broker of its own: failed logins from an address delay those that follow.
                with _broker(directory, files) as broker:
                    said = _report(client, broker, case, options(case, directory))
                title = f"{client.name} {client.version}"
                yield Found(SECTION, title, case.title, case.is_allowed, said)


def _report(
    client: type[RocketmqClient], broker: EphemeralBroker, case: Case, given: tuple[str, ...]
) -> str:
    kind = type(client.__name__, (client,), {"options": given})
    running = kind(broker.address(f"rocketmq{case.label}"), case.key)
    try:
        running.send(TOPIC, [Message(case.title)])
        if case.is_allowed:
            consumer = running.consumer(GROUP, TOPIC)
            try:
                collect(consumer, [case.title])
            finally:
                consumer.close()
    except RemoteError as error:
        return _classes(str(error))
    finally:
        running.close()
    return ""


def _classes(text: str) -> str:
    """Of the error and its causes; behind that of a broker's answer its code."""
    names = re.findall(r"\b(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error))\b", text)
    shown = ": ".join(list(dict.fromkeys(names))[:3])
    code = re.search(r"CODE: (\d+)", text)
    return f"{shown} {code[1]}" if code else shown


@contextmanager
def _broker(directory: Path, files: TlsFiles) -> Iterator[EphemeralBroker]:
    """One whose brokers demand signatures or certificates. Alice may do everything, Bob may only
    see the topic's route.
    """
    elsewhere = write_pair(str(directory), "elsewhere", authority().server(["elsewhere.example"]))
    settings = {
        **files.settings,
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "super.users": "User:alice",
    }
    listeners = ["kafka"]
    for label, own in LABELS.items():
        if label == "-elsewhere":
            own = own | {"ssl.certificate.file": elsewhere[0], "ssl.key.file": elsewhere[1]}
        for kind in ("rocketmq", "rocketmq-broker"):
            listeners.append(f"{kind}{label}")
            settings |= {f"listener.{kind}{label}.{name}": own[name] for name in own}
        settings[f"listener.rocketmq-broker{label}.authentication"] = "required"
    with EphemeralBroker(settings=settings, listeners=tuple(listeners)) as broker:
        for user, secret in (ALICE, BOB):
            add_user(broker, user, secret=secret)
        enforce(
            broker,
            # By Kafka's listener the topic is made, by the name servers routes are read.
            allow("User:ANONYMOUS", Operation.ALL, Resource.TOPIC),
            allow("User:ANONYMOUS", Operation.ALL, Resource.GROUP),
            allow("User:bob", Operation.DESCRIBE, Resource.TOPIC),
        )
        ToolsOnly(broker).make_topic(TOPIC, GROUP)
        yield broker
