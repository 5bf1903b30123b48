"""What a RocketMQ topic has beside a log: kept as one entry of the topic's configuration.

perm=6 read=4 write=4 order=true filter=MULTI_TAG sys_flag=0 attributes=+a=b,c=d
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from dragoman.cluster.metadata import TopicMetadata
from dragoman.protocols.rocketmq.constants import READ_AND_WRITE

ATTRIBUTES_KEY: Final = "dragoman.rocketmq.topic"


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    perm: int = int(READ_AND_WRITE)
    #: Queues that are read and written; 0: as many as there are partitions.
    read: int = 0
    write: int = 0
    order: str = "false"
    filter: str = "SINGLE_TAG"
    sys_flag: int = 0
    #: `key=value` pairs with commas between them.
    attributes: str = ""

    @property
    def is_ordered(self) -> bool:
        return self.order == "true"


_DEFAULT: Final = Attributes()


@lru_cache(maxsize=1024)
def _read(text: str) -> Attributes:
    found = dict(each.partition("=")[::2] for each in text.split())
    known = {name: found[name] for name in Attributes.__struct_fields__ if name in found}
    try:
        return msgspec.convert(known, Attributes, strict=False)
    except msgspec.ValidationError:
        # Written by hand, and not for us to understand.
        return _DEFAULT


def attributes_of(topic: TopicMetadata) -> Attributes:
    text = topic.config.get(ATTRIBUTES_KEY)
    return _DEFAULT if text is None else _read(text)


def written(attributes: Attributes) -> str:
    """As an entry of the configuration; empty when there is nothing to say."""
    default = msgspec.structs.asdict(_DEFAULT)
    given = msgspec.structs.asdict(attributes)
    return " ".join(f"{name}={given[name]}" for name in given if given[name] != default[name])


def read_queues(topic: TopicMetadata) -> int:
    count = len(topic.partitions)
    return min(attributes_of(topic).read or count, count)


def write_queues(topic: TopicMetadata) -> int:
    count = len(topic.partitions)
    return min(attributes_of(topic).write or count, count)
