"""The process: reads commands, says how things are, and misbehaves on request."""

from __future__ import annotations

import json
import os
import sys

from dragoman.captures.control import (
    Done,
    Pause,
    Report,
    Resume,
    Rewind,
    Snapshot,
    Start,
    Status,
    Stop,
    decode_command,
    encode_line,
)


def say(report: Report) -> None:
    print(encode_line(report).decode(), flush=True)


def main() -> int:
    start = decode_command(sys.stdin.readline())
    assert isinstance(start, Start)
    definition = start.definition
    print(f"connecting to {definition.dsn} for {os.getpid()}", file=sys.stderr, flush=True)
    match definition.tables[0]:
        case "crash":
            print(f"no route to {definition.dsn}", file=sys.stderr, flush=True)
            return 3
        case "chatter":
            print("this is no report", flush=True)
        case "flood":
            print("x" * (2 << 20), file=sys.stderr)
            print(json.dumps({"is": "status", "state": "x" * (2 << 20)}), flush=True)
        case "complain":
            line = f"WARNING fake_capture: capture {definition.name}: {definition.dsn} is away"
            print(line, file=sys.stderr, flush=True)
            say(Status(state="waiting", problem=f"{definition.dsn} is away", warnings=("hunter2",)))
        case _:
            say(Status(state="paused" if start.is_paused else "streaming", lsn=start.bootstrap))
    for line in sys.stdin:
        match command := decode_command(line):
            case Pause():
                say(Status(state="paused"))
            case Resume():
                say(Status(state="streaming"))
            case Rewind():
                say(Done(id=command.id, problem=f"{command.lsn} is gone from {definition.dsn}"))
            case Snapshot():
                say(Done(id=command.id))
            case Stop():
                return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
