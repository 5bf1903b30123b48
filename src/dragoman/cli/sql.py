"""`dragoman sql`: queries topics with Spark on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.client_security import THIS_MACHINE, Broker, BrokerOptions, spark_login
from dragoman.cli.kafka_client import DEFAULT_BOOTSTRAP
from dragoman.cli.output import csv_writer, print_table
from dragoman.cli.status import OK, USAGE, CommandError, say
from dragoman.errors import DragomanError
from dragoman.installation import install_command
from dragoman.plural import plural

if TYPE_CHECKING:
    from dragoman.spark.sql import Query

Row = TypeVar("Row")

app = App(name="sql", help="Query topics with SQL.")

#: A table is laid out in memory, so only this many rows are shown.
_TABLE_ROWS_MAX = 1000


@app.default
def sql(
    query: str,
    /,
    *,
    path: str = "",
    output: Annotated[
        Literal["table", "csv", "json", "parquet"], Parameter(name=["--output", "-o"])
    ] = "table",
    to: str = "",
    decode: Literal["string", "json", "avro", "protobuf", "raw"] = "string",
    master: str = "",
    broker: BrokerOptions = THIS_MACHINE,
) -> int:
    """Run a query; every topic is a table.

    The columns of a table are key, value, topic, partition, offset, timestamp and timestampType.

    Parameters
    ----------
    query
        The query, such as: select key, count(*) from orders group by key
    path
        Data directory of a broker to read directly, without the broker.
    output
        Format of the result.
    to
        Directory for Parquet files.
    decode
        How values are decoded: as text, as JSON (a struct: value.amount), as Avro or Protobuf with
        the schema that is pinned in the topic, or not at all.
    master
        Spark master; by default as in spark-defaults.conf, else all cores of this machine.

    Examples
    --------
    dragoman sql "select key, count(*) from orders group by key"
    """
    if (output == "parquet") != bool(to):
        raise CommandError("--output parquet and --to DIRECTORY belong together", USAGE)
    from dragoman.spark.failures import readable, without_spark_logs
    from dragoman.spark.security import options_of
    from dragoman.spark.sql import Query

    # A path alone is read without a broker.
    reads_broker = not path or bool(broker.bootstrap)
    found = broker.resolved(DEFAULT_BOOTSTRAP) if reads_broker else Broker(bootstrap="")
    login = spark_login(found.credentials)
    started = time.monotonic()
    config = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    try:
        with without_spark_logs():
            say("starting Spark …")
            result = Query(
                query,
                bootstrap=found.bootstrap,
                path=path,
                decode=decode,
                master=master or None,
                config=config,
                options=options_of(found.tls, login) if found.bootstrap else None,
            )
            count = _write(result, output, to)
    except CommandError:
        raise
    except ImportError as error:
        raise CommandError(f"{error}: `{install_command('spark')}`") from None
    except DragomanError as error:
        raise CommandError(str(error), code=error.code) from None
    except Exception as error:
        # Spark has many exception classes, each with a stack trace in its text.
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise CommandError(readable(error)) from None
    rows = "written" if count is None else plural(count, "row")
    say(f"{rows} in {time.monotonic() - started:.1f} s")
    return OK


def _write(result: Query, output: str, to: str) -> int | None:
    """Write the result; the number of rows, or None for Parquet."""
    match output:
        case "parquet":
            result.write_parquet(to)
            return None
        case "csv":
            write = csv_writer()
            write(result.columns)
            return _each(result.rows(), lambda row: write(map(_text, row)))
        case "json":
            encode = msgspec.json.Encoder(enc_hook=_text).encode
            return _each(result.dictionaries(), lambda row: print(encode(row).decode()))
        case _:
            return _print_rows(result)


def _each(rows: Iterable[Row], write: Callable[[Row], object]) -> int:
    count = 0
    for row in rows:
        write(row)
        count += 1
    return count


def _print_rows(result: Query) -> int:
    rows: list[list[int | str]] = []
    for row in result.rows():
        if len(rows) == _TABLE_ROWS_MAX:
            say(f"only the first {_TABLE_ROWS_MAX} rows are shown; `--output csv` prints all")
            break
        rows.append([value if isinstance(value, int) else _text(value) for value in row])
    print_table([name.upper() for name in result.columns], rows)
    return len(rows)


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bytes() | bytearray():
            return bytes(value).decode(errors="backslashreplace")
        case dict() | list() | tuple():
            return msgspec.json.encode(value, enc_hook=_text).decode()
        case _:
            return str(value)
