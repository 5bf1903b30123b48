"""Decodes records of a changelog topic to changes: key, version, operation and row.

Three envelopes are supported, and plain keyed JSON, which is `flat` without its extra fields.
Changes are ordered by version: the position of the source's commit and the change's index in it,
from the headers or the envelope. In topics without positions the version is the offset. All changes
of a key are in one partition, so either orders them; only positions order changes of different
partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from dragoman.errors import ConfigError
from dragoman.pipelines.jobs.columns import RawRow, decode_row

Envelope: TypeAlias = Literal["pgcdc", "debezium", "flat"]
Order: TypeAlias = Literal["lsn", "offset"]
#: (position of the source's commit, index of the change within it)
Version: TypeAlias = tuple[int, int]

INSERT, UPDATE, DELETE, TRUNCATE, NOTHING = range(5)
_OPERATIONS = {
    **dict.fromkeys(("INSERT", "SNAPSHOT", "c", "r"), INSERT),
    **dict.fromkeys(("UPDATE", "u"), UPDATE),
    **dict.fromkeys(("DELETE", "d"), DELETE),
    **dict.fromkeys(("TRUNCATE", "t"), TRUNCATE),
}
#: Debezium's placeholder for a value that the database did not send.
_UNAVAILABLE = b'"__debezium_unavailable_value"'
#: Prefix of the fields that `flat` adds to a row.
_FLAT_MARK = "__"
_EMPTY: RawRow = {}


class EnvelopeError(ConfigError):
    """A record that is not a change."""


class _Pgcdc(msgspec.Struct):
    op: str = ""
    row: dict[str, msgspec.Raw] | None = None
    unchanged: list[str] | None = msgspec.field(default=None, name="_unchanged_toast_columns")


class _DebeziumSource(msgspec.Struct):
    lsn: int | None = None


class _Debezium(msgspec.Struct):
    op: str = ""
    before: dict[str, msgspec.Raw] | None = None
    after: dict[str, msgspec.Raw] | None = None
    source: _DebeziumSource | None = None
    #: The envelope itself, if the converter also writes schemas.
    payload: _Debezium | None = None


class _FlatMarks(msgspec.Struct, rename=lambda name: f"__{name}"):
    op: str = ""
    lsn: int | str | None = None
    seq: int | None = None
    deleted: bool | str = False
    unchanged: list[str] | None = None


class _Outline(msgspec.Struct):
    """The fields that distinguish envelopes."""

    op: msgspec.Raw | UnsetType = UNSET
    row: msgspec.Raw | UnsetType = UNSET
    before: msgspec.Raw | UnsetType = UNSET
    after: msgspec.Raw | UnsetType = UNSET
    payload: msgspec.Raw | UnsetType = UNSET


_decode_pgcdc = msgspec.json.Decoder(_Pgcdc).decode
_decode_debezium = msgspec.json.Decoder(_Debezium).decode
_decode_marks = msgspec.json.Decoder(_FlatMarks).decode


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of rows, in the order of the records, and truncations."""

    #: `_key`, `_lsn`, `_seq`, `_at`, `_deleted`
    marks: pa.Table
    rows: list[RawRow]
    #: Index of a change → columns that the database did not send because they had not changed.
    left_out: dict[int, tuple[str, ...]]
    #: Version and time of each truncation.
    truncations: list[tuple[Version, int]]
    #: Partition and offset of each change, for messages.
    partitions: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, index: int) -> str:
        return f"partition {self.partitions[index]}, offset {self.offsets[index]}"


class _Event(msgspec.Struct):
    operation: int
    row: RawRow
    left_out: tuple[str, ...] = ()
    lsn: int | None = None
    seq: int | None = None


# ---- envelopes


def detected_envelope(values: Sequence[bytes | None]) -> Envelope:
    """The envelope of the first value that is not null."""
    return next((_envelope(value) for value in values if value is not None), "flat")


def _envelope(value: bytes | msgspec.Raw) -> Envelope:
    try:
        outline = msgspec.json.decode(value, type=_Outline)
    except msgspec.DecodeError:
        return "flat"
    if outline.op is UNSET:
        is_inside = outline.payload is not UNSET and _envelope(outline.payload) == "debezium"
        return "debezium" if is_inside else "flat"
    if outline.row is not UNSET:
        return "pgcdc"
    is_debezium = outline.before is not UNSET or outline.after is not UNSET
    return "debezium" if is_debezium else "flat"


def _pgcdc_event(value: bytes) -> _Event:
    found = _decode_pgcdc(value)
    operation = _OPERATIONS.get(found.op, NOTHING)
    return _Event(operation, found.row or _EMPTY, tuple(found.unchanged or ()))


def _debezium_event(value: bytes) -> _Event:
    found = _decode_debezium(value)
    found = found.payload or found
    operation = _OPERATIONS.get(found.op, NOTHING)
    row = (found.before if operation == DELETE else found.after) or {}
    left_out: tuple[str, ...] = ()
    if _UNAVAILABLE in value:
        left_out = tuple(name for name, raw in row.items() if bytes(raw) == _UNAVAILABLE)
        row = {name: raw for name, raw in row.items() if name not in left_out}
    return _Event(operation, row, left_out, lsn=found.source.lsn if found.source else None)


def _flat_event(value: bytes) -> _Event:
    row = decode_row(value)
    marks = [name for name in row if name.startswith(_FLAT_MARK)]
    if not marks:
        return _Event(INSERT, row)
    found = _decode_marks(value)
    for name in marks:
        del row[name]
    operation = _OPERATIONS.get(found.op, INSERT)
    if operation != TRUNCATE and found.deleted in (True, "true"):
        operation = DELETE
    lsn = int(found.lsn, 16) if isinstance(found.lsn, str) else found.lsn
    return _Event(operation, row, tuple(found.unchanged or ()), lsn, found.seq)


_READERS = {"pgcdc": _pgcdc_event, "debezium": _debezium_event, "flat": _flat_event}


# ---- headers


def header_values(headers: pa.ListArray, name: str) -> list[bytes | None]:
    """The value of a header for each record; None for a record without that header."""
    found: list[bytes | None] = [None] * len(headers)
    fields = headers.flatten()
    places = np.flatnonzero(pc.equal(fields.field("key"), name).to_numpy(zero_copy_only=False))
    if len(places):
        parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)[places]
        for parent, value in zip(
            parents.tolist(), fields.field("value").take(pa.array(places)).to_pylist(), strict=True
        ):
            found[parent] = value
    return found


# ---- changes


def detected_order(records: pa.Table, envelope: Envelope) -> Order:
    """`lsn` if any record has a position in its headers, or the first value in its envelope."""
    headers = records.column("headers").combine_chunks()
    if any(value is not None for value in header_values(headers, "pgcdc-lsn")):
        return "lsn"
    for value in records.column("value").to_pylist():
        if value is not None:
            return "offset" if _READERS[envelope](value).lsn is None else "lsn"
    return "offset"


def read_changes(records: pa.Table, envelope: Envelope, order: Order) -> Changes:
    """Decode records with the columns of the source and headers. Raises `EnvelopeError`."""
    records = records.combine_chunks()
    return _ChangeReader(records, envelope, order).read()


class _ChangeReader:
    def __init__(self, records: pa.Table, envelope: Envelope, order: Order) -> None:
        self._records = records
        self._decode = _READERS[envelope]
        self._envelope = envelope
        self._order = order
        self._headers = _one_chunk(records, "headers")
        self._keys = _key_texts(_one_chunk(records, "key"))
        self._ids = header_values(self._headers, "pgcdc-event-id")
        self._offsets = _numbers(records, "offset")
        self._partitions = _numbers(records, "partition")
        self._times = _numbers(records, "timestamp")
        #: Partition → the last version, for a delete without a version of its own.
        self._before: dict[int, Version] = {}
        self._rows: list[RawRow] = []
        self._kept: list[int] = []
        self._versions: list[Version] = []
        self._deletes: list[bool] = []
        self._left_out: dict[int, tuple[str, ...]] = {}
        self._truncations: list[tuple[Version, int]] = []

    def read(self) -> Changes:
        lsns = header_values(self._headers, "pgcdc-lsn")
        seqs = header_values(self._headers, "pgcdc-seq")
        values = self._records.column("value").to_pylist()
        for index, value in enumerate(values):
            event = self._event(index, value)
            version = self._version(index, event, lsns[index], seqs[index])
            if version is None or event.operation == NOTHING:
                # A transaction marker, or a delete with an unknown version.
                continue
            if event.operation == TRUNCATE:
                self._truncate(index, version)
            else:
                self._take(index, event, version)
        return self._changes()

    def _event(self, index: int, value: bytes | None) -> _Event:
        if value is None:
            return _Event(DELETE, _EMPTY)
        try:
            return self._decode(value)
        except (msgspec.DecodeError, ValueError) as error:
            raise EnvelopeError(
                f"{self._place(index)}: not a record of envelope {self._envelope}: {error}"
            ) from None

    def _version(
        self, index: int, event: _Event, lsn: bytes | None, seq: bytes | None
    ) -> Version | None:
        if self._order == "offset":
            return int(self._offsets[index]), 0
        partition = int(self._partitions[index])
        try:
            if lsn is not None:
                version = int(lsn, 16), int(seq or 0)
            elif event.lsn is not None:
                version = event.lsn, int(self._offsets[index]) if event.seq is None else event.seq
            elif event.row is _EMPTY:
                # A tombstone follows its delete, unless compaction removed the delete.
                return self._before.get(partition)
            else:
                raise EnvelopeError(
                    f"{self._place(index)}: the record has no position of its source (header "
                    "pgcdc-lsn), other records do; order=offset needs none"
                )
        except ValueError as error:
            raise EnvelopeError(f"{self._place(index)}: {error} in header pgcdc-lsn") from None
        self._before[partition] = version
        return version

    def _truncate(self, index: int, version: Version) -> None:
        if self._order == "offset":
            raise EnvelopeError(
                f"{self._place(index)}: TRUNCATE cannot be ordered by offsets, which do not order "
                "records of different partitions"
            )
        self._truncations.append((version, int(self._times[index])))

    def _take(self, index: int, event: _Event, version: Version) -> None:
        key, event_id = self._keys[index], self._ids[index]
        if key is None:
            raise EnvelopeError(
                f"{self._place(index)}: the record has no key; a table of current rows needs keys"
            )
        if event.operation != INSERT and event_id is not None and key == event_id.decode():
            raise EnvelopeError(
                f"{self._place(index)}: a row of a table without a key was changed and cannot be "
                "identified; give the table a primary key, or name one with `keys` of the capture"
            )
        if event.left_out:
            self._left_out[len(self._rows)] = event.left_out
        self._rows.append(event.row)
        self._kept.append(index)
        self._versions.append(version)
        self._deletes.append(event.operation == DELETE)

    def _changes(self) -> Changes:
        kept = np.array(self._kept, np.int64)
        versions = np.array(self._versions, np.int64).reshape(-1, 2)
        marks = pa.table(
            {
                "_key": pa.array([self._keys[index] for index in self._kept], pa.string()),
                "_lsn": pa.array(versions[:, 0]),
                "_seq": pa.array(versions[:, 1]),
                "_at": pa.array(self._times[kept], pa.timestamp("us", "UTC")),
                "_deleted": pa.array(self._deletes, pa.bool_()),
            }
        )
        return Changes(
            marks=marks,
            rows=self._rows,
            left_out=self._left_out,
            truncations=self._truncations,
            partitions=self._partitions[kept],
            offsets=self._offsets[kept],
        )

    def _place(self, index: int) -> str:
        return f"partition {self._partitions[index]}, offset {self._offsets[index]}"


def _one_chunk(records: pa.Table, name: str) -> Any:
    column = records.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _numbers(records: pa.Table, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = (
        records.column(name).cast(pa.int64()).to_numpy().astype(np.int64, copy=False)
    )
    return found


def _key_texts(keys: pa.BinaryArray) -> list[str | None]:
    """Keys as text. A key that is not UTF-8 becomes NUL and its bytes in hexadecimal digits."""
    try:
        texts: list[str | None] = keys.cast(pa.string()).to_pylist()
    except pa.ArrowInvalid:
        texts = [None if key is None else _key_text(key) for key in keys.to_pylist()]
    return texts


def _key_text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"\0{key.hex()}"
