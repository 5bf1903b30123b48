"""Records as filters examine them, and as pages show them."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from dragoman.console.records.decoding.decoders import (
    Schemas,
    detecting,
    key_decoder,
    registry_note,
    value_decoder,
)
from dragoman.console.records.decoding.forms import Decoded, Decoder, UndecodableError, text_of
from dragoman.console.records.filters.matching import UnreadableError
from dragoman.console.records.values import Decoding, Shown, ShownHeader, ShownRecord
from dragoman.log.batch import Record

_detect: Final = detecting(None)
#: Forms whose bytes are no text.
_STRUCTURES: Final = frozenset(("avro", "protobuf", "msgpack"))


class Decoders(msgspec.Struct, frozen=True):
    key: Decoder
    value: Decoder
    #: Whether values are bytes of a schema, whose text is that of what they say.
    is_typed: bool


def decoders_for(choice: Decoding, schemas: Schemas) -> Decoders:
    """Raises `SchemaError`."""
    value = value_decoder(choice.value, lambda: schemas)
    is_typed = choice.value in _STRUCTURES or (
        choice.value == "auto" and schemas.decoder is not None
    )
    return Decoders(key_decoder(choice.key), value, is_typed)


class ExaminedRecord:
    """A record to a filter: decoded when the filter asks."""

    __slots__ = ("_decoders", "_key", "_record", "_value", "offset", "partition", "timestamp")

    def __init__(self, partition: int, record: Record, decoders: Decoders) -> None:
        self.partition = partition
        self.offset = record.offset
        self.timestamp = record.timestamp
        self._record = record
        self._decoders = decoders
        self._key: Decoded | None = None
        self._value: Decoded | None = None

    def key_text(self) -> str | None:
        key = self._record.key
        return None if key is None else key.decode(errors="replace")

    def value_text(self) -> str | None:
        raw = self._record.value
        if raw is None:
            return None
        if self._decoders.is_typed:
            try:
                return text_of(raw, self._decoded_value(raw))
            except UndecodableError:
                pass
        return raw.decode(errors="replace")

    def header_text(self, name: str) -> str | None:
        raw = self._header(name)
        return None if raw is None else raw.decode(errors="replace")

    def key_data(self) -> Any:
        raw = self._record.key
        if raw is None:
            return None
        if self._key is None:
            self._key = _readable(self._decoders.key, raw)
        return self._key.data

    def value_data(self) -> Any:
        raw = self._record.value
        if raw is None:
            return None
        try:
            found = self._decoded_value(raw)
        except UndecodableError:
            raise UnreadableError from None
        if found.form == "hex":
            raise UnreadableError
        return found.data

    def header_data(self, name: str) -> Any:
        raw = self._header(name)
        return None if raw is None else _readable(_detect, raw).data

    def _decoded_value(self, raw: bytes) -> Decoded:
        if self._value is None:
            self._value = self._decoders.value(raw)
        return self._value

    def _header(self, name: str) -> bytes | None:
        for each, value in self._record.headers:
            if each == name:
                return value
        return None


def _readable(decoder: Decoder, raw: bytes) -> Decoded:
    try:
        found = decoder(raw)
    except UndecodableError:
        raise UnreadableError from None
    if found.form == "hex":
        raise UnreadableError
    return found


# ---- for pages


def show(
    raw: bytes | None, decoder: Decoder, characters_max: int, *, with_bytes: bool = False
) -> Shown | None:
    if raw is None:
        return None
    note = ""
    try:
        decoded = decoder(raw)
    except UndecodableError as error:
        decoded, note = _detect(raw), str(error)
    # Two digits for each byte.
    text = text_of(raw[: characters_max // 2 + 1] if decoded.form == "hex" else raw, decoded)
    return Shown(
        form=decoded.form,
        text=text[:characters_max],
        size=len(raw),
        is_cut=len(text) > characters_max,
        schema_id=decoded.schema_id,
        note=note or registry_note(decoded),
        base64=base64.b64encode(raw[:characters_max]).decode() if with_bytes else None,
    )


def show_record(
    partition: int,
    record: Record,
    decoders: Decoders,
    characters_max: int,
    *,
    with_bytes: bool = False,
    topic: str | UnsetType = UNSET,
) -> ShownRecord:
    def of(raw: bytes | None, decoder: Decoder) -> Shown | None:
        return show(raw, decoder, characters_max, with_bytes=with_bytes)

    return ShownRecord(
        topic=topic,
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=of(record.key, decoders.key),
        value=of(record.value, decoders.value),
        headers=tuple(
            ShownHeader(name=name, value=of(value, _detect)) for name, value in record.headers
        ),
    )
