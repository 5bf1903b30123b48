"""Protobuf: messages of a pinned descriptor, decoded by Google's library.

The library comes with the extra `spark`, and is loaded when a topic's schema needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dragoman.console.records.decoding.decoders import REGISTRY_BYTES, schema_id_of
from dragoman.console.records.decoding.forms import (
    Decoded,
    Decoder,
    SchemaError,
    UndecodableError,
)
from dragoman.limits import CONSOLE_DECODED_FIELDS_MAX

MISSING: Final = (
    "the library `protobuf` is not installed where the console runs: pip install 'dragoman[spark]'"
)
_INDEXES_MAX: Final = 32
_KNOWN: Final = "google.protobuf."


def protobuf_decoder(descriptors: bytes, message: str) -> Decoder:
    """Raises `SchemaError`."""
    try:
        from google.protobuf import (
            descriptor_pb2,
            descriptor_pool,
            json_format,
            message_factory,
        )
        from google.protobuf.message import DecodeError
    except ImportError:
        raise SchemaError(MISSING) from None
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        for each in files.file:
            pool.Add(each)
        kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"the topic's Protobuf schema is not valid: {error}") from None

    def parsed(raw: bytes) -> Any:
        try:
            return _Fields(json_format.MessageToDict).of(kind.FromString(raw))
        except (DecodeError, json_format.Error, ValueError, RecursionError) as error:
            raise UndecodableError(f"not a message {message}: {error}") from None

    def decode(raw: bytes) -> Decoded:
        found = schema_id_of(raw)
        # A field's number is never 0, so that no message begins with a zero byte.
        if found is None:
            return Decoded("protobuf", parsed(raw))
        return Decoded("protobuf", parsed(raw[_after_indexes(raw) :]), found)

    return decode


class _Fields:
    """The fields of a message by name; those without presence also at their default. `known` is for
    Google's own types, such as times. Numbers stay numbers, which JSON's mapping of Protobuf
    makes texts if they have 64 bits.
    """

    def __init__(self, known: Callable[[Any], Any]) -> None:
        self._known = known
        #: An empty message takes two bytes, whatever number of fields it has.
        self._left = CONSOLE_DECODED_FIELDS_MAX

    def of(self, message: Any) -> Any:
        descriptor = message.DESCRIPTOR
        if descriptor.full_name.startswith(_KNOWN):
            return self._known(message)
        self._left -= 1 + len(descriptor.fields)
        if self._left < 0:
            raise UndecodableError(f"it has more than {CONSOLE_DECODED_FIELDS_MAX:,} fields")
        found = {}
        for field in descriptor.fields:
            if field.has_presence and not message.HasField(field.name):
                continue
            value = getattr(message, field.name)
            if not field.is_repeated:
                found[field.name] = self._single(field, value)
            elif field.message_type is not None and field.message_type.GetOptions().map_entry:
                of_value = field.message_type.fields_by_name["value"]
                found[field.name] = {str(k): self._single(of_value, value[k]) for k in value}
            else:
                found[field.name] = [self._single(field, each) for each in value]
        return found

    def _single(self, field: Any, value: Any) -> Any:
        if field.message_type is not None:
            return self.of(value)
        if field.enum_type is not None:
            named = field.enum_type.values_by_number.get(value)
            return value if named is None else named.name
        return value


def _after_indexes(raw: bytes) -> int:
    """Where the message begins after the number of its schema and its place in that: a count of
    indexes and the indexes, as zigzag varints.
    """
    position, left = REGISTRY_BYTES, 1
    is_count = True
    while left:
        value, shift = 0, 0
        while True:
            if position >= len(raw) or shift > 28:
                raise UndecodableError("it ends before its message")
            byte = raw[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        left -= 1
        if is_count:
            is_count = False
            left = value >> 1
            if left > _INDEXES_MAX:
                raise UndecodableError("it names too many indexes of its schema")
    return position
