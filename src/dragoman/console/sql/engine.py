"""Runs one query over Arrow tables with DuckDB, which sees nothing else.

Files, extensions, other databases and the program's own variables are out of its reach, and its
settings are locked before the query is parsed.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import duckdb
import msgspec
import pyarrow as pa

from dragoman.console.sql.errors import MemoryUsedUpError, QueryError
from dragoman.console.sql.values import Cell
from dragoman.limits import CONSOLE_QUERY_CELL_CHARS_MAX, CONSOLE_QUERY_ENGINE_BYTES_MAX

#: Whole numbers beyond it are not exact in a browser.
_EXACT_MAX: Final = 1 << 53
_CHUNK_ROWS: Final = 500
_THREADS: Final = 2
_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "errors_as_json": "true",
    "threads": str(_THREADS),
    "memory_limit": f"{CONSOLE_QUERY_ENGINE_BYTES_MAX >> 20}MiB",
}
_ONLY_SELECT: Final = "only one query that reads is run here: SELECT, WITH, FROM or SUMMARIZE"
_EXPLAIN: Final = "EXPLAIN "


class TableName(NamedTuple):
    name: str
    #: Where the query names it first, in characters.
    position: int
    #: Whether the query defines a table of this name, in a WITH clause.
    is_own: bool


class Engine:
    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config=_SETTINGS)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET lock_configuration = true")

    def tables_of(self, query: str) -> list[TableName]:
        """The tables that a query names. Raises `QueryError`, also for other statements."""
        with _failures():
            statements = self._connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise QueryError(_ONLY_SELECT)
            found = self._connection.execute(
                "SELECT json_serialize_sql(?, skip_null := true, skip_empty := true)", [query]
            ).fetchall()
        tree = json.loads(found[0][0])
        if tree.get("error"):
            raise QueryError(_ONLY_SELECT)
        names = _Names()
        names.walk(tree)
        # Places are counted in bytes.
        data = query.encode()
        return [
            TableName(name, len(data[:place].decode(errors="replace")), name in names.own)
            for name, place in sorted(names.tables.items())
        ]

    def run(
        self, query: str, tables: Mapping[str, pa.Table]
    ) -> tuple[Sequence[str], Sequence[str], Iterator[list[list[Cell]]], Callable[[], int]]:
        """Names and types of the columns, chunks of rows as they are read, and how many cells were
        cut so far. Raises `QueryError`, the chunks too.
        """
        with _failures():
            for name, table in tables.items():
                self._connection.register(name, table)
            self._check(query)
            found = self._connection.sql(query)
            if found is None:
                raise QueryError(_ONLY_SELECT)
            names, types = found.columns, [str(each) for each in found.types]
            reader = found.to_arrow_reader(_CHUNK_ROWS)
        cells = _Cells()
        return names, types, _chunks(reader, cells), lambda: cells.cut

    def _check(self, query: str) -> None:
        """Raises the errors that are found without running the query, with their places: the lazy
        relation leaves them out.
        """
        try:
            self._connection.execute(_EXPLAIN + query).fetchall()
        except duckdb.Error as error:
            raise failure(str(error), query) from None


class _Names:
    """Names of tables in the tree of a query, and those that it defines itself."""

    def __init__(self) -> None:
        self.tables: dict[str, int] = {}
        self.own: set[str] = set()

    def walk(self, node: object) -> None:
        match node:
            case list():
                for each in node:
                    self.walk(each)
            case dict():
                self._look_at(node)
                for each in node.values():
                    self.walk(each)

    def _look_at(self, node: dict[str, Any]) -> None:
        self.own.update(each["key"] for each in node.get("cte_map", {}).get("map", ()))
        if node.get("type") == "BASE_TABLE":
            name = ".".join(
                node[each]
                for each in ("catalog_name", "schema_name", "table_name")
                if node.get(each)
            )
            if name != node["table_name"]:
                raise QueryError(
                    f'write "{name}" for the topic {name}', int(node["query_location"])
                )
            self.tables.setdefault(name, int(node["query_location"]))


def _chunks(reader: pa.RecordBatchReader, cells: _Cells) -> Iterator[list[list[Cell]]]:
    while True:
        with _failures():
            batch = next(reader, None)
        if batch is None:
            return
        columns = [column.to_pylist() for column in batch.columns]
        rows = [list(map(cells.shown, row)) for row in zip(*columns, strict=True)]
        for start in range(0, len(rows), _CHUNK_ROWS):
            yield rows[start : start + _CHUNK_ROWS]


# ---- cells


class _Cells:
    """Values as JSON has them."""

    def __init__(self) -> None:
        self.cut = 0

    def shown(self, value: object) -> Cell:
        match value:
            case None | bool():
                return value
            case int():
                return value if abs(value) <= _EXACT_MAX else str(value)
            case float():
                return value if math.isfinite(value) else str(value)
        text = text_of(value)
        if len(text) <= CONSOLE_QUERY_CELL_CHARS_MAX:
            return text
        self.cut += 1
        return text[:CONSOLE_QUERY_CELL_CHARS_MAX] + "…"


def text_of(value: Any) -> str:
    """A value that is neither a number nor a boolean, as people read it."""
    match value:
        case str():
            return value
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case dt.datetime():
            # Times with a zone are in UTC.
            return value.isoformat(sep=" ").replace("+00:00", "Z")
        case dict() | list() | tuple():
            return msgspec.json.encode(value, enc_hook=text_of).decode()
        case Decimal():
            return format(value, "f")
    return str(value)


# ---- failures


class _failures:  # noqa: N801 (a context manager)
    """DuckDB's errors as `QueryError`; what it says about its own Python API is left out."""

    def __enter__(self) -> None:
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._warnings.__exit__(None, None, None)
        match error:
            case duckdb.OutOfMemoryException() | MemoryError() | pa.ArrowMemoryError():
                raise MemoryUsedUpError(
                    "the query needs more memory than it may use: read fewer records, or group"
                    " and sort less"
                ) from None
            case duckdb.Error() | pa.ArrowException():
                raise failure(str(error)) from None


def failure(text: str, query: str = "") -> QueryError:
    """The error that a text of DuckDB has as JSON, behind the kind of the error. With `query`, of
    one that was explained.
    """
    kind, _, rest = text.partition(": ")
    try:
        found = json.loads(rest)
        detail, place = str(found["exception_message"]), found.get("position")
    except (ValueError, KeyError, TypeError):
        return QueryError(text)
    position = None
    if place is not None:
        # Places are counted in bytes.
        explained = (_EXPLAIN * bool(query) + query).encode()
        before = explained[: int(place)].decode(errors="replace")
        position = len(before) - len(_EXPLAIN) if query else int(place)
        if position < 0:
            # A place in a text that the engine has made itself.
            position = None
    return QueryError(f"{kind}: {detail}", position)
