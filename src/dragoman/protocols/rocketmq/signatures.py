"""Signatures of requests (spec, section 11).

    Signature = base64(HMAC-SHA1(secret key, field values in the order of their names, then body))

The field `Signature` itself is not signed. Clients up to version 4.9.3 do not sign the field
`_UNIQUE_KEY_QUERY`, either. A signature has no time and no nonce, and covers neither the code of
the request nor the names and boundaries of its fields: as with RocketMQ's own brokers, a recorded
request can be sent again, or made into another one. TLS prevents both.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from typing import Final

from dragoman.types import Buffer

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNIQUE_QUERY: Final = "_UNIQUE_KEY_QUERY"
#: The last version that does not sign `_UNIQUE_KEY_QUERY`: 4.9.3.
_UNIQUE_QUERY_UNSIGNED_MAX: Final = 399
_UNSIGNED: Final = (SIGNATURE,)
_UNSIGNED_EARLIER: Final = (SIGNATURE, UNIQUE_QUERY)


def _units(name: str) -> bytes:
    """Java sorts strings by their UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def content(fields: Mapping[str, str], body: Buffer, version: int) -> bytes:
    """The bytes that a client of this version signs."""
    unsigned = _UNSIGNED_EARLIER if version <= _UNIQUE_QUERY_UNSIGNED_MAX else _UNSIGNED
    # Names outside ASCII are the exception, and sorting by code units costs more.
    is_plain = all(map(str.isascii, fields))
    names = sorted(fields) if is_plain else sorted(fields, key=_units)
    values = "".join([fields[name] for name in names if name not in unsigned])
    return b"".join((values.encode("utf-8", "replace"), body))


def signature(
    secret_key: bytes, fields: Mapping[str, str], body: Buffer = b"", version: int = 0
) -> str:
    signed_content = content(fields, body, version)
    return b64encode(hmac.digest(secret_key, signed_content, "sha1")).decode()


def is_signed_with(
    secret_key: bytes, fields: Mapping[str, str], body: Buffer, version: int
) -> bool:
    """Whether the field `Signature` is this key's. Takes the same time for any wrong signature."""
    expected = signature(secret_key, fields, body, version).encode()
    given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    return hmac.compare_digest(expected, given)


def signed(
    fields: Mapping[str, str],
    body: Buffer,
    *,
    access_key: str,
    secret_key: str,
    security_token: str = "",
    version: int = 0,
) -> dict[str, str]:
    """The fields of a request, with its signature."""
    all_fields = {**fields, ACCESS_KEY: access_key}
    if security_token:
        all_fields[SECURITY_TOKEN] = security_token
    return all_fields | {SIGNATURE: signature(secret_key.encode(), all_fields, body, version)}
