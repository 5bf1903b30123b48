"""This process as one on macOS, as far as Linux can be made like it.

The names that macOS lacks are gone from the modules, and `/proc` from the file system. fsync stays,
and F_FULLFSYNC is an fsync that is counted. `fcntl` answers nothing else that Linux does not know.
"""

from __future__ import annotations

# These look for parts of the platform when they are imported, and find those of Linux.
import asyncio  # noqa: F401
import builtins
import ctypes
import errno
import fcntl
import os
import resource
import shutil  # noqa: F401
import socket
import struct
import subprocess  # noqa: F401
import sys
import sysconfig
import tempfile  # noqa: F401
import urllib.request  # noqa: F401
from collections.abc import Callable
from functools import wraps
from typing import Any

import cryptography.x509  # noqa: F401
import starlette.applications  # noqa: F401
import uvicorn  # noqa: F401
import uvloop  # noqa: F401

from platforms.typeshed import missing

F_FULLFSYNC = 51
OPEN_MAX = 10_240
#: Calls of F_FULLFSYNC in this process.
full_syncs: list[int] = []
#: The standard library uses these of its own accord on Linux.
_KEPT = {
    "getxattr",
    "listxattr",
    "setxattr",
    "removexattr",
    "sched_yield",
    "GRND_NONBLOCK",
    "O_TMPFILE",
}


def _remove_names() -> None:
    for module in (os, socket):
        for name in missing(module.__name__, "darwin") - _KEPT:
            # Absent from this version of Python or of Linux, too.
            if hasattr(module, name):
                delattr(module, name)


def _replace_calls() -> None:
    ask, set_limit = fcntl.fcntl, resource.setrlimit
    pwritev, option = os.pwritev, socket.socket.getsockopt

    def control(fd: Any, command: int, argument: Any = 0) -> Any:
        if command != F_FULLFSYNC:
            return ask(fd, command, argument)
        full_syncs.append(fd)
        return os.fsync(fd)

    def limited(kind: int, limits: tuple[int, int]) -> None:
        if kind == resource.RLIMIT_NOFILE and limits[0] > OPEN_MAX:
            raise ValueError("current limit exceeds maximum limit")
        set_limit(kind, limits)

    def plain_pwritev(fd: int, buffers: Any, position: int, flags: int = 0, /) -> int:
        if flags:
            raise NotImplementedError("pwritev: flags unavailable on this platform")
        return pwritev(fd, buffers, position)

    def peer(self: socket.socket, level: int, name: int, *size: int) -> Any:
        # LOCAL_PEERCRED of a Unix socket: version and user of `struct xucred`.
        if self.family == socket.AF_UNIX and (level, name) == (0, 1):
            _, user, _ = struct.unpack("3i", option(self, socket.SOL_SOCKET, 17, 12))
            return struct.pack("II", 0, user).ljust(size[0], b"\0")
        return option(self, level, name, *size)

    fcntl.fcntl = control
    resource.setrlimit = limited
    os.pwritev = plain_pwritev
    socket.socket.getsockopt = peer  # type: ignore[method-assign]


def _hide_proc() -> None:
    def without(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def found(path: Any = ".", *arguments: Any, **named: Any) -> Any:
            if isinstance(path, str) and path.startswith("/proc/"):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            return call(path, *arguments, **named)

        return found

    for name in ("open", "stat", "lstat", "listdir", "scandir", "readlink"):
        setattr(os, name, without(getattr(os, name)))
    builtins.open = without(builtins.open)


class _Library(ctypes.CDLL):
    def __getattr__(self, name: str) -> Any:
        if name in ("syncfs", "sync_file_range", "prctl"):
            raise AttributeError(name)
        return super().__getattr__(name)


assert "dragoman.operating_system" not in sys.modules, "too late"
_remove_names()
_replace_calls()
_hide_proc()
sysconfig.get_config_vars()
ctypes.CDLL = _Library  # type: ignore[misc]
sys.platform = "darwin"

if __name__ == "__main__":
    from dragoman.cli.main import main

    sys.exit(main())
