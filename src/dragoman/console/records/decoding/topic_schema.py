"""The schema that is pinned in a topic's configuration, as a decoder.

    {"avro": SCHEMA}
    {"protobuf": {"message": NAME, "descriptors": BASE64 OF A FileDescriptorSet}}

Any other text is Spark's DDL of the fields of JSON, which JSON does not need.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dragoman.client.kafka import AccessDeniedError, KafkaClient, ResourceType
from dragoman.console.records.decoding.avro import avro_decoder
from dragoman.console.records.decoding.decoders import Schemas
from dragoman.console.records.decoding.forms import SchemaError
from dragoman.console.records.decoding.protobuf import protobuf_decoder
from dragoman.errors import MALFORMED

SCHEMA_KEY: Final = "dragoman.value.schema"
_NONE: Final = f"none is pinned in the topic's {SCHEMA_KEY}"


class _Protobuf(msgspec.Struct):
    message: str
    descriptors: bytes


class _Pinned(msgspec.Struct):
    avro: Any = None
    protobuf: _Protobuf | None = None


async def schemas_of(client: KafkaClient, topic: str) -> Schemas:
    """Raises what the client raises, but not for a user who may not see the configuration."""
    try:
        entries = await client.describe_configs(ResourceType.TOPIC, topic)
    except AccessDeniedError:
        return Schemas(
            reason="its schema is part of the configuration, which this user may not see "
            "(`describe_configs`)"
        )
    text = next((each.value or "" for each in entries if each.name == SCHEMA_KEY), "")
    return schemas_in(text)


def schemas_in(text: str) -> Schemas:
    if not text.startswith("{"):
        return Schemas(reason=_NONE, is_absent=True)
    try:
        pinned = msgspec.json.decode(text, type=_Pinned)
        if pinned.avro is not None:
            return Schemas(form="avro", decoder=avro_decoder(pinned.avro))
        if pinned.protobuf is not None:
            found = pinned.protobuf
            decoder = protobuf_decoder(found.descriptors, found.message)
            return Schemas(form="protobuf", decoder=decoder)
    except MALFORMED as error:
        return Schemas(reason=f"the topic's {SCHEMA_KEY} is not valid: {error}")
    except SchemaError as error:
        return Schemas(reason=str(error))
    return Schemas(reason=_NONE, is_absent=True)
