"""A man in the middle: a relay on loopback that changes what passes."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress

from protocols.threaded_server import ThreadedServer

_PATIENCE_S = 10.0
#: A larger one is none: it is how TLS begins.
_FRAME_BYTES_MAX = 1 << 20

#: Changes a frame's body that comes from the node; None: the connection ends instead.
Alter = Callable[[bytes], bytes | None]


class Middle(ThreadedServer):
    """Relays Kafka frames between clients and a node. With `tls` it claims to be the node."""

    def __init__(
        self, node: tuple[str, int], alter: Alter, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__()
        self._node = node
        self._alter = alter
        self._tls = tls
        #: All that clients have sent.
        self.overheard = bytearray()
        self.address = f"127.0.0.1:{self.port}"

    def serve(self, peer: socket.socket) -> None:
        with ExitStack() as sockets, suppress(OSError, EOFError):
            client = sockets.enter_context(peer)
            client.settimeout(_PATIENCE_S)
            if self._tls is not None:
                client = sockets.enter_context(self._tls.wrap_socket(client, server_side=True))
            node = sockets.enter_context(socket.create_connection(self._node, _PATIENCE_S))
            while True:
                asked = receive_frame(client)
                self.overheard += asked
                send_frame(node, asked)
                answer = self._alter(receive_frame(node))
                if answer is None:
                    return
                send_frame(client, answer)


def send_frame(peer: socket.socket, body: bytes) -> None:
    peer.sendall(struct.pack(">i", len(body)) + body)


def receive_frame(peer: socket.socket) -> bytes:
    """Raises `EOFError` at the end."""
    (size,) = struct.unpack(">i", _exactly(peer, 4))
    if not 0 <= size <= _FRAME_BYTES_MAX:
        raise EOFError(f"a frame of {size} bytes")
    return _exactly(peer, size)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise EOFError("closed")
        data += piece
    return bytes(data)
