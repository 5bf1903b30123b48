"""Detection of the protocol that a connection speaks, from its first bytes.

`detect` is pure rules over the beginning of the first frame. Each says no, yes, or not yet; "yes"
excludes all other protocols, so the first one counts. Naive rules collide (an mlog frame reads as a
Kafka ApiVersions of version 31522, a Cursus batch in lz4 as a minibroker COMMIT), hence the bounds:

    kafka        size u32 <= 64 KiB, key u16, version u16 <= 20; ApiVersions of any version <= 255
    mlog         type u16 of a request, size u32 <= 64 KiB or Produce's 4 MiB, then `{` and what may
                 follow it in JSON, or protobuf's first field with a printable topic
    cursus       size u32, then a batch's or a compression's magic, or a command, plain or after a
                 topic of the characters that its names have
    minibroker   size u32, op u8, topic of at most 249 printable bytes, next field inside the frame
    rocketmq     size u32, type u8, header of u24 bytes, >= 21 and inside the frame; type 0: `{` and
                 what may follow it; type 1: code u16 in 1..8191, language u8 in 0..13

Frames that are whole but tiny (QUIT, mlog's requests without fields) are matched exactly. A
connection that begins with TLS is recognised, and refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

from dragoman.errors import RemoteProtocolError
from dragoman.limits import DETECTION_BYTES_MAX
from dragoman.net.channel import Channel, Session
from dragoman.world import Scheduler

#: A TLS handshake record, which is not a protocol of this table.
TLS: Final = "tls"

_SMALL_FRAME_BYTES_MAX: Final = 64 << 10
_TOPIC_BYTES_MAX: Final = 249
_KAFKA_KEY_MAX: Final = 92
_KAFKA_OWN_KEYS: Final = (32000, 32001)
_KAFKA_API_VERSIONS: Final = 18
_KAFKA_VERSION_MAX: Final = 20
_MLOG_REQUESTS: Final = frozenset((0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 21, 23, 25, 27))
_MLOG_PRODUCE: Final = (2, 4)
_MLOG_PAYLOAD_BYTES_MAX: Final = 4 << 20
#: `{}` with a line ending.
_MLOG_EMPTY_BYTES_MAX: Final = 4
#: The first field of protobuf messages: the topic, in all requests with fields.
_PROTOBUF_TOPIC: Final = 0x0A
_MINIBROKER_FRAME_BYTES_MAX: Final = 100 << 20
_MINIBROKER_PUB: Final = 1
_MINIBROKER_OPS: Final = (_MINIBROKER_PUB, 2, 3, 4, 6)
#: Enough of a minibroker frame, however long its topic is.
_MINIBROKER_BYTES_ENOUGH: Final = 24
_CURSUS_FRAME_BYTES_MAX: Final = 64 << 20
_ROCKETMQ_FRAME_BYTES_MAX: Final = 16 << 20
#: Minimum size of every binary header; the shortest JSON header of a client is longer, too.
_ROCKETMQ_HEADER_BYTES_MIN: Final = 21
#: Larger values are impossible in binary headers, or could be a letter of a topic.
_ROCKETMQ_BINARY_CODE_MAX: Final = 0x1FFF
_ROCKETMQ_LANGUAGE_MAX: Final = 13
#: gzip, xerial's snappy, lz4 frames, zstd.
_COMPRESSED: Final = (b"\x1f\x8b\x08", b"\x82SNAPPY\x00", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd")
_CURSUS_BATCH: Final = b"\xba\x7c"
_CURSUS_NAME: Final = re.compile(rb"[A-Za-z0-9._=-]*")
_CURSUS_COMMANDS: Final = tuple(
    b"""
    APPEND_STREAM AUTH BATCH_COMMIT BEGIN_TXN CATCHUP_SNAPSHOTS CLUSTER_STATUS COMMIT
    COMMIT_OFFSET CONSUME CREATE DELETE DESCRIBE ELECT_LEADER END_TXN EXIT FETCH_OFFSET
    FETCH_SNAPSHOT FIND_COORDINATOR GROUP_STATUS HEARTBEAT HELP INIT_PRODUCER_ID INTERNAL_BATCH
    JOIN_GROUP LEAVE_GROUP LIST LIST_CLUSTER LIST_GROUPS LIST_OFFSETS LIST_SNAPSHOTS METADATA
    NEGOTIATE PROTOCOL_INFO PUBLISH RAFT_APPLY READ_SNAPSHOT READ_STREAM REGISTER_GROUP
    REPLICATE_MESSAGE REPLICATE_SNAPSHOT SAVE_SNAPSHOT SEND_OFFSETS_TO_TXN STREAM STREAM_VERSION
    SUBSCRIBE SYNC_GROUP TXN_PUBLISH TXN_STATUS
    """.split()
)
#: Letters of a command that cannot occur at this position in frames of other protocols.
_COMMAND_LETTERS_ENOUGH: Final = 4
#: Bytes that may follow the opening brace of a JSON object, and none.
_AFTER_BRACE: Final = (b"", b'"', b"}", b" ", b"\t", b"\r", b"\n")
_NOT_IN_TOPICS: Final = re.compile(rb'[\x00-\x1f\x7f{}"]')


class Verdict(Enum):
    NO = auto()
    MAYBE = auto()
    YES = auto()


def detect(first: bytes) -> str | None:
    """The protocol, or None when more bytes are needed. Raises `RemoteProtocolError` for an unknown
    protocol.
    """
    if first[:1] == b"\x16":
        if len(first) < 2:
            return None
        if first[1] == 3:
            return TLS
    verdicts = {name: rule(first) for name, rule in RULES.items()}
    for name, verdict in verdicts.items():
        if verdict is Verdict.YES:
            return name
    if Verdict.MAYBE not in verdicts.values():
        raise RemoteProtocolError(f"no protocol begins with {first[:20].hex()}")
    return None


def _number(data: bytes, start: int, width: int) -> range:
    """The range of an integer of which only the first bytes, or none, have arrived."""
    part = data[start : start + width]
    bits = 8 * (width - len(part))
    low = int.from_bytes(part, "big") << bits
    return range(low, low + (1 << bits))


def _may_be(number: range, low: int, high: int) -> bool:
    return number.start <= high and number[-1] >= low


def _is_known(number: range) -> bool:
    return len(number) == 1


def _kafka(data: bytes) -> Verdict:
    key, version = _number(data, 4, 2), _number(data, 6, 2)
    newest = 255 if _may_be(key, _KAFKA_API_VERSIONS, _KAFKA_API_VERSIONS) else _KAFKA_VERSION_MAX
    is_possible = (
        _may_be(_number(data, 0, 4), 8, _SMALL_FRAME_BYTES_MAX)
        and (_may_be(key, 0, _KAFKA_KEY_MAX) or _may_be(key, *_KAFKA_OWN_KEYS))
        and _may_be(version, 0, newest)
    )
    if not is_possible:
        return Verdict.NO
    return Verdict.YES if _is_known(version) else Verdict.MAYBE


def _mlog(data: bytes) -> Verdict:
    kind, size = _number(data, 0, 2), _number(data, 2, 4)
    if not any(_may_be(kind, each, each) for each in _MLOG_REQUESTS):
        return Verdict.NO
    if not _is_known(kind):
        return Verdict.MAYBE
    is_produce = kind.start in _MLOG_PRODUCE
    if not _may_be(size, 0, _MLOG_PAYLOAD_BYTES_MAX if is_produce else _SMALL_FRAME_BYTES_MAX):
        return Verdict.NO
    if not _is_known(size):
        return Verdict.MAYBE
    payload = data[6:]
    if not size.start:
        # A protobuf request without fields is empty; another request may follow.
        is_next = payload[:1] in (b"", b"\0") and all(
            each in _MLOG_REQUESTS for each in payload[1:2]
        )
        return Verdict.YES if is_next else Verdict.NO
    if payload[:1] == b"{":
        return _after_brace(payload[1:3], size.start)
    if payload and payload[0] != _PROTOBUF_TOPIC:
        return Verdict.NO
    return _protobuf_topic(payload, size.start)


def _after_brace(following: bytes, size: int) -> Verdict:
    if size < 2 or following[:1] not in _AFTER_BRACE:
        return Verdict.NO
    if following[:1] == b"}":
        return Verdict.YES if size <= _MLOG_EMPTY_BYTES_MAX else Verdict.NO
    # Some lengths of RocketMQ headers read the same. Then the header begins here, with a brace or,
    # in binary, with nearly only zeros.
    name = following[1:]
    if name == b"{" or (name < b" " and name not in _AFTER_BRACE):
        return Verdict.NO
    return Verdict.YES if name else Verdict.MAYBE


def _protobuf_topic(payload: bytes, size: int) -> Verdict:
    if len(payload) < 3:
        return Verdict.MAYBE
    length, start = payload[1], 2
    if length >= 0x80:
        length, start = length & 0x7F | payload[2] << 7, 3
        if length < 0x80:
            return Verdict.NO
    topic = payload[start : start + length]
    if not 0 < length <= size - start or _NOT_IN_TOPICS.search(topic):
        return Verdict.NO
    # A length that is a letter could be the beginning of a topic in a large minibroker PUB. That
    # topic would have ten bytes, followed by the length of a key, which has zeros.
    is_plain = length < 0x20 or len(payload) >= 15
    return Verdict.YES if is_plain else Verdict.MAYBE


def _cursus(data: bytes) -> Verdict:
    size = _number(data, 0, 4)
    if not _may_be(size, 1, _CURSUS_FRAME_BYTES_MAX):
        return Verdict.NO
    payload = data[4:]
    if not payload:
        return Verdict.MAYBE
    if payload[:2] == _CURSUS_BATCH[: len(payload)]:
        topic = _number(payload, 2, 2)
        if not _may_be(topic, 1, _TOPIC_BYTES_MAX):
            return Verdict.NO
        return Verdict.YES if len(payload) > 2 else Verdict.MAYBE
    for magic in _COMPRESSED:
        if payload.startswith(magic):
            return Verdict.YES
        if magic.startswith(payload):
            return Verdict.MAYBE
    if payload[0]:
        return _command(payload, size.start)
    # The envelope of a topic, which is skipped, and a command.
    length = _number(payload, 0, 2)
    if not _may_be(length, 0, min(_TOPIC_BYTES_MAX, size.start - 3)):
        return Verdict.NO
    if not _is_known(length):
        return Verdict.MAYBE
    end = 2 + length.start
    if not _CURSUS_NAME.fullmatch(payload[2:end]):
        return Verdict.NO
    return _command(payload[end:], size.start - end)


def _command(text: bytes, size: int) -> Verdict:
    """Whether the text, of `size` bytes when complete, begins with a command."""
    word = re.split(rb"\s", text[:size], maxsplit=1)[0].upper()
    if len(word) < min(len(text), size) or len(word) == size:
        return Verdict.YES if word in _CURSUS_COMMANDS else Verdict.NO
    if not any(each.startswith(word) for each in _CURSUS_COMMANDS):
        return Verdict.NO
    return Verdict.YES if len(word) >= _COMMAND_LETTERS_ENOUGH else Verdict.MAYBE


def _minibroker(data: bytes) -> Verdict:
    size = _number(data, 0, 4)
    if not _may_be(size, 1, _MINIBROKER_FRAME_BYTES_MAX):
        return Verdict.NO
    if len(data) < 5:
        return Verdict.MAYBE
    if size.start == 1:
        # No other protocol has frames of one byte.
        return Verdict.YES
    op, length = data[4], _number(data, 5, 2)
    is_size_usual = op == _MINIBROKER_PUB or size.start <= _SMALL_FRAME_BYTES_MAX
    if op not in _MINIBROKER_OPS or not is_size_usual:
        return Verdict.NO
    if not _may_be(length, 0, min(_TOPIC_BYTES_MAX, size.start - 3)):
        return Verdict.NO
    end = 7 + length.start
    if _NOT_IN_TOPICS.search(data[7:end]):
        return Verdict.NO
    # After a topic of one letter, the length of a larger key could also be a code of RocketMQ.
    key_bytes_max = min(size.start, 0xFFFF) if length.start == 1 else size.start
    if op == _MINIBROKER_PUB and not _may_be(_number(data, end, 4), 0, key_bytes_max):
        return Verdict.NO
    needed = end + 4 if op == _MINIBROKER_PUB else end
    seen = min(needed, _MINIBROKER_BYTES_ENOUGH, 4 + size.start)
    return Verdict.YES if len(data) >= max(7, seen) else Verdict.MAYBE


def _rocketmq(data: bytes) -> Verdict:
    size, kind, header = _number(data, 0, 4), _number(data, 4, 1), _number(data, 5, 3)
    is_possible = (
        _may_be(size, _ROCKETMQ_HEADER_BYTES_MIN + 4, _ROCKETMQ_FRAME_BYTES_MAX - 4)
        and _may_be(kind, 0, 1)
        and _may_be(header, _ROCKETMQ_HEADER_BYTES_MIN, size[-1] - 4)
    )
    if not is_possible:
        return Verdict.NO
    if not _is_known(header):
        return Verdict.MAYBE
    if kind.start == 0:
        if data[8:9] not in (b"", b"{") or data[9:10] not in _AFTER_BRACE:
            return Verdict.NO
        return Verdict.YES if len(data) > 9 else Verdict.MAYBE
    code, language = _number(data, 8, 2), _number(data, 10, 1)
    is_request = _may_be(code, 1, _ROCKETMQ_BINARY_CODE_MAX) and _may_be(
        language, 0, _ROCKETMQ_LANGUAGE_MAX
    )
    if not is_request:
        return Verdict.NO
    return Verdict.YES if _is_known(language) else Verdict.MAYBE


RULES: Final[dict[str, Callable[[bytes], Verdict]]] = {
    "kafka": _kafka,
    "mlog": _mlog,
    "cursus": _cursus,
    "minibroker": _minibroker,
    "rocketmq": _rocketmq,
}


# ---- the listener `any`


class DetectionSession:
    """On the listener `any`: holds a connection until its first bytes identify its protocol.

    The session of that protocol is made then, gets the bytes, and takes the connection over. The
    connection is closed if its bytes identify no protocol in time or at all, or begin TLS.
    """

    def __init__(
        self,
        channel: Channel,
        services: Mapping[str, Callable[[Channel], Session]],
        scheduler: Scheduler,
        timeout_s: float,
    ) -> None:
        """`services` has the factory of each served protocol's sessions."""
        self._channel = channel
        self._services = services
        self._first = bytearray(DETECTION_BYTES_MAX)
        self._filled = 0
        self._session: Session | None = None
        self._timeout_s = timeout_s
        self._timer = scheduler.call_later(timeout_s, self._expire)

    def get_buffer(self, size_hint: int) -> memoryview:
        if self._session is not None:
            return self._session.get_buffer(size_hint)
        return memoryview(self._first)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        if self._session is not None:
            self._session.buffer_updated(count)
            return
        self._filled += count
        first = bytes(self._first[: self._filled])
        name = detect(first)
        if name is None:
            if self._filled == len(self._first):
                raise RemoteProtocolError(f"{self._filled} bytes match no protocol")
            return
        self._timer.cancel()
        if name == TLS:
            raise RemoteProtocolError("TLS is not served")
        service = self._services.get(name)
        if service is None:
            raise RemoteProtocolError(f"protocol {name} is not served")
        self._session = session = service(self._channel)
        self._channel.hand_to(session)
        _feed(self._channel, session, first)

    def _expire(self) -> None:
        self._channel.complain(f"its protocol was not known after {self._timeout_s:g} s")
        self._channel.close()

    @property
    def pending_bytes(self) -> int:
        return 0 if self._session is None else self._session.pending_bytes

    @property
    def waiting_bytes(self) -> int:
        return 0 if self._session is None else self._session.waiting_bytes

    def writable(self) -> None:
        if self._session is not None:
            self._session.writable()

    def ended(self) -> None:
        """The bytes match no protocol, and no more will come."""

    @property
    def is_due(self) -> bool:
        return False

    def reexamine(self, *, must_log_in_anew: bool) -> None:
        """The session of the protocol will begin as the settings demand."""

    def closed(self) -> None:
        self._timer.cancel()


def _feed(channel: Channel, session: Session, data: bytes) -> None:
    view = memoryview(data)
    while view and not channel.is_closing:
        buffer = session.get_buffer(-1)
        count = min(len(buffer), len(view))
        buffer[:count] = view[:count]
        session.buffer_updated(count)
        view = view[count:]
