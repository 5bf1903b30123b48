"""What a client process has seen, one JSON object a line, kept even when the process is killed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class Diary:
    """Every entry is one write, so a killed process leaves whole lines behind."""

    def __init__(self, path: Path | str) -> None:
        self._file = open(path, "a", buffering=1)  # noqa: SIM115 - open as long as the process

    def write(self, kind: str, **facts: object) -> None:
        # This clock is the same in all processes of a machine.
        self._file.write(json.dumps({"at": time.monotonic(), "kind": kind, **facts}) + "\n")


class Reader:
    """Reads a diary while it is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self.entries: list[dict[str, Any]] = []

    def read_on(self) -> list[dict[str, Any]]:
        """Everything written so far."""
        if self._path.exists():
            with open(self._path, "rb") as file:
                file.seek(self._position)
                lines, _, _ = file.read().rpartition(b"\n")
            if lines:
                self._position += len(lines) + 1
                self.entries += [json.loads(line) for line in lines.split(b"\n")]
        return self.entries
