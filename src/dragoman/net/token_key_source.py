"""Fetches key sets from files and URLs, each in a thread of its own beside the loop.

The thread also loads the library that verifies tokens, which takes a tenth of a second. Redirects
are not followed: the URL of the settings alone is trusted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from dragoman.errors import DragomanError, TokenKeysError
from dragoman.limits import JWKS_BYTES_MAX, JWKS_FETCH_TIMEOUT_S
from dragoman.outcome import Outcome
from dragoman.world import Clock

#: Fetches the bytes at a URL.
FetchKeys: TypeAlias = Callable[[str], Outcome[bytes]]
_CHUNK_BYTES = 16 << 10


def fetch_beside(call_soon_threadsafe: Callable[..., object], clock: Clock) -> FetchKeys:
    """A thread that hangs does not keep the process from ending."""

    def fetch(url: str) -> Outcome[bytes]:
        outcome: Outcome[bytes] = Outcome()

        def work() -> None:
            result: bytes | DragomanError
            try:
                import jwt  # noqa: F401

                result = _read(url, clock)
            except TokenKeysError as error:
                result = error
            except (OSError, ValueError) as error:
                result = TokenKeysError(str(error) or type(error).__name__)
            try:
                call_soon_threadsafe(outcome.settle, result)
            except RuntimeError:
                # The loop was closed.
                return

        threading.Thread(target=work, name="dragoman-token-keys", daemon=True).start()
        return outcome

    return fetch


def _read(url: str, clock: Clock) -> bytes:
    # Imported here: few nodes need it.
    import http.client
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_arguments: object) -> None:
            return None

    opener = urllib.request.build_opener(NoRedirects)
    ends_at = clock.monotonic() + JWKS_FETCH_TIMEOUT_S
    try:
        with opener.open(url, timeout=JWKS_FETCH_TIMEOUT_S) as response:
            data = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                data += chunk
                if len(data) > JWKS_BYTES_MAX:
                    raise TokenKeysError(f"more than {JWKS_BYTES_MAX:,} bytes")
                if clock.monotonic() > ends_at:
                    raise TokenKeysError("the answer takes too long")
            return bytes(data)
    except http.client.HTTPException as error:
        raise TokenKeysError(f"the answer is not HTTP: {type(error).__name__}") from None
