"""Agreement on metadata events: the port. One voter or several, behind it is Raft (`raft/`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dragoman.cluster.events import Event
from dragoman.errors import DragomanError

Done = Callable[[DragomanError | None], None]


class MetadataQuorum(Protocol):
    @property
    def version(self) -> int:
        """How many events have been applied."""
        ...

    @property
    def leader(self) -> int:
        """Node that accepts proposals, -1 while there is none."""
        ...

    def propose(self, events: list[Event], done: Done) -> None:
        """Agree on events, in order. `done` comes after they are applied to the image.

        An error means they were not accepted, unless it says that the outcome is unknown.
        """
        ...
