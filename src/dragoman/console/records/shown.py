"""Records as filters examine them, and as pages show them."""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

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
from dragoman.limits import (
    CONSOLE_FILTER_STEPS_MAX,
    CONSOLE_LISTED_CHARACTERS_MAX,
    CONSOLE_LISTED_HEADERS_MAX,
    CONSOLE_SHOWN_CHARACTERS_MAX,
    CONSOLE_SHOWN_HEADERS_MAX,
)
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
    """A record to a filter, which may ask for the same part any number of times."""

    __slots__ = (
        *("_decoders", "_headers", "_key", "_record", "_steps_left", "_value"),
        *("offset", "partition", "timestamp"),
    )

    def __init__(self, partition: int, record: Record, decoders: Decoders) -> None:
        self.partition = partition
        self.offset = record.offset
        self.timestamp = record.timestamp
        self._record = record
        self._decoders = decoders
        self._steps_left = CONSOLE_FILTER_STEPS_MAX
        self._key: _Content | None = None
        self._value: _Content | None = None
        self._headers: dict[str, _Content | None] | None = None

    def spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise UnreadableError

    def key_text(self) -> str | None:
        key = self._key_content()
        return None if key is None else key.text()

    def value_text(self) -> str | None:
        value = self._value_content()
        return None if value is None else value.text()

    def header_text(self, name: str) -> str | None:
        header = self._header(name)
        return None if header is None else header.text()

    def key_data(self) -> Any:
        key = self._key_content()
        return None if key is None else key.data()

    def value_data(self) -> Any:
        value = self._value_content()
        return None if value is None else value.data()

    def header_data(self, name: str) -> Any:
        header = self._header(name)
        return None if header is None else header.data()

    def _key_content(self) -> _Content | None:
        if self._key is None and self._record.key is not None:
            self._key = _Content(self._record.key, self._decoders.key)
        return self._key

    def _value_content(self) -> _Content | None:
        if self._value is None and self._record.value is not None:
            decoders = self._decoders
            self._value = _Content(self._record.value, decoders.value, is_typed=decoders.is_typed)
        return self._value

    def _header(self, name: str) -> _Content | None:
        if self._headers is None:
            # The first of a name counts.
            self._headers = {
                each: None if raw is None else _Content(raw, _detect)
                for each, raw in reversed(self._record.headers)
            }
        return self._headers.get(name)


class _Content:
    """Bytes of a record, decoded once and when they are asked for."""

    __slots__ = ("_decoded", "_decoder", "_is_decoded", "_is_typed", "_raw", "_text")

    def __init__(self, raw: bytes, decoder: Decoder, *, is_typed: bool = False) -> None:
        """`is_typed`: the text is that of what the bytes say."""
        self._raw = raw
        self._decoder = decoder
        self._is_typed = is_typed
        self._is_decoded = False
        self._decoded: Decoded | None = None
        self._text: str | None = None

    def text(self) -> str:
        if self._text is None:
            decoded = self._decode() if self._is_typed else None
            self._text = (
                self._raw.decode(errors="replace")
                if decoded is None
                else text_of(self._raw, decoded)
            )
        return self._text

    def data(self) -> Any:
        """Raises `UnreadableError`."""
        found = self._decode()
        if found is None or found.form == "hex":
            raise UnreadableError
        return found.data

    def _decode(self) -> Decoded | None:
        if not self._is_decoded:
            self._is_decoded = True
            try:
                self._decoded = self._decoder(self._raw)
            except UndecodableError:
                self._decoded = None
        return self._decoded


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


class Room(NamedTuple):
    """How much of a record is shown."""

    #: Of each key, value, header, and name of a header.
    characters: int
    headers: int
    #: Whether with the bytes themselves.
    has_bytes: bool = False


LISTED: Final = Room(CONSOLE_LISTED_CHARACTERS_MAX, CONSOLE_LISTED_HEADERS_MAX)
ALONE: Final = Room(CONSOLE_SHOWN_CHARACTERS_MAX, CONSOLE_SHOWN_HEADERS_MAX, has_bytes=True)


def show_record(
    partition: int,
    record: Record,
    decoders: Decoders,
    room: Room,
    *,
    topic: str | UnsetType = UNSET,
) -> ShownRecord:
    def of(raw: bytes | None, decoder: Decoder) -> Shown | None:
        return show(raw, decoder, room.characters, with_bytes=room.has_bytes)

    return ShownRecord(
        topic=topic,
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=of(record.key, decoders.key),
        value=of(record.value, decoders.value),
        headers=tuple(
            ShownHeader(name=name[: room.characters], value=of(value, _detect))
            for name, value in record.headers[: room.headers]
        ),
        header_count=len(record.headers),
    )
