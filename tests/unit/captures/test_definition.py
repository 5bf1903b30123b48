"""Goal: the definition of a capture is validated where it is made, and shows no secret."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.captures.control import Start, encode_line
from dragoman.captures.definition import Definition, read_definition
from dragoman.errors import ConfigError

GOOD: dict[str, object] = {"name": "my-shop", "dsn": "host=db password=hunter2", "tables": ["t"]}


def made(**fields: object) -> Definition:
    return msgspec.convert({**GOOD, **fields}, type=Definition)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "My shop"}, "'My shop' cannot name a capture: use at most 40 of a-z"),
        ({"name": "x" * 41}, "at most 40"),
        ({"tables": []}, "captures nothing: name tables, channels"),
        ({"dsn": ""}, "has no valid address of a database"),
        ({"slot": "my-slot"}, "'my-slot' cannot name a slot or a publication"),
        ({"publication": 'x"; drop'}, "cannot name a slot or a publication"),
        ({"partitions": 0}, "partitions: expected 1 to"),
        ({"snapshot_rows": 0}, "snapshot_rows: expected 1"),
        ({"heartbeat_s": -1}, "heartbeat_s: expected 0"),
        ({"wal_limit_bytes": -5}, "wal_limit_bytes: expected 0"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(fields: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        made(**fields)


def test_names_follow_from_the_name() -> None:
    definition = made()
    assert definition.slot_name == definition.publication_name == "dragoman_my_shop"
    assert definition.transactional_id == "__capture.my-shop"
    assert made(slot="s", publication="p").slot_name == "s"


def test_it_is_read_as_it_was_written_and_refused_with_more() -> None:
    definition = made(keys={"t": ["a", "b"]}, mask={"t.c": "hash"})
    assert read_definition(msgspec.json.encode(definition)) == definition
    with pytest.raises(ConfigError, match="a newer release"):
        read_definition(msgspec.json.encode({**GOOD, "later": 1}))
    with pytest.raises(ConfigError, match="a newer release"):
        read_definition(msgspec.json.encode({**GOOD, "envelope": "later"}))


def test_secrets_are_shown_to_the_process_alone() -> None:
    definition = made()
    start = Start(definition=definition, bootstrap="h:1", spool="s")
    assert b"hunter2" in encode_line(start)
    assert "hunter2" not in f"{definition!r} {definition.shown()} {start!r}"
