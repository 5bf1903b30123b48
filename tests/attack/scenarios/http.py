"""HTTP connections that are held open in every state, so that probes find no room."""

from __future__ import annotations

import socket
from collections.abc import Callable

from attack.target import Target, settle

#: The node takes 256 at a time.
_COUNT = 400
_HOLD_S = 8.0
_HOST = b"Host: 127.0.0.1\r\n"
_SLOW_HEAD = b"GET /livez HTTP/1.1\r\n"
_SLOW_BODY = (
    b"POST /api/v1/topics HTTP/1.1\r\n" + _HOST + b"Content-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)
_IDLE = b"GET /livez HTTP/1.1\r\n" + _HOST + b"\r\n"
#: Pipelined, and none of the answers is read.
_UNREAD = (b"GET /openapi.json HTTP/1.1\r\n" + _HOST + b"\r\n") * 200
_RECEIVE_BYTES = 4096


def hold(request: bytes, target: Target, count: int = _COUNT) -> str:
    opened = []
    refused = 0
    for _ in range(count):
        try:
            peer = _small_window(target)
            peer.sendall(request)
        except OSError:
            refused += 1
        else:
            opened.append(peer)
    settle(_HOLD_S)
    for peer in opened:
        peer.close()
    return f"{refused} of {count} refused"


def _small_window(target: Target) -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    peer.settimeout(_HOLD_S)
    peer.connect(target.address("http"))
    return peer


def _holding(request: bytes) -> Callable[[Target], str]:
    return lambda target: hold(request, target)


ATTACKS = (
    ("HTTP connections held silent", _holding(b"")),
    ("HTTP connections held with half a head", _holding(_SLOW_HEAD), (), (1,)),
    ("HTTP connections held with half a body", _holding(_SLOW_BODY), (), (1,)),
    ("HTTP connections held idle", _holding(_IDLE), (), (1,)),
    ("HTTP answers that are not read", _holding(_UNREAD)),
)
