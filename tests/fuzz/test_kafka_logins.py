"""Goal: whatever strangers send to a listener that requires a login, none of them gets in, the node
stays up, and those with credentials log in as before.

Method: valid logins, mutated: bytes are changed, cut, repeated and inserted, tokens come in any
order, with and without headers. Nothing may be logged as an error and no memory may stay taken.
`DRAGOMAN_FUZZ_ROUNDS` multiplies the work.
"""

from __future__ import annotations

import logging
import os
import random

import pytest
from scramp import ScramClient

from dragoman.limits import LOGIN_FAILURES_FORGOTTEN_S
from dragoman.outcome import succeeded
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.security.access import ANONYMOUS
from protocols.kafka_socket import frame_of
from worlds.broker import Wire, World
from worlds.logins import MECHANISMS, log_in, plain, secured
from worlds.tokens import first_message, jwk, key_set, rsa_key, token
from worlds.users import add_user

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
CASES = 1500


def mutated(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(made) + 1)
        match rng.randrange(5):
            case 0:
                made[at : at + 1] = rng.randbytes(1)
            case 1:
                del made[at : at + rng.randrange(1, 20)]
            case 2:
                made[at:at] = made[: rng.randrange(20)]
            case 3:
                made[at:at] = rng.choice([b"\0", b"\x01", b",", b"=", b"p=", b"\xff", b"n,,"])
            case _:
                made += rng.randbytes(rng.randrange(200))
    return bytes(made)


def messages(rng: random.Random, world: World) -> list[bytes]:
    """Tokens that log nobody in, unless a mutation changed nothing."""
    expires = world.clock.wall_ms() // 1000 + 600
    match rng.randrange(4):
        case 0:
            return [mutated(rng, plain("alice", "wrong"))]
        case 1:
            text = token(rsa_key(1), sub="alice", exp=expires)
            return [mutated(rng, first_message(text, rng.choice(("", "alice")), k="v")), b"\x01"]
        case 2:
            text = token(rsa_key(), sub="alice", exp=expires)
            head, payload, signature = text.split(".")
            return [first_message(f"{head}.{payload}.{signature[: rng.randrange(300)]}")]
        case _:
            client = ScramClient(["SCRAM-SHA-256"], "alice", "wrong")
            return [
                mutated(rng, client.get_client_first().encode()),
                mutated(rng, b"c=biws,r=nonce,p=AAAA"),
            ]


def attack(rng: random.Random, world: World) -> Wire:
    wire = Wire(world)
    version = rng.randrange(2)
    wire.send(m.SaslHandshakeRequest(mechanism=rng.choice(MECHANISMS)), version)
    world.settle()
    wire.replies()
    for each in messages(rng, world):
        if wire.is_closed:
            break
        if version == 0 or rng.random() < 0.1:
            wire.feed(frame_of(each or b"x"))
        else:
            wire.send(m.SaslAuthenticateRequest(auth_bytes=each), rng.randrange(3))
        if rng.random() < 0.9:
            world.settle()
    if rng.random() < 0.3 and not wire.is_closed:
        key = rng.choice(list(ApiKey))
        wire.feed(frame_of(key.to_bytes(2, "big") + rng.randbytes(rng.randrange(40))))
    world.settle()
    return wire


@pytest.mark.parametrize("seed", range(3))
def test_no_stranger_logs_in(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    rng = random.Random(seed)
    world = secured(
        max_connections_before_login=1_000_000,
        max_connections_before_login_per_ip=1_000_000,
        sasl_oauthbearer_jwks_endpoint_url="https://issuer.example/keys",
    )
    world.broker.logins.bearer_tokens.keys.fetch = lambda _: succeeded(key_set(jwk(rsa_key(), "1")))
    add_user(world, password="secret")
    used = world.budget.used
    for number in range(CASES * ROUNDS // 3):
        wire = attack(rng, world)
        session = wire.channel._session
        if session is not None:
            assert session.caller.principal == ANONYMOUS  # type: ignore[attr-defined]
        if number % 100 == 0:
            world.advance(LOGIN_FAILURES_FORGOTTEN_S + 10)
            assert log_in(Wire(world)).error_code == 0
        wire.lose()
    world.advance(20)
    assert world.broker.logins.admission.in_all == 0
    assert world.budget.used == used
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
