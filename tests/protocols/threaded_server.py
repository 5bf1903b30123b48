"""A server on a port of this machine, with a thread for each connection."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class ThreadedServer:
    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._listening = socket.create_server((host, port))
        self.port: int = self._listening.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join()

    def serve(self, peer: socket.socket) -> None:
        """Serve a connection, and close it."""
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()
