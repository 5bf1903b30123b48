"""Which topics a tail follows."""

from __future__ import annotations

from dragoman.client.kafka import KafkaClient
from dragoman.console.errors import ConsoleError
from dragoman.console.records.filters.patterns import compiled_pattern
from dragoman.console.records.values import Tail
from dragoman.limits import CONSOLE_TAIL_TOPICS_MAX


class PartitionsError(ConsoleError):
    code = "invalid_request"


class TooManyTopicsError(ConsoleError):
    code = "too_many_topics"


class NothingToFollowError(ConsoleError):
    code = "topic_not_found"
    status = 404


async def topics_of(client: KafkaClient, tail: Tail) -> list[str]:
    """Those that are named, and those that match the pattern now and are not internal.

    Raises `ConsoleError`, and what the client raises.
    """
    found = list(dict.fromkeys(tail.topics))
    if tail.pattern:
        matches = compiled_pattern(tail.pattern).search
        known = (await client.cluster()).topics
        found += sorted(
            name
            for name, topic in known.items()
            if name not in tail.topics and not topic.is_internal and matches(name)
        )
    if not found:
        said = f"no topic matches {tail.pattern!r}" if tail.pattern else "name a topic to follow"
        raise NothingToFollowError(said)
    if len(found) > CONSOLE_TAIL_TOPICS_MAX:
        raise TooManyTopicsError(
            f"a tail follows at most {CONSOLE_TAIL_TOPICS_MAX} topics; these are {len(found)}"
        )
    if tail.partitions and len(found) > 1:
        raise PartitionsError("partitions can be chosen of a single topic only")
    return found
