"""Goal: which topics tables go to, and which columns are shown, masked or left out.

Method: settings of a definition through `Encoder`; names of topics on their own.
"""

from __future__ import annotations

import hashlib

import pytest

from captures.orders import ORDERS, changed, encoder, relation, value
from dragoman.captures.topics import topic_name
from dragoman.errors import ConfigError
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.messages import Identity

INSERT = m.Insert(0, 1, [b"1", b"new"])
PEOPLE = relation("id:int4 name:text email:text", name="people")
ROW = [b"1", b"Ada", b"ada@example.org"]


def topic(table: m.Relation, **settings: object) -> str:
    (record,) = changed(encoder(table, **settings), m.Insert(0, 1, [None] * len(table.columns)))
    return record.topic


# ---- topics


def test_the_first_pattern_that_fits_names_the_topic() -> None:
    topics = {"order?": "sales.{table}", "sales.*": "{database}-{schema}-{table}", "*": "rest"}
    assert topic(ORDERS, topics=topics) == "sales.orders"
    assert topic(relation("id:int4", schema="sales"), topics=topics) == "shopdb-sales-orders"
    assert topic(relation("id:int4", name="other"), topics=topics) == "rest"
    assert topic(relation("id:int4", schema="app"), topics=topics) == "pgcdc.app.orders"


def test_templates_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"expected one of \{database\}.*got \{column\}"):
        encoder(topics={"orders": "x.{column}"})
    with pytest.raises(ConfigError, match="internal"):
        encoder(topics={"orders": "__capture_positions"})
    # A table cannot choose such a name either.
    sly = relation("id:int4", name="__capture_positions")
    assert not topic(sly, topics={"*": "{table}"}).startswith("__")


@pytest.mark.parametrize(
    ("name", "begins"),
    [("with space", "with_space-"), ("grün", "gr_n-"), ("x" * 300, "x" * 240 + "-"), ("..", "..-")],
)
def test_names_that_kafka_does_not_take_are_made_usable(name: str, begins: str) -> None:
    made = topic_name(name)
    assert made.startswith(begins)
    assert len(made) <= 249
    assert topic_name(name) == made
    assert topic_name(name + "?") != made
    assert topic_name(made) == made


# ---- columns


def shown(**settings: object) -> dict[str, object]:
    (record,) = changed(encoder(PEOPLE, **settings), m.Insert(0, 1, [*ROW]))
    row: dict[str, object] = value(record)["row"]
    return row


def test_columns_are_left_out() -> None:
    assert shown(exclude=("public.people.email",)) == {"id": 1, "name": "Ada"}
    assert shown(exclude=("peop*.*mail", "other.name")) == {"id": 1, "name": "Ada"}
    assert shown(include=("people.name",)) == {"id": 1, "name": "Ada"}
    assert shown(include=("people.*",), exclude=("*.*.name",)) == {
        "id": 1,
        "email": ROW[2].decode(),
    }
    # What is said about one table says nothing about another.
    assert len(shown(include=("orders.status",))) == 3


def test_columns_of_the_key_are_not_left_out() -> None:
    with pytest.raises(ConfigError, match=r"people\.id is part of the key and cannot be left out"):
        encoder(PEOPLE, exclude=("people.*",))
    for way in ("null", "stars"):
        with pytest.raises(ConfigError, match=f"cannot be masked with {way}: mask it with hash"):
            encoder(PEOPLE, mask={"people.id": way})


def test_columns_are_masked() -> None:
    digest = hashlib.sha256(b"shop\0" + ROW[2]).hexdigest()
    assert shown(mask={"people.email": "hash", "people.name": "stars"}) == {
        "id": 1,
        "name": "****",
        "email": digest,
    }
    assert shown(mask={"people.email": "null"}) == {"id": 1, "name": "Ada", "email": None}
    hidden = changed(
        encoder(PEOPLE, mask={"people.name": "hash"}), m.Insert(0, 1, [b"1", None, None])
    )
    assert value(hidden[0])["row"] == {"id": 1, "name": None, "email": None}


@pytest.mark.parametrize("envelope", ["pgcdc", "debezium", "flat"])
def test_masked_values_are_nowhere_in_a_record(envelope: str) -> None:
    table = relation("id:text secret:text", identity=Identity.FULL)
    made = encoder(envelope=envelope, mask={"orders.id": "hash", "orders.secret": "stars"})
    made.relation(table, ["id"])
    records = changed(
        made,
        m.Insert(0, 1, [b"plainkey", b"plainvalue"]),
        m.Update(0, 1, [b"plainkey", b"plainother"], [b"plainkey", b"plainvalue"], True),
        m.Update(0, 1, [b"plainkey", m.UNCHANGED], [b"plainkey2", b"plainvalue"], True),
        m.Update(0, 1, [b"plainkey", m.UNCHANGED], None, False),
        m.Delete(0, 1, [b"plainkey", b"plainvalue"], True),
    )
    digest = hashlib.sha256(b"shop\0plainkey").hexdigest().encode()
    assert digest in (records[0].key or b"")
    for record in records:
        assert b"plain" not in (record.key or b"") + (record.value or b"") + record.headers
