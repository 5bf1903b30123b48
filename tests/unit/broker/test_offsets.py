"""Goal: what the scripts do not reach of offsets: bounds, own retention, deletion of topics.
Method: calls on `Offsets` with virtual time.
"""

from __future__ import annotations

import random

import pytest

from dragoman import limits
from dragoman.broker.errors import OffsetMetadataTooLarge, TooManyOffsets
from dragoman.broker.groups import Groups, GroupSettings
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, Offsets
from dragoman.broker.groups.records import decode_key
from worlds.group_script import FakeLog, VirtualTime


class World:
    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.time = VirtualTime()
        self.groups = Groups(
            scheduler=self.time,
            clock=self.time,
            random=random.Random(1),
            persist=FakeLog().persist,
            settings=settings,
        )
        self.offsets = Offsets(self.groups)

    def commit(
        self,
        group_id: str,
        *places: tuple[str, int],
        producer_id: int | None = None,
        retention_ms: int | None = None,
        metadata: str = "",
    ) -> None:
        request = CommitRequest(
            group_id=group_id,
            producer_id=producer_id,
            retention_ms=retention_ms,
            offsets=tuple(
                OffsetCommit(
                    topic=topic, partition=partition, offset=7, leader_epoch=2, metadata=metadata
                )
                for topic, partition in places
            ),
        )
        prepared = self.offsets.prepare_commit(request)
        for error in prepared.errors.values():
            raise error
        self.groups.apply(prepared.records)

    def places(self, group_id: str = "g") -> set[tuple[str, int]]:
        return set(self.offsets.all_committed(group_id))

    def expire(self) -> None:
        for each in self.offsets.prepare_expiry():
            self.groups.apply(each.records)


def test_commit_keeps_everything_it_was_given() -> None:
    world = World()
    world.time.advance(12)
    world.commit("g", ("t", 3), metadata="note")
    committed = world.offsets.committed("g", "t", 3)
    assert committed is not None
    assert (committed.offset, committed.leader_epoch, committed.metadata) == (7, 2, "note")
    assert (committed.committed_ms, committed.expires_ms) == (12_000, None)
    assert world.offsets.committed("g", "t", 4) is None
    assert world.offsets.committed("nobody", "t", 3) is None


def test_metadata_is_measured_in_bytes() -> None:
    world = World(GroupSettings(offset_metadata_max_bytes=10))
    world.commit("g", ("t", 0), metadata="é" * 5)
    with pytest.raises(OffsetMetadataTooLarge):
        world.commit("g", ("t", 0), metadata="é" * 5 + "x")


def test_too_many_offsets_in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_OFFSETS_MAX", 3)
    world = World()
    world.commit("g", ("t", 0), ("t", 1))
    world.commit("g", ("t", 0), producer_id=5)
    with pytest.raises(TooManyOffsets):
        world.commit("g", ("t", 2))
    world.commit("other", ("t", 2))
    with pytest.raises(TooManyOffsets):
        world.commit("third", *(("t", i) for i in range(4)))


def test_retention_of_its_own_ends_when_it_says() -> None:
    world = World()
    world.commit("g", ("short", 0), retention_ms=5_000)
    world.commit("g", ("long", 0), retention_ms=8 * 86_400_000)
    world.commit("g", ("usual", 0))
    world.time.advance(4.999)
    world.expire()
    assert world.places() == {("short", 0), ("long", 0), ("usual", 0)}
    world.time.advance(0.001)
    world.expire()
    assert world.places() == {("long", 0), ("usual", 0)}
    world.time.advance(7 * 86_400)
    world.expire()
    assert world.places() == {("long", 0)}


def test_deleted_topic_is_forgotten_in_every_group_also_where_it_is_staged() -> None:
    world = World()
    world.commit("g", ("t", 0), ("t", 1), ("u", 0))
    world.commit("h", ("u", 0))
    world.commit("i", ("t", 0), producer_id=5)
    world.commit("i", ("u", 0), producer_id=5)
    found = world.offsets.prepare_topic_deletion("t")
    assert {each.group_id: len(each.records) for each in found} == {"g": 2, "i": 1}
    for each in found:
        world.groups.apply(each.records)
    assert world.places("g") == {("u", 0)}
    assert not world.offsets.has_unstable("i", "t", 0)
    assert world.offsets.has_unstable("i", "u", 0)


def test_deleting_the_last_offset_of_a_group_without_members_forgets_the_group() -> None:
    world = World()
    world.commit("g", ("t", 0))
    prepared = world.offsets.prepare_delete("g", [("t", 0), ("t", 9)])
    assert len(prepared.records) == 1
    world.groups.apply(prepared.records)
    assert len(world.groups) == 0


def test_transaction_that_staged_nothing_here_ends_without_records() -> None:
    world = World()
    assert world.offsets.prepare_transaction_end("g", 5, is_commit=True) == ()
    world.commit("g", ("t", 0), producer_id=5)
    assert world.offsets.prepare_transaction_end("g", 6, is_commit=True) == ()


def test_repeated_end_of_a_transaction_writes_the_same_again_until_it_is_applied() -> None:
    """After a crash between append and apply the coordinator asks again; a replay settles it."""
    world = World()
    world.commit("g", ("t", 0), producer_id=5)
    first = world.offsets.prepare_transaction_end("g", 5, is_commit=True)
    again = world.offsets.prepare_transaction_end("g", 5, is_commit=True)
    assert first == again
    world.groups.apply(first)
    world.groups.apply(again)
    assert world.places() == {("t", 0)}
    assert not world.offsets.has_unstable("g", "t", 0)


def test_every_record_of_a_group_names_it_so_that_it_finds_its_partition() -> None:
    world = World()
    world.commit("g", ("t", 0))
    world.commit("g", ("t", 1), producer_id=5)
    records = world.groups.prepare_delete("g")
    assert len(records) == 3
    assert {decode_key(each.key).group_id for each in records} == {"g"}


def test_view_of_all_offsets_is_read_only() -> None:
    world = World()
    world.commit("g", ("t", 0))
    with pytest.raises(TypeError):
        world.offsets.all_stored("g")[("t", 1)] = None  # type: ignore[index]
