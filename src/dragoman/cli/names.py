"""Names of topics and groups in arguments, where `*` and `?` are patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from dragoman.cli.status import USAGE, CommandError


def matching(what: str, names: Sequence[str], existing: Callable[[], Iterable[str]]) -> list[str]:
    """The names in order, each once, with those that match a pattern in its place.

    A name that exists is no pattern. Raises `CommandError` for a pattern that nothing matches.
    """
    if not any(map(_is_pattern, names)):
        return list(dict.fromkeys(names))
    known = sorted(existing())
    found: dict[str, None] = {}
    for name in names:
        if name in known or not _is_pattern(name):
            found[name] = None
            continue
        # Brackets are characters of a name.
        pattern = name.replace("[", "[[]")
        some = [each for each in known if fnmatchcase(each, pattern)]
        if not some:
            raise CommandError(f"no {what} matches {name!r}")
        found |= dict.fromkeys(some)
    return list(found)


def require_names(what: str, names: Sequence[str]) -> None:
    """Raises `CommandError` without any name, and for an empty one."""
    if not names or not all(names):
        raise CommandError(f"NAMES: expected the name of at least one {what}", USAGE)


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name
