"""What a client raises, as the one line that a command ends with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dragoman.cli.status import USAGE, CommandError
from dragoman.client_core.errors import ConnectionLostError, RequestTimeoutError, UnreachableError
from dragoman.errors import ConfigError, DragomanError


@contextmanager
def told_in_a_line(protocol: str) -> Iterator[None]:
    """Every failure inside becomes a `CommandError` fit to be shown."""
    try:
        yield
    except CommandError:
        raise
    except ConfigError as error:
        raise CommandError(f"--bootstrap: {error}", USAGE) from None
    except UnreachableError as error:
        raise CommandError(_asked(error, "is a node there?")) from None
    except (ConnectionLostError, RequestTimeoutError) as error:
        raise CommandError(_asked(error, f"does it speak {protocol}?")) from None
    except DragomanError as error:
        raise CommandError(str(error)) from None


def _asked(error: DragomanError, question: str) -> str:
    """With what to look into, unless the error says it already."""
    text = str(error)
    return text if "does not speak" in text else f"{text}; {question}"
