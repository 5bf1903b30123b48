"""Offsets of a group in a file: CSV or JSON with topic, partition and offset.

`dragoman group describe` and `group reset` print both forms. The offset is in the column, or the
field, `offset`, else in `committed_offset`; others are ignored. JSON is a list of objects, or an
object that has the list as `offsets`. Rows without an offset are left out.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import msgspec

from dragoman.api.group_values import PartitionOffset
from dragoman.cli.status import USAGE, CommandError
from dragoman.limits import CLI_FILE_BYTES_MAX


class _Row(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    offset: int | None = None
    committed_offset: int | None = None


class _Description(msgspec.Struct, frozen=True):
    offsets: list[_Row]


def offsets_in(path: str) -> tuple[PartitionOffset, ...]:
    """Raises `CommandError`."""
    text = _text_of(path)
    try:
        rows = _json_rows(text) if text.lstrip()[:1] in ("[", "{") else list(_csv_rows(text))
        found = tuple(
            PartitionOffset(topic=each.topic, partition=each.partition, offset=offset)
            for each in rows
            if (offset := each.committed_offset if each.offset is None else each.offset) is not None
        )
        # Checks the bounds, which the constructor does not.
        found = msgspec.convert(msgspec.to_builtins(found), tuple[PartitionOffset, ...])
    except (msgspec.DecodeError, ValueError, csv.Error) as error:
        raise CommandError(f"{path}: {error}", USAGE) from None
    if not found:
        raise CommandError(f"{path} has no offsets", USAGE)
    return found


def _text_of(path: str) -> str:
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(CLI_FILE_BYTES_MAX + 1)
        if len(data) > CLI_FILE_BYTES_MAX:
            raise CommandError(f"{path} is larger than {CLI_FILE_BYTES_MAX} bytes", USAGE)
        # A spreadsheet may begin a file with a byte order mark.
        return data.decode("utf-8-sig")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", USAGE) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not text", USAGE) from None


def _json_rows(text: str) -> list[_Row]:
    found = msgspec.json.decode(text, type=_Description | list[_Row])
    return found.offsets if isinstance(found, _Description) else found


def _csv_rows(text: str) -> Iterator[_Row]:
    """Raises `ValueError` that names the line."""
    reader = csv.DictReader(text.splitlines(), strict=True)
    missing = {"topic", "partition"} - set(reader.fieldnames or ())
    if missing or not {"offset", "committed_offset"} & set(reader.fieldnames or ()):
        raise ValueError("expected CSV with the columns topic, partition and offset, or JSON")
    for row in reader:
        fields = {name: value for name, value in row.items() if value}
        try:
            yield msgspec.convert(fields, _Row, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"line {reader.line_num}: {error}") from None
