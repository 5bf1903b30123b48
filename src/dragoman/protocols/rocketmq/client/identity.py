"""What a client calls itself, and the unique ids that it gives to messages (spec, section 8.2).

    unique id   IPv4 4 bytes, process 2, class loader 4, ms since the month began 4, counter 2

In place of the process and of Java's class loader there are random numbers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from struct import Struct
from typing import Final

from dragoman.world import Clock, Random

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
        """The address of this end of a connection. The first one counts."""
        self._ip = self._ip or ip

    @property
    def client_id(self) -> str:
        """The same for as long as the client lives, once there was a connection."""
        return f"{self._ip or _ANY_IP}@{self._instance}"

    def unique_id(self) -> str:
        self._counter = (self._counter + 1) & 0xFFFF
        now_ms = self._clock.wall_ms()
        return unique_id(self._ip, self._process, self._loader, since_month(now_ms), self._counter)


def unique_id(ip: str, process: int, loader: int, month_ms: int, counter: int) -> str:
    numbers = [int(each) if each.isdigit() else 256 for each in ip.split(".")]
    if len(numbers) != 4 or max(numbers) > 255:
        # An IPv6 address does not fit: the rest has to tell messages apart.
        numbers = [int(each) for each in _ANY_IP.split(".")]
    return _ID.pack(*numbers, process, loader, month_ms, counter).hex().upper()


def since_month(now_ms: int) -> int:
    """Milliseconds since the present month began."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return now_ms - int(start.timestamp()) * 1000
