"""Questions before something is lost for good."""

from __future__ import annotations

import sys
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from dragoman.cli.status import USAGE, CommandError

Yes: TypeAlias = Annotated[
    bool,
    Parameter(
        name=["--yes", "-y"],
        negative="",
        help="Change without a question. Needed where stdin is not a terminal.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool, Parameter(negative="", help="Show what would change, and change nothing.")
]


def refuse_unasked(what: str) -> None:
    """Raises `CommandError` when there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise CommandError(
            f"{what} needs --yes, since stdin is not a terminal", USAGE, code="not_confirmed"
        )


def ask(question: str) -> None:
    """Ask on the terminal. Raises `CommandError` unless the answer is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("not confirmed: nothing was changed", code="not_confirmed")
