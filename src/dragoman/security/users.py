"""Users and their credentials, as the metadata has them. No password is stored.

A password becomes a SCRAM verifier for each mechanism; PLAIN, HTTP basic and Cursus logins are
checked against these. A signing secret, which RocketMQ needs in clear, is a credential of its own,
encrypted with the cluster's key. API tokens are stored as digests.
"""

from __future__ import annotations

import msgspec


class ScramVerifier(msgspec.Struct, frozen=True):
    """What RFC 5802 stores in place of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramVerifier(iterations={self.iterations})"


class SealedSecret(msgspec.Struct, frozen=True):
    """A secret encrypted with the cluster's key of this id."""

    key_id: str
    sealed: bytes

    def __repr__(self) -> str:
        return f"SealedSecret(key_id={self.key_id!r})"


class ApiToken(msgspec.Struct, frozen=True):
    """A bearer token of a user. Its text is shown once, when it is made."""

    token_id: str
    #: SHA-256 of the token's text, which has 256 random bits and therefore needs no salt.
    digest: bytes
    created_ms: int
    #: 0: the token does not expire.
    expires_ms: int = 0
    is_read_only: bool = False
    #: What the token is for, as its creator described it.
    label: str = ""

    def __repr__(self) -> str:
        return f"ApiToken(token_id={self.token_id!r}, is_read_only={self.is_read_only})"


class User(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    #: Unique to each use of the name: sessions and tokens of an earlier user do not pass for it.
    incarnation: str
    is_enabled: bool = True
    #: By mechanism: `SCRAM-SHA-256`, `SCRAM-SHA-512`.
    scram: dict[str, ScramVerifier] = {}
    #: The secret key that signs RocketMQ requests; the access key is the user's name.
    signing_secret: SealedSecret | None = None
    tokens: tuple[ApiToken, ...] = ()
