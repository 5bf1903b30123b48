"""Names of topics, groups and brokers in RocketMQ's spelling, and physical offsets.

RocketMQ's names have no dots: `orders.eu` is shown as `orders%2Eeu`, and both spellings are
accepted. Internal topics are hidden, and so are topics whose names RocketMQ cannot spell.

A *physical offset* identifies a record of the cluster. It consists of the partition's id, which is
never reused, and the offset in the partition:

    below 2**52    id (18 bits), offset (34 bits): exact in languages whose numbers are doubles
    bit 62 set     id (20 bits), offset (42 bits): for larger ids or offsets
"""

from __future__ import annotations

import re
from typing import Final

from dragoman.cluster.metadata import MetadataImage, TopicMetadata
from dragoman.protocols.rocketmq.constants import (
    DLQ_PREFIX,
    LONG_NAME_CHARACTERS_MAX,
    RETRY_PREFIX,
    TOPIC_NAME_CHARACTERS_MAX,
    Response,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.text_cache import cached_by_text

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9._-]+")
_SMALL_OFFSET_BITS: Final = 34
_SMALL_ID_MAX: Final = 1 << 18
_LARGE: Final = 1 << 62
_LARGE_OFFSET_BITS: Final = 42
_LARGE_ID_MAX: Final = 1 << 20


# ---- topics


@cached_by_text(4096)
def topic_name(spelt: str) -> str:
    """The name of the topic with this spelling."""
    if "%2" not in spelt:
        return spelt
    # The last % of a prefix belongs to it: a group's name may begin with 2E.
    prefix = next((each for each in (RETRY_PREFIX, DLQ_PREFIX) if spelt.startswith(each)), "")
    return prefix + spelt.removeprefix(prefix).replace("%2E", ".").replace("%2e", ".")


@cached_by_text(4096)
def spelling(name: str) -> str:
    """The spelling of a topic's name."""
    return name.replace(".", "%2E")


@cached_by_text(4096)
def is_expressible(name: str) -> bool:
    return _LEGAL.fullmatch(name) is not None and len(name) <= LONG_NAME_CHARACTERS_MAX


def check_topic_name(name: str) -> None:
    """Raises `Refused`."""
    if not name.strip():
        raise Refused(Response.INVALID_PARAMETER, "The specified topic is blank.")
    if not _LEGAL.fullmatch(name):
        text = f"The specified topic contains illegal characters, allowing only {_LEGAL.pattern}"
        raise Refused(Response.INVALID_PARAMETER, text)
    is_long = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    characters_max = LONG_NAME_CHARACTERS_MAX if is_long else TOPIC_NAME_CHARACTERS_MAX
    if len(name) > characters_max:
        text = f"The specified topic is longer than topic max length {characters_max}."
        raise Refused(Response.INVALID_PARAMETER, text)


def check_group_name(name: str) -> None:
    """Raises `Refused`."""
    if not _LEGAL.fullmatch(name) or len(name) > LONG_NAME_CHARACTERS_MAX:
        text = f"the group name {name[:300]!r} is blank or too long, or has illegal characters"
        raise Refused(Response.INVALID_PARAMETER, text)


def visible_topic(image: MetadataImage, spelt: str) -> TopicMetadata | None:
    topic = image.topics.get(topic_name(spelt))
    return None if topic is None or topic.is_internal else topic


def retry_group(topic: str) -> str | None:
    """The group whose retries a topic has; None for any other topic."""
    return topic[len(RETRY_PREFIX) :] if topic.startswith(RETRY_PREFIX) else None


def require_topic(image: MetadataImage, spelt: str) -> TopicMetadata:
    topic = visible_topic(image, spelt)
    if topic is None:
        raise Refused(Response.TOPIC_NOT_EXIST, f"topic[{spelt}] not exist, apply first please!")
    return topic


# ---- brokers


def broker_name(node_id: int) -> str:
    return f"dragoman-{node_id}"


def node_of(name: str) -> int | None:
    number = name.removeprefix("dragoman-")
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else None


# ---- physical offsets


def physical_offset(partition_id: int, offset: int) -> int:
    if partition_id < _SMALL_ID_MAX and offset < 1 << _SMALL_OFFSET_BITS:
        return partition_id << _SMALL_OFFSET_BITS | offset
    assert partition_id < _LARGE_ID_MAX, "more partitions than a physical offset can name"
    assert offset < 1 << _LARGE_OFFSET_BITS, "more records than a physical offset can name"
    return _LARGE | partition_id << _LARGE_OFFSET_BITS | offset


def split_physical(physical: int) -> tuple[int, int]:
    """Partition id and offset. For an invalid number, the partition does not exist."""
    if physical < 0:
        return -1, 0
    bits = _LARGE_OFFSET_BITS if physical & _LARGE else _SMALL_OFFSET_BITS
    physical &= ~_LARGE
    return physical >> bits, physical & (1 << bits) - 1
