"""Goal: a Kafka connection logs in by SASL, and without a login gets nothing else done.

Method: connections to a node on virtual time, with users in its metadata.
"""

from __future__ import annotations

import logging

import msgspec
import pytest
from scramp import ScramClient

from dragoman.config.listeners import OPEN
from dragoman.limits import LOGIN_FRAME_BYTES_MAX, LOGIN_REFUSED_CLOSE_S
from dragoman.outcome import succeeded
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import ANONYMOUS, Principal
from protocols.kafka_socket import frame_of
from worlds.broker import Wire, World, batch_of
from worlds.kafka_admin import ends
from worlds.logins import (
    MECHANISMS,
    OPTIONAL,
    REQUIRED,
    authenticate,
    handshake,
    log_in,
    plain,
    secured,
)
from worlds.tokens import first_message, jwk, key_set, rsa_key, token
from worlds.users import add_user, remove_user

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
ILLEGAL = ErrorCode.ILLEGAL_SASL_STATE
PASSWORD_MECHANISMS = MECHANISMS[:3]


@pytest.fixture
def world() -> World:
    world = secured()
    add_user(world, password="secret")
    return world


@pytest.fixture
def wire(world: World) -> Wire:
    return Wire(world)


def principal_of(wire: Wire) -> Principal:
    session = wire.channel._session
    return session.caller.principal  # type: ignore[union-attr]


def refusal(wire: Wire, seconds: float = 0.1) -> m.Message:
    """The reply that comes after the delay, with which the connection ends."""
    assert not wire.replies()
    wire.world.advance(seconds)
    (reply,) = wire.replies()
    assert not wire.transport.is_reading
    assert not wire.is_closed
    wire.world.advance(LOGIN_REFUSED_CLOSE_S)
    assert wire.is_closed
    return reply.message


def metadata(wire: Wire) -> m.MetadataResponse:
    return wire.ask(m.MetadataRequest(topics=[]), 5, m.MetadataResponse)


# ---- logins


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_login_by_password(wire: Wire, mechanism: str) -> None:
    found = log_in(wire, mechanism=mechanism)
    assert (found.error_code, found.error_message, found.session_lifetime_ms) == (0, None, 0)
    assert principal_of(wire) == Principal("User", "alice")
    assert metadata(wire).brokers


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "secret")])
def test_wrong_password_and_unknown_user_are_refused_alike(
    wire: Wire, mechanism: str, name: str, password: str
) -> None:
    assert handshake(wire, mechanism).error_code == 0
    token = plain(name, password)
    if mechanism != "PLAIN":
        client = ScramClient([mechanism], name, password)
        first = authenticate(wire, client.get_client_first().encode())
        assert first.error_code == 0
        client.set_server_first(first.auth_bytes.decode())
        token = client.get_client_final().encode()
    wire.send(m.SaslAuthenticateRequest(auth_bytes=token), 2)
    wire.world.settle()
    found = refusal(wire)
    assert isinstance(found, m.SaslAuthenticateResponse)
    assert (found.error_code, found.auth_bytes) == (FAILED, b"")
    text = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else "Authentication failed during authentication due to invalid credentials with SASL"
        f" mechanism {mechanism}"
    )
    assert found.error_message == text


@pytest.mark.parametrize("version", ends(ApiKey.SASL_AUTHENTICATE))
@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"a\0b\0c\0d", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0secret", "authorization id that is different"),
        (b"\0\xff\0secret", "Invalid username or password"),
        (b"\0alice\0\xff", "Invalid username or password"),
        (b"\0" + b"a" * 9000 + b"\0b", "Invalid username or password"),
    ],
)
def test_malformed_plain_token_is_refused(
    wire: Wire, version: int, token: bytes, text: str
) -> None:
    handshake(wire, "PLAIN")
    wire.send(m.SaslAuthenticateRequest(auth_bytes=token), version)
    wire.world.settle()
    found = refusal(wire)
    assert isinstance(found, m.SaslAuthenticateResponse)
    assert found.error_code == FAILED
    assert text in str(found.error_message)


def test_identity_to_act_as_may_be_the_own_name(wire: Wire) -> None:
    handshake(wire, "PLAIN")
    assert authenticate(wire, b"alice\0alice\0secret").error_code == 0


@pytest.mark.parametrize("version", ends(ApiKey.SASL_HANDSHAKE))
def test_unknown_mechanism_is_refused_with_the_known_ones(wire: Wire, version: int) -> None:
    wire.send(m.SaslHandshakeRequest(mechanism="GSSAPI"), version)
    wire.world.settle()
    found = refusal(wire)
    assert isinstance(found, m.SaslHandshakeResponse)
    assert found.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert found.mechanisms == list(MECHANISMS)


def test_clear_text_mechanisms_need_tls_or_the_same_machine() -> None:
    world = secured(sasl_insecure_clear_text=False)
    wire = Wire(world)
    wire.send(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    wire.world.settle()
    found = refusal(wire)
    assert isinstance(found, m.SaslHandshakeResponse)
    assert found.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        near = Wire(world)
        near.channel.peer_address = (host, 1)
        assert handshake(near, "PLAIN").mechanisms == list(MECHANISMS)
    encrypted = Wire(world)
    encrypted.transport.get_extra_info = lambda name, default=None: object()  # type: ignore[method-assign]
    assert handshake(encrypted, "PLAIN").mechanisms == list(MECHANISMS)


def test_refusal_waits_and_nothing_is_read_meanwhile(wire: Wire) -> None:
    handshake(wire, "PLAIN")
    wire.send(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    wire.send(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    wire.world.advance(0.099)
    assert not wire.replies()
    assert not wire.is_closed
    wire.world.advance(0.001)
    assert [type(each.message) for each in wire.replies()] == [m.SaslAuthenticateResponse]
    wire.world.advance(LOGIN_REFUSED_CLOSE_S)
    assert wire.is_closed
    assert not wire.replies()


@pytest.mark.parametrize("delay_ms", [0, 3000])
def test_delay_of_refusals_is_a_setting(delay_ms: int) -> None:
    wire = Wire(secured(connection_failed_authentication_delay_ms=delay_ms))
    handshake(wire, "PLAIN")
    wire.send(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    wire.world.settle()
    at_once = len(wire.replies())
    assert at_once == (delay_ms == 0)
    wire.world.advance(delay_ms / 1000)
    assert at_once + len(wire.replies()) == 1


def test_requests_behind_the_token_begin_as_the_new_caller(wire: Wire) -> None:
    handshake(wire, "PLAIN")
    wire.send(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "secret")), 2)
    wire.send(m.MetadataRequest(topics=[]), 5)
    wire.world.settle()
    assert [type(each.message) for each in wire.replies()] == [
        m.SaslAuthenticateResponse,
        m.MetadataResponse,
    ]


# ---- before the login


def test_only_three_requests_are_served_before_the_login(wire: Wire) -> None:
    assert wire.ask(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse).api_keys
    wire.send(m.MetadataRequest(topics=[]), 5)
    wire.world.settle()
    assert not wire.replies()
    assert wire.is_closed


@pytest.mark.parametrize("key", [key for key in ApiKey if key not in (17, 18, 36)])
def test_every_other_request_closes_the_connection(world: World, key: ApiKey) -> None:
    wire = Wire(world)
    wire.feed(frame_of(key.to_bytes(2, "big") + bytes(20)))
    wire.world.settle()
    assert wire.is_closed
    assert not wire.received()


def test_token_before_the_handshake_is_refused(wire: Wire) -> None:
    wire.send(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "secret")), 2)
    wire.world.settle()
    found = refusal(wire)
    assert isinstance(found, m.SaslAuthenticateResponse)
    assert found.error_code == ILLEGAL


def test_frames_are_small_before_the_login_and_usual_after_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.channels.listener = "outside"
    wire = Wire(world)
    with caplog.at_level(logging.INFO):
        wire.feed((LOGIN_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert wire.is_closed
    assert "bytes; 1 to 65536 are allowed before the login, on listener outside" in caplog.text
    other = Wire(world)
    log_in(other)
    other.feed((10 << 20).to_bytes(4, "big"))
    assert not other.is_closed


def test_connection_that_does_not_log_in_is_closed_in_time(world: World) -> None:
    wire, other = Wire(world), Wire(world)
    handshake(wire, "PLAIN")
    log_in(other)
    world.advance(9.9)
    assert not wire.is_closed
    world.advance(0.1)
    assert wire.is_closed
    assert not other.is_closed


def test_connections_before_the_login_are_bounded() -> None:
    world = secured(max_connections_before_login_per_ip=2)
    add_user(world, password="secret")
    wires = [Wire(world) for _ in range(3)]
    world.settle()
    assert [each.is_closed for each in wires] == [False, False, True]
    for each in wires[:2]:
        log_in(each)
    # The same number bounds new connections in a second.
    world.advance(1)
    assert log_in(Wire(world)).error_code == 0
    lost = Wire(world)
    lost.lose()
    world.advance(1)
    wires = [Wire(world) for _ in range(3)]
    world.settle()
    assert [each.is_closed for each in wires] == [False, False, True]


def test_connections_of_all_addresses_are_bounded() -> None:
    world = secured(max_connections_before_login=1)
    wires = [Wire(world) for _ in range(2)]
    world.settle()
    assert [each.is_closed for each in wires] == [False, True]


# ---- tokens without headers


def test_login_with_tokens_without_headers(wire: Wire) -> None:
    assert handshake(wire, "SCRAM-SHA-512", version=0).error_code == 0
    client = ScramClient(["SCRAM-SHA-512"], "alice", "secret")
    first = wire.exchange(frame_of(client.get_client_first().encode()))
    client.set_server_first(first[4:].decode())
    final = wire.exchange(frame_of(client.get_client_final().encode()))
    assert int.from_bytes(final[:4], "big") == len(final) - 4
    client.set_server_final(final[4:].decode())
    assert metadata(wire).brokers


def test_plain_login_with_a_token_without_a_header(wire: Wire) -> None:
    handshake(wire, "PLAIN", version=0)
    assert wire.exchange(frame_of(plain("alice", "secret"))) == bytes(4)
    assert metadata(wire).brokers


def test_wrong_token_without_a_header_closes_without_a_reply(wire: Wire) -> None:
    handshake(wire, "PLAIN", version=0)
    assert wire.exchange(frame_of(plain("alice", "wrong"))) == b""
    assert not wire.is_closed
    wire.world.advance(0.1)
    assert wire.is_closed
    assert wire.received() == b""


# ---- other listeners


def test_listener_without_logins_knows_no_sasl() -> None:
    wire = Wire(secured(OPEN))
    found = handshake(wire, "PLAIN")
    assert (found.error_code, found.mechanisms) == (ILLEGAL, [])
    answer = authenticate(wire, plain("a", "b"))
    assert (answer.error_code, answer.auth_bytes) == (ILLEGAL, b"")
    assert answer.error_message
    assert metadata(wire).brokers


def test_optional_login_changes_the_caller() -> None:
    world = secured(OPTIONAL)
    add_user(world, password="secret")
    wire = Wire(world)
    assert metadata(wire).brokers
    assert principal_of(wire) == ANONYMOUS
    log_in(wire)
    assert principal_of(wire) == Principal("User", "alice")


def test_login_that_becomes_required_applies_to_open_connections() -> None:
    world = secured(OPEN)
    add_user(world, password="secret")
    wire, other = Wire(world), Wire(world)
    assert metadata(wire).brokers
    world.channels.security = REQUIRED
    world.broker.context.settings = msgspec.structs.replace(world.broker.settings)
    wire.send(m.MetadataRequest(topics=[]), 5)
    world.settle()
    assert wire.is_closed
    log_in(other)
    assert metadata(other).brokers


def test_express_path_ends_where_a_login_becomes_required() -> None:
    world = secured(OPEN)
    world.create("t")
    wire = Wire(world)
    topic = m.ProduceRequestTopic(
        name="t", partition_data=[m.ProduceRequestPartition(index=0, records=batch_of(b"v"))]
    )
    request = m.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    for _ in range(3):
        assert (
            not wire.ask(request, 8, m.ProduceResponse)
            .responses[0]
            .partition_responses[0]
            .error_code
        )
    world.channels.security = REQUIRED
    world.broker.context.settings = msgspec.structs.replace(world.broker.settings)
    wire.send(request, 8)
    world.settle()
    assert wire.is_closed
    assert world.broker.partitions.find("t", 0).log.log_end_offset == 3


# ---- sessions that end (KIP-368)


def test_session_ends_unless_the_client_logs_in_again() -> None:
    world = secured(connections_max_reauth_ms=60_000)
    add_user(world, password="secret")
    wire, other = Wire(world), Wire(world)
    assert log_in(wire).session_lifetime_ms == 60_000
    log_in(other)
    world.advance(59)
    assert metadata(wire).brokers
    assert log_in(wire).session_lifetime_ms == 60_000
    world.advance(2)
    assert metadata(wire).brokers
    other.send(m.MetadataRequest(topics=[]), 5)
    world.settle()
    assert other.is_closed
    assert not other.replies()


def test_expired_session_may_log_in_but_do_nothing_else() -> None:
    world = secured(connections_max_reauth_ms=1000)
    add_user(world, password="secret")
    wire, other = Wire(world), Wire(world)
    log_in(wire)
    log_in(other)
    world.advance(5)
    handshake(other, "SCRAM-SHA-256")
    other.send(m.MetadataRequest(topics=[]), 5)
    world.settle()
    assert other.is_closed
    log_in(wire)
    assert metadata(wire).brokers


def test_login_again_is_as_the_same_principal_by_the_same_mechanism(world: World) -> None:
    add_user(world, "bob", password="secret")
    wire = Wire(world)
    log_in(wire, mechanism="PLAIN")
    world.advance(2)
    handshake(wire, "PLAIN")
    wire.send(m.SaslAuthenticateRequest(auth_bytes=plain("bob", "secret")), 2)
    world.settle()
    found = refusal(wire)
    assert isinstance(found, m.SaslAuthenticateResponse)
    assert found.error_code == FAILED
    assert found.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    other = Wire(world)
    log_in(other, mechanism="PLAIN")
    world.advance(2)
    assert handshake(other, "SCRAM-SHA-256").error_code == 0
    other.send(m.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2)
    world.settle()
    found = refusal(other)
    assert isinstance(found, m.SaslAuthenticateResponse)
    assert "is not supported for re-authentication of mechanism 'PLAIN'" in str(found.error_message)


def test_logins_of_a_connection_are_a_second_apart(world: World) -> None:
    wire = Wire(world)
    log_in(wire)
    world.advance(2)
    log_in(wire)
    assert handshake(wire, "SCRAM-SHA-256").error_code == ILLEGAL
    world.advance(1)
    assert log_in(wire).error_code == 0


def test_token_after_the_login_is_refused_and_changes_nothing(wire: Wire) -> None:
    log_in(wire)
    assert authenticate(wire, plain("bob", "x")).error_code == ILLEGAL
    assert principal_of(wire) == Principal("User", "alice")
    assert metadata(wire).brokers


# ---- tokens


def token_world(**settings: object) -> World:
    world = secured(sasl_oauthbearer_jwks_endpoint_url="https://issuer.example/keys", **settings)
    world.broker.logins.bearer_tokens.keys.fetch = lambda _: succeeded(key_set(jwk(rsa_key(), "1")))
    return world


def claims(world: World, seconds: int = 600, sub: str = "alice") -> dict[str, object]:
    return {"sub": sub, "exp": world.clock.wall_ms() // 1000 + seconds}


def log_in_by_token(wire: Wire, seconds: int = 600) -> m.SaslAuthenticateResponse:
    assert handshake(wire, "OAUTHBEARER").error_code == 0
    text = token(rsa_key(), **claims(wire.world, seconds))
    return authenticate(wire, first_message(text))


def test_login_by_token_lasts_as_long_as_the_token() -> None:
    world = token_world()
    wire, other = Wire(world), Wire(world)
    assert log_in_by_token(wire, 60).session_lifetime_ms == 60_000
    log_in_by_token(other, 60)
    assert principal_of(wire) == Principal("User", "alice")
    world.advance(59)
    assert metadata(wire).brokers
    log_in_by_token(wire, 60)
    world.advance(1)
    assert metadata(wire).brokers
    other.send(m.MetadataRequest(topics=[]), 5)
    world.settle()
    assert other.is_closed


@pytest.mark.parametrize(("token_s", "limit_s"), [(60, 20), (20, 60)])
def test_session_ends_with_the_token_or_the_limit(token_s: int, limit_s: int) -> None:
    world = token_world(connections_max_reauth_ms=limit_s * 1000)
    assert log_in_by_token(Wire(world), token_s).session_lifetime_ms == 20_000


@pytest.mark.parametrize(("key", "name"), [(1, "alice"), (0, "*"), (0, "ANONYMOUS"), (0, "a\0")])
def test_wrong_token_is_a_challenge_and_then_refused(key: int, name: str) -> None:
    world = token_world()
    wire = Wire(world)
    handshake(wire, "OAUTHBEARER")
    text = token(rsa_key(key), **claims(world, sub=name))
    found = authenticate(wire, first_message(text))
    assert (found.error_code, found.auth_bytes) == (0, b'{"status":"invalid_token"}')
    wire.send(m.SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
    world.settle()
    refused = refusal(wire)
    assert isinstance(refused, m.SaslAuthenticateResponse)
    assert refused.error_code == FAILED
    assert refused.error_message == '{"status":"invalid_token"}'


def test_client_that_continues_after_the_challenge_is_not_logged_in() -> None:
    world = token_world()
    wire = Wire(world)
    handshake(wire, "OAUTHBEARER")
    authenticate(wire, first_message("a.b.c"))
    wire.send(m.MetadataRequest(topics=[]), 5)
    world.settle()
    assert wire.is_closed
    assert not wire.replies()


def test_token_of_a_disabled_user_is_refused() -> None:
    world = token_world()
    add_user(world, password="secret", is_enabled=False)
    found = log_in_by_token(Wire(world))
    assert found.auth_bytes == b'{"status":"invalid_token"}'


def test_disabling_a_user_ends_its_sessions_by_token() -> None:
    world = token_world()
    wire = Wire(world)
    log_in_by_token(wire)
    add_user(world, password="secret", is_enabled=False)
    assert wire.is_closed


# ---- users that change


def test_connections_of_a_removed_user_are_closed_at_once(world: World) -> None:
    wires = [Wire(world) for _ in range(3)]
    for each in wires[:2]:
        log_in(each)
    remove_user(world)
    assert [each.is_closed for each in wires] == [True, True, False]


def test_connections_of_a_disabled_or_replaced_user_are_closed_at_once(world: World) -> None:
    wire = Wire(world)
    log_in(wire)
    add_user(world, password="secret", incarnation="2")
    assert wire.is_closed
    wire = Wire(world)
    log_in(wire)
    add_user(world, password="secret", incarnation="2", is_enabled=False)
    assert wire.is_closed


def test_connections_survive_a_new_password(world: World) -> None:
    wire = Wire(world)
    log_in(wire)
    add_user(world, password="another")
    assert metadata(wire).brokers


def test_closed_connection_is_forgotten_during_the_delay(wire: Wire) -> None:
    handshake(wire, "PLAIN")
    wire.send(m.SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
    wire.world.settle()
    wire.lose()
    wire.world.advance(20)
    assert not wire.received()
    assert wire.world.broker.logins.admission.in_all == 0
