"""Kafka's numbers for what has a configuration, where a value comes from and of what type it is;
and which resource a name stands for.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from dragoman.cluster.metadata import EVERY_NODE
from dragoman.config.keys import Kind, Source
from dragoman.errors import DecodeError
from dragoman.limits import GROUP_ID_BYTES_MAX
from dragoman.protocols.kafka.handlers.session import Call


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


SOURCES: Final[dict[Source, int]] = {
    Source.TOPIC: 1,
    Source.GROUP: 8,
    Source.DYNAMIC_NODE: 2,
    Source.DYNAMIC_CLUSTER: 3,
    Source.NODE: 4,
    Source.DEFAULT: 5,
}
TYPES: Final[dict[Kind, int]] = {
    Kind.BOOLEAN: 1,
    Kind.STRING: 2,
    Kind.INT: 3,
    Kind.LONG: 5,
    Kind.DOUBLE: 6,
    Kind.LIST: 7,
}
#: Of a key that is only kept.
UNKNOWN_TYPE: Final = 0
_NODE_DIGITS_MAX = 10


def node_of(call: Call, name: str) -> int:
    """The node that a broker resource names; the empty name is for all of them."""
    if not name:
        return EVERY_NODE
    own = call.service.broker.node_id
    is_number = name.isascii() and name.isdigit() and len(name) <= _NODE_DIGITS_MAX
    if not is_number or int(name) != own:
        raise DecodeError(f"expected broker {own} or an empty name, got {name[:40]!r}")
    return own


def group_of(name: str) -> str:
    if not name:
        raise DecodeError("the resource needs a name")
    if len(name.encode()) > GROUP_ID_BYTES_MAX:
        raise DecodeError(f"the name of the group has {len(name)} characters")
    return name


def unknown_type(resource_type: int) -> DecodeError:
    return DecodeError(f"resource type {resource_type} has no configuration here")
