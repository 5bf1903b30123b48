"""Tables: alignment, full width, hostile text, and lists of nothing."""

from __future__ import annotations

import pytest

from dragoman.cli.output import print_fields, print_table


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
