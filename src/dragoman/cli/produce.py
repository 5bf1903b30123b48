"""`dragoman produce`: writes lines of a file or of stdin as records of a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec
from cyclopts import App, Parameter

from dragoman.cli.client_security import THIS_MACHINE, BrokerOptions
from dragoman.cli.output import Output, show_change
from dragoman.cli.record_clients import ProtocolOption, record_client
from dragoman.cli.record_clients.session import Feature, Target, Writer
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
    topic: str,
    /,
    *,
    protocol: ProtocolOption = "kafka",
    broker: BrokerOptions = THIS_MACHINE,
    file: str | None = None,
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
    r"""Write a record for every line of a file or of stdin.

    Parameters
    ----------
    topic
        Topic to write to. Kafka and minibroker brokers may create it on first use.
    file
        File to read instead of stdin.
    json
        Read JSON objects with key, value, headers, partition and timestamp.
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
    """
    if json and (key_separator is not None or empty_as_null):
        raise CommandError(
            "--json: JSON lines have their own keys and nulls; leave out --key-separator and"
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
    target = Target(
        bootstrap=found.bootstrap,
        topic=topic,
        codec=codec,
        acks=acks,
        tls=found.tls,
        credentials=found.credentials,
    )
    writer = None
    try:
        with _source(file) as source, client.write(target) as writer:
            _write_all(writer, source, form)
    finally:
        if writer is not None:
            count = writer.written_records
            message = f"produced {count} {'record' if count == 1 else 'records'} to {topic!r}"
            show_change(output, message, Produced(topic, count), Produced)
    return OK


def _write_all(writer: Writer, source: ByteSource, form: LineFormat) -> None:
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
                raise CommandError(f"line {number}: {error}") from None
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
