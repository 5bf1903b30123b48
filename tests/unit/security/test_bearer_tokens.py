"""Goal: tokens that the issuer signed, for this cluster and this time, log in, and no others do.

Method: `BearerTokens` on virtual time, with keys made here and fetches that the test answers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Coroutine
from typing import TypeVar

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization

from dragoman.config.settings import Settings
from dragoman.errors import AuthenticationFailedError, TokenKeysError
from dragoman.limits import (
    BEARER_TOKEN_BYTES_MAX,
    JWKS_BYTES_MAX,
    JWKS_FETCH_TIMEOUT_S,
    JWKS_FETCHES_APART_S,
    JWKS_KEYS_MAX,
)
from dragoman.outcome import Outcome, failed, start, succeeded
from dragoman.security.bearer_tokens import (
    BearerLogin,
    BearerServer,
    BearerTokens,
    parse_first,
)
from dragoman.security.token_keys import KeySet
from dragoman.testing.sim.scheduler import SimClock, SimScheduler
from worlds.tokens import ec_key, ed_key, first_message, jwk, key_set, rsa_key, token

T = TypeVar("T")


class Issuer:
    """Validation on virtual time, and the source of its keys."""

    def __init__(self, keys: bytes, **settings: object) -> None:
        self.scheduler = SimScheduler()
        clock = SimClock(self.scheduler)
        self.now = clock.wall_ms() // 1000
        fields = {"sasl_oauthbearer_jwks_endpoint_url": "https://issuer.example/keys"} | settings
        made = msgspec.structs.replace(Settings(), **fields)
        self.tokens = BearerTokens(made, self.scheduler, clock)
        self.tokens.keys.fetch = self._fetch
        self.answer: bytes | None = keys
        self.held: Outcome[bytes] | None = None
        self.fetches = 0

    def _fetch(self, url: str) -> Outcome[bytes]:
        assert url == "https://issuer.example/keys"
        self.fetches += 1
        if self.held is not None:
            return self.held
        return failed(TokenKeysError("down")) if self.answer is None else succeeded(self.answer)

    def run(self, work: Coroutine[object, None, T]) -> T:
        outcome = start(work)
        self.scheduler.run_until_idle()
        return outcome.result()

    def login(self, text: str) -> BearerLogin:
        return self.run(self.tokens.login(text, "h"))

    def refused(self, text: str) -> str:
        with pytest.raises(AuthenticationFailedError) as caught:
            self.login(text)
        return str(caught.value)

    def claims(self, **others: object) -> dict[str, object]:
        return {"sub": "alice", "exp": self.now + 600} | others

    def wait(self, seconds: float) -> None:
        self.scheduler.advance(seconds)


@pytest.fixture
def issuer() -> Issuer:
    return Issuer(key_set(jwk(rsa_key(), "1")))


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "EdDSA"]
)
def test_token_of_each_algorithm_logs_in(algorithm: str) -> None:
    key = {"ES256": ec_key, "EdDSA": ed_key}.get(algorithm, rsa_key)()
    issuer = Issuer(key_set(jwk(key, "1")))
    found = issuer.login(token(key, "1", algorithm, **issuer.claims()))
    assert str(found.caller.principal) == "User:alice"
    assert found.expires_ms == (issuer.now + 600) * 1000


def test_token_without_a_key_id_needs_a_single_key(issuer: Issuer) -> None:
    text = token(rsa_key(), None, **issuer.claims())
    assert issuer.login(text)
    several = Issuer(key_set(jwk(rsa_key(), "1"), jwk(rsa_key(1), "2")))
    several.refused(text)
    assert several.login(token(rsa_key(1), "2", **several.claims()))


# ---- forged tokens


def test_token_of_another_key_is_refused(issuer: Issuer) -> None:
    assert issuer.refused(token(rsa_key(1), "1", **issuer.claims())) == "invalid_token"


def test_changed_token_is_refused(issuer: Issuer) -> None:
    head, payload, signature = token(rsa_key(), **issuer.claims()).split(".")
    forged = _part({"sub": "admin", "exp": issuer.now + 600})
    for parts in (
        (head, forged, signature),
        (head, payload, ""),
        (head, payload, signature[:-4]),
        (head, payload, signature + "AAAA"),
        (_part({"alg": "RS512", "kid": "1"}), payload, signature),
    ):
        issuer.refused(".".join(parts))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "HS256", "ES256K"])
def test_algorithms_that_are_not_allowed_are_refused(issuer: Issuer, algorithm: str) -> None:
    payload = _part(issuer.claims())
    for signature in ("", "AAAA"):
        issuer.refused(f"{_part({'alg': algorithm, 'kid': '1'})}.{payload}.{signature}")


def test_public_key_is_no_secret_key(issuer: Issuer) -> None:
    """A token that is signed with the bytes of the public key as a secret (key confusion)."""
    public = rsa_key().public_key()
    for encoding, form in (
        (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        (serialization.Encoding.DER, serialization.PublicFormat.PKCS1),
    ):
        secret = public.public_bytes(encoding, form)
        head, payload = _part({"alg": "HS256", "kid": "1"}), _part(issuer.claims())
        signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
            f"{head}.{payload}".encode(), secret
        )
        issuer.refused(f"{head}.{payload}.{_base64(signature)}")


def test_key_in_the_token_does_not_count(issuer: Issuer) -> None:
    mine = rsa_key(1)
    headers = {
        "kid": "2",
        "jwk": jwk(mine, "2"),
        "jku": "https://evil.example/keys",
        "x5u": "https://evil.example/cert",
    }
    issuer.refused(jwt.encode(issuer.claims(), mine, "RS256", headers))


def test_type_of_the_key_decides_about_algorithms() -> None:
    issuer = Issuer(key_set(jwk(ec_key(), "1")))
    issuer.refused(token(rsa_key(), "1", "RS256", **issuer.claims()))
    bound = Issuer(key_set(jwk(rsa_key(), "1", alg="RS256")))
    bound.refused(token(rsa_key(), "1", "RS512", **bound.claims()))
    assert bound.login(token(rsa_key(), "1", "RS256", **bound.claims()))


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "kid": "1", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
        {"kty": "RSA", "kid": "1", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "kid": "1"},
        {"kty": "EC", "crv": "P-256", "kid": "1", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "secp256k1", "kid": "1"},
        {"kty": "unknown", "kid": "1"},
    ],
)
def test_unusable_keys_verify_nothing(key: dict[str, object]) -> None:
    issuer = Issuer(key_set(key, jwk(rsa_key(), "2")))
    for algorithm in ("HS256", "RS256", "ES256"):
        head, payload = _part({"alg": algorithm, "kid": "1"}), _part(issuer.claims())
        issuer.refused(f"{head}.{payload}.AAAA")
    assert issuer.login(token(rsa_key(), "2", **issuer.claims()))


def test_keys_for_encryption_and_short_keys_do_not_count() -> None:
    short = rsa_key(0, 1024)
    issuer = Issuer(key_set(jwk(rsa_key(), "1", use="enc"), jwk(short, "2")))
    issuer.refused(token(rsa_key(), "1", **issuer.claims()))
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        text = token(short, "2", **issuer.claims())
    issuer.refused(text)


# ---- claims


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": None},
        {"exp": 0},
        {"exp": -1},
        {"exp": "soon"},
        {"exp": True},
        {"exp": 1e300},
        {"exp": [1]},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "a\nb"},
        {"sub": "a" * 256},
        {"sub": "ANONYMOUS"},
        {"sub": "*"},
        {"sub": " a"},
        {"sub": "a\x9b"},
        {"sub": "\ud800"},
        {"nbf": 4e9},
        {"iat": 4e9},
        {"iat": "then"},
    ],
)
def test_claims_that_are_wrong_are_refused(issuer: Issuer, claims: dict[str, object]) -> None:
    made = {key: value for key, value in issuer.claims(**claims).items() if value is not None}
    head, payload = _part({"alg": "RS256", "kid": "1"}), _part(made)
    algorithm = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
    signature = algorithm.sign(f"{head}.{payload}".encode(), rsa_key())
    issuer.refused(f"{head}.{payload}.{_base64(signature)}")


def test_times_have_leeway(issuer: Issuer) -> None:
    now = issuer.now
    assert issuer.login(token(rsa_key(), **issuer.claims(exp=now - 29, nbf=now + 29, iat=now + 29)))
    for claims in ({"exp": now - 31}, {"nbf": now + 31}, {"iat": now + 31}):
        issuer.refused(token(rsa_key(), **issuer.claims(**claims)))


def test_issuer_audience_and_scopes_are_compared() -> None:
    issuer = Issuer(
        key_set(jwk(rsa_key(), "1")),
        sasl_oauthbearer_expected_issuer="https://issuer.example",
        sasl_oauthbearer_expected_audience=("dragoman", "kafka"),
        sasl_oauthbearer_required_scope=("stream",),
    )
    right: dict[str, object] = issuer.claims(
        iss="https://issuer.example", aud="kafka", scope="openid stream"
    )
    assert issuer.login(token(rsa_key(), **right))
    assert issuer.login(token(rsa_key(), **right | {"aud": ["x", "dragoman"]}))
    assert issuer.login(token(rsa_key(), **right | {"scope": ["stream"]}))
    for wrong in ({"iss": "https://issuer.example/"}, {"aud": "other"}, {"aud": ["kafka2"]}):
        assert issuer.refused(token(rsa_key(), **right | wrong)) == "invalid_token"
    for absent in ("iss", "aud"):
        kept = {key: value for key, value in right.items() if key != absent}
        assert issuer.refused(token(rsa_key(), **kept)) == "invalid_token"
    for scope in ("streams", "", 7):
        found = issuer.refused(_signed(right | {"scope": scope}))
        assert found == "insufficient_scope"


def test_claims_of_name_and_scope_are_settings() -> None:
    issuer = Issuer(
        key_set(jwk(rsa_key(), "1")),
        sasl_oauthbearer_sub_claim_name="email",
        sasl_oauthbearer_scope_claim_name="roles",
        sasl_oauthbearer_required_scope=("stream",),
    )
    claims = issuer.claims(email="bob@example.org", roles=["stream"])
    assert issuer.login(token(rsa_key(), **claims)).caller.name == "bob@example.org"


def test_leeway_is_a_setting() -> None:
    issuer = Issuer(key_set(jwk(rsa_key(), "1")), sasl_oauthbearer_clock_skew_seconds=0)
    issuer.refused(token(rsa_key(), **issuer.claims(exp=issuer.now)))


def test_algorithms_are_a_setting() -> None:
    issuer = Issuer(key_set(jwk(rsa_key(), "1")), sasl_oauthbearer_algorithms=("PS256",))
    issuer.refused(token(rsa_key(), **issuer.claims()))
    assert issuer.login(token(rsa_key(), "1", "PS256", **issuer.claims()))


# ---- unsigned tokens


def test_unsigned_tokens_need_the_setting(issuer: Issuer) -> None:
    text = jwt.encode(issuer.claims(), "", algorithm="none")
    issuer.refused(text)
    careless = Issuer(b"", sasl_oauthbearer_insecure_unsigned=True)
    assert careless.login(text).caller.name == "alice"
    careless.refused(text + "AAAA")
    careless.refused(jwt.encode(issuer.claims(exp=1), "", algorithm="none"))


# ---- texts that are no tokens


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "...", "a.b.c", "e30.e30.e30", "é.é.é", "{}.{}.{}", "W10.e30.", "bnVsbA.e30."],
)
def test_texts_that_are_no_tokens_are_refused(text: str) -> None:
    for issuer in (
        Issuer(key_set(jwk(rsa_key(), "1"))),
        Issuer(b"", sasl_oauthbearer_insecure_unsigned=True),
    ):
        assert issuer.refused(text) == "invalid_token"
        assert issuer.fetches <= 1


def test_huge_and_deep_tokens_are_refused_before_keys_are_fetched(issuer: Issuer) -> None:
    issuer.refused("a" * (BEARER_TOKEN_BYTES_MAX + 1))
    deep = _base64(b"[" * 10_000)
    issuer.refused(f"{deep}.{deep}.AAAA")
    assert not issuer.fetches


# ---- keys


def test_keys_are_fetched_once_and_again_when_they_are_old(issuer: Issuer) -> None:
    text = token(rsa_key(), **issuer.claims(exp=issuer.now + 100_000))
    for _ in range(10):
        issuer.login(text)
    assert issuer.fetches == 1
    issuer.wait(3600)
    issuer.login(text)
    assert issuer.fetches == 2


def test_unknown_key_has_them_fetched_but_not_often(issuer: Issuer) -> None:
    issuer.login(token(rsa_key(), **issuer.claims()))
    issuer.wait(JWKS_FETCHES_APART_S)
    assert issuer.answer is not None
    issuer.answer = key_set(jwk(rsa_key(1), "2"))
    assert issuer.login(token(rsa_key(1), "2", **issuer.claims()))
    assert issuer.fetches == 2
    for number in range(50):
        issuer.refused(token(rsa_key(), f"unknown {number}", **issuer.claims()))
    assert issuer.fetches == 2
    # A key that is no longer in the set does not count any more.
    issuer.refused(token(rsa_key(), **issuer.claims()))


def test_logins_at_the_same_time_share_a_fetch(issuer: Issuer) -> None:
    issuer.held = Outcome()
    text = token(rsa_key(), **issuer.claims())
    outcomes = [start(issuer.tokens.login(text, "h")) for _ in range(5)]
    assert issuer.answer is not None
    issuer.held.succeed(issuer.answer)
    assert [each.result().caller.name for each in outcomes] == ["alice"] * 5
    assert issuer.fetches == 1


def test_keys_stay_in_use_while_fetches_fail(issuer: Issuer) -> None:
    text = token(rsa_key(), **issuer.claims(exp=issuer.now + 100_000))
    issuer.login(text)
    issuer.answer = None
    issuer.wait(4000)
    assert issuer.login(text)
    assert issuer.fetches == 2
    issuer.login(text)
    assert issuer.fetches == 2
    issuer.wait(JWKS_FETCHES_APART_S)
    issuer.answer = key_set()
    issuer.refused(text)


def test_fetch_that_hangs_ends_in_time(issuer: Issuer) -> None:
    issuer.held = Outcome()
    outcome = start(issuer.tokens.login(token(rsa_key(), **issuer.claims()), "h"))
    issuer.wait(JWKS_FETCH_TIMEOUT_S)
    with pytest.raises(AuthenticationFailedError):
        outcome.result()
    issuer.held.succeed(issuer.answer or b"")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": 1}',
        b'{"keys": [1]}',
        b'{"keys": [{}]}',
        b"\xff",
        b"<html>",
        b"[" * 100_000,
        b" " * (JWKS_BYTES_MAX + 1),
        key_set(*[{"kty": "oct"}] * (JWKS_KEYS_MAX + 1)),
    ],
)
def test_documents_that_are_no_key_sets_are_refused(data: bytes) -> None:
    with pytest.raises(TokenKeysError):
        KeySet(data)


# ---- the mechanism


def test_first_message_has_token_name_and_extensions() -> None:
    found = parse_first(first_message("a.b.c", "al=2Cice", traceId="1", host="x y"))
    assert found == ("al,ice", "a.b.c", {"traceId": "1", "host": "x y"})
    assert parse_first(b"n,,\x01auth=bearer  t==\x01\x01").token == "t=="


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,auth=Bearer t\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,a=x=y,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01a=1\x01auth=Bearer t\x01a=2\x01\x01",
        b"n,,\x01a1=1\x01auth=Bearer t\x01\x01",
        b"n,,\x01k=\x00\x01auth=Bearer t\x01\x01",
        b"n,,\x01k=1\x01\x01",
        "n,,\x01auth=Bearer é\x01\x01".encode(),
        b"n,,\x01auth=Bearer t\x01\x01more",
    ],
)
def test_malformed_first_messages_are_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailedError):
        parse_first(message)


def test_exchange_ends_with_a_caller_or_with_a_challenge(issuer: Issuer) -> None:
    def server() -> BearerServer:
        return BearerServer(lambda text: issuer.tokens.login(text, "h"))

    right = first_message(token(rsa_key(), **issuer.claims()))
    good = server()
    assert issuer.run(good.receive(right)) == b""
    assert good.caller is not None
    assert good.expires_ms == (issuer.now + 600) * 1000
    with pytest.raises(AuthenticationFailedError):
        issuer.run(good.receive(right))

    bad = server()
    challenge = issuer.run(bad.receive(first_message("a.b.c")))
    assert json.loads(challenge) == {"status": "invalid_token"}
    for answer in (b"\x01", right):
        with pytest.raises(AuthenticationFailedError) as caught:
            issuer.run(bad.receive(answer))
        assert str(caught.value) == challenge.decode()
    assert bad.caller is None

    other = server()
    named = first_message(token(rsa_key(), **issuer.claims()), "bob")
    with pytest.raises(AuthenticationFailedError, match="different from the token's principal"):
        issuer.run(other.receive(named))
    assert other.caller is None
    same = server()
    issuer.run(same.receive(first_message(token(rsa_key(), **issuer.claims()), "alice")))
    assert same.caller is not None


def test_token_of_an_impossible_principal_is_challenged(issuer: Issuer) -> None:
    server = BearerServer(lambda text: issuer.tokens.login(text, "h"))
    first = first_message(token(rsa_key(), **issuer.claims(sub="*")))
    assert json.loads(issuer.run(server.receive(first))) == {"status": "invalid_token"}
    with pytest.raises(AuthenticationFailedError):
        issuer.run(server.receive(b"\x01"))
    assert server.caller is None


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _part(value: dict[str, object]) -> str:
    return _base64(json.dumps(value).encode())


def _signed(claims: dict[str, object]) -> str:
    return token(rsa_key(), **claims)


@pytest.mark.parametrize("named", [["exp"], ["unknown"], [], "b64"])
def test_token_with_critical_extensions_is_refused(issuer: Issuer, named: object) -> None:
    claims = issuer.claims()
    head = {"kid": "1", "crit": named, "exp": 1}
    issuer.refused(jwt.encode(claims, rsa_key(), algorithm="RS256", headers=head))
    assert issuer.login(jwt.encode(claims, rsa_key(), algorithm="RS256", headers={"kid": "1"}))


def test_unusable_key_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer(key_set({"kty": "RSA", "kid": "1", "n": "AQAB", "e": "AQAB"}))
    for _ in range(20):
        issuer.refused(token(rsa_key(), "1", **issuer.claims()))
    reports = [each for each in caplog.messages if each.startswith("key ")]
    assert len(reports) == 1
