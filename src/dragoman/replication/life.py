"""What a node registers of its data directory.

The controller keeps a node in the in-sync sets across a start only if its directory is the same and
lost nothing. A node whose data turns out to be damaged, or whose disk was full, begins another life
without a restart: it registers again, as a new incarnation.
"""

from __future__ import annotations

from dragoman.cluster.events import NodeRegistered
from dragoman.log.node import FEATURE_LEVEL, FEATURE_LEVEL_MIN
from dragoman.log.store import Durability, LogStore
from dragoman.replication.messages import Registration


class Life:
    """The current life of a data directory: it began with a start or a new registration."""

    def __init__(self, store: LogStore, addresses: dict[str, str], rack: str = "") -> None:
        node = store.node
        self._store = store
        self._addresses = addresses
        self._rack = rack
        self._number = 0
        self.directory = node.directory_id
        is_journalled = node.durability is Durability.FSYNC
        self._is_intact = (store.was_clean or is_journalled) and not node.has_lost

    def begin_another(self) -> None:
        """For a node that has to register again without a restart."""
        self._number += 1

    @property
    def name(self) -> str:
        return f"{self._store.node.incarnation}/{self._number}"

    def is_named_by(self, event: NodeRegistered) -> bool:
        return (event.directory, event.life) == (self.directory, self.name)

    @property
    def has_room(self) -> bool:
        return not self._store.is_disk_full

    def registered(self) -> None:
        """The controller knows what this directory has lost, if anything."""
        self._store.loss_is_known()

    def registration(self, node_id: int, damaged: tuple[int, ...]) -> Registration:
        return Registration(
            node_id=node_id,
            directory=self.directory,
            life=self.name,
            is_intact=self._is_intact,
            damaged=damaged,
            addresses=self._addresses,
            rack=self._rack,
            feature_level=FEATURE_LEVEL,
            feature_level_min=FEATURE_LEVEL_MIN,
        )
