"""Databases that are not what was captured so far are refused, each with what to do about it."""

from __future__ import annotations

import pytest

from dragoman.captures.definition import Definition
from dragoman.cdc.position import Position, check_slot, check_system, check_timeline
from dragoman.cdc.source.connection import SourceError
from dragoman.cdc.source.replication import System

SHOP = Definition(name="shop", dsn="postgresql://h/d", tables=("t",))
POSITION = Position(lsn=100, system="7", slot="dragoman_shop", timeline=1)


def test_same_database_further_on_passes() -> None:
    for lsn in (100, 200):
        check_system(SHOP, POSITION, System("7", 1, lsn))
    check_system(SHOP, Position(lsn=0), System("7", 1, 0))
    for end in (None, 100, 200):
        check_timeline(SHOP, POSITION, end)
    for confirmed in (0, 100):
        check_slot(SHOP, POSITION, confirmed)


@pytest.mark.parametrize(
    ("system", "said"),
    [
        (System("8", 1, 200), "this is another database.*correct the DSN"),
        (System("7", 1, 99), "ends at 0/63, before the captured position 0/64.*backup"),
    ],
)
def test_other_database_is_refused(system: System, said: str) -> None:
    with pytest.raises(SourceError, match=said) as met:
        check_system(SHOP, POSITION, system)
    assert "`dragoman cdc remove shop` and add it again" in met.value.remedy
    assert not met.value.is_transient


def test_standby_that_lacks_changes_is_refused() -> None:
    with pytest.raises(SourceError, match="lacks captured changes"):
        check_timeline(SHOP, POSITION, 99)


def test_slot_that_does_not_reach_back_is_refused() -> None:
    with pytest.raises(SourceError, match="created again or advanced"):
        check_slot(SHOP, POSITION, 101)
    with pytest.raises(SourceError, match="began with the slot other"):
        check_slot(SHOP, Position(lsn=100, slot="other"), 50)
