"""Bearer tokens as JWT (RFC 7519), and OAUTHBEARER (RFC 7628), the mechanism that carries them.

    client    n,[a=NAME],^A auth=Bearer TOKEN ^A [KEY=VALUE ^A]... ^A
    server    (empty)                       the token is valid
    server    {"status":"invalid_token"}    it is not; the client answers ^A, and the login fails

A token is signed with a key of the key set, by an algorithm of the settings, and names its subject
and its end. Issuer, audience and scopes are compared if the settings name them. The reason of a
refusal is for the node's log only.
"""

from __future__ import annotations

import base64
import logging
import re
from typing import Final, NamedTuple, Protocol

import msgspec

from dragoman.config.settings import Settings
from dragoman.config.user_names import problem_of
from dragoman.errors import AuthenticationFailedError
from dragoman.limits import BEARER_TOKEN_BYTES_MAX
from dragoman.log_limiter import LogLimiter
from dragoman.security.access import Caller, Principal
from dragoman.security.token_keys import TokenKeys
from dragoman.world import Clock, Scheduler

log = logging.getLogger("dragoman.security")


class BearerLogin(NamedTuple):
    caller: Caller
    #: When the token ends, in milliseconds since 1970.
    expires_ms: int


class _InvalidError(Exception):
    """The reason why a token is not valid, and the status for the client."""

    def __init__(self, reason: str, status: str = "invalid_token") -> None:
        super().__init__(reason)
        self.status = status


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str = ""
    #: Extensions that a recipient has to understand; this one understands none.
    crit: object = None


class BearerTokens:
    """Validates tokens by the settings of the node."""

    def __init__(self, settings: Settings, scheduler: Scheduler, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._log = LogLimiter(log, scheduler)
        refresh_s = settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
        self.keys = TokenKeys(settings.sasl_oauthbearer_jwks_endpoint_url, refresh_s, scheduler)

    async def login(self, token: str, host: str) -> BearerLogin:
        """Raises `AuthenticationFailedError`, whose text is the status for the client."""
        try:
            claims = await self._claims(token)
            name, expires_ms = self._checked(claims)
        except _InvalidError as error:
            self._log.info("token of %s refused: %s", host, error)
            raise AuthenticationFailedError(error.status) from None
        return BearerLogin(Caller(Principal("User", name), host, is_proven=True), expires_ms)

    async def _claims(self, token: str) -> dict[str, object]:
        """The claims of a token whose signature is right."""
        if len(token) > BEARER_TOKEN_BYTES_MAX:
            raise _InvalidError(f"it has {len(token)} bytes")
        parts = token.split(".")
        if len(parts) != 3:
            raise _InvalidError("it has not three parts")
        try:
            header = msgspec.json.decode(_from_base64(parts[0]), type=_Header)
            if header.crit is not None:
                raise _InvalidError("it has extensions that must be understood (crit)")
            if header.alg == "none" and not parts[2]:
                payload = self._unsigned(parts[1])
            else:
                payload = await self._verified(token, header)
            return msgspec.json.decode(payload, type=dict[str, object])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise _InvalidError("it cannot be decoded") from None

    def _unsigned(self, payload: str) -> bytes:
        if not self._settings.sasl_oauthbearer_insecure_unsigned:
            raise _InvalidError("it is not signed")
        return _from_base64(payload)

    async def _verified(self, token: str, header: _Header) -> bytes:
        if header.alg not in self._settings.sasl_oauthbearer_algorithms:
            raise _InvalidError(f"algorithm {header.alg!r:.40} is not allowed")
        if not self._settings.sasl_oauthbearer_jwks_endpoint_url:
            raise _InvalidError("sasl.oauthbearer.jwks.endpoint.url is not set")
        key = await self.keys.find(header.kid, header.alg)
        if key is None:
            raise _InvalidError(f"no key {header.kid!r:.100} for {header.alg}")
        from jwt import PyJWTError
        from jwt.api_jws import PyJWS

        try:
            found = PyJWS().decode_complete(token, key, algorithms=[header.alg])
        except PyJWTError as error:
            raise _InvalidError(str(error)) from None
        payload = found["payload"]
        assert isinstance(payload, bytes)
        return payload

    def _checked(self, claims: dict[str, object]) -> tuple[str, int]:
        """Name and end of a token with these claims."""
        settings = self._settings
        now, skew = self._clock.wall_ms() / 1000, settings.sasl_oauthbearer_clock_skew_seconds
        expires = _time_of(claims, "exp")
        if expires is None:
            raise _InvalidError("it has no end (exp)")
        if expires + skew <= now:
            raise _InvalidError("it has expired")
        for claim in ("nbf", "iat"):
            begins = _time_of(claims, claim)
            if begins is not None and begins - skew > now:
                raise _InvalidError(f"it is not valid yet ({claim})")
        issuer = settings.sasl_oauthbearer_expected_issuer
        if issuer and claims.get("iss") != issuer:
            raise _InvalidError("it has another issuer")
        audience = settings.sasl_oauthbearer_expected_audience
        if audience and not set(audience) & set(_texts_of(claims, "aud", None)):
            raise _InvalidError("it is for another audience")
        scopes = _texts_of(claims, settings.sasl_oauthbearer_scope_claim_name, " ")
        missing = set(settings.sasl_oauthbearer_required_scope) - set(scopes)
        if missing:
            raise _InvalidError("a scope is missing", "insufficient_scope")
        return self._name_of(claims), int(expires * 1000)

    def _name_of(self, claims: dict[str, object]) -> str:
        name = claims.get(self._settings.sasl_oauthbearer_sub_claim_name)
        if not isinstance(name, str):
            raise _InvalidError("it names no principal")
        problem = problem_of(name)
        if problem:
            raise _InvalidError(f"its principal: {problem:.300}")
        return name


def _from_base64(text: str) -> bytes:
    """Raises `ValueError`."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


#: The year 9999, past which a time is a mistake.
_TIME_MAX: Final = 253_402_300_799


def _time_of(claims: dict[str, object], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    # JSON has no infinity, but large numbers that become one.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _TIME_MAX:
        raise _InvalidError(f"{claim} is not a time")
    return float(value)


def _texts_of(claims: dict[str, object], claim: str, separator: str | None) -> list[str]:
    """A claim that is a list of texts, or one text, which may have separators."""
    value = claims.get(claim)
    if isinstance(value, str):
        return [value] if separator is None else value.split(separator)
    if isinstance(value, list):
        return [each for each in value if isinstance(each, str)]
    return []


# ---- the mechanism

_SASL_NAME: Final = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
#: As Kafka's OAuthBearerClientInitialResponse has them.
_FIRST: Final = re.compile(
    rf"n,(?:a=({_SASL_NAME}))?,\x01((?:[A-Za-z]+=[\x21-\x7E \t\r\n]*\x01)+)\x01"
)
_BEARER: Final = re.compile(r"bearer +([-_~+/.A-Za-z0-9]+=*)", re.IGNORECASE)


class FirstMessage(NamedTuple):
    #: The identity that the client wants to act as; empty: that of the token.
    acting_as: str
    token: str
    extensions: dict[str, str]


def parse_first(message: bytes) -> FirstMessage:
    """Raises `AuthenticationFailedError`."""
    try:
        found = _FIRST.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise AuthenticationFailedError("Invalid OAUTHBEARER client first message")
    acting_as, pairs = found.groups()
    extensions: dict[str, str] = {}
    for pair in pairs.rstrip("\x01").split("\x01"):
        key, _, value = pair.partition("=")
        if key in extensions:
            raise AuthenticationFailedError(
                f"Invalid OAUTHBEARER client first message: {key} is in it twice"
            )
        extensions[key] = value
    bearer = _BEARER.fullmatch(extensions.pop("auth", ""))
    if bearer is None:
        raise AuthenticationFailedError(
            "Invalid OAUTHBEARER client first message: 'auth' is not a bearer token"
        )
    name = (acting_as or "").replace("=2C", ",").replace("=3D", "=")
    return FirstMessage(name, bearer[1], extensions)


class TokenCheck(Protocol):
    async def __call__(self, token: str) -> BearerLogin:
        """Raises `AuthenticationFailedError`, whose text is the status for the client."""
        ...


class BearerServer:
    """OAUTHBEARER, one exchange."""

    def __init__(self, check: TokenCheck) -> None:
        self._check = check
        self._is_over = False
        self._challenge = ""
        self.caller: Caller | None = None
        self.expires_ms = 0

    async def receive(self, message: bytes) -> bytes:
        if self._challenge:
            raise AuthenticationFailedError(self._challenge)
        if self._is_over:
            raise AuthenticationFailedError("Authentication failed: the exchange is over")
        self._is_over = True
        first = parse_first(message)
        try:
            found = await self._check(first.token)
        except AuthenticationFailedError as error:
            self._challenge = msgspec.json.encode({"status": str(error)}).decode()
            return self._challenge.encode()
        if first.acting_as and first.acting_as != found.caller.name:
            raise AuthenticationFailedError(
                "Authentication failed: Client requested an authorization id"
                f" ({first.acting_as:.255}) that is different from the token's principal name"
                f" ({found.caller.name})"
            )
        self.caller, self.expires_ms = found
        return b""
