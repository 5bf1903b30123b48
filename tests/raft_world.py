"""What tests of the metadata quorum share: a broker whose quorum of one is Raft's, and peers."""

from __future__ import annotations

from random import Random

from dragoman.cluster.events import Event
from dragoman.cluster.metadata import MetadataImage
from dragoman.cluster.quorum import Done
from dragoman.cluster.raft.core import Raft
from dragoman.cluster.raft.membership import Membership
from dragoman.cluster.raft.messages import Message
from dragoman.cluster.raft.ports import Settings
from dragoman.cluster.raft.quorum import RaftQuorum
from dragoman.cluster.raft.storage import PartitionStorage
from dragoman.errors import DragomanError
from dragoman.log.partition import PartitionLog
from dragoman.world import Clock


class NoPeers:
    def send(self, node: int, message: Message) -> None:
        raise AssertionError(f"a message to node {node}: {message}")


class OneVoter(RaftQuorum):
    """In the place of `SingleVoter`, and told the same."""

    def __init__(self, log: PartitionLog, image: MetadataImage, node_id: int, clock: Clock) -> None:
        scheduler = log.store._scheduler
        storage = PartitionStorage(log.store, log, scheduler)
        raft = Raft(node_id, storage, Random(node_id), Membership((node_id,)), Settings())
        super().__init__(raft, image, clock, scheduler, NoPeers())
        self._is_started = False

    def propose(self, events: list[Event], done: Done, expected_version: int | None = None) -> None:
        if not self._is_started:
            self._is_started = True
            self.start()
        super().propose(events, done, expected_version)

    def committed(self) -> None:
        self.node.stable()

    def refused(self, _error: DragomanError) -> None:
        self.node.log_refused()
