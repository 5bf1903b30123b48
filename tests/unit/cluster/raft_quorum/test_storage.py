"""Goal: the metadata partition behaves as the core's storage says, across crashes.

Method: the adapter over a real log on a disk in memory, committed by hand, and restarts of it.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from dragoman.cluster.codec import event_batch, events_in
from dragoman.cluster.events import NodeRegistered
from dragoman.cluster.raft_quorum.storage import SNAPSHOT_FILE, PartitionStorage
from dragoman.errors import CorruptionError, DiskFullError, LogStoppedError
from dragoman.log.adoption import adopt_directory
from dragoman.log.batch import batches
from dragoman.log.node import UNKNOWN_BALLOT, Ballot, read_node_state, write_node_state
from dragoman.raft.membership import Membership
from dragoman.raft.snapshots import Snapshot
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskFaults
from dragoman.world import replace_file
from power_cuts.scenario import small_bounds
from worlds.log import World


class Node:
    def __init__(self, disk: object = None) -> None:
        self.world = World(disk)
        self._open()

    def _open(self) -> None:
        self.storage = PartitionStorage(self.world.store, self.world.log, self.world.scheduler)
        self.world.store.on_stable = lambda _: self.storage.stable()

    def restart(self) -> None:
        self.world.restart(clean=False)
        self._open()

    def open_again(self) -> None:
        """As a node does: the storage comes before the end of the recovery."""
        self.world.open(self._open)

    def write(self, *terms: int) -> None:
        for number, term in enumerate(terms):
            self.storage.append(term, entry(number))

    def offsets(self, start: int = 0) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while start < self.storage.end:
            for header, _ in batches(memoryview(self.storage.read(start, 1 << 20))):
                found.append((header.base_offset, header.leader_epoch))
                start = header.last_offset + 1
        return found


def entry(number: int = 1) -> bytearray:
    return event_batch([NodeRegistered(node_id=number, incarnation=1)])


@pytest.fixture
def node():
    with small_bounds():
        yield Node()


def test_staged_entries_can_be_read_before_they_are_stable(node: Node):
    node.write(1, 1)
    assert (node.storage.end, node.storage.stable_end) == (2, 0)
    assert node.offsets() == [(0, 1), (1, 1)]
    node.world.commit()
    node.write(2)
    assert node.storage.stable_end == 2
    assert node.offsets(2) == [(2, 2)]
    assert events_in(node.storage.read(2, 1)) == [NodeRegistered(node_id=0, incarnation=1)]


def test_terms_are_known_at_every_offset_and_after_a_restart(node: Node):
    node.write(1, 1, 4)
    node.world.commit()
    for _ in range(2):
        storage = node.storage
        assert [storage.term_of(offset) for offset in (-1, 0, 1, 2, 3)] == [-1, 1, 1, 4, -1]
        assert storage.last_term == 4
        assert [storage.end_of_term(term) for term in (0, 1, 3, 9)] == [
            (0, 0), (1, 2), (1, 2), (4, 3)]  # fmt: skip
        node.restart()


def test_empty_log_has_term_zero(node: Node):
    assert (node.storage.last_term, node.storage.end_of_term(5)) == (0, (0, 0))


def test_truncation_takes_the_terms_with_it(node: Node):
    node.write(1, 2, 3)
    node.storage.truncate(1)
    assert (node.storage.end, node.storage.stable_end, node.storage.last_term) == (1, 1, 1)
    node.write(5)
    node.world.commit()
    node.restart()
    assert node.offsets() == [(0, 1), (1, 5)]


def test_ballot_is_stable_with_its_group_and_kept(node: Node):
    node.storage.stage_ballot(Ballot(2, 3))
    assert (node.storage.ballot, node.storage.is_ballot_stable) == (Ballot(2, 3), False)
    node.world.commit()
    assert node.storage.is_ballot_stable
    node.restart()
    assert node.storage.ballot == Ballot(2, 3)


@pytest.mark.parametrize("loss", ["node.json", "journal"])
def test_lost_ballot_returns_with_the_newest_term_of_the_log(node: Node, loss: str):
    world, disk = node.world, node.world.disk
    node.storage.stage_ballot(Ballot(3, 1))
    node.write(1, 3)
    world.commit()
    world.store.checkpoint_now()
    world.store.abandon()
    if loss == "journal":
        # The manifest was durable, and the ballot in the journal alone.
        write_node_state(disk, msgspec.structs.replace(read_node_state(disk), ballot=Ballot()))
    else:
        disk.remove("node.json")
    for each in disk.names("journal"):
        disk.remove(f"journal/{each}")
    if loss == "node.json":
        assert adopt_directory(disk, Random(1)).state.ballot == UNKNOWN_BALLOT
    for _ in range(2):
        node.open_again()
        assert (node.storage.ballot.term, node.storage.is_ballot_stable) == (3, True)
        assert read_node_state(disk).ballot.term == 3
        world.store.abandon()


def test_lost_ballot_returns_with_the_term_of_a_snapshot(node: Node):
    node.storage.save_snapshot(Snapshot(4, 5, Membership((1,)), b"state"))
    node.world.store.abandon()
    node.world.disk.remove("node.json")
    adopt_directory(node.world.disk, Random(1))
    node.open_again()
    assert node.storage.ballot == Ballot(5)


def test_ballot_that_was_not_lost_is_left_as_it_is(node: Node):
    node.write(1, 3)
    node.world.commit()
    node.restart()
    assert node.storage.ballot == Ballot()


def test_ballot_on_a_full_disk_waits_for_room(node: Node):
    node.world.store.directory.is_full = True
    node.storage.stage_ballot(Ballot(2, 3))
    node.world.commit()
    assert not node.storage.is_ballot_stable
    node.world.store.directory.is_full = False
    node.world.scheduler.advance(2.0)
    assert node.storage.is_ballot_stable


def test_readers_see_what_is_agreed_on_and_stable(node: Node):
    node.write(1, 1)
    node.storage.committed(2)
    assert node.world.log.high_watermark == 0
    node.world.commit()
    assert node.world.log.high_watermark == 2


def test_compacted_log_knows_the_term_in_front_of_it(node: Node):
    node.write(1, 2, 2)
    node.world.commit()
    node.storage.committed(3)
    node.storage.compact(2)
    for _ in range(2):
        assert (node.storage.start, node.storage.term_of(1), node.offsets(2)) == (2, 2, [(2, 2)])
        node.restart()


@pytest.mark.parametrize("terms", [(), (1,), (1, 2, 2), (1,) * 9])
def test_reset_log_is_empty_at_its_new_place_and_goes_on_from_there(
    node: Node, terms: tuple[int, ...]
):
    node.write(*terms)
    node.storage.reset(7, 5)
    for _ in range(2):
        storage = node.storage
        assert (storage.start, storage.end, storage.stable_end) == (7, 7, 7)
        assert (storage.last_term, storage.term_of(6)) == (5, 5)
        node.restart()
    node.write(6)
    node.world.commit()
    assert node.offsets(7) == [(7, 6)]


def test_snapshot_is_kept_and_a_damaged_one_refused(node: Node):
    snapshot = Snapshot(4, 2, Membership((1, 2), (3,)), b"state")
    node.storage.save_snapshot(snapshot)
    node.restart()
    assert node.storage.snapshot == snapshot
    replace_file(node.world.disk, SNAPSHOT_FILE, b"rubbish")
    with pytest.raises(CorruptionError):
        node.restart()


def test_snapshot_without_room_leaves_the_one_before():
    node = Node(SimDisk(Random(1)))
    first = Snapshot(1, 1, Membership((1,)), b"first")
    node.storage.save_snapshot(first)
    node.world.disk.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        node.storage.save_snapshot(Snapshot(2, 1, Membership((1,)), bytes(1 << 20)))
    assert node.storage.snapshot == first


def test_failed_sync_of_a_snapshot_stops_the_log():
    node = Node(SimDisk(Random(1)))
    node.world.disk.faults = DiskFaults(sync_error_rate=1.0)
    with pytest.raises(LogStoppedError):
        node.storage.save_snapshot(Snapshot(1, 1, Membership((1,)), b""))
    assert node.world.failures
    node.storage.stage_ballot(Ballot(9, 9))
    assert not node.storage.is_ballot_stable
