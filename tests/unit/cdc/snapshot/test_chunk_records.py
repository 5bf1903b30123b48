"""Records of a snapshot: nothing is lost or doubled when a topic has to be made in between."""

import pytest

from dragoman.captures.definition import Definition
from dragoman.cdc.events import Encoder, TopicNeeded, Transaction
from dragoman.cdc.snapshot.chunk import ChunkRecords, RowEncoder, WholeRecords
from dragoman.protocols.postgres.messages import Column, Identity, Relation

RELATION = Relation(
    0,
    7,
    "public",
    "t",
    Identity.DEFAULT,
    (Column("id", 23, -1, is_key=True), Column("v", 25)),
)
LINES = [b"1\tone\n", b"2\t\\N\n", [b"3", b"three"]]


@pytest.fixture
def encoder():
    return Encoder(Definition(name="n", dsn="host=db", tables=("t",)), database="d", system="1")


def transaction():
    return Transaction(lsn=5, xid=6, time_us=7)


def told(records):
    """Topic and value of each."""
    return [(record.topic, record.value) for record in records]


def test_topics_are_asked_for_and_the_same_record_comes_afterwards(encoder):
    rows = RowEncoder(encoder, RELATION, ())
    records = ChunkRecords(rows, LINES, transaction(), is_first=True, rows_in_all=3)
    found, asked = [], []
    while True:
        try:
            found.append(next(records))
        except TopicNeeded as topic:
            asked.append(topic.topic)
            encoder.partitions[topic.topic] = topic.partitions
        except StopIteration:
            break
    assert asked == ["pgcdc._snapshot", "pgcdc.t"]
    topics = [topic for topic, _ in told(found)]
    assert topics == ["pgcdc._snapshot", "pgcdc.t", "pgcdc.t", "pgcdc.t", "pgcdc._snapshot"]
    assert b'"v":null' in found[2].value
    assert b'"v":"three"' in found[3].value


def test_a_chunk_in_the_middle_has_no_marks(encoder):
    encoder.partitions["pgcdc.t"] = 8
    rows = RowEncoder(encoder, RELATION, ())
    records = list(ChunkRecords(rows, LINES, transaction(), is_first=False, rows_in_all=-1))
    assert len(records) == 3


async def test_a_whole_table_is_taken_as_it_comes(encoder):
    async def source():
        for line in LINES[:2]:
            yield [line]
        yield []

    over = []
    rows = RowEncoder(encoder, RELATION, ())
    records = WholeRecords(rows, source(), transaction(), over=lambda *counts: over.append(counts))
    found = []
    while True:
        try:
            found.append(await anext(records))
        except TopicNeeded as topic:
            encoder.partitions[topic.topic] = topic.partitions
        except StopAsyncIteration:
            break
    topics = [topic for topic, _ in told(found)]
    assert topics == ["pgcdc._snapshot", "pgcdc.t", "pgcdc.t", "pgcdc._snapshot"]
    assert over == [(2, len(LINES[0]) + len(LINES[1]))]
