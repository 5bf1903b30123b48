"""The port of the metadata quorum, implemented by Raft (`raft_quorum`) and on etcd (`etcd`)."""

from __future__ import annotations

from typing import Protocol

from dragoman.cluster.events import Event
from dragoman.outcome import Outcome


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
        """The version once everything proposed here is committed."""
        ...

    def check_level(self, events: list[Event]) -> None:
        """Raises `ClusterError` for events that some node could not read."""
        ...

    def propose(self, events: list[Event], expected_version: int | None = None) -> Outcome[None]:
        """Commit events, in order. Settled once they are applied to the image.

        An error means that they were not accepted, unless it is an `OutcomeUnknownError`. With an
        expected version they are refused if the metadata has another.
        """
        ...

    def forget_history(self, words: tuple[bytes, ...]) -> None:
        """Replace the entries of the log by a snapshot if they, or the last snapshot, have any of
        these words. Followers that lag get the snapshot instead of entries.
        """
        ...
