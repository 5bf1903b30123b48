"""One seeded run: what came of it, or a failure with everything that is needed to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol, TypeAlias
from unittest import mock

import msgspec

#: Events at the end of a failed run that its failure shows.
_SHOWN_EVENTS = 400

#: An owner, the name of one of its attributes, and what takes its place.
Patch: TypeAlias = tuple[object, str, object]


class Violation(AssertionError):
    """An invariant does not hold."""


class Failure(AssertionError):
    """A run broke a promise. The text has the seed, the faults and the last events."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__(text)
        #: Simulated seconds until then.
        self.seconds = seconds


class Outcome(msgspec.Struct, frozen=True):
    """A run that kept all promises."""

    seconds: float
    #: How often things happened.
    counts: dict[str, int]
    faults: tuple[str, ...]
    history: tuple[str, ...]


class Run(Protocol):
    history: list[str]

    def time(self) -> float: ...


@contextmanager
def reported(run: Run, title: str, faults: Callable[[], object]) -> Iterator[None]:
    """Turns every exception of a run into a `Failure`."""
    try:
        yield
    except Exception as error:
        last = "\n".join(run.history[-_SHOWN_EVENTS:])
        text = f"{title}: {type(error).__name__}: {error}\nfaults: {faults()}\n{last}"
        raise Failure(text, run.time()) from error


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Replaces attributes of the product, which itself has no switches for tests."""
    with ExitStack() as stack:
        for owner, name, new in patches:
            stack.enter_context(mock.patch.object(owner, name, new))
        yield
