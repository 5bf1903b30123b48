"""Which partition a key goes to: FNV-1a of 32 bits, modulo the number of partitions."""

from __future__ import annotations

from typing import Final

_BASIS: Final = 0x811C9DC5
_PRIME: Final = 0x01000193


def fnv1a_32(data: bytes) -> int:
    value = _BASIS
    for byte in data:
        value = (value ^ byte) * _PRIME & 0xFFFF_FFFF
    return value
