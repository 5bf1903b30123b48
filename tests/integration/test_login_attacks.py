"""Goal: who changes, cuts, forges or repeats logins does not get in, and the node says why.

Method: the attacks of `make attack ARGS="--only logins"`, against a broker in this process whose
listener allows TLS and demands a login. A man in the middle is a relay on loopback.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from attack.logins import (
    ATTACKS,
    PASSWORD,
    USER,
    Door,
    LoginAttack,
    audit_lines,
    carry_out,
    is_as_expected,
)
from dragoman.testing import EphemeralBroker
from worlds.tokens import AUDIENCE, jwk, key_set, rsa_key


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    root = tmp_path_factory.mktemp("door")
    (root / "keys.json").write_bytes(key_set(jwk(rsa_key(0), "1")))
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{root}/keys.json",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "connection.failed.authentication.delay.ms": "0",
    }
    handler = _Lines()
    logger = logging.getLogger("dragoman")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    broker = EphemeralBroker(
        storage="directory",
        directory=str(root / "data"),
        settings=settings,
        users={USER: PASSWORD},
        listeners=("kafka",),
        tls="optional",
    )
    with broker:
        audit = root / "data" / "audit.log"
        logs = (lambda: list(handler.lines), lambda: audit_lines(audit))
        found = Door(broker.bootstrap_servers, broker.ca_file, logs, root)
        # What the start has logged is written before this login.
        carry_out(ATTACKS[0], found)
        yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_ends_as_expected(attack: LoginAttack, door: Door) -> None:
    seen = carry_out(attack, door)
    assert is_as_expected(attack, seen), seen
