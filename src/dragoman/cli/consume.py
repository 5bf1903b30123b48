"""`dragoman consume`: prints records of a topic.

With a group, reading begins at its committed offsets, and offsets are committed after the records
are printed. So a command that is run again after an interrupt may repeat some records, but skips
none.
"""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from dragoman import limits
from dragoman.cli.client_security import THIS_MACHINE, BrokerOptions
from dragoman.cli.completers import GroupName, TopicName
from dragoman.cli.output import Output
from dragoman.cli.positions import PLACES, parse_place
from dragoman.cli.record_clients import ProtocolOption, record_client
from dragoman.cli.record_clients.session import Plan, Reader, RecordClient
from dragoman.cli.record_lines import (
    DEFAULT_FORMAT,
    Write,
    compile_format,
    csv_header,
    needed_features,
    write_csv,
    write_json,
)
from dragoman.cli.status import OK, USAGE, CommandError

_SECONDS = Number(gt=0, lte=limits.CLI_IDLE_SECONDS_MAX)

app = App(name="consume", help="Read records from a topic.")


@app.default
def consume(
    topic: TopicName,
    /,
    *,
    protocol: ProtocolOption = "kafka",
    broker: BrokerOptions = THIS_MACHINE,
    start: Annotated[
        str, Parameter(name="--from", allow_leading_hyphen=True, help=f"Start: {PLACES}.")
    ] = "beginning",
    until: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-F"], negative="")] = False,
    idle: Annotated[float | None, Parameter(validator=_SECONDS)] = None,
    max_records: Annotated[int | None, Parameter(name=["--max", "-c"])] = None,
    partition: Annotated[tuple[int, ...], Parameter(name=["--partition", "-p"], negative="")] = (),
    format_string: Annotated[str | None, Parameter(name=["--format", "-f"])] = None,
    null: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    json: Annotated[bool, Parameter(negative="")] = False,
    output: Output = "table",
    group: Annotated[GroupName | None, Parameter(name=["--group", "-g"])] = None,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
) -> int:
    r"""Print records, up to the current end of the topic unless --follow is given.

    Parameters
    ----------
    topic
        Topic to read.
    until
        End, written like the start; the record at the end is not printed.
    follow
        Wait for new records instead of stopping at the end. The minibroker protocol does not report
        where a partition ends, so it needs --follow, --idle, --max or --until OFFSET.
    idle
        Wait for new records like --follow, but end after this many seconds without one.
    max_records
        Maximum number of records to print.
    partition
        Partition to read; may be repeated. All by default.
    format_string
        Format of a record: %t %p %o %T %D %k %s %K %S %h %% and \n \t \xNN.
    null
        Text for a key, a value or a time that a record does not have, in --format.
    json
        Same as --output json.
    output
        Form of the records: --format, one JSON object a line, or rows of CSV.
    group
        Group to read for: start at its committed offsets, and commit the offsets of printed
        records. With minibroker and Cursus the command joins the group and is assigned some of the
        partitions.
    isolation
        Isolation level. read_uncommitted includes records of open and aborted transactions.

    Examples
    --------
    dragoman consume orders -f '%p %o %k %s\n' --from @-15m
    dragoman consume orders --output json --max 10
    dragoman consume orders --group reports --idle 5
    """
    form = "json" if json else output
    if form != "table" and format_string is not None:
        given = "--json" if json else f"--output {output}"
        raise CommandError(f"{given} and --format exclude each other; give one of them", USAGE)
    if max_records is not None and max_records < 1:
        raise CommandError(f"--max: expected at least 1, got {max_records}", USAGE)
    if group == "":
        raise CommandError("--group: expected the name of a group, got an empty one", USAGE)
    client = record_client(protocol)
    found = client.found(broker)
    write: Write
    match form:
        case "json":
            write = write_json
        case "csv":
            write = write_csv
        case "table":
            write = _format(format_string or DEFAULT_FORMAT, null, client)
    plan = Plan(
        bootstrap=found.bootstrap,
        topic=topic,
        partitions=partition,
        start=parse_place("--from", start),
        until=None if until is None else parse_place("--until", until),
        follow=follow or idle is not None,
        idle_s=idle,
        max_records=max_records,
        group=group,
        is_committed_only=isolation == "read_committed",
        tls=found.tls,
        credentials=found.credentials,
    )
    client.check(plan)
    with client.read(plan) as reader:
        if form == "csv":
            sys.stdout.buffer.write(csv_header())
        _print_all(reader, write, max_records)
    return OK


def _format(text: str, null: str, client: RecordClient) -> Write:
    try:
        write = compile_format(text, null.encode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise CommandError(f"--format: {error}", USAGE) from None
    for token, feature in needed_features(text).items():
        if feature in client.cannot_show:
            client.refuse(f"--format {token}", client.cannot_show[feature])
    return write


def _print_all(reader: Reader, write: Write, max_records: int | None) -> None:
    out = sys.stdout.buffer
    left = max_records
    while records := reader.next_records():
        shown = records if left is None else records[:left]
        out.write(b"".join(map(write, shown)))
        out.flush()
        reader.printed(len(shown))
        if left is not None:
            left -= len(shown)
            if not left:
                return
