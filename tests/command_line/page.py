"""Writes docs/reference/cli-behaviour.md from the rows.

PYTHONPATH=tests python -m command_line.page            rewrite it (`make docs`)
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from command_line.rows import NOT_RUN, ROWS, Row, side
from dragoman.cli.tree import Command, commands

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "cli-behaviour.md"
_INTRODUCTION: Final = """\
# How every command behaves

<!-- Written by `python -m command_line.page` (`make docs`); a test compares it with the rows. -->

`tests/unit/cli/test_behaviour.py` runs every cell of this table. A failure is one line without a
traceback, or with `--output json` one object with the code that is shown here; the exit status is
1, or 2 where a `²` follows. A cell is empty where a command names nothing or has no server.

- `--help` ends with examples, which `tests/integration/test_command_examples.py` runs.
- JSON and CSV: a run that succeeds prints a document that parses.
- Unknown: a topic, a group, a file or another thing that does not exist.
- Dead server: nothing listens at the address.
- Silent server: connections are accepted and nothing is answered. Commands wait 30 s, and 10 s for
  the first answer of a broker.
- No permission: a user without any right, or for `rocketmq` a request without a signature, on a
  node that enforces rules.

"""
_COLUMNS: Final = (
    "command",
    "`--help`",
    "JSON and CSV",
    "unknown",
    "dead server",
    "silent server",
    "no permission",
)


def page() -> str:
    found = commands()
    rows = [_row(each, ROWS[each.path]) for each in found]
    lines = [
        f"| {' | '.join(_COLUMNS)} |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(each)} |" for each in rows),
    ]
    run = sum(not _is_untried(cell) for each in rows for cell in each[1:])
    totals = f"{len(rows)} commands, {run} cells that are run.\n\n"
    return _INTRODUCTION + totals + "\n".join(lines) + "\n"


def _is_untried(cell: str) -> bool:
    return cell == "" or cell.startswith(("not here", "no: "))


def _row(command: Command, row: Row) -> list[str]:
    has_server = side(command) != "nothing"
    is_tried = has_server and row.not_here not in NOT_RUN
    return [
        f"`{command.path}`",
        "yes",
        _forms(row),
        _unknown(row),
        _server(row, "`unreachable`", has_server=has_server, is_tried=is_tried),
        _server(row, "`no_answer`", has_server=has_server, is_tried=is_tried),
        _denied(row, has_server=has_server, is_tried=is_tried),
    ]


def _forms(row: Row) -> str:
    if row.no_json:
        return f"no: {row.no_json}"
    return f"not here: {row.not_here}" if row.not_here else "yes"


def _unknown(row: Row) -> str:
    if not row.unknown:
        return ""
    if not row.unknown_code:
        return "succeeds, as with mqadmin"
    return f"`{row.unknown_code}`{'²' if row.unknown_status == 2 else ''}"


def _server(row: Row, code: str, *, has_server: bool, is_tried: bool) -> str:
    if not has_server:
        return ""
    if not is_tried:
        return f"not here: {row.not_here}"
    return "a finding" if row.finds_faults else code


def _denied(row: Row, *, has_server: bool, is_tried: bool) -> str:
    if not has_server:
        return ""
    if not is_tried:
        return f"not here: {row.not_here}"
    return row.denied if " " in row.denied else f"`{row.denied}`"


if __name__ == "__main__":
    PAGE.write_text(page())
