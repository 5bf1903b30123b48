"""Bearer tokens and the key sets that verify them."""

from __future__ import annotations

import json
from functools import lru_cache

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

#: Whom the tokens of attacks are for.
AUDIENCE = "dragoman"


@lru_cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@lru_cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@lru_cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def jwk(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey,
    kid: str,
    **fields: object,
) -> dict[str, object]:
    """The public half of a key, as a member of a key set."""
    if isinstance(key, rsa.RSAPrivateKey):
        made = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        made = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        made = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, **fields}


def key_set(*keys: dict[str, object]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def token(key: object, kid: str | None = "1", algorithm: str = "RS256", **claims: object) -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(claims, key, algorithm=algorithm, headers=headers)  # type: ignore[arg-type]


def first_message(text: str, name: str = "", **extensions: str) -> bytes:
    """What a client of OAUTHBEARER sends."""
    acting_as = f"a={name}" if name else ""
    pairs = [f"auth=Bearer {text}", *(f"{key}={value}" for key, value in extensions.items())]
    return "\x01".join([f"n,{acting_as},", *pairs, "", ""]).encode()
