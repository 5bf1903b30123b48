"""The public keys that verify tokens: a JSON Web Key Set (RFC 7517) from a file or an https URL.

Keys are fetched beside the loop with the first token, again when they are old, and when a token
names a key that is not in the set, because the issuer may have rotated its keys. Fetches are a
while apart, whatever tokens clients send. While fetches fail, the last set stays in use.

Only public keys are taken: a set cannot introduce a secret key, with which a token would be signed
by whoever knows the set. The type of a key decides which algorithms it verifies, not the token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from dragoman.errors import DragomanError, TokenKeysError
from dragoman.limits import (
    JWKS_BYTES_MAX,
    JWKS_FETCH_TIMEOUT_S,
    JWKS_FETCHES_APART_S,
    JWKS_KEYS_MAX,
    RSA_KEY_BITS_MIN,
)
from dragoman.outcome import Outcome, attempt, deadline, failed, ignore, start
from dragoman.world import Scheduler

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger("dragoman.security")
#: Fetches the bytes at a URL; fails with `TokenKeysError`.
FetchKeys: TypeAlias = Callable[[str], Outcome[bytes]]

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE: Final = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}
#: Every algorithm by which a token may be signed.
ALGORITHMS: Final = (*_RSA, "ES256", "ES384", "ES512", "EdDSA")


class _Jwk(msgspec.Struct, frozen=True):
    """The part of a key that says what it is for."""

    kty: str
    kid: str = ""
    use: str = "sig"
    alg: str = ""
    crv: str = ""
    n: str = ""

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithms that the key verifies; none for a secret key or one that encrypts."""
        if self.use != "sig":
            return ()
        found = _RSA if self.kty == "RSA" else _BY_CURVE.get(self.crv, ())
        if self.kty not in ("RSA", "EC", "OKP"):
            return ()
        return tuple(each for each in found if self.alg in ("", each))


class _JwkSet(msgspec.Struct, frozen=True):
    keys: list[msgspec.Raw]


class KeySet:
    """The keys of one document."""

    def __init__(self, data: bytes) -> None:
        """Raises `TokenKeysError`. Keys of unknown types are ignored, as RFC 7517 asks."""
        if len(data) > JWKS_BYTES_MAX:
            raise TokenKeysError(f"a key set has at most {JWKS_BYTES_MAX:,} bytes")
        try:
            raw = msgspec.json.decode(data, type=_JwkSet).keys
            described = [(msgspec.json.decode(each, type=_Jwk), each) for each in raw]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise TokenKeysError("not a JSON Web Key Set") from None
        if len(raw) > JWKS_KEYS_MAX:
            raise TokenKeysError(f"a key set has at most {JWKS_KEYS_MAX} keys")
        self._keys = [(key, bytes(each)) for key, each in described if key.algorithms]
        self._made: dict[tuple[int, str], PyJWK | None] = {}

    def find(self, kid: str, algorithm: str) -> PyJWK | None:
        """The key of this id that verifies the algorithm. A token without an id needs a set in
        which one key alone suits.
        """
        suiting = [
            index
            for index, (key, _) in enumerate(self._keys)
            if algorithm in key.algorithms and (not kid or key.kid == kid)
        ]
        return self._key(suiting[0], algorithm) if len(suiting) == 1 else None

    def _key(self, index: int, algorithm: str) -> PyJWK | None:
        # A key that cannot be used is reported once, and not with each token that names it.
        if (index, algorithm) not in self._made:
            self._made[index, algorithm] = self._make(index, algorithm)
        return self._made[index, algorithm]

    def _make(self, index: int, algorithm: str) -> PyJWK | None:
        from jwt import PyJWK, PyJWKError, PyJWTError

        key, raw = self._keys[index]
        try:
            made = PyJWK(msgspec.json.decode(raw, type=dict[str, object]), algorithm)
        except (PyJWKError, PyJWTError, ValueError, TypeError):
            log.warning("key %.100r of the key set cannot be used", key.kid)
            return None
        size = getattr(made.key, "key_size", None)
        if key.kty == "RSA" and not (isinstance(size, int) and size >= RSA_KEY_BITS_MIN):
            log.warning(
                "key %.100r of the key set has fewer than %d bits", key.kid, RSA_KEY_BITS_MIN
            )
            return None
        return made


class TokenKeys:
    """The current keys, and when they are fetched."""

    def __init__(self, url: str, refresh_s: float, scheduler: Scheduler) -> None:
        self._url = url
        self._refresh_s = refresh_s
        self._scheduler = scheduler
        #: Fetches nothing by default; the server replaces it.
        self.fetch: FetchKeys = _fetch_nothing
        self._keys: KeySet | None = None
        #: When the keys were fetched, and when a fetch last began or ended.
        self._fetched_at = 0.0
        self._tried_at = -JWKS_FETCHES_APART_S
        #: Those who wait for the fetch in progress.
        self._waiting: list[Outcome[None]] | None = None

    async def find(self, kid: str, algorithm: str) -> PyJWK | None:
        """The key that verifies a token, fetched if needed; None: there is none."""
        now = self._scheduler.time()
        if self._keys is None or now - self._fetched_at >= self._refresh_s:
            await self._fetch()
        found = None if self._keys is None else self._keys.find(kid, algorithm)
        if found is None and self._scheduler.time() != self._fetched_at:
            await self._fetch()
            found = None if self._keys is None else self._keys.find(kid, algorithm)
        return found

    async def _fetch(self) -> None:
        """Fetch the keys, unless that was done or tried just now."""
        if self._waiting is None:
            now = self._scheduler.time()
            if now - self._tried_at < JWKS_FETCHES_APART_S:
                return
            self._tried_at = now
            self._waiting = []
            mine: Outcome[None] = Outcome()
            self._waiting.append(mine)
            start(self._replace()).then(ignore)
        else:
            mine = Outcome()
            self._waiting.append(mine)
        await mine

    async def _replace(self) -> None:
        result = await attempt(
            deadline(
                self.fetch(self._url),
                self._scheduler,
                JWKS_FETCH_TIMEOUT_S,
                lambda: TokenKeysError("no answer in time"),
            )
        )
        try:
            if isinstance(result, DragomanError):
                raise result
            self._keys = KeySet(result)
            self._fetched_at = self._scheduler.time()
        except DragomanError as error:
            log.warning("the keys of tokens at %s: %s", self._url, error)
        self._tried_at = self._scheduler.time()
        waiting, self._waiting = self._waiting, None
        assert waiting is not None
        for each in waiting:
            each.succeed(None)


def _fetch_nothing(_url: str) -> Outcome[bytes]:
    return failed(TokenKeysError("this node cannot fetch keys"))
