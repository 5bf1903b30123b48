"""Exit statuses, and the failures that end a command with one line on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dragoman.errors import ConfigError, DragomanError

OK = 0
#: The request was valid and failed: the node refused it or is unreachable, or damage was found.
FAILED = 1
#: The command line or the configuration is wrong, or the node cannot start with it.
USAGE = 2


class CommandError(DragomanError):
    """Ends a command with one line on stderr and an exit status."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


def say(message: str) -> None:
    """Print a message on stderr."""
    print(message, file=sys.stderr)


def complain(message: str) -> None:
    """Print the reason why a command failed, as one line even if the message has several."""
    say("dragoman: " + " ".join(message.split()))


@contextmanager
def one_line_failures(protocol: str) -> Iterator[None]:
    """Turn the errors of a client into a `CommandError` with its most likely cause."""
    # Here, because a node's start imports this module.
    from dragoman.client_core.errors import (
        ConnectionLostError,
        RequestTimeoutError,
        UnreachableError,
    )

    try:
        yield
    except CommandError:
        raise
    except ConfigError as error:
        raise CommandError(f"--bootstrap: {error}", USAGE) from None
    except UnreachableError as error:
        question = "is a node running there?"
        if "closed by the server" in str(error):
            question = "does it demand TLS (--tls) or a login (--user)?"
        raise CommandError(_doubted(error, question)) from None
    except (ConnectionLostError, RequestTimeoutError) as error:
        raise CommandError(_doubted(error, f"does it speak {protocol}?")) from None
    except DragomanError as error:
        raise CommandError(str(error)) from None


def _doubted(error: DragomanError, question: str) -> str:
    """The error with the most likely cause as a question, unless it names the cause already."""
    text = str(error)
    return text if "does not speak" in text else f"{text}; {question}"
