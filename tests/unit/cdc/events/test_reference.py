"""Goal: the reference of events says what the code does.

Method: its table of types is converted again, its examples are made again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from captures.orders import changed, encoder, headers, relation
from dragoman.cdc.events.envelopes import debezium_form
from dragoman.cdc.events.marks import HEARTBEATS, SCHEMAS, SNAPSHOTS, TRANSACTIONS
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.types import Kind
from dragoman.protocols.postgres.values import form_of

PAGE = (Path(__file__).parents[4] / "docs/reference/cdc-events.md").read_text()
_ROW = re.compile(r"^\| (`.*?|enum.*?) \| `(.*)` \| `(.*)` \| `(.*)` \|$", re.MULTILINE)


def test_types() -> None:
    section = PAGE.partition("## Types")[2].partition("## ")[0]
    rows = _ROW.findall(section)
    assert len(rows) == section.count("\n| ") - 1
    for names, text, shown, in_debezium in rows:
        for name in re.findall(r"`([a-z0-9_]+)(?:\((\d+)\))?(\[\])?`", names) or [("", "", "")]:
            kind, modifier = Kind(name[0], bool(name[2])), int(name[1] or -1)
            assert form_of(kind).to_json(text.encode()).decode() == shown, name
            column = m.Column("c", 0, modifier)
            made = debezium_form(kind, column).to_json(text.encode()).decode()
            assert made == in_debezium, name


def test_examples_of_envelopes() -> None:
    examples = [json.loads(each) for each in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    table = relation("id:int4 status:text", identity=m.Identity.FULL)
    update = m.Update(0, 1, [b"1", b"shipped"], [b"1", b"new"], True)
    for envelope, example in zip(("pgcdc", "debezium", "flat"), examples, strict=True):
        made = encoder(table, envelope=envelope)
        made.relation(table, ["id"])
        (record,) = changed(made, update)
        assert record.value is not None
        assert json.loads(record.value) == example
        assert list(json.loads(record.value)) == list(example)
        for name in headers(record):
            assert f"| `{name}` |" in PAGE


def test_topics_of_marks() -> None:
    for channel in (HEARTBEATS, SCHEMAS, SNAPSHOTS, TRANSACTIONS):
        assert f"| `{channel.replace(':', '.')}` | 1 |" in PAGE
