"""Tables: alignment, full width, hostile text, and lists of nothing. JSON and CSV of the same."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from dragoman.cli.main import main
from dragoman.cli.output import (
    Fields,
    Stream,
    Table,
    print_fields,
    print_table,
    show,
    show_change,
)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip(" ─━")]


def test_numbers_stand_right_and_text_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "COUNT"), [("a", 1), ("longer", 1000), ("b", None)])
    lines = printed(capsys)
    assert [line.split() for line in lines] == [
        ["NAME", "COUNT"],
        ["a", "1"],
        ["longer", "1000"],
        ["b", "-"],
    ]
    assert len({len(line) for line in lines}) == 1


def test_nothing_is_cut_or_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 249
    print_table(("NAME", "OTHER"), [(name, name)])
    assert printed(capsys)[1].split() == [name, name]


def test_empty_table_has_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "COUNT"), [])
    assert [line.split() for line in printed(capsys)] == [["NAME", "COUNT"]]


def test_text_is_neither_markup_nor_control(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [("[bold]x[/bold]\x1b[31m\n\t",)])
    assert printed(capsys)[1] == "[bold]x[/bold]\\x1b[31m\\n\\t"


def test_fields_show_words_for_truth_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("ready", True), ("internal", False), ("replicas", (1, 2)), ("none", None)])
    assert [line.split() for line in printed(capsys)] == [
        ["ready", "yes"],
        ["internal", "no"],
        ["replicas", "1,2"],
        ["none", "-"],
    ]


class Item(msgspec.Struct, frozen=True):
    name: str
    count: int | None = None
    replicas: tuple[int, ...] = ()
    is_internal: bool = False


ITEMS = [Item('a "quoted", name', 3, (1, 2), True), Item("line\nbreak\x1b[31m")]


def test_csv_has_a_header_quoted_cells_and_nested_values_as_json(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    show("csv", ITEMS, Item)
    text = capfdbinary.readouterr().out
    assert text.startswith(b"name,count,replicas,is_internal\n")
    assert text.endswith(b"\n")
    rows = list(csv.reader(io.StringIO(text.decode(), newline="")))
    assert rows[1:] == [
        ['a "quoted", name', "3", "[1,2]", "true"],
        ["line\nbreak\x1b[31m", "", "[]", "false"],
    ]


def test_csv_of_no_items_has_its_header(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show("csv", [], Item)
    assert capfdbinary.readouterr().out == b"name,count,replicas,is_internal\n"


def test_csv_of_one_value_has_one_row(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show("csv", Item("=1+1"), Item)
    assert capfdbinary.readouterr().out.splitlines()[1:] == [b"=1+1,,[],false"]


def test_json_has_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show("json", ITEMS, Item)
    assert msgspec.json.decode(capsys.readouterr().out, type=list[Item]) == ITEMS


def test_table_without_parts_has_a_column_for_each_field(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show("table", ITEMS, Item)
    lines = printed(capsys)
    assert lines[0].split() == ["NAME", "COUNT", "REPLICAS", "IS", "INTERNAL"]
    assert lines[2].split() == ["line\\nbreak\\x1b[31m", "-", "[]", "no"]


def test_parts_have_empty_lines_between_them(capsys: pytest.CaptureFixture[str]) -> None:
    show("table", ITEMS[0], Item, Fields([("name", "a")]), "two\nlines\x1b", Table(("N",), [(1,)]))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:5] == ["name  a", "", "two", "lines\\x1b", ""]


def test_change_is_a_message_or_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    show_change("table", "created 'a'", Item("a"), Item)
    assert capsys.readouterr() == ("", "created 'a'\n")
    show_change("json", "created 'a'", Item("a"), Item)
    out, err = capsys.readouterr()
    assert (msgspec.json.decode(out, type=Item), err) == (Item("a"), "")


def test_stream_prints_lines_of_json_or_rows_below_one_header(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    outputs: tuple[Literal["json", "csv"], ...] = ("json", "csv")
    for output in outputs:
        stream = Stream(output, Item)
        stream.show(Item("a"))
        stream.show(Item("b", 1))
    assert capfdbinary.readouterr().out.splitlines() == [
        b'{"name":"a","count":null,"replicas":[],"is_internal":false}',
        b'{"name":"b","count":1,"replicas":[],"is_internal":false}',
        b"name,count,replicas,is_internal",
        b"a,,[],false",
        b"b,1,[],false",
    ]


def test_notes_are_for_people_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, notes in (("table", 1), ("json", 0), ("csv", 0)):
        assert main(["tls", "dev", str(tmp_path), "--output", form]) == 0
        assert capsys.readouterr().err.count("\n") == notes
