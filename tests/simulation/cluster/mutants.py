"""The wiring of a node made wrong on purpose, one way at a time: checks that miss it prove nothing.

What `simulation.raft` and `simulation.replication` break inside of their own parts is left to them.
Each mutant replaces one small thing from outside; the code itself has no switches for tests.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import Enum

from dragoman.broker import fetch, produce
from dragoman.broker.broker import Broker
from dragoman.broker.errors import ShuttingDown
from dragoman.broker.fetch import Fetched, Wanted
from dragoman.cluster.events import Event
from dragoman.cluster.metadata import MetadataImage
from dragoman.cluster.raft_quorum.quorum import RaftQuorum
from dragoman.outcome import Outcome
from dragoman.protocols.kafka.handlers.express import Express
from dragoman.replication.decisions import Decisions, _Draft
from dragoman.replication.leader import LedPartition
from dragoman.replication.life import Life
from dragoman.replication.replica import Replica
from dragoman.replication.replication import Replication
from dragoman.testing.sim import file
from dragoman.testing.sim.file import SimFile
from simulation.harness.runs import Patch, patched


class Mutant(Enum):
    NO_SYNC = "nothing is synced"
    STABLE_IS_COMMITTED = "acknowledged at the stable end, not at the watermark"
    READ_ABOVE_WATERMARK = "clients read above the watermark"
    NO_VERSION_CHECK = "forwarded change without a look at the version"
    STALE_DECISION = "members of new partitions are not looked at again"
    RESIGNED_IS_SERVED = "a replica that has resigned is still served"
    ROUTES_OUTLIVE_METADATA = "produce routes outlive the metadata they came from"
    ANY_REGISTRATION = "the registration of an earlier life is taken for one's own"
    OLD_MOVE_EMPTIES = "a start that reads of an old move empties the log"
    UNAGREED_DELETION = "a start drops the journal of topics whose deletion is not agreed on"
    REFUSED_AT_STOP = "a stop says of records that are there that they are refused"
    DAMAGE_IS_IGNORED = "a leader keeps a log that clients cannot read"


_read_one = fetch._read_one


def _read_to_the_end(wanted: Wanted, room: int, committed_only: bool, is_first: bool) -> Fetched:
    if wanted.replica is None:
        return _read_one(wanted, room, committed_only, is_first)
    log = wanted.replica.log
    watermark, log.high_watermark = log.high_watermark, log.stable_end
    try:
        return _read_one(wanted, room, committed_only, is_first)
    finally:
        log.high_watermark = watermark


_propose = RaftQuorum.propose


def _propose_anyway(
    self: RaftQuorum,
    events: list[Event],
    _expected_version: int | None = None,
) -> Outcome[None]:
    return _propose(self, events)


_resign = Replication._resign


def _empty_at_once(self: Replication, partition_id: int) -> None:
    self._forget(partition_id)
    self._unshared(self._image.partitions[partition_id])


def _resign_in_secret(self: Replication, leading: LedPartition) -> None:
    _resign(self, leading)
    leading.replica.is_led = True


def _image_with_deletions(self: RaftQuorum) -> MetadataImage:
    image = _local_image(self)
    for _, events in self._entries(self._raft.storage.start, self._raft.storage.end):
        for event in events:
            if type(event).__name__ == "TopicDeleted" and event.topic_id in image.topics_by_id:  # type: ignore[union-attr]
                image.apply(event)
    return image


_local_image = RaftQuorum.local_image
_stop = Broker.stop


def _refuse_then_stop(self: Broker) -> None:
    self.store.settle_all()
    self.partitions.fail_all(ShuttingDown("the node is stopping"))
    _stop(self)


_PATCHES: dict[Mutant, tuple[Patch, ...]] = {
    Mutant.NO_SYNC: (
        (SimFile, "write_durable", SimFile.write),
        (file, "sync_inode", lambda *_: None),
    ),
    Mutant.STABLE_IS_COMMITTED: ((Replica, "when_committed", Replica.when_stable),),
    Mutant.READ_ABOVE_WATERMARK: ((fetch, "_read_one", _read_to_the_end),),
    Mutant.NO_VERSION_CHECK: ((RaftQuorum, "propose", _propose_anyway),),
    # Either is enough.
    Mutant.STALE_DECISION: (
        (Decisions, "settle", lambda *_: []),
        (_Draft, "_drop_earlier_lives", lambda _: None),
    ),
    Mutant.RESIGNED_IS_SERVED: ((Replication, "_resign", _resign_in_secret),),
    # Either is enough.
    Mutant.ROUTES_OUTLIVE_METADATA: (
        (Express, "_forget_if_outdated", lambda _: None),
        (produce, "check_led", lambda _: None),
    ),
    Mutant.ANY_REGISTRATION: ((Life, "is_named_by", lambda *_: True),),
    Mutant.OLD_MOVE_EMPTIES: ((Replication, "_pause", _empty_at_once),),
    Mutant.UNAGREED_DELETION: ((RaftQuorum, "local_image", _image_with_deletions),),
    Mutant.REFUSED_AT_STOP: ((Broker, "stop", _refuse_then_stop),),
    Mutant.DAMAGE_IS_IGNORED: ((Replication, "damaged", lambda *_: None),),
}


def mutated(mutant: Mutant) -> AbstractContextManager[None]:
    """While inside, the mutation is in force. `watched` goes inside of this."""
    return patched(_PATCHES[mutant])
