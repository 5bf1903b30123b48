"""This process as one on Windows, as far as Linux can be made like it.

Modules and names that Windows lacks are gone. The event loop is the selector loop of Unix, which
has a twin on Windows.
"""

from __future__ import annotations

# These look for parts of the platform when they are imported, and find those of Linux.
import asyncio  # noqa: F401
import concurrent.futures.process  # noqa: F401
import multiprocessing  # noqa: F401
import os
import select
import shutil  # noqa: F401
import signal
import socket
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import urllib.request  # noqa: F401
import uuid  # noqa: F401
from importlib.abc import MetaPathFinder
from typing import Any

import cryptography.x509  # noqa: F401
import cyclopts  # noqa: F401
import kafka  # noqa: F401
import rich.console  # noqa: F401
import starlette.applications  # noqa: F401
import uvicorn  # noqa: F401

from platforms.typeshed import missing

#: Modules that Windows lacks; uvloop has no wheel for it.
ABSENT = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty", "uvloop")


class _Absent(MetaPathFinder):
    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _remove_modules() -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] in ABSENT]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Absent())


#: The standard library uses these of its own accord on Linux, to end and wait for processes and
#: threads, and to seed temporary names.
_KEPT = {
    "waitstatus_to_exitcode",
    "register_at_fork",
    "getuid",
    "uname",
    "pthread_sigmask",
}


def _remove_names() -> None:
    # Of the family that it lacks, Windows uses none for the pair of an event loop.
    pair, family = socket.socketpair, socket.AF_UNIX
    socket.socketpair = lambda *_: pair(family)  # type: ignore[assignment, misc]
    # Libraries have chosen their selectors.
    del select.poll
    for module in (os, socket, signal):
        for name in missing(module.__name__, "win32") - _KEPT:
            if hasattr(module, name):
                delattr(module, name)


assert "dragoman.operating_system" not in sys.modules, "too late"
_remove_modules()
_remove_names()
sys.platform = "win32"

if __name__ == "__main__":
    from dragoman.cli.main import main

    sys.exit(main())
