"""Signatures of requests (spec, section 11)."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping

from dragoman.types import Buffer

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


def signature(secret_key: str, fields: Mapping[str, str], body: Buffer = b"") -> str:
    """Over the values in the order of their names, and the body."""
    # By UTF-16 code units, as Java sorts.
    names = sorted(fields, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    values = "".join(fields[name] for name in names if name != SIGNATURE)
    content = values.encode() + bytes(body)
    return b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


def signed(
    fields: Mapping[str, str],
    body: Buffer,
    *,
    access_key: str,
    secret_key: str,
    security_token: str = "",
) -> dict[str, str]:
    """The fields with those of the signature."""
    all_fields = {**fields, ACCESS_KEY: access_key}
    if security_token:
        all_fields[SECURITY_TOKEN] = security_token
    return all_fields | {SIGNATURE: signature(secret_key, all_fields, body)}
