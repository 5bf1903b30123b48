"""What is kept of a snapshot's progress comes back as it was, and what is shown of it."""

import msgspec
import pytest

from dragoman.cdc.snapshot import state as snapshot_state
from dragoman.cdc.snapshot.state import Pace, TableState, kept, shown, states_of
from dragoman.cdc.source.publication import SourceTable

TABLE = SourceTable(
    oid=7,
    schema="public",
    name="t",
    is_partitioned=False,
    ancestors=(),
    is_unlogged=False,
    identity="d",
    has_identity=True,
    key=("id",),
    rows_expected=1000,
    is_readable=True,
    is_owned=True,
    hides_rows=False,
)


@pytest.mark.parametrize("key", [(b"17",), ("ä'\\\t".encode(), b"\xff\xfe"), (b"",)])
def test_progress_survives_the_position_record(key):
    state = TableState(oid=7, key=("id",)).behind(key, 10, 99, is_done=False)
    record = msgspec.json.decode(msgspec.json.encode(kept({"public.t": state})))
    assert states_of(record) == {"public.t": state}
    assert states_of(record)["public.t"].last_key == key


def test_nothing_kept_is_nothing_known():
    assert states_of({}) == {}


def test_chunks_add_up_and_an_empty_one_moves_no_key():
    state = TableState(key=("id",)).behind((b"5",), 5, 50, is_done=False)
    after = state.behind(None, 0, 0, is_done=False)
    assert (after.last_key, after.rows, after.bytes, after.is_done) == ((b"5",), 5, 50, False)
    # A position that no capture continues from is not kept.
    done = after.behind((b"7",), 2, 20, is_done=True)
    assert (done.last_key, done.rows, done.bytes, done.is_done) == (None, 7, 70, True)


def test_the_time_left_goes_by_the_pace_of_this_process(monkeypatch):
    now = 100.0
    monkeypatch.setattr(snapshot_state.time, "monotonic", lambda: now)
    pace = Pace(200)
    state = TableState(key=("id",), rows=200)
    assert shown(TABLE, state, pace).seconds_left == -1.0
    now = 110.0
    half = msgspec.structs.replace(state, rows=600)
    assert shown(TABLE, half, pace).seconds_left == 10.0
    more = msgspec.structs.replace(state, rows=1500)  # statistics are old
    assert shown(TABLE, more, pace).seconds_left == 0.0
    unknown = msgspec.structs.replace(TABLE, rows_expected=-1)
    assert shown(unknown, half, pace).seconds_left == -1.0
    done = msgspec.structs.replace(state, is_done=True)
    assert (shown(TABLE, done, None).seconds_left, shown(TABLE, done, None).is_done) == (0.0, True)
