"""Logins of clients that need a tool chain: Kafka's Java client and KafkaJS.

    python tests/interop/kafka_logins.py

Each case is one process, which logs in to a broker, produces a record, and prints the class of the
error that it got. The clients in Python are in `tests/integration/test_kafka_login_clients.py`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import java_client
import kafkajs_client

from dragoman.testing import EphemeralBroker
from worlds.tokens import jwk, key_set, rsa_key, token

PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: By login, what becomes of it.
LOGINS: Final = {
    ("alice", "secret"): "good",
    ("alice", "wrong"): "refused",
    ("nobody", "secret"): "refused",
    ("carol", "secret"): "no right",
}
TOKENS: Final = {"alice": "good", "expired": "refused", "forged": "refused", "carol": "no right"}
EXPECTED: Final = {
    "Java client": {
        "good": "",
        "refused": "SaslAuthenticationException",
        "no right": "TopicAuthorizationException",
    },
    "KafkaJS": {
        "good": "",
        "refused": "KafkaJSSASLAuthenticationError",
        "no right": "KafkaJSNonRetriableError TOPIC_AUTHORIZATION_FAILED",
        # It takes the challenge for a success, and its next request closes the connection.
        "refused token": "KafkaJSNumberOfRetriesExceeded",
    },
}


def commands(tokens: Path) -> dict[str, Callable[..., list[str]]]:
    """The programs of the clients that can be run here."""
    urls = ",".join(f"file://{tokens / case}" for case in TOKENS)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"
    found: dict[str, Callable[..., list[str]]] = {}
    if not java_client.set_up():
        options = ("java", allowed, *java_client.OPTIONS, "-cp", java_client.CLASS_PATH, "Login")
        found["Java client"] = lambda *words: [*options, *words]
    if not kafkajs_client.set_up():
        program = str(kafkajs_client.BUILD / "login.mjs")
        found["KafkaJS"] = lambda *words: ["node", program, *words]
    return found


def bearer(case: str) -> str:
    exp = int(time.time()) + (-600 if case == "expired" else 600)
    name = "alice" if case in ("expired", "forged") else case
    now = int(time.time()) - 1000
    key = rsa_key(1) if case == "forged" else rsa_key()
    return token(key, sub=name, exp=exp, iat=now, scope="kafka")


def main() -> int:
    is_as_expected = True
    with tempfile.TemporaryDirectory() as directory:
        keys = Path(directory) / "keys.json"
        keys.write_bytes(key_set(jwk(rsa_key(), "1")))
        settings = {
            "sasl.enabled.mechanisms": ",".join((*PASSWORDS, "OAUTHBEARER")),
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
            "super.users": "User:alice",
        }
        cases = [
            (mechanism, *login, result)
            for mechanism in PASSWORDS
            for login, result in LOGINS.items()
        ]
        for case, result in TOKENS.items():
            path = Path(directory) / case
            path.write_text(bearer(case))
            cases.append(("OAUTHBEARER", case, str(path), result))
        users = {"alice": "secret", "carol": "secret"}
        with EphemeralBroker(settings=settings, users=users, listeners=("kafka",)) as broker:
            for client, command in commands(Path(directory)).items():
                for mechanism, name, secret, result in cases:
                    words = command(broker.bootstrap_servers, mechanism, name, secret)
                    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
                    said = (done.stdout.strip().splitlines() or [""])[-1]
                    expected = EXPECTED[client]
                    wanted = expected[result]
                    if mechanism == "OAUTHBEARER" and result == "refused":
                        wanted = expected.get("refused token", wanted)
                    is_right = said == wanted
                    is_as_expected &= is_right
                    mark = "" if is_right else f"   NOT {wanted!r}"
                    print(f"{client}: {mechanism}: {name}: {result}: {said!r}{mark}", flush=True)
    return 0 if is_as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
