"""Goal: key sets come from files and URLs, off the loop, without redirects and in bounded size."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dragoman.errors import TokenKeysError
from dragoman.limits import JWKS_BYTES_MAX
from dragoman.net.future import future_of
from dragoman.net.token_key_source import fetch_beside
from dragoman.operating_system import SystemClock


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
        elif self.path == "/gone":
            self.send_response(404)
        else:
            self.send_response(200)
        self.end_headers()
        size = JWKS_BYTES_MAX + 1 if self.path == "/huge" else 10
        self.wfile.write(b" " * size)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def pages() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def fetched(url: str) -> bytes:
    loop = asyncio.get_running_loop()
    return await future_of(fetch_beside(loop.call_soon_threadsafe, SystemClock())(url))


async def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b"keys")
    assert await fetched(f"file://{path}") == b"keys"


async def test_page_is_read(pages: str) -> None:
    assert await fetched(f"{pages}/keys") == b" " * 10


@pytest.mark.parametrize("page", ["moved", "gone", "huge"])
async def test_other_answers_are_errors(pages: str, page: str) -> None:
    with pytest.raises(TokenKeysError):
        await fetched(f"{pages}/{page}")


@pytest.mark.parametrize("url", ["file:///no/such/file", "http://127.0.0.1:1/", "x:", "https://"])
async def test_places_without_keys_are_errors(url: str) -> None:
    with pytest.raises(TokenKeysError):
        await fetched(url)
