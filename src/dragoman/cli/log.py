"""`dragoman log`: read a data directory without a node."""

from __future__ import annotations

import msgspec
from cyclopts import App

from dragoman.cli.output import Output
from dragoman.cli.status import FAILED, OK, USAGE, CommandError
from dragoman.errors import FormatError
from dragoman.telemetry.logs import escape

app = App(name="log", help="Data directories, read without a node.")


@app.command
def inspect(directory: str, /, *, output: Output = "table") -> int:
    """Show what a data directory holds; exit status 1 when there is damage.

    Parameters
    ----------
    directory
        Data directory; one in use may be looked at, too.
    """
    from dragoman.log.inspect import Problem, describe, inspect_directory

    status = OK
    try:
        # As it is found: a large directory should show progress.
        for found in inspect_directory(directory):
            text = _json(found) if output == "json" else escape(describe(found))
            print(text)
            if isinstance(found, Problem) and found.is_damage:
                status = FAILED
    except FormatError as error:
        raise CommandError(str(error), USAGE) from None
    return status


@app.command
def verify(directory: str, /, *, output: Output = "table") -> int:
    """Check every byte of a data directory; exit status 1 when there is damage.

    Parameters
    ----------
    directory
        Data directory; one in use may be looked at, too.
    """
    from dragoman.log.inspect import describe, verify_directory

    try:
        result = verify_directory(directory)
    except FormatError as error:
        raise CommandError(str(error), USAGE) from None
    if output == "json":
        print(_json(result))
    else:
        for problem in result.problems:
            print(escape(describe(problem)))
        if result.is_in_use:
            print("a node is using the directory: its newest data may be half written")
        word = "sound" if result.is_sound else "damaged"
        print(f"{word}: {result.files} files, {result.bytes_read} bytes")
    return OK if result.is_sound else FAILED


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
