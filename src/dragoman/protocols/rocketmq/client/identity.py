"""What identifies a client: its id, the ids of its messages, and signatures (spec, 8.2 and 11).

    unique id   IPv4 4 bytes, process 2, class loader 4, ms since the month began 4, counter 2

Random numbers take the place of the process and of Java's class loader.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from struct import Struct
from typing import Final

from dragoman.types import Buffer
from dragoman.world import Clock, Random

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
_ID: Final = Struct(">4BHIIH")
_ANY_IP: Final = "127.0.0.1"


class Identity:
    def __init__(self, clock: Clock, random: Random, instance: str = "") -> None:
        self._clock = clock
        self._process = random.getrandbits(16)
        self._loader = random.getrandbits(32)
        self._counter = random.getrandbits(16)
        self._instance = instance or f"{self._process:04x}{self._loader:08x}"
        self._ip = ""

    def seen_from(self, ip: str) -> None:
        """Take the local address of a connection as the client's address. The first one counts."""
        self._ip = self._ip or ip

    @property
    def client_id(self) -> str:
        """The name that brokers know the client by. It is final once a connection was made."""
        return f"{self._ip or _ANY_IP}@{self._instance}"

    def unique_id(self) -> str:
        """A new id for a message."""
        self._counter = (self._counter + 1) & 0xFFFF
        now_ms = self._clock.wall_ms()
        return unique_id(self._ip, self._process, self._loader, since_month(now_ms), self._counter)


def unique_id(ip: str, process: int, loader: int, month_ms: int, counter: int) -> str:
    numbers = [int(each) if each.isdigit() else 256 for each in ip.split(".")]
    if len(numbers) != 4 or max(numbers) > 255:
        # An IPv6 address does not fit: the other parts make the id unique.
        numbers = [int(each) for each in _ANY_IP.split(".")]
    return _ID.pack(*numbers, process, loader, month_ms, counter).hex().upper()


def since_month(now_ms: int) -> int:
    """Milliseconds since the current month began."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return now_ms - int(start.timestamp()) * 1000


def signature(secret_key: str, fields: Mapping[str, str], body: Buffer = b"") -> str:
    """The signature over the body and the values of the fields, in the order of their names."""
    # Java sorts strings by their UTF-16 code units.
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
    """The fields of a request together with those of its signature."""
    all_fields = {**fields, ACCESS_KEY: access_key}
    if security_token:
        all_fields[SECURITY_TOKEN] = security_token
    return all_fields | {SIGNATURE: signature(secret_key, all_fields, body)}
