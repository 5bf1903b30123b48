"""Goal: work that outlives its request ends when its caller has lost the right, and only then."""

from __future__ import annotations

from dragoman.broker.errors import NotAuthorized
from dragoman.errors import DragomanError
from worlds.broker import World


class Stream:
    """Work with a right that can be taken away."""

    def __init__(self, world: World) -> None:
        self.is_allowed = True
        self.asked = 0
        self.refusals: list[DragomanError] = []
        self.grant = world.broker.grants.hold(self._ask, self.refusals.append)

    def _ask(self) -> None:
        self.asked += 1
        if not self.is_allowed:
            raise NotAuthorized("no more")


def test_only_work_without_its_right_ends(world: World) -> None:
    streams = [Stream(world) for _ in range(3)]
    streams[1].is_allowed = False
    world.change_rules()
    assert [len(each.refusals) for each in streams] == [0, 1, 0]
    assert [each.asked for each in streams] == [1, 1, 1]
    assert len(world.broker.grants) == 2


def test_revoked_once(world: World) -> None:
    stream = Stream(world)
    stream.is_allowed = False
    world.change_rules()
    world.change_rules()
    assert len(stream.refusals) == 1
    assert len(world.broker.grants) == 0


def test_work_that_has_ended_is_not_asked(world: World) -> None:
    stream = Stream(world)
    stream.grant.release()
    stream.grant.release()
    world.change_rules()
    assert stream.asked == 0


def test_work_may_end_other_work(world: World) -> None:
    first, second = Stream(world), Stream(world)
    first.is_allowed = second.is_allowed = False
    first.grant._revoke = lambda _: second.grant.release()
    world.change_rules()
    assert second.refusals == []


def test_other_changes_ask_nobody(world: World) -> None:
    stream = Stream(world)
    revision = world.broker.grants.revision
    world.create("t")
    assert (stream.asked, world.broker.grants.revision) == (0, revision)


def test_thousands_are_asked_over_several_turns(world: World) -> None:
    streams = [Stream(world) for _ in range(20_000)]
    for each in streams:
        each.is_allowed = False
    world.broker.grants.changed()
    assert 0 < sum(each.asked for each in streams) < len(streams)
    world.settle()
    assert all(each.refusals for each in streams)
