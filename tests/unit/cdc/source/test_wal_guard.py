"""What the guard makes of the log that a database keeps."""

import pytest

from dragoman.captures.definition import Definition
from dragoman.cdc.source.publication import Slot
from dragoman.cdc.source.wal_guard import judge
from dragoman.limits import GUARD_LOOKS


def verdict(retained, checks=GUARD_LOOKS, status="reserved", **fields):
    fields.setdefault("wal_warn_bytes", 100)
    fields.setdefault("wal_limit_bytes", 200)
    definition = Definition(name="n", dsn="host=db", tables=("t",), **fields)
    slot = Slot(
        plugin="pgoutput",
        database="d",
        active_pid=0,
        wal_status=status,
        confirmed_lsn="0/0",
        retained_bytes=retained,
    )
    return judge(definition, slot, checks).act


@pytest.mark.parametrize(
    ("retained", "expected"), [(0, "nothing"), (100, "nothing"), (101, "warn"), (201, "stop")]
)
def test_what_is_done_depends_on_how_much_is_kept(retained, expected):
    assert verdict(retained) == expected


def test_the_policy_says_what_is_done():
    assert verdict(201, wal_policy="drop") == "drop"


def test_a_capture_that_catches_up_is_left_alone():
    assert verdict(201, checks=GUARD_LOOKS - 1) == "warn"


def test_without_bounds_nothing_is_said():
    assert verdict(1 << 50, wal_warn_bytes=0, wal_limit_bytes=0) == "nothing"


def test_log_that_is_about_to_be_thrown_away_is_warned_about():
    assert verdict(1, status="unreserved") == "warn"
