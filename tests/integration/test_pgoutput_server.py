"""Goal: what real servers send decodes, every kind of message and every type of value, and comes
back as the value that was stored.

Method: PostgreSQL 16 and 18 with a schema that provokes each message; a table with a column of each
type and seeded random rows, compared with what psycopg reads and, for values that Python does not
have, with what PostgreSQL makes of the JSON; mutations of the captured messages.
"""

from __future__ import annotations

import base64
import json
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, get_args

import pytest

from captures.orders import done, value
from captures.replication_stream import create_slot, decoded, read_frames, session
from demo.postgres import RELEASES, LocalPostgres
from dragoman.captures.definition import Definition
from dragoman.cdc.events import Encoder, Transaction
from dragoman.cdc.events.envelopes import debezium_form
from dragoman.errors import DecodeError
from dragoman.protocols.postgres import codec, values
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.codec import Decoder
from dragoman.protocols.postgres.constants import protocol_version
from dragoman.protocols.postgres.types import TYPES_QUERY, Kind, Types


@pytest.fixture(scope="module", params=RELEASES)
def server(request: pytest.FixtureRequest) -> Iterator[LocalPostgres]:
    settings = {"logical_decoding_work_mem": "64kB"}
    with LocalPostgres(request.param, settings) as running:
        yield running


# ---- messages

_MESSAGES = """
CREATE TYPE mood AS ENUM ('happy', 'sad');
CREATE TABLE orders (id int PRIMARY KEY, status text, feels mood, doc text);
ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL;
CREATE TABLE whole (id int, status text); ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE plain (id int);
CREATE PUBLICATION told FOR ALL TABLES
"""
_CHANGES = (
    "SELECT pg_replication_origin_create('elsewhere')",
    "SELECT pg_replication_origin_session_setup('elsewhere')",
    "INSERT INTO orders VALUES (1, 'new', 'happy', repeat('x', 100000)), (2, null, 'sad', '')",
    "SELECT pg_replication_origin_session_reset()",
    "UPDATE orders SET status = 'shipped' WHERE id = 1",
    "UPDATE orders SET id = 3 WHERE id = 2",
    "DELETE FROM orders WHERE id = 3",
    "INSERT INTO whole VALUES (1, 'a')",
    "UPDATE whole SET status = 'b'",
    "DELETE FROM whole",
    "INSERT INTO plain VALUES (1)",
    "TRUNCATE whole, plain RESTART IDENTITY CASCADE",
    "SELECT pg_logical_emit_message(true, 'mark', 'inside')",
    "SELECT pg_logical_emit_message(false, 'mark', 'outside')",
    # Large ones are streamed while they are under way.
    """DO $$ BEGIN
      INSERT INTO plain SELECT generate_series(1, 2000);
      BEGIN
        INSERT INTO plain SELECT generate_series(1, 2000);
        RAISE EXCEPTION 'undone';
      EXCEPTION WHEN raise_exception THEN
      END;
    END $$""",
    *("BEGIN", "INSERT INTO plain VALUES (2)", "PREPARE TRANSACTION 'kept'"),
    "COMMIT PREPARED 'kept'",
    *("BEGIN", "INSERT INTO plain VALUES (3)", "PREPARE TRANSACTION 'dropped'"),
    "ROLLBACK PREPARED 'dropped'",
    *("BEGIN", "INSERT INTO plain SELECT generate_series(1, 2000)", "PREPARE TRANSACTION 'large'"),
    "COMMIT PREPARED 'large'",
)


def provoke(server: LocalPostgres, slots: dict[str, bool]) -> int:
    """Messages of every kind are in these slots, of which some know two phases; returns the version
    that the server speaks."""
    with session(server.dsn()) as connection:
        connection.execute(_MESSAGES.encode())
        for slot, two_phase in slots.items():
            create_slot(server.dsn(), slot, two_phase=two_phase)
        for statement in _CHANGES:
            connection.execute(statement.encode())
        return protocol_version(connection.info.server_version)


def test_every_kind_of_message(server: LocalPostgres) -> None:
    version = provoke(server, {"first": True, "second": True, "third": False})
    assert version == 4
    options = ("messages 'true'", "two_phase 'true'")
    frames = read_frames(server.dsn(), "first", "told", version, *options, "streaming 'on'")
    messages = decoded(frames, version)
    assert {type(message) for message in messages} == set(get_args(m.Message))
    check_changes(messages)
    check_streams(messages)
    parallel = read_frames(server.dsn(), "second", "told", 4, *options, "streaming 'parallel'")
    aborts = [each for each in decoded(parallel, 4) if isinstance(each, m.StreamAbort)]
    assert aborts
    assert all(each.lsn and each.time_us > 1_700_000_000_000_000 for each in aborts)
    plain = decoded(read_frames(server.dsn(), "third", "told", 1), 1)
    assert sum(isinstance(each, m.Insert) for each in plain) == 2 + 1 + 1 + 2000 + 1 + 2000
    assert not any(getattr(each, "xid", 0) for each in plain if not isinstance(each, m.Begin))
    fuzz([*frames, *parallel], version)


def check_changes(messages: list[m.Message]) -> None:
    updates = [each for each in messages if isinstance(each, m.Update)]
    assert [(each.new[:2], each.old and each.old[:2], each.is_old_whole) for each in updates] == [
        ([b"1", b"shipped"], None, False),
        ([b"3", None], [b"2", None], False),
        ([b"1", b"b"], [b"1", b"a"], True),
    ]
    assert updates[0].new[3] is m.UNCHANGED
    deletes = [(each.old[:2], each.is_old_whole) for each in messages if isinstance(each, m.Delete)]
    assert deletes == [([b"3", None], False), ([b"1", b"b"], True)]
    relations = {each.name: each for each in messages if isinstance(each, m.Relation)}
    assert {name: each.identity.name for name, each in relations.items()} == {
        "orders": "DEFAULT",
        "whole": "FULL",
        "plain": "DEFAULT",
    }
    assert [column.is_key for column in relations["orders"].columns] == [True, False, False, False]
    (truncate,) = (each for each in messages if isinstance(each, m.Truncate))
    assert truncate.restarts_identity
    assert truncate.is_cascading
    assert len(truncate.relation_ids) == 2
    marks = [each for each in messages if isinstance(each, m.LogicalMessage)]
    assert [(each.is_transactional, each.prefix, each.content) for each in marks] == [
        (True, "mark", b"inside"),
        (False, "mark", b"outside"),
    ]
    (origin,) = (each for each in messages if isinstance(each, m.Origin))
    assert origin.name == "elsewhere"
    (mood,) = (each for each in messages if isinstance(each, m.Type))
    assert (mood.schema, mood.name) == ("public", "mood")


def check_streams(messages: list[m.Message]) -> None:
    """Messages of a block name a transaction, which separates rolled back rows from the rest."""
    committed = [each for each in messages if isinstance(each, m.StreamCommit)][-1]
    undone = {each.sub_xid for each in messages if isinstance(each, m.StreamAbort)}
    rows = 0
    xid = 0
    for message in messages:
        if isinstance(message, m.StreamStart):
            xid = message.xid
        elif isinstance(message, m.StreamStop):
            xid = 0
        elif isinstance(message, m.Insert):
            assert bool(message.xid) == bool(xid)
            rows += xid == committed.xid and message.xid not in undone
    assert rows == 2000
    prepared = [each.gid for each in messages if isinstance(each, m.Prepare | m.StreamPrepare)]
    assert prepared == ["kept", "dropped", "large"]
    ends = [each for each in messages if isinstance(each, m.Commit | m.StreamCommit)]
    assert all(each.end_lsn > each.lsn for each in ends)
    assert all(each.time_us > 1_700_000_000_000_000 for each in ends)


def fuzz(frames: list[bytes], version: int) -> None:
    """Whatever is done to a message, it decodes or raises `DecodeError`."""
    rng = random.Random(4)
    kinds = {frame[:1]: frame[:2000] for frame in frames}
    for frame in kinds.values():
        for _ in range(300):
            data = bytearray(frame)
            for _ in range(rng.choice((1, 1, 2, 5))):
                at = rng.randrange(len(data) + 1)
                match rng.randrange(4):
                    case 0:
                        data[at : at + 1] = rng.randbytes(1)
                    case 1:
                        del data[at:]
                    case 2:
                        data[at:at] = rng.randbytes(rng.randint(1, 8))
                    case 3:
                        data[at : at + 4] = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)))
            try:
                Decoder(version).decode(bytes(data))
            except DecodeError:
                continue


# ---- values

_TYPES = """
CREATE TYPE colour AS ENUM ('red', 'a "quoted", one', 'grün');
CREATE TYPE place AS (x int, label text);
CREATE DOMAIN price AS numeric(10, 2) CHECK (VALUE >= 0);
CREATE DOMAIN dear_price AS price;
CREATE DOMAIN numbers AS int[]
"""
_ZONES = [timezone(timedelta(minutes=minutes)) for minutes in (-570, 0, 90, 330)]


def text(rng: random.Random) -> str:
    alphabet = "ab \"'\\{},;\n\t\r\b\x01äß€😀/<>&\u2028" + "N" + "\x7f"
    return (
        rng.choice(["", "NULL", "null", "\\N", "{}"])
        if rng.random() < 0.2
        else "".join(rng.choices(alphabet, k=rng.randint(0, 12)))
    )


def number(rng: random.Random) -> Decimal:
    digits = rng.randint(1, 10 ** rng.randint(1, 40))
    return Decimal(rng.choice((-1, 1)) * digits).scaleb(-rng.randint(0, 20))


def moment(rng: random.Random) -> datetime:
    elapsed = timedelta(microseconds=rng.randint(0, 364 * 86_400_000_000))
    # Near the ends of Python's time a zone would lead out of it.
    return datetime(rng.randint(2, 9998), 1, 1, tzinfo=UTC).replace(tzinfo=None) + elapsed


def json_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 2 else 5)
    if kind < 5:
        return (None, True, rng.randint(-(10**15), 10**15), text(rng), rng.random())[kind]
    if kind == 5:
        return [json_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {text(rng): json_value(rng, depth + 1) for _ in range(rng.randrange(3))}


def json_text(rng: random.Random) -> str:
    return json.dumps(json_value(rng), ensure_ascii=rng.random() < 0.5)


def real(rng: random.Random) -> float:
    return rng.choice(
        [0.0, -0.0, 1e-300, 1.5e300, rng.uniform(-1, 1), float(rng.randint(0, 10**15))]
    )


def from_float(shown: Any) -> float:
    return float(shown)


def from_base64(shown: str) -> bytes:
    return base64.b64decode(shown, validate=True)


def at_utc(shown: str) -> datetime:
    assert shown.endswith("Z")
    return datetime.fromisoformat(shown)


#: Type → a random value as SQL takes it, and from JSON back to what psycopg reads.
_KINDS: dict[str, tuple[Any, Any]] = {
    "bool": (lambda rng: rng.random() < 0.5, None),
    "int2": (lambda rng: rng.randint(-(2**15), 2**15 - 1), None),
    "int4": (lambda rng: rng.randint(-(2**31), 2**31 - 1), None),
    "int8": (lambda rng: rng.randint(-(2**63), 2**63 - 1), None),
    "oid": (lambda rng: rng.randint(0, 2**32 - 1), None),
    "float8": (real, from_float),
    "numeric": (number, Decimal),
    "price": (lambda rng: Decimal(rng.randint(0, 10**9)).scaleb(-2), Decimal),
    "dear_price": (lambda rng: Decimal(rng.randint(0, 10**9)).scaleb(-2), Decimal),
    "text": (text, None),
    "varchar(40)": (text, None),
    "char(20)": (lambda rng: text(rng).strip(), None),
    "colour": (lambda rng: rng.choice(("red", 'a "quoted", one', "grün")), None),
    "uuid": (lambda rng: uuid.UUID(int=rng.getrandbits(128)), uuid.UUID),
    "bytea": (lambda rng: rng.randbytes(rng.randint(0, 20)), from_base64),
    "json": (json_text, None),
    "jsonb": (json_text, None),
    "date": (lambda rng: moment(rng).date(), date.fromisoformat),
    "time": (lambda rng: moment(rng).time(), time.fromisoformat),
    "timetz": (
        lambda rng: moment(rng).time().replace(tzinfo=rng.choice(_ZONES)),
        time.fromisoformat,
    ),
    "timestamp": (moment, datetime.fromisoformat),
    "timestamptz": (
        lambda rng: moment(rng).replace(tzinfo=rng.choice(_ZONES)),
        at_utc,
    ),
}


#: What psycopg would not take apart.
_READ_AS = {
    "price[]": "::numeric[]",
    "dear_price[]": "::numeric[]",
    "colour[]": "::text[]",
}


def nested(rng: random.Random, make: Any, kind: str) -> list[Any]:
    """A list, or a list of lists of the same length, with NULLs."""
    element = lambda: None if rng.random() < 0.2 else make(rng)  # noqa: E731
    if rng.random() < 0.3:
        width = rng.randint(1, 3)
        return [[element() for _ in range(width)] for _ in range(rng.randint(1, 3))]
    return [element() for _ in range(rng.randrange(4))]


def back(shown: Any, convert: Any) -> Any:
    if isinstance(shown, list):
        return [back(each, convert) for each in shown]
    return shown if shown is None or convert is None else convert(shown)


def test_values_of_every_type(server: LocalPostgres) -> None:
    rng = random.Random(20)
    columns = [(f"c{at}", kind) for at, kind in enumerate(_KINDS)]
    columns += [(f"a{at}", f"{kind}[]") for at, kind in enumerate(_KINDS)]
    columns.append(("n", "numbers"))
    with session(server.dsn()) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        connection.execute(_TYPES.encode())
        listed = ", ".join(f"{name} {kind}" for name, kind in columns)
        connection.execute(f"CREATE TABLE v (id int PRIMARY KEY, {listed})".encode())
        connection.execute("CREATE PUBLICATION vs FOR TABLE v")
        create_slot(server.dsn(), "vs")
        for number_ in range(60):
            row: list[Any] = [number_]
            for _, kind in columns:
                make = _KINDS.get(kind.removesuffix("[]"), _KINDS["int4"])[0]
                is_array = kind.endswith("[]") or kind == "numbers"
                made = nested(rng, make, kind) if is_array else make(rng)
                row.append(None if rng.random() < 0.1 else made)
            places = ", ".join(f"%s::{kind}" for _, kind in (("id", "int"), *columns))
            connection.execute(f"INSERT INTO v VALUES ({places})".encode(), row)
        # As they are read, not as they were made: PostgreSQL normalises some.
        known = ", ".join(f"{name}{_READ_AS.get(kind, '')}" for name, kind in columns)
        found = connection.execute(f"SELECT id, {known} FROM v".encode()).fetchall()
        stored = {row[0]: row for row in found}
        with connection.cursor().copy("COPY (SELECT * FROM v ORDER BY id) TO STDOUT") as copy:
            lines = [bytes(line) for line in copy]
        types = connection.execute(TYPES_QUERY.encode()).fetchall()
    messages = decoded(read_frames(server.dsn(), "vs", "vs", 4), 4)
    inserts = [each for each in messages if isinstance(each, m.Insert)]
    assert [codec.decode_line(line, len(columns) + 1) for line in lines] == [
        each.new for each in inserts
    ]
    encoder = Encoder(
        Definition(name="v", dsn="host=db", tables=("v",)), database="postgres", system="1"
    )
    encoder.learn_types(types)  # type: ignore[arg-type]
    relation = next(each for each in messages if isinstance(each, m.Relation))
    assert encoder.unknown_types(relation) == ()
    encoder.relation(relation)
    transaction = Transaction(lsn=1, xid=1, time_us=1)
    for insert in inserts:
        (record,) = done(encoder, lambda insert=insert: encoder.change(insert, transaction))  # type: ignore[misc]
        shown = value(record)["row"]
        for (name, kind), expected in zip(columns, stored[shown["id"]][1:], strict=True):
            convert = _KINDS.get(kind.removesuffix("[]"), _KINDS["int4"])[1]
            assert back(shown[name], convert) == expected, (name, kind, shown[name])


#: Type and value, and its JSON; PostgreSQL has to read the JSON's text as the same value.
_SPECIAL = [
    ("date", "infinity", "infinity"),
    ("date", "-infinity", "-infinity"),
    ("date", "0044-03-15 BC", "0044-03-15 BC"),
    ("date", "5874897-12-31", "5874897-12-31"),
    ("timestamp", "infinity", "infinity"),
    ("timestamp", "0044-03-15 10:00:00.5 BC", "0044-03-15T10:00:00.5 BC"),
    ("timestamptz", "-infinity", "-infinity"),
    ("timestamptz", "0044-03-15 10:00:00+02 BC", "0044-03-15T08:00:00Z BC"),
    ("timestamptz", "12345-01-01 00:00:00+00", "12345-01-01T00:00:00Z"),
    ("timestamptz", "2024-02-29 23:59:59.999999-05:30", "2024-03-01T05:29:59.999999Z"),
    ("time", "24:00:00", "24:00:00"),
    ("timetz", "10:20:30.1-03", "10:20:30.1-03:00"),
    ("timetz", "10:20:30+05:30", "10:20:30+05:30"),
    ("interval", "1 year 2 mons -3 days 04:05:06.7", "1 year 2 mons -3 days +04:05:06.7"),
    ("float4", "1e-30", 1e-30),
    ("float4", "NaN", "NaN"),
    ("float8", "-Infinity", "-Infinity"),
    ("numeric", "NaN", "NaN"),
    ("numeric", "Infinity", "Infinity"),
    ("numeric", "1.500", "1.500"),
    ("int4range", "[1,5)", "[1,5)"),
    ("tstzrange", "[2024-01-01 00:00+00,)", '["2024-01-01 00:00:00+00",)'),
    ("int4multirange", "{[1,2),[5,7)}", "{[1,2),[5,7)}"),
    ("inet", "10.0.0.1/8", "10.0.0.1/8"),
    ("cidr", "10.0.0.0/8", "10.0.0.0/8"),
    ("macaddr", "08:00:2b:01:02:03", "08:00:2b:01:02:03"),
    ("bit(3)", "101", "101"),
    ("varbit", "", ""),
    ("money", "-1234.5", "-$1,234.50"),
    ("point", "(1.5,-2)", "(1.5,-2)"),
    ("tsvector", "'a':1 'b':2", "'a':1 'b':2"),
    ("pg_lsn", "16/B374D848", "16/B374D848"),
    ("place", '(1,"a ""b""")', '(1,"a ""b""")'),
    ("jsonb", '{"a": 1.10, "b": null}', {"a": 1.10, "b": None}),
    ("box[]", "{(1,1),(0,0);(2,2),(1,1)}", ["(1,1),(0,0)", "(2,2),(1,1)"]),
    ("colour[]", '{red,"a \\"quoted\\", one",NULL}', ["red", 'a "quoted", one', None]),
    ("place[]", '{"(1,a)","(2,)"}', ["(1,a)", "(2,)"]),
    ("int4[]", "[0:2]={1,2,3}", [1, 2, 3]),
    ("int4[]", "{{{1},{2}},{{3},{4}}}", [[[1], [2]], [[3], [4]]]),
    ("text[]", "{}", []),
    ("jsonb[]", '{"{\\"a\\": [1]}","\\"NULL\\"","null",NULL}', [{"a": [1]}, "NULL", None, None]),
    ("bytea[]", '{"\\\\x00ff",NULL}', ["AP8=", None]),
    ("timestamptz[]", '{"2024-01-01 00:00:00+00",infinity}', ["2024-01-01T00:00:00Z", "infinity"]),
    ("numrange[]", '{"[1.5,2)",empty}', ["[1.5,2)", "empty"]),
    ("bool[]", "{t,f,NULL}", [True, False, None]),
]


def test_values_that_python_does_not_have(server: LocalPostgres) -> None:
    with session(server.dsn()) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        connection.execute(_TYPES.encode())
        types = Types()
        types.learn(connection.execute(TYPES_QUERY.encode()).fetchall())  # type: ignore[arg-type]
        for kind, stored, shown in _SPECIAL:
            found = connection.execute(
                f"SELECT (%s::{kind})::text, %s::regtype::oid::int8".encode(),
                (stored, kind.partition("(")[0]),
            ).fetchone()
            assert found is not None
            form = values.form_of(types.kind(int(str(found[1]))))
            made = form.to_json(str(found[0]).encode())
            assert json.loads(made) == shown, (kind, stored, made)
            if isinstance(shown, str):
                same = connection.execute(
                    f"SELECT (%s::{kind})::text = (%s::{kind})::text".encode(), (stored, shown)
                ).fetchone()
                assert same == (True,), (kind, shown)


def test_debezium_counts_as_postgresql_does(server: LocalPostgres) -> None:
    """Days, milliseconds and microseconds since 1970, in years far from it."""
    rng = random.Random(7)
    with session(server.dsn()) as connection:
        for _ in range(150):
            day = rng.randint(-2_440_000, 50_000_000)
            elapsed = rng.randint(0, 86_399_999_999)
            found = connection.execute(
                "SELECT d::text, (d + t)::text, t::text,"
                " (extract(epoch FROM d + t) * 1000000)::int8"
                " FROM (SELECT date '1970-01-01' + %s::int AS d,"
                " time '00:00' + make_interval(secs => %s) AS t) s",
                (day, Decimal(elapsed).scaleb(-6)),
            ).fetchone()
            assert found is not None
            assert debezium("date", str(found[0])) == day
            assert debezium("timestamp", str(found[1])) == found[3]
            assert debezium("timestamp", str(found[1]), 3) == int(str(found[3])) // 1000
            assert debezium("time", str(found[2])) == int(str(found[3])) - day * 86_400_000_000


def debezium(name: str, stored: str, modifier: int = -1) -> object:
    form = debezium_form(Kind(name), m.Column("c", 0, modifier))
    return json.loads(form.to_json(stored.encode()))
