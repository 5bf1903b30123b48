"""The process of a query: `python -m dragoman.console.sql.worker`.

The first line of its standard input is the job. It answers with lines on the standard output. The
end of the input means that the console no longer waits for the answer.
"""

from __future__ import annotations

import difflib
import os
import resource
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from dragoman.client.kafka import (
    AccessDeniedError,
    BlockingKafkaClient,
    ClientError,
    ClientSettings,
    SaslLogin,
)
from dragoman.console.memory import bound_memory
from dragoman.console.sql.errors import MemoryUsedUpError, QueryError
from dragoman.console.sql.values import (
    Columns,
    End,
    Line,
    Problem,
    QueryJob,
    Reading,
    Rows,
    TopicRead,
    decode_job,
    encode,
)
from dragoman.errors import DragomanError
from dragoman.limits import (
    CONSOLE_QUERY_BYTES_MAX,
    CONSOLE_QUERY_PROCESS_BYTES_MAX,
    CONSOLE_QUERY_RESULT_BYTES_MAX,
    CONSOLE_QUERY_TOPICS_MAX,
)

if TYPE_CHECKING:
    from dragoman.console.sql.engine import TableName

_CONNECT_TIMEOUT_S: Final = 10.0
_REPORT_INTERVAL_S: Final = 0.25
_INPUT: Final = 0
_DETAIL_CHARS_MAX: Final = 1000


class Output:
    """Lines for the console, as they are made."""

    def __init__(self) -> None:
        self._file = sys.stdout.buffer
        self._reported_at = -_REPORT_INTERVAL_S

    def write(self, line: Line) -> int:
        data = encode(line)
        self._file.write(data + b"\n")
        self._file.flush()
        return len(data)

    def report(self, topics: tuple[TopicRead, ...]) -> None:
        """Progress, not more often than a page can show it."""
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_INTERVAL_S:
            self._reported_at = now
            self.write(Reading(topics=topics))


def main() -> int:
    job = decode_job(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    # Where the system knows no such bound, the engine's own one counts.
    bound_memory(CONSOLE_QUERY_PROCESS_BYTES_MAX)
    output = Output()
    try:
        _run(job, output)
    except QueryError as error:
        output.write(Problem(code=error.code, detail=str(error), position=error.position))
    except MemoryError:
        output.write(Problem(code=MemoryUsedUpError.code, detail="there is not enough memory"))
    except AccessDeniedError as error:
        output.write(Problem(code="access_denied", detail=str(error)))
    except (ClientError, DragomanError) as error:
        output.write(Problem(code=getattr(error, "code", "kafka"), detail=str(error)))
    except RecursionError:
        output.write(Problem(code=QueryError.code, detail="the query is nested too deeply"))
    except (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError) as error:
        # Values that Python does not have, such as dates after the year 9999.
        detail = f"the result cannot be shown: {type(error).__name__}: {error}"
        output.write(Problem(code=QueryError.code, detail=detail[:_DETAIL_CHARS_MAX]))
    return 0


def _run(job: QueryJob, output: Output) -> None:
    # Imported here: they take most of the start.
    from dragoman.console.sql.engine import Engine
    from dragoman.console.sql.tables import TopicTables

    started = time.monotonic()
    request = job.request
    engine = Engine()
    wanted = engine.tables_of(request.query)
    if len(wanted) > CONSOLE_QUERY_TOPICS_MAX:
        raise QueryError(f"a query may read {CONSOLE_QUERY_TOPICS_MAX} topics, not {len(wanted)}")
    tables = {}
    if not all(each.is_own for each in wanted):
        with BlockingKafkaClient(job.bootstrap, _settings(job)) as client:
            known = sorted(client.cluster().topics)
            named = {
                each.name: _topic_named(each, known)
                for each in wanted
                if not each.is_own or each.name in known
            }
            reader = TopicTables(
                client,
                records=request.records,
                bytes_max=CONSOLE_QUERY_BYTES_MAX,
                side=request.side,
                report=output.report,
            )
            loaded = reader.load(sorted(set(named.values())))
            tables = {name: loaded[topic] for name, topic in named.items()}
        output.write(Reading(topics=reader.read))
    read_s = time.monotonic() - started
    names, types, chunks, cut_cells = engine.run(request.query, tables)
    output.write(Columns(names=tuple(names), types=tuple(types)))
    count, size, is_cut = 0, 0, False
    for rows in chunks:
        room = request.rows - count
        is_cut = len(rows) > room or size > CONSOLE_QUERY_RESULT_BYTES_MAX
        if room > 0 and size <= CONSOLE_QUERY_RESULT_BYTES_MAX:
            size += output.write(Rows(rows=rows[:room]))
            count += len(rows[:room])
        if is_cut:
            break
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output.write(
        End(
            rows=count,
            is_cut=is_cut,
            cut_cells=cut_cells(),
            read_s=round(read_s, 3),
            total_s=round(time.monotonic() - started, 3),
            # Of Linux in KiB, of macOS in bytes.
            memory_bytes=usage if sys.platform == "darwin" else usage << 10,
        )
    )


def _settings(job: QueryJob) -> ClientSettings:
    login = None if job.login is None else SaslLogin(**msgspec.structs.asdict(job.login))
    return ClientSettings(
        client_id="dragoman-console-sql",
        connect_timeout_s=_CONNECT_TIMEOUT_S,
        operation_timeout_s=_CONNECT_TIMEOUT_S,
        login=login,
        tls=job.tls,
    )


def _topic_named(table: TableName, known: Sequence[str]) -> str:
    """The topic of a table; SQL ignores case. Raises `QueryError`."""
    name = table.name
    if name in known:
        return name
    alike = [each for each in known if each.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise QueryError(f"topics {' and '.join(alike)} differ in case only", table.position)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f'; is "{near[0]}" meant?' if near else ""
    raise QueryError(f"there is no topic {name!r} that you may read{hint}", table.position)


def _end_with_input() -> None:
    # Python aborts at its end while a thread waits in `sys.stdin`.
    while os.read(_INPUT, 1 << 12):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
