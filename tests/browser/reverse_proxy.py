"""The proxy of the guide to the console: it speaks TLS to browsers and plain HTTP to the console,
passes on the whole path below its own, the `Host` and nothing about the browser, and keeps no
answer back.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress
from typing import Final, Self

_READ_BYTES: Final = 1 << 16
_HEAD_BYTES_MAX: Final = 1 << 16
_NOT_FOUND: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class ReverseProxy:
    """Runs in a thread of its own. `path` is what it shows, such as `/dragoman/`."""

    def __init__(self, tls: ssl.SSLContext, path: str, console_port: int) -> None:
        self._tls = tls
        self._path = path.encode()
        self._console_port = console_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0
        #: Paths that were asked for outside of its own.
        self.strays: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._tls, limit=_HEAD_BYTES_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on a connection: each of the browser's is passed on by itself."""
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            if not path.startswith(self._path):
                self.strays.append(path.decode())
                writer.write(_NOT_FOUND)
                await writer.drain()
            else:
                await self._pass(head, reader, writer)
        writer.close()

    async def _pass(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request, *lines = head[:-4].split(b"\r\n")
        kept = [each for each in lines if not each.lower().startswith(b"connection:")]
        upstream = await asyncio.open_connection("127.0.0.1", self._console_port)
        upstream[1].write(b"\r\n".join([request, *kept, b"Connection: close", b"", b""]))
        body = asyncio.create_task(_copy(reader, upstream[1]))
        answer = asyncio.create_task(_copy(upstream[0], writer))
        # A browser that has gone leaves nothing to answer.
        await asyncio.wait((body, answer), return_when=asyncio.FIRST_COMPLETED)
        body.cancel()
        answer.cancel()
        upstream[1].close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(_READ_BYTES):
            sink.write(piece)
            await sink.drain()
