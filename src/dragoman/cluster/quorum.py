"""The port of the metadata quorum, implemented by Raft (`raft_quorum`) and on etcd (`etcd`)."""

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

    @property
    def is_leading(self) -> bool:
        """Whether that is this node."""
        ...

    def version_at_end(self) -> int:
        """The version when all that was proposed here is agreed on."""
        ...

    def check_level(self, events: list[Event]) -> None:
        """Raises `ClusterError` for events that not every node could read."""
        ...

    def propose(self, events: list[Event], done: Done, expected_version: int | None = None) -> None:
        """Agree on events, in order. `done` comes after they are applied to the image.

        An error means they were not accepted, unless it says that the outcome is unknown. With an
        expected version they are refused when the metadata has another.
        """
        ...
