"""`dragoman produce`: lines of a file or of stdin become records of a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Literal, cast

from cyclopts import App, Parameter

from dragoman.cli.record_input import ByteSource, LineFormat, parse_header, parse_line, read_lines
from dragoman.cli.status import OK, USAGE, CommandError, say
from dragoman.cli.wire import DEFAULT_BOOTSTRAP, Bootstrap, connected
from dragoman.client.kafka import BlockingProducer, Codec, ProducerOptions

app = App(name="produce", help="Write records to a topic.")

_ACKS: dict[str, Literal[-1, 0, 1]] = {"all": -1, "1": 1, "0": 0}


@app.default
def produce(
    topic: str,
    /,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    file: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
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
) -> int:
    """Write a record for every line of a file or of stdin.

    Parameters
    ----------
    topic
        Topic to write to; created if the cluster creates topics on first use.
    file
        File to read instead of stdin.
    json
        Lines are JSON objects with key, value, headers, partition and timestamp.
    key
        Key of all records that bring none.
    key_separator
        Lines are a key, this, and a value.
    header
        Header of all records, NAME=VALUE; may be repeated.
    partition
        Partition of all records; otherwise the key decides.
    codec
        Compression of the batches.
    acks
        Replicas that must have a record before it counts as written.
    empty_as_null
        Empty keys and values are null.
    """
    if json and (key_separator is not None or empty_as_null):
        raise CommandError("--json: lines of JSON say key and null themselves", USAGE)
    form = LineFormat(
        is_json=json,
        key_separator=_separator(key_separator),
        key=None if key is None else _raw(key),
        headers=tuple(map(_header, header)),
        partition=_partition(partition),
        empty_is_null=empty_as_null,
    )
    # Only acknowledgement by all replicas can be combined with protection against doubles.
    options = ProducerOptions(
        codec=Codec[codec.upper()], acks=_ACKS[acks], idempotent=acks == "all"
    )
    with _source(file) as source, connected(bootstrap) as client:
        client.topic(topic, auto_create=True)
        _write_all(client.producer(options), topic, source, form)
    return OK


def _write_all(
    producer: BlockingProducer, topic: str, source: ByteSource, form: LineFormat
) -> None:
    try:
        number = 0
        with producer:
            for lines in read_lines(source):
                records = []
                for line in lines:
                    number += 1
                    try:
                        records.append(parse_line(line, form))
                    except ValueError as error:
                        # What came before the bad line is good and is written.
                        producer.send_many(topic, records)
                        raise CommandError(f"line {number}: {error}") from None
                producer.send_many(topic, records)
    finally:
        count = producer.written_records
        say(f"produced {count} {'record' if count == 1 else 'records'} to {topic!r}")


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
    """An argument as the bytes it was given as."""
    return text.encode("utf-8", "surrogateescape")
