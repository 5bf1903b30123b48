"""Failures of a client as the one line that a command ends with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dragoman.cli.status import USAGE, CommandError
from dragoman.client_core.errors import ConnectionLostError, RequestTimeoutError, UnreachableError
from dragoman.errors import ConfigError, DragomanError


@contextmanager
def one_line_failures(protocol: str) -> Iterator[None]:
    """Every failure inside becomes a `CommandError` fit to be shown."""
    try:
        yield
    except CommandError:
        raise
    except ConfigError as error:
        raise CommandError(f"--bootstrap: {error}", USAGE) from None
    except UnreachableError as error:
        raise CommandError(_doubted(error, "is a node there?")) from None
    except (ConnectionLostError, RequestTimeoutError) as error:
        raise CommandError(_doubted(error, f"does it speak {protocol}?")) from None
    except DragomanError as error:
        raise CommandError(str(error)) from None


def _doubted(error: DragomanError, question: str) -> str:
    """The error with a question for its cause, unless it names the cause already."""
    text = str(error)
    return text if "does not speak" in text else f"{text}; {question}"
