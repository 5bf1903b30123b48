"""Entry point of the command `dragoman`.

`serve` and `--version` are dispatched by hand: the libraries that make the other commands pleasant
cost a tenth of a second, which a node's start does not have.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from dragoman import __version__
from dragoman.cli.status import OK, USAGE, CommandError, complain
from dragoman.errors import ConfigError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status (see `status.py`)."""
    try:
        status = _dispatch(sys.argv[1:] if arguments is None else list(arguments))
        # Here and not at exit, where a reader that has gone away could no longer be forgiven.
        sys.stdout.flush()
        return status
    except CommandError as error:
        complain(str(error))
        return error.status
    except ConfigError as error:
        complain(str(error))
        return USAGE
    except SystemExit as error:
        # argparse leaves this way after --help.
        return error.code if isinstance(error.code, int) else OK
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough. What is left in the buffer
        # must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130


def _dispatch(arguments: list[str]) -> int:
    match arguments:
        case ["serve", *rest]:
            from dragoman.cli.serve import serve

            return serve(rest)
        case ["--version"]:
            print(f"dragoman {__version__}")
            return OK
        case _:
            from dragoman.cli.app import run

            return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
