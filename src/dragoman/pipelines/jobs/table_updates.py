"""Applies micro-batches of changes to the table, without Spark.

Changes are decoded (`changes.py`), their columns typed (`columns.py`) and merged with the table's
rows of the same keys (`row_merge.py`, `current_rows.py`), in one commit (`delta.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
import pyarrow as pa

from dragoman.errors import ConfigError
from dragoman.pipelines.jobs import columns
from dragoman.pipelines.jobs.changes import (
    Changes,
    Envelope,
    EnvelopeError,
    Order,
    detected_envelope,
    detected_order,
    read_changes,
)
from dragoman.pipelines.jobs.columns import MisfitError
from dragoman.pipelines.jobs.delta import KeyedTable
from dragoman.pipelines.jobs.materialize import Options
from dragoman.pipelines.jobs.row_merge import MARKS, RANGES, CurrentMerge, HistoryMerge
from dragoman.pipelines.state import Progress, Report


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The purpose of a table, stored as the table's description."""

    job: Literal["materialize"]
    topic: str
    envelope: Envelope
    order: Order
    history: bool


class Materializer:
    def __init__(
        self,
        options: Options,
        declared: Mapping[str, pa.DataType] | None = None,
        report: Report = lambda _: None,
    ) -> None:
        self._options = options
        self._declared = dict(declared or {})
        self._report = report

    def apply(self, records: pa.Table, batch_id: int, writer: str) -> None:
        """Apply a micro-batch to the table, unless it was applied before.

        `records` has `RECORD_COLUMNS`. Raises `ConfigError` for records that are not changes, for
        values that do not fit, and for a table that was created with other options.
        """
        table = self.opened()
        if not len(records) or (table is not None and table.last_batch(writer) >= batch_id):
            return
        made = self._made(records, table)
        try:
            changes = read_changes(records, made.envelope, made.order)
        except EnvelopeError as error:
            raise EnvelopeError(f"topic {self._options.topic}: {error}") from None
        if not len(changes) and not changes.truncations:
            return
        table, incoming = self._typed(changes, table, made)
        merge = (HistoryMerge if made.history else CurrentMerge)(table, incoming, changes)
        merge.put(writer, batch_id)
        if merge.unknown:
            self._note(
                f"{merge.unknown} values are unknown and null for now: the database left them out "
                "because they had not changed, and no change with them has arrived"
            )
        self._tidied(table, batch_id, made)

    def opened(self) -> KeyedTable | None:
        return KeyedTable.at(self._options.table, self._options.storage)

    def created(self, schema: pa.Schema, made: Made) -> KeyedTable:
        return KeyedTable.made(self._options.table, schema, self._options.storage, made)

    def _made(self, records: pa.Table, table: KeyedTable | None) -> Made:
        options = self._options
        if table is None:
            envelope = options.envelope
            if envelope == "auto":
                envelope = detected_envelope(records.column("value").to_pylist())
            order = detected_order(records, envelope) if options.order == "auto" else options.order
            return Made(
                job="materialize",
                topic=options.topic,
                envelope=envelope,
                order=order,
                history=options.history,
            )
        made = table.made_for(Made)
        for name in ("topic", "envelope", "order", "history"):
            was, now = getattr(made, name), getattr(options, name)
            if now not in (was, "auto"):
                raise ConfigError(
                    f"{options.table} was created with {name} = {was!r}, now it is {now!r}: "
                    "name another table and checkpoint"
                )
        return made

    # ---- columns

    def _typed(
        self, changes: Changes, table: KeyedTable | None, made: Made
    ) -> tuple[KeyedTable, pa.Table]:
        """The table with all columns of the changes, and the changes in its types."""
        known = {} if table is None else {each.name: each.type for each in table.schema}
        names = self._names(changes, known)
        raws = {name: columns.raw_values(changes.rows, name) for name in names}
        typed: dict[str, pa.Array] = {}
        added: list[pa.Field] = []
        wider: dict[str, pa.DataType] = {}
        for name, values in raws.items():
            kind = known.get(name) or self._declared.get(name) or columns.fitting_type(values)
            if kind is None:
                continue
            try:
                typed[name] = columns.column_of(values, kind)
            except MisfitError as error:
                if name in self._declared:
                    raise _misfit(changes, name, values, kind, error) from None
                typed[name] = self._widened(name, values, kind, table)
                wider[name] = typed[name].type
            if name not in known:
                added.append(pa.field(name, typed[name].type))
        if table is None:
            ends = [*MARKS, *(RANGES if made.history else ())]
            schema = pa.schema([*added, *ends])
            table = self.created(schema, made)
        else:
            self._evolve(table, added, {name: wider[name] for name in wider if name in known})
        for name, array in typed.items():
            changes = msgspec.structs.replace(
                changes, marks=changes.marks.append_column(name, array)
            )
        return table, changes.marks

    def _names(self, changes: Changes, known: Mapping[str, pa.DataType]) -> list[str]:
        hidden = {each.lower() for each in (*MARKS.names, *RANGES.names)}
        seen = {name.lower(): name for name in known}
        found = []
        for name in dict.fromkeys([*self._declared, *columns.names_in(changes.rows)]):
            if name.lower() in hidden:
                raise ConfigError(
                    f"topic {self._options.topic}: column {name!r} has a reserved name; exclude it "
                    "from the capture"
                )
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise ConfigError(
                    f"topic {self._options.topic}: columns {other!r} and {name!r} differ only in "
                    "case, which Delta ignores; exclude one from the capture"
                )
            wanted = self._declared.get(name)
            if wanted is not None and known.get(name, wanted) != wanted:
                raise ConfigError(
                    f"{self._options.table} has column {name!r} as {known[name]}, the schema has "
                    f"{wanted}: name another table and checkpoint"
                )
            if name in known or name in self._declared or not (known or self._declared):
                found.append(name)
            elif self._options.evolve == "fail":
                raise ConfigError(
                    f"topic {self._options.topic}: there is a new column {name!r}, and evolve is "
                    "'fail': declare it in `schema`, or set evolve to 'add' or 'ignore'"
                )
            elif self._options.evolve == "add":
                found.append(name)
        return found

    def _widened(
        self, name: str, raws: Sequence[bytes], kind: pa.DataType, table: KeyedTable | None
    ) -> pa.Array:
        seen = columns.fitting_type(raws)
        assert seen is not None
        for candidate in columns.widened(kind, seen):
            try:
                array = columns.column_of(raws, candidate)
                if table is not None and name in table.schema.names:
                    table.retype({name: candidate})
                return array
            except MisfitError:
                continue
        raise ConfigError(
            f"topic {self._options.topic}: no type holds all values of column {name!r}; "
            "declare one in `schema`"
        )

    def _evolve(
        self, table: KeyedTable, added: list[pa.Field], wider: Mapping[str, pa.DataType]
    ) -> None:
        if added:
            table.add_columns(added)
        for field in added:
            self._note(f"column {field.name} of type {field.type} was added")
        for name, kind in wider.items():
            self._note(f"column {name} became {kind}: all rows were rewritten")

    def _note(self, message: str) -> None:
        self._report(Progress(part="materialize", note=message))

    def _tidied(self, table: KeyedTable, batch_id: int, made: Made) -> None:
        every = self._options.tidy_every
        if not every or (batch_id + 1) % every:
            return
        # In a history a delete ends the validity of the row before it.
        if self._options.forget_deletes_hours and not made.history:
            age = timedelta(hours=self._options.forget_deletes_hours)
            table.forget_deletes(datetime.now(UTC) - age)
        table.tidy(keep_hours=self._options.keep_hours)


def _misfit(
    changes: Changes, name: str, raws: Sequence[bytes], kind: pa.DataType, error: MisfitError
) -> ConfigError:
    index = columns.first_misfit(raws, kind)
    value = raws[index][:100].decode(errors="replace")
    return ConfigError(
        f"{changes.place(index)}: column {name!r} is declared as {kind}, which does not hold "
        f"{value}: {error}"
    )
