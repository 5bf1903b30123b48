"""What stock clients reported at logins, as the results beside the compatibility page keep it.

Kept in compatibility.json as `logins`: section, case, client. A cell is `pass`, `none` when the
client has no such thing, or the class of the error that a refused client reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

NONE = "none"
PASS = "pass"
_NO_ERRORS = {PASS, NONE, ""}
_OR = " or "
#: By section, case and client.
Logins: TypeAlias = dict[str, dict[str, dict[str, str]]]


class Found(NamedTuple):
    section: str
    client: str
    case: str
    is_allowed: bool
    #: The class of the error; empty: there was none. `none`: the client has no such thing.
    said: str

    @property
    def cell(self) -> str:
        return self.said or PASS

    @property
    def is_right(self) -> bool:
        """Whether the client was let in if, and only if, it had to be."""
        return self.said == NONE or (not self.said) == self.is_allowed


def keep(logins: Logins, found: Iterable[Found]) -> None:
    """Replace cells that were tried; the others stay. Where a client reports now one error, now
    another, because a race decides, the cell lists both.
    """
    for each in found:
        cells = logins.setdefault(each.section, {}).setdefault(each.case, {})
        cells[each.client] = merged(cells.get(each.client, ""), each.cell)


def merged(before: str, cell: str) -> str:
    known = before.split(_OR)
    if cell in known:
        return before
    return cell if {cell, before} & _NO_ERRORS else _OR.join((*known, cell))


def is_known(logins: Logins, each: Found) -> bool:
    """Whether the same was found before, or nothing yet."""
    before = logins.get(each.section, {}).get(each.case, {}).get(each.client, "")
    return not before or each.cell in before.split(_OR)
