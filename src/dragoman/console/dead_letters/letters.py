"""What a dead letter came from, and what a copy of it has.

Two writers of dead letters say where they are from in headers: RocketMQ's broker in properties, and
the Spark source in `dragoman.topic`, `.partition`, `.offset` and `.error`. A copy has the key, the
value and the headers of the dead letter, without those headers, and with one that names it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from dragoman.protocols.rocketmq.constants import Property
from dragoman.protocols.rocketmq.handlers.records import META, PREFIX, as_first_try

DLQ_PREFIX: Final = "%DLQ%"
RETRY_PREFIX: Final = "%RETRY%"
#: Names a dead letter in a copy of it: `TOPIC/PARTITION/OFFSET`.
MARK: Final = "dragoman.resent.from"
_SPARK_TOPIC: Final = "dragoman.topic"
_SPARK: Final = frozenset((_SPARK_TOPIC, "dragoman.partition", "dragoman.offset", "dragoman.error"))
#: What RocketMQ says about earlier deliveries, which a new one begins without.
_DELIVERIES: Final = frozenset(
    PREFIX + name
    for name in (
        Property.DELAY,
        Property.RETRY_TOPIC,
        Property.REAL_TOPIC,
        Property.REAL_QUEUE_ID,
        Property.ORIGIN_MESSAGE_ID,
        Property.RECONSUME_TIME,
        Property.MAX_RECONSUME_TIMES,
        Property.DLQ_ORIGIN_TOPIC,
        Property.DLQ_ORIGIN_MESSAGE_ID,
    )
)
_RETRY_TOPIC: Final = PREFIX + Property.RETRY_TOPIC
_ORIGIN_TOPICS: Final = (_RETRY_TOPIC, PREFIX + Property.DLQ_ORIGIN_TOPIC)
_ORIGIN_ID: Final = PREFIX + Property.ORIGIN_MESSAGE_ID
_ORIGIN_IDS: Final = (_ORIGIN_ID, PREFIX + Property.DLQ_ORIGIN_MESSAGE_ID)


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes as the API shows them."""

    encoding: Literal["text", "json", "base64"]
    data: str
    size: int
    is_cut: bool = False

    def as_new(self) -> str | dict[str, str]:
        return self.data if self.encoding == "text" else {"base64": self.data}

    def content(self) -> bytes:
        return base64.b64decode(self.data) if self.encoding == "base64" else self.data.encode()


class Header(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Payload | None


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A record as the API shows it."""

    partition: int
    offset: int
    timestamp: int
    key: Payload | None
    value: Payload | None
    headers: tuple[Header, ...]
    header_count: int

    @property
    def is_whole(self) -> bool:
        parts = (self.key, self.value, *(each.value for each in self.headers))
        return self.header_count == len(self.headers) and not any(
            part is not None and part.is_cut for part in parts
        )

    def text(self, names: Sequence[str]) -> str:
        """The first of these headers that is not empty."""
        found = {each.name: each.value for each in self.headers}
        for name in names:
            value = found.get(name)
            if value is not None and value.encoding == "text" and value.data:
                return value.data
        return ""


def origin_of(letter: Letter) -> str:
    """The topic that a dead letter came from; empty if it does not say."""
    return letter.text((*_ORIGIN_TOPICS, _SPARK_TOPIC))


def usual_target(topic: str, letter: Letter) -> str:
    """Where a copy goes unless it is said: for RocketMQ the retry topic of the group, which no
    other group reads; otherwise the topic that the dead letter came from.
    """
    if topic.startswith(DLQ_PREFIX):
        return RETRY_PREFIX + topic.removeprefix(DLQ_PREFIX)
    return origin_of(letter)


def mark_of(topic: str, partition: int, offset: int) -> str:
    return f"{topic}/{partition}/{offset}"


def copy_of(topic: str, letter: Letter, target: str) -> dict[str, object]:
    """The new record, as the API takes it."""
    dropped = _SPARK | _DELIVERIES | {MARK}
    headers: list[dict[str, object]] = [
        {"name": each.name, "value": _header_value(each)}
        for each in letter.headers
        if each.name not in dropped
    ]
    if target.startswith(RETRY_PREFIX):
        # A consumer of the group gets it as a message of this topic.
        headers += [
            {"name": name, "value": value}
            for name, value in (
                (_RETRY_TOPIC, origin_of(letter)),
                (_ORIGIN_ID, letter.text(_ORIGIN_IDS)),
            )
            if value
        ]
    headers.append({"name": MARK, "value": mark_of(topic, letter.partition, letter.offset)})
    return {
        "key": None if letter.key is None else letter.key.as_new(),
        "value": None if letter.value is None else letter.value.as_new(),
        "headers": headers,
    }


def _header_value(header: Header) -> object:
    if header.value is None:
        return None
    if header.name == META:
        # It would be given up after the next failure.
        return {"base64": base64.b64encode(as_first_try(header.value.content())).decode()}
    return header.value.as_new()
