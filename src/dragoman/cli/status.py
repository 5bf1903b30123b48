"""Exit statuses, and how a command says that it failed."""

from __future__ import annotations

import sys

from dragoman.errors import DragomanError

OK = 0
#: The request was understood and failed: refused, not reachable, damage found.
FAILED = 1
#: The command line or the configuration is wrong, or the node cannot start with it.
USAGE = 2


class CommandError(DragomanError):
    """Ends a command with one line on stderr and an exit status."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


def say(message: str) -> None:
    """Talk to the person at the terminal."""
    print(message, file=sys.stderr)


def complain(message: str) -> None:
    """One line that says why a command failed, whatever line breaks the message brought along."""
    say("dragoman: " + " ".join(message.split()))
