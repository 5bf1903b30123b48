"""Which errors a response carries, for the log: requests of Kafka have codes at any depth."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from dragoman.limits import KAFKA_FAILURE_NODES_MAX
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.messages import Message

if TYPE_CHECKING:
    from dragoman.protocols.kafka.handlers.session import Call

_BY_NUMBER = {each.value: each for each in ErrorCode}
#: Fields that say what a code is about, at the code's level or above it.
_SUBJECTS = (
    *("topic", "name", "topic_name", "partition_index", "index", "partition"),
    *("group_id", "transactional_id", "resource_name", "member_id"),
)


def note_failures(call: Call, response: Message) -> None:
    """Log the first error of a response, if there is one."""
    found = next(iter(failures(response)), None)
    if found is None:
        return
    code, text = found
    api = type(response).__name__.removesuffix("Response")
    request = call.request
    call.session.note_failure(request.correlation_id, api, request.client_id, code.name, text)


def failures(response: Message) -> Iterator[tuple[ErrorCode, str]]:
    """The codes of a response with what they are about, from the first nodes of a large one."""
    for node, above in islice(_nodes(response, ""), KAFKA_FAILURE_NODES_MAX):
        number = getattr(node, "error_code", 0)
        if number:
            said = getattr(node, "error_message", None) or ""
            code = _BY_NUMBER.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)
            yield code, " ".join(filter(None, (_subject(node, above), said or code.text)))


def _nodes(node: Message, above: str) -> Iterator[tuple[Message, str]]:
    yield node, above
    subject = _subject(node, above)
    for name in node.__struct_fields__:
        value = getattr(node, name)
        if isinstance(value, Message):
            yield from _nodes(value, subject)
        elif isinstance(value, list | tuple):
            for each in value:
                if not isinstance(each, Message):
                    break
                yield from _nodes(each, subject)


def _subject(node: Message, above: str) -> str:
    words = [above] if above else []
    for name in _SUBJECTS:
        value = getattr(node, name, None)
        if isinstance(value, str | int) and value != "":
            words.append(f"{name} {value}")
    return ", ".join(words)
