"""The process that captures: `python -m dragoman.cdc`, started by a node.

It reads commands from standard input and writes reports to standard output (`captures/control.py`).
The first command is `Start`; the end of the input is a command to stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import msgspec

from dragoman.captures.control import Report, Start, Stop, decode_command, encode_line
from dragoman.cdc.capture import Capture
from dragoman.cdc.snapshot.taker import SnapshotTaker
from dragoman.limits import CAPTURE_LINE_BYTES_MAX, CAPTURE_ORPHAN_S
from dragoman.net.event_loop import new_event_loop
from dragoman.net.process_log import FORMAT

_log = logging.getLogger("dragoman.cdc")


def main() -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=FORMAT)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_main())


async def _main() -> int:
    reader = asyncio.StreamReader(limit=CAPTURE_LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        start = decode_command(await reader.readline())
    except (msgspec.MsgspecError, ValueError) as error:
        # The text of the error may quote the line, and with it the password.
        _log.error("the first line is no start command (%s)", type(error).__name__)
        return 2
    if not isinstance(start, Start):
        _log.error("the first line is no start command")
        return 2
    capture = Capture(start, _report, SnapshotTaker)
    listening = asyncio.create_task(_listen(reader, capture))
    try:
        await capture.run()
    finally:
        listening.cancel()
    return 0


async def _listen(reader: asyncio.StreamReader, capture: Capture) -> None:
    try:
        while line := await reader.readline():
            try:
                capture.take(decode_command(line))
            except msgspec.MsgspecError:
                _log.error("ignored a line that is no command of this release")
    except ValueError:
        _log.error("a line is longer than %d bytes", CAPTURE_LINE_BYTES_MAX)
    capture.take(Stop())
    # The node is dead, and so is its broker: the transaction in progress can hardly be finished,
    # and the next process of this capture needs the slot.
    asyncio.get_running_loop().call_later(CAPTURE_ORPHAN_S, os._exit, 1)


def _report(report: Report) -> None:
    sys.stdout.buffer.write(encode_line(report) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
