"""What stock clients reported at logins, and its place in the compatibility page.

Kept in compatibility.json as `logins`: section, case, client. A cell is `pass`, `none` when the
client has no such thing, or the class of the error that a refused client reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import page

NONE = "none"


class Found(NamedTuple):
    section: str
    client: str
    case: str
    is_allowed: bool
    #: The class of the error; empty: there was none. `none`: the client has no such thing.
    said: str

    @property
    def cell(self) -> str:
        return self.said or "pass"

    @property
    def is_right(self) -> bool:
        """Whether the client was let in if, and only if, it had to be."""
        return self.said == NONE or (not self.said) == self.is_allowed


def keep(found: Iterable[Found]) -> None:
    """Replace cells that were tried; the others stay."""
    results = page.read()
    logins = results.setdefault("logins", {})
    for each in found:
        logins.setdefault(each.section, {}).setdefault(each.case, {})[each.client] = each.cell
    page.write(results)


def kept(each: Found) -> str | None:
    """What the page says of the same case; None: nothing."""
    cells = page.read().get("logins", {}).get(each.section, {}).get(each.case, {})
    return cells.get(each.client)
