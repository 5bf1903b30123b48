"""The commands as a list, for the page of the command line, for completion and for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from cyclopts import App

from dragoman.cli.examples import examples_of
from dragoman.cli.main import build


class Command(NamedTuple):
    """A command that does something. Nouns with verbs are not among them."""

    #: Such as `topic list`.
    path: str
    app: App
    function: Callable[..., object]
    examples: list[str]
    #: Other names of the verb.
    aliases: list[str]


def commands() -> list[Command]:
    """In the order of the help."""
    return list(_below(build(), ()))


def _below(app: App, path: tuple[str, ...]) -> Iterator[Command]:
    seen: set[int] = set()
    for name in app:
        found = app[name]
        if name.startswith("-") or id(found) in seen:
            continue
        seen.add(id(found))
        if found.default_command is None:
            yield from _below(found, (*path, name))
            continue
        function = found.default_command
        aliases = [each for each in app if each != name and app[each] is found]
        yield Command(" ".join((*path, name)), found, function, examples_of(function), aliases)
