"""Descriptors: how many this process may open, and spare ones for code that must not fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from dragoman.limits import OPEN_FILES_MAX
from dragoman.operating_system import platforms
from dragoman.world import OUT_OF_FILES

Result = TypeVar("Result")


def allow_open_files() -> None:
    """Raise the limit of open files as far as permitted: the usual one is meant for desktop
    programs.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    # macOS may refuse more than its own maximum although no limit is set.
    for most in (wanted, min(wanted, platforms.OPEN_FILES_MAX_MACOS)):
        if soft >= most:
            return
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            return


def open_files_permitted() -> int | None:
    """The limit that `allow_open_files` may raise this process to; None: there is none."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def open_files_max() -> int:
    """The limit of descriptors of this process."""
    if platforms.IS_WINDOWS:
        return platforms.HANDLES_MAX_WINDOWS
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


class SpareDescriptors:
    """Descriptors held open in reserve, to be closed when no others are free.

    Accepted connections may use up all descriptors of the process. Code that must not fail for that
    reason closes one of these and retries. The reserve is refilled as soon as descriptors are free.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._open: list[int] = []
        self.refill()

    def refill(self) -> None:
        with suppress(OSError):
            while len(self._open) < self._count:
                self._open.append(os.open(os.devnull, os.O_RDONLY | platforms.CLOSE_ON_EXEC))

    def use(self, call: Callable[[], Result]) -> Result:
        """Call something that needs a descriptor, using a spare one if no other is free."""
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in OUT_OF_FILES:
                    raise
                # Other threads use spare ones, too, and may take the descriptor just closed.
                try:
                    spare = self._open.pop()
                except IndexError:
                    raise error from None
                os.close(spare)

    def __del__(self) -> None:
        while self._open:
            os.close(self._open.pop())
