"""Makes the modules under `tests/` importable, and kafka-python tidy."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator

import pytest

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.net.inet import KafkaNetSocket


class _ClosedWhenDropped(socket.socket):
    def __del__(self) -> None:
        self.close()


@pytest.fixture(scope="session", autouse=True)
def kafka_python_closes_its_sockets() -> Iterator[None]:
    """A client of kafka-python that is closed while it connects forgets that socket.

    The collector would warn of it during any later test, which would fail for it.
    """

    def make(
        _: KafkaNetSocket,
        family: int = socket.AF_UNSPEC,
        sock_type: int = socket.SOCK_STREAM,
        proto: int = socket.IPPROTO_TCP,
    ) -> socket.socket:
        return _ClosedWhenDropped(family, sock_type, proto)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaNetSocket, "socket", make)
        yield
