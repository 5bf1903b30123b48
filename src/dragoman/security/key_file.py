"""The cluster's key file: one key a line, the current one first.

    # Dragoman cluster key
    4f1c09ab 3q2+7wAAAA...=
    81d2e6f0 AAECAwQFBg...=

A line has the id of a key, 8 hex digits, and 32 random bytes in base64. Older keys stay in the file
until nothing is sealed with them. Empty lines and lines that begin with `#` are comments. A line
that is cut short is refused as a whole, so a damaged file is never taken for one with fewer keys
than it had, unless whole lines are missing.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from dragoman.errors import SecretError
from dragoman.limits import CLUSTER_KEYS_MAX

KEY_BYTES: Final = 32
#: Compiled with the first file: most nodes have none.
_LINE = r"([0-9a-f]{8}) ([A-Za-z0-9+/=]+)\Z"
_HEADER = (
    "# The key of a Dragoman cluster. Every node has the same file, readable by its user only.\n"
    "# The first key seals new secrets; the others are needed until nothing is sealed with them.\n"
)


class ClusterKey(msgspec.Struct, frozen=True):
    key_id: str
    material: bytes

    def __repr__(self) -> str:
        return f"ClusterKey(key_id={self.key_id!r})"

    def derived(self, purpose: str) -> bytes:
        """64 bytes for one purpose, which reveal nothing about the key or other purposes."""
        return hmac.digest(self.material, f"dragoman {purpose} {self.key_id}".encode(), "sha512")

    @property
    def check(self) -> bytes:
        """Public bytes that distinguish this key from another one under the same id."""
        return self.derived("check")[:16]


def new_key(random_bytes: bytes) -> ClusterKey:
    """A key from `KEY_BYTES + 4` random bytes."""
    assert len(random_bytes) == KEY_BYTES + 4
    return ClusterKey(random_bytes[KEY_BYTES:].hex(), random_bytes[:KEY_BYTES])


def format_keys(keys: Iterable[ClusterKey]) -> bytes:
    lines = (f"{key.key_id} {base64.b64encode(key.material).decode()}\n" for key in keys)
    return (_HEADER + "".join(lines)).encode()


def parse_keys(data: bytes) -> dict[str, ClusterKey]:
    """The keys by id, in the order of the file. Raises `SecretError` without quoting the file."""
    keys: dict[str, ClusterKey] = {}
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise SecretError("it is no key file: it has other characters than ASCII") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        key = _parse_line(line.strip())
        if key is None:
            raise SecretError(f"line {number} is not a key: is the file cut short?")
        if key.key_id in keys:
            raise SecretError(f"line {number} repeats the key id {key.key_id}")
        if len(keys) == CLUSTER_KEYS_MAX:
            raise SecretError(f"it has more than {CLUSTER_KEYS_MAX} keys")
        keys[key.key_id] = key
    if not keys:
        raise SecretError("it has no key: is the file cut short?")
    return keys


def _parse_line(line: str) -> ClusterKey | None:
    found = re.match(_LINE, line)
    if found is None:
        return None
    try:
        material = base64.b64decode(found[2], validate=True)
    except binascii.Error:
        return None
    return ClusterKey(found[1], material) if len(material) == KEY_BYTES else None
