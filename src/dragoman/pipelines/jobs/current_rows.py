"""Computes the rows of a keyed table after changes, independent of their order of arrival.

Both functions work on versions, without reading the content of rows, and return the resulting rows
as indexes into the table's rows followed by the incoming ones. The result depends only on the set
of changes:

    current   for each key the row of the highest version, unless it is a delete or was truncated
              later. A column that this change left out has the value of the highest version that
              contained it, since the row was last deleted.
    history   for each key all rows, each valid until the next one or the next truncation. A column
              that a change left out has the value of the row before.

Deletes are kept as rows (markers), so that they take precedence over older changes that arrive
later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from dragoman.pipelines.jobs.changes import Version

Int64s: TypeAlias = NDArray[np.int64]
Truths: TypeAlias = NDArray[np.bool_]

#: In place of a row's index, for a value that is not known yet.
UNKNOWN = -1
#: A version before all others.
_NEVER: Version = (-1, -1)


class Pending(msgspec.Struct, frozen=True, omit_defaults=True):
    """Columns of a row whose values have another version than the row."""

    #: Column → the version of its value; null: unknown.
    columns: dict[str, Version | None]
    #: The last known delete; values before it are invalid.
    deleted: Version = _NEVER


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The table's rows of some keys, followed by the incoming rows."""

    #: The key of each row, as a number.
    keys: Int64s
    lsns: Int64s
    seqs: Int64s
    deleted: Truths
    #: The number of rows of the table.
    held: int
    pending: Mapping[int, Pending] = {}

    def version(self, row: int) -> Version:
        return int(self.lsns[row]), int(self.seqs[row])

    def sorted(self) -> Int64s:
        """Indexes by key and version; among equal versions the table's row is last."""
        is_held = np.arange(len(self.keys)) < self.held
        order: Int64s = np.lexsort((is_held, self.seqs, self.lsns, self.keys)).astype(np.int64)
        return order


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to write: each replaces the row of its key (history: of its key and version)."""

    rows: Int64s
    #: Column → (index into `rows`, the row with the column's value or `UNKNOWN`).
    patches: dict[str, list[tuple[int, int]]]
    #: Index into `rows` → versions of its columns.
    pending: dict[int, Pending]


# ---- current rows


def fold_current(rows: Rows, truncated: Version | None) -> Folded:
    """The current rows to write. Rows at or before the truncation are ignored."""
    order = _after(rows, rows.sorted(), truncated)
    last = _last_of_groups(rows.keys[order])
    top = order[last]
    is_hard = np.isin(rows.keys[top], rows.keys[list(rows.pending)])
    easy = top[~is_hard & (top >= rows.held)]
    chosen = easy.tolist()
    patches: dict[str, list[tuple[int, int]]] = {}
    pending: dict[int, Pending] = {}
    firsts = np.concatenate(([0], last[:-1] + 1)) if len(last) else last
    for group in np.flatnonzero(is_hard).tolist():
        members = order[firsts[group] : last[group] + 1].tolist()
        _fold_key(rows, members, truncated or _NEVER, chosen, patches, pending)
    return Folded(rows=np.array(chosen, np.int64), patches=patches, pending=pending)


def _fold_key(
    rows: Rows,
    members: Sequence[int],
    truncated: Version,
    chosen: list[int],
    patches: dict[str, list[tuple[int, int]]],
    pending: dict[int, Pending],
) -> None:
    """Fold one key whose changes left out columns; `members` are its rows by version."""
    top = members[-1]
    own = rows.pending.get(top)
    if own is None or rows.deleted[top]:
        if top >= rows.held:
            chosen.append(top)
        return
    deleted = max(
        [truncated]
        + [rows.version(row) for row in members if rows.deleted[row]]
        + [rows.pending[row].deleted for row in members if row in rows.pending]
    )
    versions: dict[str, Version | None] = {}
    sources: dict[str, int] = {}
    for name in own.columns:
        versions[name], sources[name] = _newest(rows, members, name, deleted)
    result = Pending(versions, deleted)
    if top < rows.held and result == own:
        return
    place = len(chosen)
    chosen.append(top)
    pending[place] = result
    for name, source in sources.items():
        if source != top:
            patches.setdefault(name, []).append((place, source))


def _newest(
    rows: Rows, members: Sequence[int], name: str, deleted: Version
) -> tuple[Version | None, int]:
    """The highest version that contained a column, and the row with that value."""
    best, source = deleted, UNKNOWN
    for row in members:
        if rows.deleted[row]:
            continue
        left_out = rows.pending.get(row)
        version: Version | None = rows.version(row)
        if left_out is not None and name in left_out.columns:
            version = left_out.columns[name]
        if version is not None and version > best:
            best, source = version, row
    return (None if source == UNKNOWN else best), source


# ---- history


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of some keys with the times for which they are valid, microseconds since 1970."""

    folded: Folded
    valid_from: Int64s
    #: -1: still valid.
    valid_to: Int64s


def fold_history(rows: Rows, times: Int64s, truncations: Sequence[tuple[Version, int]]) -> History:
    """All versions of the keys; a version that arrived twice counts once."""
    order = rows.sorted()
    order = order[~_is_repeated(rows, order)]
    keys = rows.keys[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = keys[1:] != keys[:-1]
    valid_from = _never_back(times[order], is_last)
    valid_to = np.full(len(order), -1, np.int64)
    valid_to[:-1][~is_last[:-1]] = valid_from[1:][~is_last[:-1]]
    _end_at_truncations(rows, order, is_last, valid_from, valid_to, truncations)
    patches, pending = _carried(rows, order, is_last, [at for at, _ in truncations])
    folded = Folded(rows=order, patches=patches, pending=pending)
    return History(folded=folded, valid_from=valid_from, valid_to=valid_to)


def _is_repeated(rows: Rows, order: Int64s) -> Truths:
    """Rows with the same key and version as the next one."""
    repeated = np.zeros(len(order), np.bool_)
    sames = [each[order][1:] == each[order][:-1] for each in (rows.keys, rows.lsns, rows.seqs)]
    repeated[:-1] = np.logical_and.reduce(sames)
    return repeated


def _never_back(times: Int64s, is_last: Truths) -> Int64s:
    """Times that never decrease within a key: clocks may step back, but no range may be
    negative.
    """
    found = times.copy()
    is_back = np.zeros(len(times), np.bool_)
    is_back[1:] = (times[1:] < times[:-1]) & ~is_last[:-1]
    for place in np.flatnonzero(is_back).tolist():
        latest = found[place - 1]
        while found[place] < latest:
            found[place] = latest
            if is_last[place]:
                break
            place += 1
    return found


def _end_at_truncations(
    rows: Rows,
    order: Int64s,
    is_last: Truths,
    valid_from: Int64s,
    valid_to: Int64s,
    truncations: Sequence[tuple[Version, int]],
) -> None:
    for version, at in sorted(truncations, reverse=True):
        # From the last to the first, so that the first truncation after a row remains.
        before = _is_before(rows, order, version)
        is_covering = before & (is_last | ~np.concatenate((before[1:], [False])))
        end = np.maximum(at, valid_from[is_covering])
        known = valid_to[is_covering]
        valid_to[is_covering] = np.where(known < 0, end, np.minimum(known, end))


def _carried(
    rows: Rows, order: Int64s, is_last: Truths, truncations: Sequence[Version]
) -> tuple[dict[str, list[tuple[int, int]]], dict[int, Pending]]:
    """Columns that changes left out, taken from the row before unless it was deleted."""
    patches: dict[str, list[tuple[int, int]]] = {}
    pending: dict[int, Pending] = {}
    is_pending = np.isin(order, list(rows.pending))
    sources: dict[str, int] = {}
    for place in np.flatnonzero(is_pending).tolist():
        row = int(order[place])
        pending[place] = rows.pending[row]
        is_first = place == 0 or bool(is_last[place - 1])
        before = UNKNOWN if is_first else int(order[place - 1])
        if before != UNKNOWN and _is_gone(rows, before, row, truncations):
            before = UNKNOWN
        follows = not is_first and bool(is_pending[place - 1])
        sources = {
            name: UNKNOWN if before == UNKNOWN else sources.get(name, before) if follows else before
            for name in rows.pending[row].columns
        }
        for name, source in sources.items():
            patches.setdefault(name, []).append((place, source))
    return patches, pending


def _is_gone(rows: Rows, before: int, row: int, truncations: Sequence[Version]) -> bool:
    if rows.deleted[before]:
        return True
    return any(rows.version(before) <= each < rows.version(row) for each in truncations)


# ---- versions


def _is_before(rows: Rows, order: Int64s, version: Version) -> Truths:
    lsns, seqs = rows.lsns[order], rows.seqs[order]
    found: Truths = (lsns < version[0]) | ((lsns == version[0]) & (seqs <= version[1]))
    return found


def _after(rows: Rows, order: Int64s, truncated: Version | None) -> Int64s:
    return order if truncated is None else order[~_is_before(rows, order, truncated)]


def _last_of_groups(keys: Int64s) -> Int64s:
    if not len(keys):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate((keys[1:] != keys[:-1], [True]))).astype(np.int64)
