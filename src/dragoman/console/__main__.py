"""The console of a node: `python -m dragoman.console FD`, started by `net/process_listener.py`.

The first line of the standard input has the settings; its end means that the node stops, or is
gone. The standard output says that the process is alive, and the standard error is its log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Final

import msgspec

from dragoman.config.console import ConsoleSettings
from dragoman.console.memory import bound_memory
from dragoman.console.serve import serve
from dragoman.errors import DragomanError
from dragoman.limits import CONSOLE_PROCESS_BYTES_MAX
from dragoman.net.process_log import FORMAT

_log = logging.getLogger("dragoman.console")
_ALIVE_INTERVAL_S: Final = 5.0


def main() -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=FORMAT)
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.setblocking(False)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        # The node has gone, or stops.
        return 0
    settings = msgspec.json.decode(line, type=ConsoleSettings)
    bound_memory(CONSOLE_PROCESS_BYTES_MAX)
    try:
        asyncio.run(_run(settings, listener))
    except DragomanError as error:
        _log.error("%s", error)
        return 1
    return 0


async def _run(settings: ConsoleSettings, listener: socket.socket) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    # Nothing follows the first line, so the pipe is readable only at its end.
    loop.add_reader(sys.stdin.fileno(), _ended, loop, stop)
    alive = asyncio.create_task(_say_alive())
    try:
        await serve(settings, listener, stop)
    finally:
        alive.cancel()


def _ended(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    loop.remove_reader(sys.stdin.fileno())
    stop.set()


async def _say_alive() -> None:
    os.set_blocking(sys.stdout.fileno(), False)
    while True:
        with suppress(OSError):
            os.write(sys.stdout.fileno(), b".")
        await asyncio.sleep(_ALIVE_INTERVAL_S)


if __name__ == "__main__":
    sys.exit(main())
