"""The files of a bundle, bounded in size and time, and what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.cli.status import CommandError
from dragoman.errors import DragomanError
from dragoman.limits import BUNDLE_BYTES_MAX, BUNDLE_FILE_BYTES_MAX, BUNDLE_SECONDS_MAX

#: Ends a file of text that was cut.
_CUT: Final = b"\n(cut here)\n"


class Missing(msgspec.Struct, frozen=True):
    path: str
    why: str


class Collection:
    def __init__(self, *, seconds_max: float = BUNDLE_SECONDS_MAX) -> None:
        self.files: dict[str, bytes] = {}
        self.missing: list[Missing] = []
        self._deadline = time.monotonic() + seconds_max

    def gather(self, path: str, source: Callable[[], bytes]) -> None:
        """Add a file, or the reason why it cannot be had."""
        if time.monotonic() >= self._deadline:
            self.miss(path, "the time for the bundle is over")
            return
        try:
            self.add(path, source())
        except (CommandError, DragomanError, OSError, ValueError) as error:
            self.miss(path, str(error) or type(error).__name__)

    def add(self, path: str, data: bytes) -> None:
        left = BUNDLE_BYTES_MAX - sum(map(len, self.files.values()))
        bound = min(BUNDLE_FILE_BYTES_MAX, left)
        if len(data) <= bound:
            self.files[path] = data
        elif path.endswith(".json"):
            # A part of it could not be read.
            self.miss(path, f"{len(data):,} bytes, of which {bound:,} have room")
        else:
            self.files[path] = data[: max(0, bound - len(_CUT))] + _CUT
            self.miss(path, f"only {bound:,} of {len(data):,} bytes have room")

    def miss(self, path: str, why: str) -> None:
        self.missing.append(Missing(path, why))
