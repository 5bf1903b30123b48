"""A stranger's connection to the listener for nodes, which sends what a test wants."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import msgspec

from dragoman.net.peer_frames import Hello, Kind, frame, take_apart
from nodes.process import WAIT_S


def context(
    certificate: Path | None = None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLContext:
    """Of a client that trusts everyone."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.maximum_version = version
    if certificate is not None:
        made.load_cert_chain(certificate)
    return made


class PeerCaller:
    """A connection to the listener for nodes, in the hands of the test."""

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        host, port = address.split(":")
        plain = socket.create_connection((host, int(port)), WAIT_S)
        self.socket: socket.socket = plain
        if tls is not None:
            self.socket = tls.wrap_socket(plain)

    def __enter__(self) -> PeerCaller:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @property
    def binding(self) -> bytes:
        assert isinstance(self.socket, ssl.SSLSocket)
        return self.socket.get_channel_binding() or b""

    def send(self, kind: Kind, header: bytes, body: bytes = b"", *, number: int = 0) -> None:
        self.socket.sendall(b"".join(frame(kind, 5, number, header, [body] if body else [])))

    def answer(self) -> tuple[Kind, bytes] | None:
        """The next frame; None when the connection is over."""
        try:
            size = self._exactly(4)
            data = self._exactly(int.from_bytes(size, "big"))
        except OSError:
            return None
        arrived = take_apart(bytearray(data))
        return arrived.kind, bytes(arrived.header)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise OSError("closed")
            data += more
        return data


def hello(node: int, cluster_id: str = "") -> bytes:
    return msgspec.msgpack.encode(Hello(node_id=node, incarnation=1, cluster_id=cluster_id))
