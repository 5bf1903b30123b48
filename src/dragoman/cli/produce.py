"""`dragoman produce`: writes lines of files or of stdin, or whole files, as records of a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.client_security import THIS_MACHINE, BrokerOptions
from dragoman.cli.completers import TopicName
from dragoman.cli.output import Output, show_change
from dragoman.cli.record_clients import ProtocolOption, record_client
from dragoman.cli.record_clients.session import Feature, OutgoingRecord, Target, Writer
from dragoman.cli.record_files import largest_of, records_of, require_readable
from dragoman.cli.record_lines import (
    ByteSource,
    LineField,
    LineFormat,
    parse_header,
    parse_line,
    read_lines,
)
from dragoman.cli.status import OK, USAGE, CommandError

app = App(name="produce", help="Write records to a topic.")


class Produced(msgspec.Struct, frozen=True):
    """The JSON output of `produce`."""

    topic: str
    #: Those that the broker has acknowledged.
    records: int


@app.default
def produce(
    topic: TopicName,
    /,
    *,
    protocol: ProtocolOption = "kafka",
    broker: BrokerOptions = THIS_MACHINE,
    file: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    record: Annotated[
        tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=True)
    ] = (),
    json: Annotated[bool, Parameter(negative="")] = False,
    without: Annotated[tuple[LineField, ...], Parameter(negative="")] = (),
    key: Annotated[str | None, Parameter(name=["--key", "-k"])] = None,
    key_separator: Annotated[str | None, Parameter(name=["--key-separator", "-K"])] = None,
    header: Annotated[
        tuple[str, ...], Parameter(name=["--header", "-H"], negative="", allow_leading_hyphen=True)
    ] = (),
    partition: Annotated[int | None, Parameter(name=["--partition", "-p"])] = None,
    codec: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], Parameter(name=["--codec", "-z"])
    ] = "none",
    acks: Literal["all", "1", "0"] = "all",
    empty_as_null: Annotated[bool, Parameter(name=["--empty-as-null", "-Z"], negative="")] = False,
    output: Output = "table",
) -> int:
    r"""Write a record for every line of stdin or of files, or for every whole file.

    Parameters
    ----------
    topic
        Topic to write to. Kafka and minibroker brokers may create it on first use.
    file
        File to read instead of stdin; may be repeated.
    record
        Files to write as one record each, byte for byte.
    json
        Read JSON objects with key, value, headers, partition and timestamp. A key, value or
        header that is no text is written as its JSON; null is null.
    without
        Field of JSON lines to ignore; may be repeated.
    key
        Key for records that have none.
    key_separator
        Separator between the key and the value of a line.
    header
        Header for all records, as NAME=VALUE; may be repeated.
    partition
        Partition for all records; by default the key determines the partition.
    codec
        Compression of the batches.
    acks
        Replicas that must have a record before it is acknowledged.
    empty_as_null
        Write empty keys and values as null.

    Examples
    --------
    printf 'eu:first\nus:second\n' | dragoman produce orders -K :
    dragoman consume orders --json --max 10 | dragoman produce copy --json
    dragoman produce images --record cat.png dog.png --header type=png
    """
    if json and (key_separator is not None or empty_as_null):
        raise CommandError(
            "--json: JSON lines have their own keys and nulls; leave out --key-separator and"
            " --empty-as-null",
            USAGE,
        )
    if record and (file or json or key_separator is not None or empty_as_null):
        raise CommandError(
            "--record: a whole file has no lines; leave out --file, --json, --key-separator and"
            " --empty-as-null",
            USAGE,
        )
    if without and not json:
        raise CommandError("--without: only JSON lines have fields; give --json, too", USAGE)
    client = record_client(protocol)
    found = client.found(broker)
    wanted: list[tuple[str, bool, Feature]] = [
        ("--key", key is not None, "key"),
        ("--key-separator", key_separator is not None, "key"),
        ("--header", bool(header), "headers"),
        ("--partition", partition is not None, "partition"),
        ("--codec", codec != "none", "codec"),
        ("--acks", acks != "all", "acks"),
        ("--empty-as-null", empty_as_null, "null"),
    ]
    for option, is_given, feature in wanted:
        if is_given and feature in client.cannot_write:
            client.refuse(option, client.cannot_write[feature])
    form = LineFormat(
        is_json=json,
        without=frozenset(without),
        key_separator=_separator(key_separator),
        key=None if key is None else _raw(key),
        headers=tuple(map(_header, header)),
        partition=_partition(partition),
        empty_is_null=empty_as_null,
        cannot_have=client.cannot_write,
    )
    require_readable((*file, *record))
    target = Target(
        bootstrap=found.bootstrap,
        topic=topic,
        codec=codec,
        acks=acks,
        largest=largest_of(record, form.key, form.headers) if record else None,
        tls=found.tls,
        credentials=found.credentials,
    )
    writer = None
    try:
        with client.write(target) as writer:
            if record:
                _write_files(writer, record, form)
            else:
                _write_lines(writer, file, form)
    finally:
        if writer is not None:
            count = writer.written_records
            message = f"produced {count} {'record' if count == 1 else 'records'} to {topic!r}"
            show_change(output, message, Produced(topic, count), Produced)
    return OK


def _write_files(writer: Writer, paths: tuple[str, ...], form: LineFormat) -> None:
    shared = OutgoingRecord(key=form.key, headers=form.headers, partition=form.partition)
    for each in records_of(paths, shared):
        writer.write([each])


def _write_lines(writer: Writer, paths: tuple[str, ...], form: LineFormat) -> None:
    for path in paths or (None,):
        where = f"{path}, " if len(paths) > 1 else ""
        with _source(path) as source:
            _write_all(writer, source, form, where)


def _write_all(writer: Writer, source: ByteSource, form: LineFormat, where: str) -> None:
    number = 0
    for lines in read_lines(source):
        records = []
        for line in lines:
            number += 1
            try:
                records.append(parse_line(line, form))
            except ValueError as error:
                # The lines before the bad one are valid and are written.
                writer.write(records)
                raise CommandError(f"{where}line {number}: {error}") from None
        writer.write(records)


@contextmanager
def _source(path: str | None) -> Iterator[ByteSource]:
    if path is None:
        yield cast(ByteSource, sys.stdin.buffer)
        return
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from None
        yield opened


def _header(text: str) -> tuple[str, bytes | None]:
    try:
        return parse_header(text)
    except ValueError as error:
        raise CommandError(f"--header: {error}", USAGE) from None


def _separator(text: str | None) -> bytes | None:
    if text == "":
        raise CommandError("--key-separator: expected at least one character", USAGE)
    return None if text is None else _raw(text).replace(b"\\t", b"\t")


def _partition(number: int | None) -> int | None:
    if number is not None and number < 0:
        raise CommandError(f"--partition: expected a number from 0, got {number}", USAGE)
    return number


def _raw(text: str) -> bytes:
    """The bytes of an argument, which need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")
