"""Examples of commands, from the section `Examples` of their docstrings.

`--help` and docs/reference/cli.md show them, and a test runs them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Final

_HEADING: Final = "\nExamples\n--------\n"


def examples_of(command: Callable[..., object]) -> list[str]:
    """Lines for a shell, each an example."""
    _, _, section = (inspect.getdoc(command) or "").partition(_HEADING)
    return section.partition("\n\n")[0].splitlines()


def print_examples(examples: Sequence[str]) -> None:
    """Print what follows the help of a command."""
    if examples:
        print("\nExamples:")
        for each in examples:
            # At its full width, so that it can be copied.
            print(f"  {each}")
