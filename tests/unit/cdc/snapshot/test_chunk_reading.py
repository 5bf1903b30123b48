"""The rows that a change affects in a chunk's window: by key, by part of a row, or unknown."""

import pytest

from dragoman.cdc.snapshot.chunk import Reading
from dragoman.cdc.snapshot.reader import Shape
from dragoman.cdc.snapshot.window import Recent, Visibility
from dragoman.cdc.source.publication import SourceTable
from dragoman.protocols.postgres.messages import (
    UNCHANGED,
    Column,
    Delete,
    Identity,
    Insert,
    Relation,
    Truncate,
    Update,
)

TABLE = SourceTable(
    oid=7,
    schema="public",
    name="t",
    is_partitioned=False,
    ancestors=(),
    is_unlogged=False,
    identity="d",
    has_identity=True,
    key=("b", "a"),
    rows_expected=5,
    is_readable=True,
    is_owned=True,
    hides_rows=False,
)
XID = 20


def relation(*names):
    columns = tuple(Column(name, 25) for name in names)
    return Relation(0, 7, "public", "t", Identity.DEFAULT, columns)


RELATION = relation("a", "v", "b")


class Chunk:
    def __init__(self, lines):
        self.lines = lines


@pytest.fixture
def reading():
    """Three rows were read, of which nothing later is known."""
    made = Reading(TABLE, Recent(), is_whole=False)
    assert made.window.saw(Visibility.parse("10:10:"))
    made.shape = Shape(RELATION, (2, 0), "")
    made.fill(Chunk({(b"%d" % n, b"k"): b"k\tv%d\t%d\n" % (n, n) for n in (1, 2, 3)}))
    return made


def left(reading):
    rows = reading.window.close()
    if rows is None:
        return None
    return [each.split(b"\t")[1] if isinstance(each, bytes) else each[1] for each in rows]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Insert(0, 7, [b"k", b"new", b"9"]), [b"v1", b"v2", b"v3"]),
        (Insert(0, 7, [b"k", b"new", b"2"]), [b"v1", b"v3"]),
        (Update(0, 7, [b"k", b"new", b"2"], None, False), [b"v1", b"v3"]),
        (Delete(0, 7, [b"k", None, b"3"], False), [b"v1", b"v2"]),
        # The key changes: neither is what it was.
        (Update(0, 7, [b"k", b"new", b"9"], [b"k", None, b"1"], False), [b"v2", b"v3"]),
        (Update(0, 7, [b"k", b"new", b"1"], [b"k", None, b"3"], False), [b"v2"]),
        (Truncate(0, (7,), False, False), []),
        # A part: the rest is as it was read.
        (Update(0, 7, [b"k", UNCHANGED, b"2"], None, False), [b"v1", b"v2", b"v3"]),
        # What was not changed, and is part of the key, is in the old row.
        (Update(0, 7, [UNCHANGED, b"new", b"2"], [b"k", None, b"2"], False), [b"v1", b"v3"]),
        # The old row is whole, so the new one is.
        (Update(0, 7, [b"k", UNCHANGED, b"2"], [b"k", b"v2", b"2"], True), [b"v1", b"v3"]),
        # Unknown: the key, or what belongs to the row under its new key.
        (Update(0, 7, [UNCHANGED, b"new", b"2"], None, False), None),
        (Update(0, 7, [b"k", UNCHANGED, b"9"], [b"k", None, b"2"], False), None),
    ],
)
def test_rows_that_a_change_is_about(reading, change, expected):
    reading.changed(XID, RELATION, change)
    assert left(reading) == expected


def test_columns_in_another_order_are_found_by_name(reading):
    reading.changed(XID, relation("b", "a", "more"), Delete(0, 7, [b"2", b"k", None], False))
    assert left(reading) == [b"v1", b"v3"]


def test_a_part_of_a_row_with_other_columns_is_of_no_use(reading):
    part = Update(0, 7, [b"k", UNCHANGED, b"2", b"x"], None, False)
    reading.changed(XID, relation("a", "v", "b", "more"), part)
    assert left(reading) is None


def test_a_stream_without_the_key_spoils_the_chunk(reading):
    reading.changed(XID, relation("a", "v"), Insert(0, 7, [b"k", b"v"]))
    assert left(reading) is None


def test_what_a_chunk_shows_is_not_left_out(reading):
    reading.changed(9, RELATION, Delete(0, 7, [b"k", None, b"3"], False))
    assert left(reading) == [b"v1", b"v2", b"v3"]


def test_a_table_without_key_hears_of_any_change():
    made = Reading(TABLE, Recent(), is_whole=True)
    assert made.window.saw(Visibility.parse("10:10:"))
    assert not made.window.has_hidden
    made.changed(XID, RELATION, Insert(0, 7, [b"k", b"new", b"9"]))
    assert made.window.has_hidden
