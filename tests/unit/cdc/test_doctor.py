"""What the doctor makes of what it has found: each trouble has its own sentence and remedy."""

import msgspec
import pytest

from dragoman.captures.definition import Definition
from dragoman.cdc.doctor import Server, check_publication, check_server, check_tables
from dragoman.cdc.source.publication import OPERATIONS, Publication, SourceTable

SERVER = Server(
    version=160004,
    is_standby=False,
    wal_level="logical",
    slots=1,
    slots_max=10,
    senders=0,
    senders_max=10,
    slot_keep_bytes=-1,
    user="app",
    may_replicate=True,
    may_create=True,
    database="shop",
    encoding="UTF8",
)
TABLE = SourceTable(
    oid=1,
    schema="public",
    name="orders",
    is_partitioned=False,
    ancestors=(),
    is_unlogged=False,
    identity="d",
    has_identity=True,
    key=("id",),
    rows_expected=5,
    is_readable=True,
    is_owned=True,
    hides_rows=False,
)
PUBLICATION = Publication(
    is_made_here=True,
    is_for_all=False,
    operations=OPERATIONS,
    is_via_root=True,
    tables=("public.orders",),
)


def definition(**fields):
    fields.setdefault("tables", ("orders",))
    return Definition(name="shop", dsn="host=db", **fields)


def worst(findings):
    found = list(findings)
    for level in ("problem", "warning", "ok"):
        if bad := [each for each in found if each.level == level]:
            return level, bad[0]
    raise AssertionError("nothing was found")


def test_a_server_that_is_ready_has_no_troubles():
    assert worst(check_server(SERVER, definition()))[0] == "ok"


@pytest.mark.parametrize(
    ("change", "level", "remedy"),
    [
        ({"version": 130010}, "problem", "upgrade to 14"),
        ({"wal_level": "replica"}, "problem", "wal_level = 'logical'"),
        ({"senders": 10}, "problem", "max_wal_senders = 15"),
        ({"encoding": "SQL_ASCII"}, "warning", "make sure that all text is UTF-8"),
        ({"slots": 10}, "warning", "max_replication_slots = 15"),
        ({"may_replicate": False}, "problem", 'ALTER ROLE "app" REPLICATION'),
        ({"may_create": False}, "warning", 'GRANT CREATE ON DATABASE "shop" TO "app"'),
        ({"is_standby": True}, "problem", "target_session_attrs=read-write"),
    ],
)
def test_what_a_server_lacks_is_said_with_its_remedy(change, level, remedy):
    found, finding = worst(check_server(msgspec.structs.replace(SERVER, **change), definition()))
    assert found == level
    assert remedy in finding.remedy


def test_prepared_transactions_need_a_release_that_sends_them():
    old = msgspec.structs.replace(SERVER, version=140009)
    assert worst(check_server(old, definition(two_phase=True)))[0] == "problem"
    assert worst(check_server(SERVER, definition(two_phase=True)))[0] == "ok"


def test_a_standby_is_good_enough_for_changes_without_snapshot():
    standby = msgspec.structs.replace(SERVER, is_standby=True)
    assert worst(check_server(standby, definition(snapshot="never")))[0] == "warning"
    older = msgspec.structs.replace(standby, version=150004)
    assert worst(check_server(older, definition(snapshot="never")))[0] == "problem"


def test_listening_needs_no_replication():
    lacking = msgspec.structs.replace(SERVER, wal_level="replica", may_replicate=False)
    assert worst(check_server(lacking, definition(tables=(), channels=("news",))))[0] == "ok"


@pytest.mark.parametrize(
    ("change", "level", "remedy"),
    [
        ({}, "ok", ""),
        ({"is_unlogged": True}, "problem", 'ALTER TABLE "public"."orders" SET LOGGED;'),
        ({"has_identity": False, "key": ()}, "problem", "REPLICA IDENTITY FULL;"),
        ({"is_readable": False}, "problem", "GRANT SELECT ON"),
        ({"hides_rows": True}, "warning", "BYPASSRLS"),
        ({"key": (), "identity": "f"}, "warning", "ADD PRIMARY KEY"),
    ],
)
def test_what_a_table_lacks_is_said_with_its_remedy(change, level, remedy):
    table = msgspec.structs.replace(TABLE, **change)
    found, finding = worst(check_tables(definition(), [table]))
    assert found == level
    assert remedy in finding.remedy


def test_a_table_that_only_a_pattern_names_is_a_warning():
    table = msgspec.structs.replace(TABLE, has_identity=False, key=())
    assert worst(check_tables(definition(tables=("*",)), [table]))[0] == "warning"


def test_names_that_match_nothing():
    assert worst(check_tables(definition(tables=("nothing",)), [TABLE]))[0] == "problem"
    assert worst(check_tables(definition(tables=("nothing.*",)), [TABLE]))[0] == "warning"


@pytest.mark.parametrize(
    ("change", "level", "remedy"),
    [
        ({}, "ok", ""),
        ({"operations": ("insert",)}, "problem", "SET (publish = 'insert, update, delete, trunc"),
        ({"tables": (), "is_made_here": False}, "problem", 'ADD TABLE "public"."orders"'),
        ({"tables": ()}, "ok", ""),  # it is added when the capture starts
    ],
)
def test_what_a_publication_lacks_is_said_with_its_remedy(change, level, remedy):
    publication = msgspec.structs.replace(PUBLICATION, **change)
    found, finding = worst(check_publication(definition(), publication, [TABLE], SERVER))
    assert found == level
    assert remedy in finding.remedy


def test_a_missing_publication_is_made_or_asked_for():
    foreign = msgspec.structs.replace(TABLE, is_owned=False)
    assert worst(check_publication(definition(), None, [TABLE], SERVER))[0] == "ok"
    for given, table in ((definition(create=False), TABLE), (definition(), foreign)):
        level, finding = worst(check_publication(given, None, [table], SERVER))
        assert level == "problem"
        assert 'CREATE PUBLICATION dragoman_shop FOR TABLE "public"."orders"' in finding.remedy


def test_partitions_under_their_own_names_are_warned_about():
    publication = msgspec.structs.replace(PUBLICATION, is_via_root=False)
    table = msgspec.structs.replace(TABLE, is_partitioned=True)
    level, finding = worst(check_publication(definition(), publication, [table], SERVER))
    assert level == "warning"
    assert "publish_via_partition_root = true" in finding.remedy
