"""Sessions that expire on open connections (KIP-368), of clients that log in again and that cannot.

A client sends records for several lifetimes of a token. In good cases its connections live as
long: the broker counts them.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kafka_logins import CONFLUENT, JAVA, KAFKAJS, Login, available
from login_results import Found

from dragoman.testing import EphemeralBroker
from worlds.tokens import jwk, key_set, rsa_key, token

SECTION: Final = "Kafka: sessions that expire on open connections"
LIFETIME_S: Final = 10
RUN_S: Final = 3 * LIFETIME_S
#: To the address that a client begins with, and to the node that it learns of there.
CONNECTIONS_MAX: Final = 2


class Case(NamedTuple):
    title: str
    login: Login
    is_replaced: bool
    is_allowed: bool


def bearer() -> str:
    now = int(time.time())
    return token(rsa_key(), sub="alice", iat=now, exp=now + LIFETIME_S, scope="kafka")


@contextmanager
def _token(path: Path, is_replaced: bool) -> Iterator[None]:
    """A file with a token, which is replaced in time, or never."""
    ended = threading.Event()

    def write() -> None:
        aside = path.with_suffix(".new")
        aside.write_text(bearer())
        os.replace(aside, path)

    def replace() -> None:
        while not ended.wait(1):
            write()

    write()
    thread = threading.Thread(target=replace)
    if is_replaced:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if is_replaced:
            thread.join()


def run(words: str) -> Iterator[Found]:
    """Every case with these words in its title, with every client."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = directory / "token"
        bearer_login = Login(mechanism="OAUTHBEARER", secret=str(path))
        password = Login(mechanism="SCRAM-SHA-512", name="alice", secret="secret")
        cases = (
            Case("OAUTHBEARER: the token is replaced in time", bearer_login, True, True),
            Case("OAUTHBEARER: the token is not replaced", bearer_login, False, False),
            Case("SCRAM-SHA-512: connections.max.reauth.ms", password, False, True),
        )
        with _broker(directory) as broker:
            for client, report in available(JAVA, CONFLUENT, KAFKAJS).items():
                for case in cases:
                    if words in case.title:
                        said = _report(report, broker, case, directory)
                        yield Found(SECTION, client, case.title, case.is_allowed, said)


def _report(
    report: Callable[..., str], broker: EphemeralBroker, case: Case, directory: Path
) -> str:
    before = _connections(broker)
    with _token(directory / "token", case.is_replaced):
        said = report(case.login, broker.bootstrap_servers, directory, RUN_S)
    opened = _connections(broker) - before
    assert opened > 0, "the broker counted none"
    return said or ("" if opened <= CONNECTIONS_MAX else f"{opened} connections")


def _connections(broker: EphemeralBroker) -> int:
    """How many Kafka clients have opened."""
    with urllib.request.urlopen(f"{broker.http_url}/metrics") as response:
        text = response.read().decode()
    found = re.search(r'connections_total\{listener="kafka"\} (\S+)', text)
    return int(float(found[1])) if found else 0


def _broker(directory: Path) -> EphemeralBroker:
    keys = directory / "keys.json"
    keys.write_bytes(key_set(jwk(rsa_key(), "1")))
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "connections.max.reauth.ms": str(LIFETIME_S * 1000),
        "super.users": "User:alice;User:monitor",
        "listener.http.principals": "127.0.0.0/8=monitor",
    }
    return EphemeralBroker(settings=settings, users={"alice": "secret"})
