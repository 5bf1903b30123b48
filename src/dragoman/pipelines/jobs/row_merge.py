"""Merges the changes of a batch with the table's rows of the same keys.

`current_rows.py` decides which rows result; this module looks up the table's rows, assembles the
result and commits it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dragoman.pipelines.jobs.changes import Changes, Version
from dragoman.pipelines.jobs.current_rows import (
    UNKNOWN,
    Folded,
    Pending,
    Rows,
    fold_current,
    fold_history,
)
from dragoman.pipelines.jobs.delta import KEY, KeyedTable

_TIME = pa.timestamp("us", "UTC")
#: Columns of every table, after the columns of the rows. RANGES are those of a history.
MARKS = pa.schema(
    [
        (KEY, pa.string()),
        ("_lsn", pa.int64()),
        ("_seq", pa.int64()),
        ("_at", _TIME),
        ("_deleted", pa.bool_()),
        ("_pending", pa.string()),
    ]
)
RANGES = pa.schema([("_valid_from", _TIME), ("_valid_to", _TIME), ("_is_current", pa.bool_())])


class CurrentMerge:
    """Merges into a table of current rows, which are identified by key."""

    identity: tuple[str, ...] = (KEY,)

    def __init__(self, table: KeyedTable, incoming: pa.Table, changes: Changes) -> None:
        self._table = table
        self._changes = changes
        self._schema = table.schema
        held, self._known = self._held(incoming)
        self._count = len(held)
        #: Values in the written rows that no change contained.
        self.unknown = 0
        self._rows = pa.concat_tables([held, incoming], promote_options="default")
        self._fold = self._foldable(held)

    @property
    def _fresh(self) -> list[tuple[Version, int]]:
        """Truncations that the table has not seen."""
        known = {version for version, _ in self._known}
        return sorted({each for each in self._changes.truncations if each[0] not in known})

    def _held(self, incoming: pa.Table) -> tuple[pa.Table, list[tuple[Version, int]]]:
        """The table's rows of the keys, and the truncations that it has seen."""
        keys = pc.unique(incoming.column(KEY).combine_chunks())
        found = self._read(keys)
        is_mark = pc.is_null(found.column(KEY))
        marks = found.filter(is_mark)
        known = [
            ((lsn, seq), at)
            for lsn, seq, at in zip(
                marks.column("_lsn").to_pylist(),
                marks.column("_seq").to_pylist(),
                marks.column("_at").cast(pa.int64()).to_pylist(),
                strict=True,
            )
        ]
        return found.filter(pc.invert(is_mark)), known

    def _read(self, keys: pa.Array) -> pa.Table:
        if self._changes.truncations or self._changes.left_out:
            # A truncation also invalidates rows that provided column values for other keys.
            return self._table.rows_of(
                keys, self._schema.names, with_pending=bool(self._changes.truncations)
            )
        found = self._table.rows_of(keys, MARKS.names)
        if found.column("_pending").null_count < len(found):
            return self._table.rows_of(keys, self._schema.names)
        return found

    def _foldable(self, held: pa.Table) -> Rows:
        pending = {
            row: msgspec.json.decode(text, type=Pending)
            for row, text in enumerate(held.column("_pending").to_pylist())
            if text is not None
        }
        for index, names in self._changes.left_out.items():
            pending[self._count + index] = Pending(dict.fromkeys(names))
        encoded = self._rows.column(KEY).combine_chunks().dictionary_encode()
        return Rows(
            keys=encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
            lsns=self._rows.column("_lsn").to_numpy(),
            seqs=self._rows.column("_seq").to_numpy(),
            deleted=self._rows.column("_deleted").to_numpy().astype(np.bool_),
            held=self._count,
            pending=pending,
        )

    def put(self, writer: str, batch_id: int) -> None:
        """Commit the merged rows."""
        versions = [version for version, _ in (*self._known, *self._changes.truncations)]
        truncated = max(versions, default=None)
        folded = fold_current(self._fold, truncated)
        # One marker is enough: a row before the last truncation needs no other.
        fresh = [each for each in self._fresh if each[0] == truncated]
        rows = self._gathered(folded)
        if not len(rows) and not fresh:
            return
        self._table.put(
            self._with_marks(rows, fresh),
            identity=self.identity,
            is_new=not self._count,
            truncated=truncated if fresh else None,
            writer=writer,
            batch_id=batch_id,
        )

    def _gathered(self, folded: Folded) -> pa.Table:
        """The rows to write, with the columns that are taken from other rows."""
        found = self._rows.take(pa.array(folded.rows))
        for name, patches in folded.patches.items():
            place = found.schema.get_field_index(name)
            if place < 0:
                continue
            sources = folded.rows.copy()
            for index, source in patches:
                sources[index] = source
                self.unknown += source == UNKNOWN
            taken = self._rows.column(name).take(pa.array(sources, mask=sources == UNKNOWN))
            found = found.set_column(place, name, taken)
        texts: list[str | None] = [None] * len(found)
        for index, pending in folded.pending.items():
            texts[index] = msgspec.json.encode(pending).decode()
        place = found.schema.get_field_index("_pending")
        return found.set_column(place, "_pending", pa.array(texts, pa.string()))

    def _with_marks(self, rows: pa.Table, truncations: Sequence[tuple[Version, int]]) -> pa.Table:
        marks = pa.table(
            {
                KEY: pa.nulls(len(truncations), pa.string()),
                "_lsn": pa.array([version[0] for version, _ in truncations], pa.int64()),
                "_seq": pa.array([version[1] for version, _ in truncations], pa.int64()),
                "_at": pa.array([at for _, at in truncations], _TIME),
                "_deleted": pa.array([True] * len(truncations), pa.bool_()),
            }
        )
        whole = pa.concat_tables(
            [self._schema.empty_table(), rows, marks], promote_options="default"
        )
        return whole.select(self._schema.names).cast(self._schema)


class HistoryMerge(CurrentMerge):
    """Merges into a history, whose rows are identified by key and version."""

    identity = (KEY, "_lsn", "_seq")

    def _read(self, keys: pa.Array) -> pa.Table:
        return self._table.rows_of(None if self._changes.truncations else keys, self._schema.names)

    def put(self, writer: str, batch_id: int) -> None:
        fresh = self._fresh
        times = self._rows.column("_at").cast(pa.int64()).to_numpy()
        history = fold_history(self._fold, times, [*self._known, *fresh])
        order = history.folded.rows
        rows = self._gathered(history.folded)
        ends = pa.array(history.valid_to, mask=history.valid_to < 0).cast(_TIME)
        ranges = {
            "_valid_from": pa.array(history.valid_from).cast(_TIME),
            "_valid_to": ends,
            "_is_current": pc.and_(
                pc.is_null(ends), pc.invert(rows.column("_deleted").combine_chunks())
            ),
        }
        is_changed = (order >= self._count) | np.isin(order, list(self._fold.pending))
        for name, array in ranges.items():
            place = rows.schema.get_field_index(name)
            was = rows.column(place).combine_chunks()
            same = pc.or_kleene(
                pc.fill_null(pc.equal(was, array), False),
                pc.and_(pc.is_null(was), pc.is_null(array)),
            )
            is_changed |= ~same.to_numpy(zero_copy_only=False).astype(np.bool_)
            rows = rows.set_column(place, name, array)
        rows = rows.filter(pa.array(is_changed))
        if not len(rows) and not fresh:
            return
        self._table.put(
            self._with_marks(rows, fresh),
            identity=self.identity,
            is_new=not (is_changed & (order < self._count)).any(),
            truncated=None,
            writer=writer,
            batch_id=batch_id,
        )
