"""The console of a node: `python -m dragoman.console FD`, started by `net/process_listener.py`.

The first line of the standard input has the settings; its end means that the node stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import msgspec

from dragoman.console.serve import serve
from dragoman.console.settings import ConsoleSettings


def main() -> int:
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=ConsoleSettings)
    listener = socket.socket(fileno=int(sys.argv[1]))
    asyncio.run(_run(settings, listener))
    return 0


async def _run(settings: ConsoleSettings, listener: socket.socket) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    os.set_blocking(sys.stdin.fileno(), False)
    loop.add_reader(sys.stdin.fileno(), stop.set)
    await serve(settings, listener, None, stop)


if __name__ == "__main__":
    sys.exit(main())
