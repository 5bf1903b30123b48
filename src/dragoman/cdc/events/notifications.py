"""Payloads of NOTIFY, as pgcdc forwards them."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dragoman.protocols.postgres.values import string

_ID: Final = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false)')


def operation_and_value(payload: str) -> tuple[str, bytes]:
    """A JSON object is the value, and its `op` the operation. Other text becomes a string."""
    try:
        parsed = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        return "NOTIFY", string(payload.encode())
    operation = parsed.get("op")
    if not isinstance(operation, str) or not operation:
        operation = "NOTIFY"
    return operation, payload.encode()


def key_in(payload: str) -> bytes | None:
    """The first `id` in the payload, at any depth."""
    found = _ID.search(payload)
    if found is None:
        return None
    text = found[1]
    if text.startswith('"'):
        try:
            text = msgspec.json.decode(text, type=str)
        except msgspec.DecodeError:
            return None
    return text.encode()
