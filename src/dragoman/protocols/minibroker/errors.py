"""The texts of ERR (spec, section 8). There are no codes: clients distinguish errors by text."""

from __future__ import annotations

from typing import Final

from dragoman.protocols.minibroker.constants import KEY_BYTES_MAX, STRING_BYTES_MAX

EVICTED: Final = "evicted: heartbeat timeout"
KEY_TOO_LARGE: Final = f"record key too large (>{KEY_BYTES_MAX} bytes)"
BAD_COMMIT_OFFSET: Final = "commit: bad offset"
#: Dragoman's text for a client without a principal on a listener that requires one.
ANONYMOUS_REFUSED: Final = "authentication required: no certificate and no known address"
#: Clients that find this anywhere in a text try the next address.
NOT_LEADER: Final = "not leader"

#: What Go's `%q` writes for these characters.
_ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def invalid_topic(topic: str) -> str:
    return f"invalid topic: {quoted(topic)}"


def invalid_group(group: str) -> str:
    return f"invalid group: {quoted(group)}"


def already_subscribed(topic: str) -> str:
    return f"already subscribed to {topic}"


def not_subscribed(topic: str) -> str:
    return f"not-subscribed: {topic}"


def partition_out_of_range(partition: int, count: int) -> str:
    return f"partition {partition} out of range (0..{count - 1})"


def not_leader(leader: str = "") -> str:
    """The original names its Raft port; here the address is one that clients can use."""
    return f"{NOT_LEADER}; leader={leader}"


def reader_failed(topic: str, partition: int, cause: str) -> str:
    return f"iterate {topic}/{partition}: {cause}"


def is_unasked(reason: str) -> bool:
    """Whether this text is only pushed, never sent in reply to a request."""
    return reason == EVICTED or reason.startswith("iterate ")


def fitting(reason: str) -> str:
    """A text, truncated to the bound of an ERR: names in it may be as long as a frame allows."""
    data = reason.encode("utf-8", "surrogateescape")
    if len(data) <= STRING_BYTES_MAX:
        return reason
    return data[:STRING_BYTES_MAX].decode("utf-8", "surrogateescape")


def quoted(text: str) -> str:
    """A text as Go's `%q` quotes it. Lone surrogates stand for bytes that are not UTF-8."""
    return '"' + "".join(map(_quoted_character, text)) + '"'


def _quoted_character(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
