"""Host names as IPv4 addresses, for protocols that have four bytes for one."""

from __future__ import annotations

import socket
from functools import lru_cache


@lru_cache(maxsize=64)
def ipv4(host: str) -> str:
    """0.0.0.0 for a name that has none. Looked up once: advertised hosts do not change."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "0.0.0.0"
