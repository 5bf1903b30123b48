"""The attacker's web server, whose name may be bound to another address while a page is open."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress

from protocols.threaded_server import ThreadedServer

_PAGE = b"<!doctype html><link rel=icon href=data:,><title>harmless</title><body>harmless</body>"
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n" % len(_PAGE)
)
_PATIENCE_S = 10.0


class Site(ThreadedServer):
    """Serves a page on one address. Once `bound_to` is set, it hands each connection through to
    there, byte for byte: what a browser gets that looks the page's name up again.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        super().__init__(host, port)
        self.bound_to: tuple[str, int] | None = None

    def serve(self, peer: socket.socket) -> None:
        with ExitStack() as sockets, suppress(OSError):
            sockets.enter_context(peer).settimeout(_PATIENCE_S)
            if self.bound_to is None:
                peer.recv(1 << 16)
                if self.bound_to is None:
                    peer.sendall(_HEAD + _PAGE)
                return
            node = sockets.enter_context(socket.create_connection(self.bound_to, _PATIENCE_S))
            back = threading.Thread(target=_copy, args=(node, peer), daemon=True)
            back.start()
            _copy(peer, node)
            back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
