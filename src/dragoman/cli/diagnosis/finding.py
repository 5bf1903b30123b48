"""The result of a check: what was found, and the remedy."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Level: TypeAlias = Literal["ok", "warning", "problem"]


class Finding(msgspec.Struct, frozen=True):
    level: Level
    #: The name of the check, as in the table of docs/reference/doctor.md.
    check: str
    what: str
    #: What to type or change; empty when nothing is wrong.
    remedy: str = ""


def ok(check: str, what: str) -> Finding:
    return Finding("ok", check, what)


def warning(check: str, what: str, remedy: str) -> Finding:
    return Finding("warning", check, what, remedy)


def problem(check: str, what: str, remedy: str) -> Finding:
    return Finding("problem", check, what, remedy)
