"""Attacks on the login of one listener, with what the client sees and what the node logs."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import jwt
from cryptography.hazmat.primitives import serialization
from scramp import ScramClient

from attack.middle import Alter, Middle, receive_frame
from dragoman.certificates import Authority, write_pair
from dragoman.client.kafka import BlockingKafkaClient, ClientSettings, SaslLogin
from dragoman.client_core.tls import TlsSettings
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from worlds.tls import MemoryPeer
from worlds.tokens import AUDIENCE, first_message, rsa_key, token

USER, PASSWORD = "alice", "only she knows it"
_PATIENCE_S = 15.0
#: The node writes its audit log every tenth of a second.
_LOGGED_WITHIN_S = 0.5
_LOOK_S = 0.02
_SOON = 4_000_000_000
#: What a client of OAUTHBEARER answers a challenge with.
_END = b"\x01"
_SCRAM = "SCRAM-SHA-256"


class Door(NamedTuple):
    """A listener that allows TLS and demands a login."""

    address: str
    ca: str
    #: The lines so far of the node's log, and of its audit log.
    logs: tuple[Callable[[], list[str]], ...]
    directory: Path

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)


class Seen(NamedTuple):
    client: str
    node: list[str]


class LoginAttack(NamedTuple):
    name: str
    #: Returns what the client sees.
    strike: Callable[[Door], str]
    #: A part of that, and of a line of the node's log; empty: it need not log.
    client_sees: str
    node_logs: str = ""


def carry_out(attack: LoginAttack, door: Door) -> Seen:
    before = [len(log()) for log in door.logs]
    client = attack.strike(door)
    until = time.monotonic() + _LOGGED_WITHIN_S
    while True:
        lines = [
            line for log, start in zip(door.logs, before, strict=True) for line in log()[start:]
        ]
        if attack.node_logs and any(attack.node_logs in each for each in lines):
            break
        if time.monotonic() > until:
            break
        time.sleep(_LOOK_S)
    return Seen(client, lines)


def is_as_expected(attack: LoginAttack, seen: Seen) -> bool:
    logged = not attack.node_logs or any(attack.node_logs in each for each in seen.node)
    return logged and attack.client_sees in seen.client


def audit_lines(path: Path) -> list[str]:
    """The lines of an audit log as action, result, principal and reason."""
    found = []
    with suppress(OSError):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                event = json.loads(line)
                parts = (event.get(each, "") for each in ("action", "result", "principal"))
                found.append(" ".join([*parts, f"({event.get('detail', '')})"]))
    return found


# ---- a client that sends what it likes


class Stranger:
    def __init__(self, door: Door) -> None:
        plain = socket.create_connection(door.place, _PATIENCE_S)
        tls = ssl.create_default_context(cafile=door.ca)
        self._socket = tls.wrap_socket(plain, server_hostname="localhost")

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: m.Message, version: int) -> bytes:
        """The reply's body. Raises `EOFError`, `OSError`."""
        frame = codec.join(codec.encode_request(request, version, 1, "stranger"))
        self._socket.sendall(frame)
        return receive_frame(self._socket)[4:]

    def begin(self, mechanism: str) -> None:
        body = self.ask(m.SaslHandshakeRequest(mechanism=mechanism), 1)
        assert codec.decode(m.SaslHandshakeResponse, 1, body).error_code == 0

    def send(self, message: bytes) -> m.SaslAuthenticateResponse:
        body = self.ask(m.SaslAuthenticateRequest(auth_bytes=message), 1)
        return codec.decode(m.SaslAuthenticateResponse, 1, body)


def _conclusion(answer: m.SaslAuthenticateResponse) -> str:
    if answer.error_code:
        return f"{answer.error_code}: {answer.error_message}"
    return "logged in"


def _last(door: Door, mechanism: str, *messages: Callable[[bytes], bytes]) -> str:
    """The end of an exchange; each message is made of the answer before."""
    with Stranger(door) as stranger:
        stranger.begin(mechanism)
        received = b""
        answer = m.SaslAuthenticateResponse()
        try:
            for make in messages:
                answer = stranger.send(make(received))
                if answer.error_code:
                    break
                received = bytes(answer.auth_bytes)
        except (OSError, EOFError):
            return "closed"
        return _conclusion(answer)


# ---- TLS


def _through(door: Door, alter: Alter, *, is_tls: bool, tls: ssl.SSLContext | None = None) -> str:
    """What our client says of a node behind a man in the middle. The password never passes."""
    settings = ClientSettings(
        login=SaslLogin(name=USER, password=PASSWORD, mechanism=_SCRAM),
        tls=TlsSettings(ca=door.ca, server_name="localhost") if is_tls else None,
        operation_timeout_s=3,
    )
    with Middle(door.place, alter, tls) as middle:
        try:
            with BlockingKafkaClient(middle.address, settings) as client:
                client.cluster()
            seen = "logged in"
        except DragomanError as error:
            seen = f"{type(error).__name__}: {error}"
        assert PASSWORD.encode() not in middle.overheard
    return seen


def _foreign_certificate(door: Door) -> str:
    pair = Authority.create().server(["localhost", "127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_pair(str(door.directory), "middle", pair))
    return _through(door, lambda body: body, is_tls=True, tls=context)


def _stripped(door: Door) -> str:
    """The man in the middle has no TLS, and hands plain frames on."""
    return _through(door, lambda body: body, is_tls=True)


def _never_encrypted(door: Door) -> str:
    return _through(door, lambda body: body, is_tls=False)


def _old_version(door: Door) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(door.place, _PATIENCE_S) as plain:
        try:
            context.wrap_socket(plain).close()
        except OSError as error:
            return str(error)
    return "connected"


def _cut_hello(door: Door) -> str:
    context = ssl.create_default_context(cafile=door.ca)
    hello = MemoryPeer(context).handshake()
    with socket.create_connection(door.place, _PATIENCE_S) as plain:
        plain.sendall(hello[: len(hello) // 2])
        plain.shutdown(socket.SHUT_WR)
        return "closed" if plain.recv(1) == b"" else "answered"


# ---- the handshake of SASL


def _is_handshake_reply(body: bytes) -> bool:
    return _SCRAM.encode() in body


def _only_plain(body: bytes) -> bytes:
    if not _is_handshake_reply(body):
        return body
    return body[:4] + struct.pack(">hi", 33, 1) + struct.pack(">h", 5) + b"PLAIN"


def _truncated(body: bytes) -> bytes:
    return body[:7] if _is_handshake_reply(body) else body


# ---- SCRAM


def _scram_client(password: str = PASSWORD) -> ScramClient:
    return ScramClient([_SCRAM], USER, password)


def _scram(
    door: Door,
    first: Callable[[str], str] = str,
    final: Callable[[str], str] = str,
    password: str = PASSWORD,
) -> str:
    """An exchange whose messages are changed on their way."""
    client = _scram_client(password)

    def finish(received: bytes) -> bytes:
        client.set_server_first(received.decode())
        return final(client.get_client_final()).encode()

    return _last(door, _SCRAM, lambda _: first(client.get_client_first()).encode(), finish)


def _no_final(door: Door) -> str:
    """A request in place of the proof."""
    with Stranger(door) as stranger:
        stranger.begin(_SCRAM)
        assert stranger.send(_scram_client().get_client_first().encode()).error_code == 0
        try:
            stranger.ask(m.MetadataRequest(), 1)
        except (OSError, EOFError):
            return "closed"
    return "answered"


def _swapped_nonce(final: str) -> str:
    channel, _, rest = final.split(",", 2)
    return f"{channel},r=another,{rest}"


def _replayed(door: Door) -> str:
    """All that a client sent in an exchange that succeeded."""
    sent: list[bytes] = []

    def keep(message: str) -> str:
        sent.append(message.encode())
        return message

    assert _scram(door, keep, keep) == "logged in"
    return _last(door, _SCRAM, *(lambda _, each=each: each for each in sent))


# ---- tokens


def _bearer(door: Door, text: str) -> str:
    """After a refusal, the client has to end the exchange, and gets the error then."""
    with Stranger(door) as stranger:
        stranger.begin("OAUTHBEARER")
        try:
            answer = stranger.send(first_message(text))
            if answer.error_code == 0 and answer.auth_bytes:
                challenge = bytes(answer.auth_bytes).decode()
                return f"{challenge}, then {_conclusion(stranger.send(_END))}"
        except (OSError, EOFError):
            return "closed"
        return _conclusion(answer)


def _token(number: int = 0, kid: str = "1", **claims: object) -> str:
    return token(rsa_key(number), kid, **{"sub": USER, "exp": _SOON, "aud": AUDIENCE, **claims})


def _unsigned(door: Door) -> str:
    claims = {"sub": USER, "exp": _SOON, "aud": AUDIENCE}
    return _bearer(door, jwt.encode(claims, "", algorithm="none", headers={"kid": "1"}))


def _public_key_as_secret(door: Door) -> str:
    public = rsa_key(0).public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    good = _token().split(".")[1]
    head = jwt.utils.base64url_encode(b'{"alg":"HS256","kid":"1","typ":"JWT"}').decode()
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signed = f"{head}.{good}"
    proof = jwt.utils.base64url_encode(signature.sign(signed.encode(), pem)).decode()
    return _bearer(door, f"{signed}.{proof}")


_REFUSED = "scram-sha-256 failed User:alice"
_NO_TOKEN = "oauthbearer failed"
ATTACKS = (
    LoginAttack("right password", _scram, "logged in", "scram-sha-256 succeeded User:alice"),
    LoginAttack(
        "wrong password",
        lambda door: _scram(door, password="guess"),
        "58: ",
        _REFUSED,
    ),
    LoginAttack(
        "TLS ended by another authority's certificate", _foreign_certificate, "certificate"
    ),
    LoginAttack("TLS stripped, the client demands it", _stripped, "Error"),
    LoginAttack(
        "TLS never begun: the listener allows it, the client does not demand it",
        _never_encrypted,
        "logged in",
        "scram-sha-256 succeeded User:alice",
    ),
    LoginAttack("TLS 1.1", _old_version, "version", "TLS"),
    LoginAttack("hello cut in the middle", _cut_hello, "closed"),
    LoginAttack(
        "only PLAIN offered by the man in the middle",
        lambda door: _through(door, _only_plain, is_tls=False),
        "offers PLAIN",
    ),
    LoginAttack(
        "SaslHandshake reply truncated",
        lambda door: _through(door, _truncated, is_tls=False),
        "Error",
    ),
    LoginAttack("SCRAM: request in place of the proof", _no_final, "closed", "Unexpected"),
    LoginAttack(
        "SCRAM: channel binding demanded (p)",
        lambda door: _scram(door, lambda text: text.replace("n,,", "p=tls-unique,,", 1)),
        "58: ",
        "scram-sha-256 failed",
    ),
    LoginAttack(
        "SCRAM: flag changed to y on the way",
        lambda door: _scram(door, lambda text: text.replace("n,,", "y,,", 1)),
        "58: ",
        "scram-sha-256 failed",
    ),
    LoginAttack(
        "SCRAM: swapped nonce", lambda d: _scram(d, final=_swapped_nonce), "58: ", "failed"
    ),
    LoginAttack("SCRAM: replayed proof", _replayed, "58: ", "scram-sha-256 failed User:alice"),
    LoginAttack("JWT: good", lambda d: _bearer(d, _token()), "logged in", "oauthbearer succeeded"),
    LoginAttack("JWT: alg none", _unsigned, "58: ", _NO_TOKEN),
    LoginAttack("JWT: HS256 with the public key", _public_key_as_secret, "58: ", _NO_TOKEN),
    LoginAttack("JWT: another key", lambda d: _bearer(d, _token(1)), "58: ", _NO_TOKEN),
    LoginAttack("JWT: unknown kid", lambda d: _bearer(d, _token(kid="9")), "58: ", _NO_TOKEN),
    LoginAttack("JWT: expired", lambda d: _bearer(d, _token(exp=1_600_000_000)), "58: ", _NO_TOKEN),
    LoginAttack(
        "JWT: wrong audience", lambda d: _bearer(d, _token(aud="others")), "58: ", _NO_TOKEN
    ),
    LoginAttack(
        "JWT: 60,000 bytes", lambda d: _bearer(d, _token(pad="x" * 44_000)), "58: ", _NO_TOKEN
    ),
    LoginAttack("JWT: 200,000 bytes", lambda d: _bearer(d, "x" * 200_000), "closed"),
)
